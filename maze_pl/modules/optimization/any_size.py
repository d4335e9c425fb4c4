"""Stand-ins for minibatches of any size, with which the operations of a loss are traced once for all of them.

A stand-in is a tensor without data whose leading size is a symbol. Operations on stand-ins compute
only shapes, as expressions of symbols, and a trace of them evaluates these expressions for each
minibatch. Nothing is padded: each minibatch is computed with its own shapes, by the operations
that autograd would run, so that the numbers are the same. Code that depends on a size, such as
`if len(x) > 100`, restricts the trace to sizes for which it does the same again.

This file is the only one that uses torch's symbolic shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

SMALLEST = 2
"""Smallest size that a trace serves; torch computes shapes with sizes of 0 and 1 in special ways."""


@dataclass(frozen=True, slots=True)
class VaryingSizes:
    """Leading sizes of tensors that differ from minibatch to minibatch.

    Attributes:
        values: The sizes, such as the number of acts of each step key.
        places: For each tensor, the index of its leading size; None if its shape is fixed.
    """

    values: tuple[int, ...]
    places: tuple[int | None, ...]

    @classmethod
    def of(cls, parts: Iterable[Sequence[Tensor]]) -> VaryingSizes:
        """Find the leading sizes of a minibatch, in each part those of acts and of sequences.

        Args:
            parts: The tensors of each step key.
        """
        values: list[int] = []
        places: list[int | None] = []
        for tensors in parts:
            own: dict[int, int] = {}
            for tensor in tensors:
                if not tensor.dim():
                    places.append(None)
                    continue
                if len(tensor) not in own:
                    own[len(tensor)] = len(values)
                    values.append(len(tensor))
                places.append(own[len(tensor)])
        return cls(tuple(values), tuple(places))

    def shapes_of(self, tensors: Sequence[Tensor]) -> tuple[object, ...]:
        """Return the shape and type of each tensor, with its place instead of its leading size."""
        pairs = zip(tensors, self.places, strict=True)
        return tuple((place, tensor.shape[1:], tensor.dtype) for tensor, place in pairs)


class AnySizeTrace:
    """Operations of a function, and the sizes that they are valid for.

    Args:
        function: Function of tensors.
        arguments: Tensors to trace it with.
        sizes: Leading sizes of the arguments, each at least `SMALLEST`.

    Attributes:
        graph: The operations.
    """

    def __init__(
        self,
        function: Callable[..., object],
        arguments: Sequence[Tensor],
        sizes: VaryingSizes,
    ) -> None:
        # Imported here, as sympy takes long to import.
        from torch._dispatch.python import enable_python_dispatcher
        from torch._dynamo.source import ConstantSource
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

        self._shapes = ShapeEnv()
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=self._shapes)
        symbols: list[Any] = []
        for index, size in enumerate(sizes.values):
            source = ConstantSource(f"size_{index}")
            symbol = self._shapes.create_symbol(size, source=source, dynamic_dim=DimDynamic.DYNAMIC)
            symbols.append(self._shapes.create_symintnode(symbol, hint=size, source=source))
        with mode, enable_python_dispatcher():  # some derivatives pass sizes on only in Python
            stand_ins = []
            for argument, place in zip(arguments, sizes.places, strict=True):
                shape = argument.shape if place is None else (symbols[place], *argument.shape[1:])
                stand_ins.append(torch.empty(shape, dtype=argument.dtype, device=argument.device))
            self.graph: fx.GraphModule = make_fx(function)(*stand_ins)
        condition = self._shapes.produce_guards_expression(symbols)
        self._condition = compile(condition or "True", "<sizes>", "eval")  # once, as it is evaluated before each update

    def admits(self, sizes: tuple[int, ...]) -> bool:
        """True if the operations are valid for these sizes."""
        if min(sizes, default=SMALLEST) < SMALLEST:
            return False
        return bool(self._shapes.evaluate_guards_expression(self._condition, sizes))  # type: ignore[arg-type]
