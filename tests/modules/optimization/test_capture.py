"""Replayed updates are those of autograd, and are given up where they cannot be."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from maze_pl.modules import A2C, PPO
from maze_pl.modules.optimization import capture as capture_room
from maze_pl.modules.optimization import traced_loss
from maze_pl.modules.optimization.capture import MAX_TRACES, GradientTracer, run_trace

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec")


class Net(nn.Module):
    """A few operations of the kinds that policies are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(3, 8), nn.LayerNorm(8), nn.Linear(8, 2)
        self.unused = nn.Linear(2, 2)

    def loss(self, inputs: Any) -> tuple[Tensor, list[Tensor]]:
        (x,) = inputs
        logits = self.second(torch.tanh(self.norm(self.first(x))))
        probability = torch.where(x[:, :1] > 0, logits, logits.detach() * 2).log_softmax(-1)
        return probability.square().mean(), [probability.mean(), x.sum()]


def expected(net: Net, x: Tensor) -> Tensor:
    parameters = list(net.parameters())
    gradients = torch.autograd.grad(net.loss([x])[0], parameters, allow_unused=True)
    return torch.cat(
        [torch.zeros(p.numel()) if g is None else g.flatten() for p, g in zip(parameters, gradients, strict=True)]
    )


def into(net: Net) -> Tensor:
    return torch.empty(sum(parameter.numel() for parameter in net.parameters()))


def gradient(
    tracer: GradientTracer, key: Any, loss: Any, parameters: Any, inputs: Any, *, check: bool, target: Tensor
) -> Any:
    trace = tracer.trace(key, loss, parameters, inputs, target, check=check)
    if trace is None:
        return None
    return run_trace(trace, [*(parameter.detach() for parameter in parameters), *inputs, target])


class Twins(nn.Module):
    """Two networks that have a module in common, and a parameter in modules of their own."""

    def __init__(self) -> None:
        super().__init__()
        embedding = nn.Linear(3, 4)
        self.left, self.right = nn.Sequential(embedding, nn.Linear(4, 2)), nn.Sequential(embedding, nn.Linear(4, 2))
        self.right[1].weight = self.left[1].weight

    def loss(self, inputs: Any) -> tuple[Tensor, list[Tensor]]:
        product = self.left(inputs[0]).tanh() * self.right(inputs[0])
        return product.mean(), [product.sum()]


def test_parameters_that_several_networks_share_are_the_same_ones_after_tracing() -> None:
    torch.manual_seed(0)
    net: Any = Twins()
    before = dict(net.named_parameters(remove_duplicate=False))
    tracer, parameters = GradientTracer(net), list(net.parameters())
    for step in range(3):
        x = torch.randn(6, 3)
        target = into(net)
        found = gradient(tracer, "key", net.loss, parameters, [x], check=step != 1, target=target)
        assert found is not None, tracer.refused
        torch.testing.assert_close(found[0], expected(net, x), rtol=1e-5, atol=1e-7)
        after = dict(net.named_parameters(remove_duplicate=False))
        assert before.keys() == after.keys()
        assert all(after[name] is parameter for name, parameter in before.items())


