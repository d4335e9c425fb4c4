"""Updates with any numbers of acts: one trace serves them all, with the numbers of autograd, bit for bit."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.modules import A2C, IMPALA, PPO, Minibatch, PolicySamples
from maze_pl.modules.optimization import traced_loss
from maze_pl.modules.optimization.any_size import AnySizeTrace, VaryingSizes
from maze_pl.modules.optimization.capture import GradientTracer, run_trace
from tests.modules.recurrent_plays import PLAYS

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec")


class Net(nn.Module):
    """Layers, a random one included, whose loss takes a weighted sum and a mean over the acts."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 2))

    def loss(self, inputs: Any) -> tuple[Tensor, list[Tensor]]:
        left, weight, right = inputs
        first, second = (self.body(x).log_softmax(-1)[:, 0] for x in (left, right))
        return weight.dot(first) + second.mean() * first.square().mean().sqrt(), [second.sum()]


def inputs_of(n_left: int, n_right: int) -> list[Tensor]:
    return [torch.randn(n_left, 3), torch.rand(n_left), torch.randn(n_right, 3)]


def sizes_of(inputs: list[Tensor]) -> VaryingSizes:
    return VaryingSizes((len(inputs[0]), len(inputs[2])), (0, 0, 1))


def by_autograd(net: Net, inputs: list[Tensor]) -> Tensor:
    total, _ = net.loss(inputs)
    return torch.cat([part.flatten() for part in torch.autograd.grad(total, list(net.parameters()))])


def test_one_trace_gives_the_gradients_of_autograd_for_all_sizes_bit_for_bit() -> None:
    net = Net()
    tracer, parameters = GradientTracer(net), list(net.parameters())
    target = torch.empty(sum(parameter.numel() for parameter in parameters))
    for n_left, n_right in ((5, 5), (7, 4), (2, 100), (33, 33)):  # equal sizes are not taken for one size
        inputs = inputs_of(n_left, n_right)
        sizes = sizes_of(inputs)
        assert tracer.n_made == 0 or tracer.admits("key", sizes)
        trace = tracer.trace("key", net.loss, parameters, inputs, target, sizes=sizes, check=False)
        assert trace is not None, tracer.refused
        with torch.random.fork_rng():
            found, _ = run_trace(trace, [*(parameter.detach() for parameter in parameters), *inputs, target])
        assert torch.equal(found, by_autograd(net, inputs))
    assert tracer.n_made == 1
    for n_left, n_right in ((1, 5), (5, 1), (0, 5)):
        assert not tracer.admits("key", VaryingSizes((n_left, n_right), (0, 0, 1)))


def test_a_branch_on_a_size_restricts_the_trace_to_sizes_that_take_it() -> None:
    def branching(x: Tensor) -> Tensor:
        return x.sum() if x.shape[0] > 10 else x.mean()

    small = AnySizeTrace(branching, [torch.ones(4)], VaryingSizes((4,), (0,)))
    large = AnySizeTrace(branching, [torch.ones(40)], VaryingSizes((40,), (0,)))
    assert [small.admits((n,)) for n in (2, 9, 10, 11, 40)] == [True, True, True, False, False]
    assert [large.admits((n,)) for n in (2, 9, 10, 11, 40)] == [False, False, False, True, True]
    assert small.graph(torch.ones(6)).item() == 1.0 and large.graph(torch.ones(12)).item() == 12.0


@pytest.mark.slow
def test_a_selection_by_values_is_refused_with_its_reason() -> None:
    net = Net()

    def selecting(inputs: Any) -> tuple[Tensor, list[Tensor]]:
        total = net.body(inputs[0][inputs[1] > 0.5]).mean()
        return total, [total]

    inputs, target = inputs_of(6, 5), torch.empty(sum(p.numel() for p in net.parameters()))
    tracer = GradientTracer(net)
    sizes = sizes_of(inputs)
    assert tracer.trace("key", selecting, list(net.parameters()), inputs, target, sizes=sizes, check=False) is None
    assert tracer.refused == "the networks select entries by their values, so that shapes change"


@pytest.mark.slow
def test_a_trace_that_differs_in_the_last_bit_is_refused() -> None:
    net, factor = Net(), [1.0]

    def drifting(inputs: Any) -> tuple[Tensor, list[Tensor]]:
        total, scalars = net.loss(inputs)
        return total * factor[0], scalars

    inputs, target = inputs_of(6, 5), torch.empty(sum(p.numel() for p in net.parameters()))
    tracer = GradientTracer(net)
    options: dict[str, Any] = {"sizes": sizes_of(inputs), "check": True}
    arguments: Any = ("key", drifting, list(net.parameters()), inputs, target)
    assert tracer.trace(*arguments, **options) is not None
    factor[0] = 1.0 + 2.0**-23
    assert tracer.trace(*arguments, **options) is None
    assert tracer.refused is not None and "other values" in tracer.refused


# ------------------------------------------------------------------------------------------------------- in training


