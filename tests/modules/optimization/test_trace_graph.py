"""Graphs of traces are refused if shapes change, and compute the same with fewer operations."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from maze_pl.modules.optimization.trace_graph import (
    TensorElsewhere,
    check_reads_one_device,
    check_shapes_are_fixed,
    simplified,
    unread_arguments,
)

X, MASK, INDEX = torch.rand(3, 4), torch.tensor([True, False, True]), torch.tensor([2, 0])


@pytest.mark.parametrize("function", [lambda x, m, i: x[m], lambda x, m, i: x * m.nonzero().sum()])
def test_operations_whose_shape_depends_on_values_are_refused(function: Callable[..., Tensor]) -> None:
    with pytest.raises(ValueError, match="select entries by their values"):
        check_shapes_are_fixed(make_fx(function)(X, MASK, INDEX))


@pytest.mark.parametrize(
    "function", [lambda x, m, i: x[i], lambda x, m, i: x[:, i], lambda x, m, i: torch.where(m[:, None], x, 0.0)]
)
def test_indices_and_masks_that_keep_the_shape_are_accepted(function: Callable[..., Tensor]) -> None:
    check_shapes_are_fixed(make_fx(function)(X, MASK, INDEX))


def _writing(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a function that writes the result into its last argument as gradients are written, and doubles it."""

    def written(x: Tensor, y: Tensor, into: Tensor) -> tuple[Tensor, Tensor]:
        result = function(x, y)
        flat = torch.cat([result.reshape(-1)], out=into)
        return flat, 2 * result

    return written


def _operations(graph: fx.GraphModule) -> list[str]:
    """Names of the operations before that into the last argument, in order."""
    names = [str(node.target).removeprefix("aten.") for node in graph.graph.nodes if node.op == "call_function"]
    return names[: names.index("cat.out")]