def test_a_replayed_gradient_is_autograds_for_other_inputs_and_parameters() -> None:
    torch.manual_seed(0)
    net = Net()
    tracer = GradientTracer(net)
    for step in range(5):
        x = torch.randn(6, 3)
        result = gradient(tracer, "key", net.loss, list(net.parameters()), [x], check=False, target=into(net))
        assert result is not None, tracer.refused
        torch.testing.assert_close(result[0], expected(net, x), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(result[1], torch.stack([value.detach() for value in net.loss([x])[1]]))
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(0.1 * step)
    assert tracer.refused is None


def test_the_random_state_is_left_alone() -> None:
    net = Net()
    before = torch.get_rng_state()
    gradient(
        GradientTracer(net), "key", net.loss, list(net.parameters()), [torch.ones(2, 3)], check=True, target=into(net)
    )
    assert torch.equal(before, torch.get_rng_state())


def test_a_branch_on_data_is_refused_with_its_reason() -> None:
    net = Net()

    def branching(inputs: Any) -> tuple[Tensor, list[Tensor]]:
        total, scalars = net.loss(inputs)
        return (total if total > 0 else -total), scalars

    tracer = GradientTracer(net)
    assert (
        gradient(tracer, "key", branching, list(net.parameters()), [torch.ones(2, 3)], check=True, target=into(net))
        is None
    )
    assert tracer.refused
    assert (
        gradient(tracer, "key", net.loss, list(net.parameters()), [torch.ones(2, 3)], check=True, target=into(net))
        is None
    )


def test_a_loss_that_changed_behind_the_trace_is_found_out_by_the_check() -> None:
    net, factor = Net(), [1.0]

    def drifting(inputs: Any) -> tuple[Tensor, list[Tensor]]:
        total, scalars = net.loss(inputs)
        return total * factor[0], scalars

    tracer = GradientTracer(net)
    arguments: Any = ("key", drifting, list(net.parameters()), [torch.ones(2, 3)])
    assert gradient(tracer, *arguments, check=True, target=into(net)) is not None
    factor[0] = 3.0
    assert gradient(tracer, *arguments, check=True, target=into(net)) is None
    assert tracer.refused is not None and "other values" in tracer.refused


def test_a_loss_that_changes_buffers_is_refused_and_they_are_left_alone() -> None:
    net, norm = Net(), nn.BatchNorm1d(3)
    net.batch_norm = norm
    tracer = GradientTracer(net)
    arguments: Any = (list(net.parameters()), [torch.randn(4, 3)])
    loss: Any = net.loss
    assert gradient(tracer, "unused", loss, *arguments, check=True, target=into(net)) is not None, (
        "constant buffers do no harm"
    )
    assert (
        gradient(tracer, "used", lambda inputs: net.loss([norm(inputs[0])]), *arguments, check=True, target=into(net))
        is None
    )
    assert tracer.refused is not None and "batch normalisation" in tracer.refused
    assert int(norm.num_batches_tracked) == 0
    assert torch.equal(norm.running_mean, torch.zeros(3))


def test_buffers_are_also_left_alone_by_a_loss_that_cannot_be_traced() -> None:
    net, norm = Net(), nn.BatchNorm1d(3)
    net.batch_norm = norm

    def branching(inputs: Any) -> tuple[Tensor, list[Tensor]]:
        total, scalars = net.loss([norm(inputs[0])])
        return (total if total > 0 else -total), scalars

    tracer = GradientTracer(net)
    assert (
        gradient(tracer, "key", branching, list(net.parameters()), [torch.randn(4, 3)], check=True, target=into(net))
        is None
    )
    assert int(norm.num_batches_tracked) == 0


def test_too_many_shapes_are_refused() -> None:
    net = Net()
    tracer = GradientTracer(net)
    parameters = list(net.parameters())
    for n in range(MAX_TRACES):
        assert (
            gradient(tracer, n, net.loss, parameters, [torch.ones(n + 1, 3)], check=False, target=into(net)) is not None
        )
    assert gradient(tracer, "one more", net.loss, parameters, [torch.ones(9, 3)], check=False, target=into(net)) is None
    assert tracer.refused is not None and "different shapes" in tracer.refused


def test_state_that_keeps_changing_is_refused_with_remedies_for_what_is_read_and_what_is_not() -> None:
    net = Net()
    tracer = GradientTracer(net)
    for _ in range(MAX_TRACES):
        assert tracer.refused is None
        inputs = [torch.ones(2, 3)]
        assert gradient(tracer, "key", net.loss, list(net.parameters()), inputs, check=False, target=into(net))
        tracer.forget("key", "Net.n changed from 4 to 5")
    assert tracer.refused is not None
    assert tracer.refused.startswith("what the loss may read keeps changing: Net.n changed from 4 to 5; keep a number ")
    assert "or rename it if the loss does not read it" in tracer.refused


def test_each_loss_of_an_algorithm_may_have_several_shapes() -> None:
    net = Net()
    tracer = GradientTracer(net)
    for loss in ("policy_loss", "critic_loss"):
        for n in range(MAX_TRACES):
            inputs = [torch.ones(n + 1, 3)]
            key = loss, n
            trace = gradient(tracer, key, net.loss, list(net.parameters()), inputs, check=False, target=into(net))
            assert trace is not None
    assert tracer.refused is None


@pytest.mark.parametrize("options", [{}, {"target_kl": 10.0, "value_clip_range": 0.3}, {"critic_burn_in_epochs": 1}])
def test_ppo_learns_the_same_with_and_without_capture(
    kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    networks, calls = kit.make_actor_critic(), list[int]()

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return run_trace(*arguments)

    monkeypatch.setattr(traced_loss, "run_trace", counted)
    results = {}
    for capture in ("auto", "off"):
        module = PPO(
            actor_critic=copy.deepcopy(networks), batch_size=10, lr=1e-2, max_grad_norm=0.5, capture=capture, **options
        )
        torch.manual_seed(1)
        calls.clear()
        trainer = kit.fit(module, epochs=3)
        numbers = {name: v for name, v in module.epoch_statistics["train"].items() if "time_" not in name}
        results[capture] = (
            torch.cat([p.detach().flatten() for p in module.networks.parameters()]),
            numbers,
            len(calls),
        )
        assert module.capture_refusal is None
    torch.testing.assert_close(results["auto"][0], results["off"][0], rtol=1e-3, atol=1e-5)
    assert results["auto"][1].keys() == results["off"][1].keys()
    for name, number in results["off"][1].items():
        if isinstance(number, float):
            assert results["auto"][1][name] == pytest.approx(number, rel=1e-3, abs=1e-5), name
    assert (results["auto"][2], results["off"][2]) == (trainer.global_step, 0)


class Annealed(nn.Module):
    """A loss that is multiplied by a tensor."""

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1, device="meta")
        self.beta = factor

    def loss(self, inputs: Any) -> tuple[Tensor, list[Tensor]]:
        total = self.beta * self.layer(inputs[0]).mean()
        return total, [total]


def meta_loss(net: nn.Module, kind: str) -> Any:
    """A loss on a device without numbers, with a tensor of the host."""

    def loss(inputs: Any) -> tuple[Tensor, list[Tensor]]:
        total = net.layer(inputs[0]).mean()
        if kind == "input":
            total = total * inputs[1]
        if kind == "random":
            total = total * torch.rand(())
        return total, [total, (HOST * 1.0).to("meta") if kind == "recorded" else total]

    return loss


HOST = torch.tensor(0.5)


def test_a_tensor_on_the_host_is_not_read_by_graphs_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_room, "uses_graphs", lambda device: device.type == "meta")
    net = Annealed(torch.tensor(0.4))
    tracer = GradientTracer(net)
    inputs, target = [torch.ones(3, 2, device="meta")], torch.empty(3, device="meta")
    for _ in range(2):
        assert tracer.trace("key", net.loss, list(net.parameters()), inputs, target, check=False) is None
        reason = tracer.refused_loss("key")
        assert reason is not None and reason.startswith("beta is on the cpu") and reason.endswith("make it a buffer")
    assert (tracer.n_made, tracer.refused) == (1, None), "other losses may be traced"
    for n_runs in range(2, MAX_TRACES + 2):
        tracer.admit_losses()
        assert tracer.refused_loss("key") is None
        assert tracer.trace("key", net.loss, list(net.parameters()), inputs, target, check=False) is None
        assert (tracer.n_made, tracer.refused) == (n_runs, None)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("input", "the minibatch has a tensor of shape () on the cpu, which"),
        ("random", "the loss draws random numbers on the cpu, which"),
        ("recorded", "the loss reads or records a tensor of shape () on the cpu, which"),
    ],
)
def test_tensors_on_the_host_are_named_by_their_origin(
    kind: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_room, "uses_graphs", lambda device: device.type == "meta")
    net = Annealed(torch.tensor(0.4))
    tracer = GradientTracer(net)
    inputs = [torch.ones(3, 2, device="meta"), torch.tensor(2.0)]
    key, target = (kind, 0), torch.empty(3, device="meta")
    assert tracer.trace(key, meta_loss(net, kind), list(net.parameters()), inputs, target, check=False) is None
    reason = tracer.refused_loss((kind, 1))
    assert reason is not None and reason.startswith(message) and "buffer" not in reason
    assert tracer.refused is None and tracer.refused_loss(("other", 0)) is None