def flat(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


def trained(kit: SimpleNamespace, algorithm: Any, networks: Any, make: Any, capture: str, **options: Any) -> Any:
    torch.manual_seed(1)
    module = algorithm(actor_critic=copy.deepcopy(networks), lr=1e-2, max_grad_norm=0.5, capture=capture, **options)
    kit.fit(module, make, epochs=2, length=3)
    return module


def compared(kit: SimpleNamespace, algorithm: Any, networks: Any, make: Any, **options: Any) -> Any:
    """Train with and without traces, and compare weights and statistics bit by bit; returns the former algorithm."""
    ours, theirs = (trained(kit, algorithm, networks, make, capture, **options) for capture in ("auto", "off"))
    assert torch.equal(flat(ours), flat(theirs))
    tables = [
        {name: value for name, value in module.epoch_statistics["train"].items() if "time_" not in name}
        for module in (ours, theirs)
    ]
    assert tables[0] == tables[1]
    return ours


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced_loss, "N_UPDATES_BEFORE", 0)


def without_some_crews(kit: SimpleNamespace) -> Callable[..., Rollout]:
    """Rollouts of 24 rows in which each member of the crew acts or not."""
    return lambda seed: kit.make_team_rollout(seed=seed)


def test_a2c_learns_the_same_from_rows_with_different_numbers_of_acts(
    kit: SimpleNamespace, at_once: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return run_trace(*arguments)

    monkeypatch.setattr(traced_loss, "run_trace", counted)
    networks = kit.make_actor_critic(kit.team_spec)
    with caplog.at_level(logging.INFO):
        module = compared(kit, A2C, networks, without_some_crews(kit))
    assert (module.capture_refusal, module.n_traces, len(calls)) == (None, 1, 6)
    told = [record.message for record in caplog.records if "traced" in record.message]
    assert told == ["updates by A2C.loss are traced; each trace serves minibatches with any numbers of acts"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shared", "step"])
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (A2C, {}),
        (IMPALA, {}),
        (PPO, {"batch_size": 12, "target_kl": 10.0, "value_clip_range": 0.3}),
        (PPO, {"batch_size": 12, "critic_burn_in_epochs": 1}),
        (PPO, {"batch_size": 3}),  # some minibatches lack the crew, and some have a single act
    ],
)
def test_algorithms_learn_the_same_with_and_without_traces(
    kit: SimpleNamespace, at_once: None, kind: str, algorithm: Any, options: dict[str, Any]
) -> None:
    networks = kit.make_actor_critic(kit.team_spec, kind, dropout=0.1)
    module = compared(kit, algorithm, networks, without_some_crews(kit), **options)
    assert module.capture_refusal is None and module.n_traces > 0


class Centred(A2C):
    """Centres advantages and takes a mean over the batch, without regard to weights."""

    def loss(self, minibatch: Minibatch) -> Tensor:
        return self.actor_critic_loss(minibatch, self._centred)

    def _centred(self, step_key: StepKey, acts: PolicySamples, log_prob: Tensor) -> Tensor:
        self.record("advantage", acts.advantage.mean(), step_key, count=acts.share)
        centred = (acts.advantage - acts.advantage.mean()) / acts.advantage.std()
        return -log_prob * centred + 0.1 * log_prob.mean().square()


@pytest.mark.slow
def test_losses_that_take_means_over_the_batch_are_not_changed(kit: SimpleNamespace, at_once: None) -> None:
    module = compared(kit, Centred, kit.make_actor_critic(kit.team_spec), without_some_crews(kit))
    assert module.capture_refusal is None and module.n_traces > 0


@pytest.mark.slow
def test_recurrent_networks_learn_eagerly_and_one_line_says_why(
    kit: SimpleNamespace, at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    play = PLAYS["flat"]
    source = play.rollouts(8)
    rollouts = iter([next(source).clone() for _ in range(6)])
    module = A2C(actor_critic=copy.deepcopy(play.actor_critic), sequence_length=4)
    with caplog.at_level(logging.INFO):
        kit.fit(module, lambda seed: next(rollouts), epochs=2, length=3)
    told = [record.message for record in caplog.records if "by autograd" in record.message]
    assert len(told) == 1 and "recurrent" in told[0]


def test_a_trace_is_made_once_it_pays_off(kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced_loss, "N_UPDATES_BEFORE", 7)
    module = trained(kit, A2C, kit.make_actor_critic(kit.team_spec), without_some_crews(kit), "auto")
    assert (module.n_traces, module.capture_refusal) == (0, None)  # of 6 updates


def test_counts_of_statistics_are_those_of_each_minibatch(kit: SimpleNamespace) -> None:
    class Counting(A2C):
        def loss(self, minibatch: Minibatch) -> Tensor:
            for step_key, acts in minibatch.items():
                n_acts = torch.ones_like(acts.weight).sum()
                self.record("n_acts", n_acts * n_acts, step_key, count=n_acts)
            return super().loss(minibatch)

    networks = kit.make_actor_critic(kit.team_spec)
    numbers = [int(kit.make_team_rollout(seed=seed).segments["crew"].active.sum()) for seed in (0, 24, 48)]
    module = Counting(actor_critic=networks, lr=1e-2)
    kit.fit(module, without_some_crews(kit), length=3)
    found = module.epoch_statistics["train"]["ActorCriticEvents/n_acts/substep_crew"]
    assert found == pytest.approx(sum(n * n for n in numbers) / sum(numbers))