def _checked(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> list[str]:
    """Simplify the graph of a function, compare it with the function, and return the names of its operations."""
    wanted = function(x, y)
    whole = _writing(function)
    arguments = [x, y, torch.empty(wanted.numel())]
    graph = simplified(make_fx(whole)(*arguments), arguments)
    for scale in (1.0, 3.0, float("inf")):
        inputs = [scale * x, y - scale, torch.empty(wanted.numel())]
        found, doubled = graph(*inputs)
        result = function(*inputs[:2])
        torch.testing.assert_close(found, result.reshape(-1).float(), rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(doubled, 2 * result, rtol=0, atol=0, equal_nan=True)
    return _operations(graph)


A, B = torch.randn(5, 3), torch.randn(5, 3)
STORED = torch.randn(5, 3)  # an attribute of graphs

NEEDLESS: list[tuple[Callable[[Tensor, Tensor], Tensor], list[str]]] = [
    (lambda x, y: (x * 1).exp(), ["exp.default"]),
    (lambda x, y: (x / 1).exp(), ["exp.default"]),
    (lambda x, y: (x**1.0).exp(), ["exp.default"]),
    (lambda x, y: x.detach().neg().neg().exp(), ["exp.default"]),
    (lambda x, y: (torch.zeros(5, 3) + x).exp(), ["exp.default"]),
    (lambda x, y: (x + torch.zeros_like(x)).exp(), ["exp.default"]),
    (lambda x, y: torch.cat([x], -1).exp(), ["exp.default"]),
    (lambda x, y: torch.stack([x]).sum(0).exp(), ["exp.default"]),
    (lambda x, y: x[:, :1].sum(-1, keepdim=True), ["slice.Tensor"]),
    (lambda x, y: x[:, :1].sum(-1).exp(), ["slice.Tensor", "squeeze.dims", "exp.default"]),
    (lambda x, y: x.expand(5, 3).view(5, 3)[:, 0:3].exp(), ["exp.default"]),
    (lambda x, y: x.unsqueeze(1).squeeze(1).exp(), ["exp.default"]),
    (lambda x, y: x + y.neg(), ["sub.Tensor"]),
    (lambda x, y: x.neg() + y, ["sub.Tensor"]),
    (lambda x, y: x - y.neg(), ["add.Tensor"]),
    (lambda x, y: (x - y).neg(), ["sub.Tensor"]),
    (lambda x, y: x - y[0].neg().unsqueeze(0), ["select.int", "unsqueeze.default", "add.Tensor"]),
    (lambda x, y: x.exp().neg().neg().neg() + y, ["exp.default", "sub.Tensor"]),
    (lambda x, y: (torch.zeros(5, 3) + x.neg()).exp(), ["neg.default", "exp.default"]),
    (lambda x, y: x * STORED + STORED.exp() * STORED.exp(), ["mul.Tensor", "exp.default", "mul.Tensor", "add.Tensor"]),
    (lambda x, y: x.exp() * x.exp(), ["exp.default", "mul.Tensor"]),
]


@pytest.mark.parametrize("index", range(len(NEEDLESS)))
def test_needless_operations_are_removed(index: int) -> None:
    function, expected = NEEDLESS[index]
    operations = _checked(function, A, B)
    assert [name for name in operations if name not in ("view.default", "_unsafe_view.default")] == expected


NEEDED: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda x, y: (x * 2).exp(),
    lambda x, y: x**2.0,
    lambda x, y: x[:1] + torch.zeros(5, 3),  # broadcasts
    lambda x, y: torch.cat([x, y]),
    lambda x, y: torch.stack([x, y]).sum(0),
    lambda x, y: x[:, :2].sum(-1),
    lambda x, y: x[:, :1].sum((0, 1)),
    lambda x, y: x[:, :1].expand(5, 3),
    lambda x, y: (x > 0) * 1.0,  # changes the data type
    lambda x, y: (x > 0)[:, :1].sum(-1) + 0.5,
    lambda x, y: torch.add(x, y.neg(), alpha=2),
    lambda x, y: 3.0 - (1.0 - x).neg(),
    lambda x, y: (x - 1.0).neg(),
    lambda x, y: torch.add(torch.zeros(5, 3), x, alpha=2),
    lambda x, y: x + (y > 0).to(torch.uint8).neg(),  # wraps around
    lambda x, y: x.t().t().unsqueeze(0).squeeze(),
    lambda x, y: x[:, :1].unsqueeze(2).squeeze(1),
    lambda x, y: x.mean() * torch.ones_like(y).sum(),
]


@pytest.mark.parametrize("index", range(len(NEEDED)))
def test_results_are_the_same_bit_for_bit(index: int) -> None:
    assert _checked(NEEDED[index], A, B)


def test_results_that_are_changed_in_place_are_not_those_of_other_operations() -> None:
    def function(x: Tensor, y: Tensor, into: Tensor) -> tuple[Tensor, Tensor]:
        changed = (x * 1).add_(y)
        flat = torch.cat([changed.reshape(-1)], out=into)
        return flat, x + torch.zeros_like(x)

    arguments = [A.clone(), B, torch.empty(15)]
    graph = simplified(make_fx(function)(*arguments), arguments)
    for _ in range(2):
        x = A.clone()
        found, same = graph(x, B, torch.empty(15))
        assert torch.equal(found, (A + B).reshape(-1)) and torch.equal(same, A) and torch.equal(x, A)


def test_arguments_that_are_not_read_are_found() -> None:
    arguments: list[Any] = [A, B, torch.empty(15)]
    graph = simplified(make_fx(_writing(lambda x, y: x * y[0, 0].detach()))(*arguments), arguments)
    assert unread_arguments(graph) == set()
    graph = simplified(make_fx(_writing(lambda x, y: x + torch.zeros_like(y)))(*arguments), arguments)
    assert unread_arguments(graph) == {1}


class _Alive(TorchDispatchMode):
    """Counts the results of operations that exist at the same time.

    Attributes:
        most: The largest number.
    """

    def __init__(self) -> None:
        super().__init__()
        self._results: weakref.WeakSet[Tensor] = weakref.WeakSet()
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self._results.add(result)
        self.most = max(self.most, len(self._results))
        return result


def test_constants_are_computed_without_keeping_all_other_results() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(50):
            x = x.exp()
        return x + torch.ones_like(y).mul(3.0)

    whole = _writing(function)
    arguments = [A, B, torch.empty(15)]
    graph = make_fx(whole)(*arguments)
    with _Alive() as alive:
        simplified(graph, arguments)
    assert 0 < alive.most < 20
    assert "mul.Tensor" not in _operations(graph), "3 is a constant"


ON_HOST = torch.tensor(0.5)
READING: list[tuple[Callable[[Tensor, Tensor], Tensor], bool]] = [
    (lambda x, host: x * ON_HOST, True),
    (lambda x, host: x * ON_HOST.exp(), True),
    (lambda x, host: x * host, True),
    (lambda x, host: x * torch.rand(()), True),
    (lambda x, host: x * 0.5, False),
    (lambda x, host: x * torch.tensor(0.5), False),
    (lambda x, host: x * torch.full((), 0.5).exp(), False),
    (lambda x, host: x * torch.rand(3, device="meta"), False),
]


@pytest.mark.parametrize("index", range(len(READING)))
def test_tensors_on_another_device_are_found_unless_they_are_constants(index: int) -> None:
    function, is_elsewhere = READING[index]
    arguments = [torch.ones(3, device="meta"), torch.ones(())]
    last = torch.empty(3, device="meta")
    graph = make_fx(lambda x, host, into: function(x, host))(*arguments, last)
    if not is_elsewhere:
        check_reads_one_device(graph, [*arguments, last])
        return
    with pytest.raises(TensorElsewhere, match="on another device is read: cpu"):
        check_reads_one_device(graph, [*arguments, last])