def agrees(wanted: Tensor, found: Tensor, layers: list[int], max_norm: float = 0.0) -> bool:
    """True if gradients agree, of one parameter for each number."""
    numbers = torch.ones(2)
    if max_norm > 0.0:
        numbers[0] = torch.linalg.vector_norm(wanted)
        factor = max_norm / numbers[0]
        wanted, found = wanted * factor, found * factor

    def returning(gradient: Tensor) -> Any:
        return lambda *arguments: (gradient.clone(), numbers.clone())

    arguments = [*torch.zeros_like(wanted).split(1), torch.empty_like(wanted)]
    return capture_room._agree(returning(found), returning(wanted), arguments, layers, False, max_norm)


@pytest.mark.parametrize(("error", "is_right"), [(1e-3, True), (1.0, False)])
@pytest.mark.parametrize("max_norm", [0.0, 0.5])
def test_rounding_counts_relative_to_the_gradient_of_a_layer(error: float, is_right: bool, max_norm: float) -> None:
    wanted = torch.tensor([1000.0, 0.0])
    assert agrees(wanted, wanted + torch.tensor([0.0, error]), [0, 0], max_norm) is is_right


@pytest.mark.parametrize(("large", "max_norm"), [(1e3, 0.0), (1e6, 0.0), (1e30, 0.0), (1e3, 0.5), (1e6, 0.5)])
def test_large_gradients_do_not_hide_those_of_other_layers(large: float, max_norm: float) -> None:
    wanted = torch.tensor([large, large, 0.01])
    assert agrees(wanted, wanted, [0, 0, 1], max_norm)
    assert not agrees(wanted, torch.tensor([large, large, 0.011]), [0, 0, 1], max_norm)


@pytest.mark.parametrize("error", [2e-4, 8e-3, 0.1])
def test_rounding_to_half_precision_counts_where_numbers_are_rounded_to_it(error: float) -> None:
    wanted = torch.tensor([1.0, 0.3, -0.5, 2.0])
    found = wanted * torch.tensor([1.0, 1.0 + error, 1.0, 1.0])
    assert agrees(wanted, found, [0] * 4) is (error < 1e-3)
    with torch.autocast("cpu", torch.bfloat16):
        assert agrees(wanted, found, [0] * 4) is (error < 1e-2)
    assert agrees(wanted.bfloat16(), found.bfloat16(), [0] * 4) is (error < 1e-2)


def test_layers_are_the_modules_that_own_parameters() -> None:
    net = Net()
    net.scale = nn.Parameter(torch.ones(()))
    parameters = [*net.parameters(), torch.ones(1)]
    names = [name.rpartition(".")[0] for name, _ in net.named_parameters()]
    layers = capture_room._layers(net, parameters)
    for place, layer in enumerate(layers[:-1]):
        assert [one == layer for one in layers[:-1]] == [name == names[place] for name in names]
    assert layers[-1] not in layers[:-1]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_gradients_that_are_not_finite_agree_only_if_they_are_equal(value: float) -> None:
    first, second = torch.tensor([1.0, value]), torch.tensor([3.0, value])
    assert agrees(first, first, [0, 0])
    assert not agrees(first, second, [0, 0]) and not agrees(second, first, [0, 0])
    assert not agrees(first, torch.tensor([1.0, 1.0]), [0, 0])
    assert not agrees(torch.tensor([1.0, 1.0]), first, [0, 0])


def test_capture_is_checked() -> None:
    with pytest.raises(ValueError, match="capture='on' must be 'auto' or 'off'"):
        A2C(networks=object(), capture="on")  # type: ignore[arg-type]
