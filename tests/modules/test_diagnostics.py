"""Statistics of learning: explained variance, clipped shares, divergences, norms by part, and their descriptions."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from maze_pl.core.batches import Rollout
from maze_pl.modules import A2C, IMPALA, PPO, PolicySamples, learning_batch
from maze_pl.modules.described_statistics import DESCRIPTIONS
from maze_pl.modules.on_policy import diagnostics
from maze_pl.modules.on_policy.diagnostics import explained_variances
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from tests.modules.hand_computed import EVEN, LOGIT, constant_networks, minibatch
from tests.modules.kit import FLAT_SPEC
from tests.modules.recurrent_plays import PLAYS

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")


def samples(return_: list[float], value: list[float], weight: list[float] | None = None) -> PolicySamples:
    n = len(return_)
    acts = minibatch([0] * n, [0.0] * n, return_, value, [0.0] * n)[0]
    weights = torch.tensor(weight or [1.0] * n)
    return replace(acts, value_weight=weights, weight=weights)


def train_table(module: Any) -> dict[str, float]:
    table: dict[str, float] = module.epoch_statistics["train"]
    return table


# ------------------------------------------------------------------------------------------------ explained variance


def numbers_of(part: PolicySamples) -> tuple[float, float]:
    """Explained and total sums of squares of the acts of one step key."""
    explained, total = explained_variances({0: part})[0]
    return float(explained), float(total)


def test_many_acts_and_few_have_the_same_explained_variance() -> None:
    generator = np.random.default_rng(0)
    returns, values = generator.normal(5.0, 2.0, 6000), generator.normal(4.0, 1.0, 6000)
    whole = numbers_of(samples(returns.tolist(), values.tolist()))
    deviations = [((x - x.mean()) ** 2).sum() for x in (returns, returns - values)]
    assert whole == pytest.approx((deviations[0] - deviations[1], deviations[0]), rel=1e-5)
    few = numbers_of(samples(returns[:60].tolist(), values[:60].tolist()))
    assert few == pytest.approx(numbers_of(padded(samples(returns[:60].tolist(), values[:60].tolist()), 5000)))


def padded(part: PolicySamples, n: int) -> PolicySamples:
    """The same acts, followed by others that do not count."""
    zeros = torch.zeros(n)
    longer = {name: torch.cat([getattr(part, name), zeros]) for name in ("value_weight", "return_", "old_value")}
    return replace(part, **longer)


def test_explained_variance_by_hand() -> None:
    # returns 1, 3, 5: mean 3, squares 4 + 0 + 4 = 8; errors 1, 0, -1: squares 2; 1 - 2 / 8
    assert numbers_of(samples([1.0, 3.0, 5.0], [0.0, 3.0, 6.0])) == pytest.approx((6.0, 8.0))


def test_a_constant_error_does_not_count() -> None:
    explained, total = numbers_of(samples([1.0, 3.0, 5.0], [11.0, 13.0, 15.0]))
    assert explained / total == pytest.approx(1.0)


def test_padding_and_open_acts_have_no_effect() -> None:
    part = samples([1.0, 3.0, 5.0, 1e6], [0.0, 3.0, 6.0, -1e6], [1.0, 1.0, 1.0, 0.0])
    assert numbers_of(part) == pytest.approx((6.0, 8.0))


def test_constant_returns_explain_nothing_and_do_not_count() -> None:
    third = 1.0 / 3.0
    found = explained_variances(
        {0: samples([third] * 7, [0.0] * 7), 1: samples([2.0], [0.0]), 2: samples([4.0], [0.0], [0.0])}
    )
    assert [tuple(map(float, variance)) for variance in found.values()] == [(0.0, 0.0)] * 3


def test_large_returns_keep_their_variance() -> None:
    part = samples([1e6 + 1, 1e6 + 3, 1e6 + 5], [0.0, 3.0, 6.0])
    assert numbers_of(part) == pytest.approx((6.0, 8.0), rel=1e-6)


class Ranks:
    """Two threads that stand for ranks, and sum tensors with each other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.barrier = threading.Barrier(2, timeout=20)
        self.tensors: list[torch.Tensor] = []
        monkeypatch.setattr(diagnostics, "world_size", lambda: 2)
        monkeypatch.setattr(diagnostics, "sum_over_ranks", self.sum)

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        self.tensors.append(tensor)
        self.barrier.wait()
        total = self.tensors[-1] + self.tensors[-2]
        self.barrier.wait()
        return total

    def explained(self, parts: list[PolicySamples]) -> list[tuple[float, float]]:
        """Explained and total sums of squares of each rank."""
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(numbers_of, parts))


def test_ranks_are_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    returns, values = generator.normal(5.0, 2.0, 30), generator.normal(4.0, 1.0, 30)
    parts = [samples(returns[own].tolist(), values[own].tolist()) for own in (slice(0, 10), slice(10, 30))]
    found = Ranks(monkeypatch).explained(parts)
    together = sum(explained for explained, _ in found) / sum(total for _, total in found)
    assert together == pytest.approx(1.0 - np.var(returns - values) / np.var(returns), rel=1e-5)


def test_a_rank_with_constant_returns_is_part_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    # returns 2, 2 and 1, 3: mean 2, squares 2; errors 1, -1 and 0, 0: squares 2
    parts = [samples([2.0, 2.0], [1.0, 3.0]), samples([1.0, 3.0], [1.0, 3.0])]
    assert Ranks(monkeypatch).explained(parts) == [(-2.0, 0.0), (2.0, 2.0)]
    constant = [samples([2.0, 2.0], [1.0, 3.0]), samples([2.0], [0.0])]
    assert Ranks(monkeypatch).explained(constant) == [(0.0, 0.0)] * 2


def slow_explained_variance(rollouts: list[Any]) -> float:
    """By NumPy, over the learning batches of several rollouts, weighted by the variances of their returns."""
    errors = total = 0.0
    for acts in rollouts:
        counts = acts.value_weight.numpy() > 0
        returns, values = acts.return_.double().numpy()[counts], acts.old_value.double().numpy()[counts]
        errors += np.var(returns - values) * len(returns)
        total += np.var(returns) * len(returns)
    return 1.0 - errors / total


@pytest.mark.parametrize("algorithm", [A2C, PPO, IMPALA])
@pytest.mark.parametrize("kind", ["shared", "step"])
def test_explained_variance_of_an_epoch_is_that_of_a_slow_reference(
    kit: SimpleNamespace, algorithm: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"batch_size": 6} if algorithm is PPO else {}
    module = algorithm(actor_critic=kit.make_actor_critic(kit.team_spec, kind), lr=1e-2, capture="off", **options)
    made: list[Any] = []
    original = module.make_learning_batch

    def keep(*arguments: Any, **named: Any) -> Any:
        made.append(original(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(module, "make_learning_batch", keep)
    kit.fit(module, make=kit.make_team_rollout, length=2)
    for key in ("lead", "crew"):
        name = f"{module.topic}/explained_variance/substep_{key}"
        if kind == "shared" and key == "crew":  # the lead acts first in each row, which has one value
            assert name not in train_table(module)
            continue
        expected = slow_explained_variance([batch.acts[key] for batch in made])
        assert train_table(module)[name] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["several step keys and agents", "one critic for all sub-steps"])
def test_padding_of_sequences_does_not_count(name: str) -> None:
    play = PLAYS[name]
    rollout = next(play.rollouts(12))
    found = []
    for length in (2, 1000):
        batch = learning_batch(
            play.actor_critic,
            rollout,
            0.9,
            0.8,
            normalize_advantage=False,
            with_log_prob=False,
            sequence_length=length,
        )
        found.append(explained_variances(batch.acts))
    assert found[0].keys() == found[1].keys() != set()
    for key, variance in found[0].items():
        assert tuple(variance) == pytest.approx(tuple(found[1][key]), rel=1e-9)


# ------------------------------------------------------------------------------------------------- PPO


def test_clipped_share_and_divergence_by_hand(kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    # ratios 1.5 and 0.5 (see hand_computed), and 0.75 / 0.7 = 1.07, which is not clipped
    module = PPO(actor_critic=constant_networks(kit, LOGIT, 2.0), batch_size=40, n_optimization_epochs=1)
    batch = minibatch([1, 0, 1], [1.0] * 3, [0.0] * 3, [0.0] * 3, [EVEN, EVEN, math.log(0.7)])
    recorded: dict[str, float] = {}
    monkeypatch.setattr(type(module), "in_critic_burn_in", False)
    monkeypatch.setattr(module, "record", lambda name, value, *_, **__: recorded.update({name: float(value)}))
    module._record_change(batch)
    assert recorded["clip_fraction"] == pytest.approx(2 / 3)
    ratios = (1.5, 0.5, 0.75 / 0.7)
    assert recorded["approx_kl"] == pytest.approx(sum(r - 1 - math.log(r) for r in ratios) / 3, rel=1e-4)


def test_the_change_of_the_policy_is_measured_after_every_fourth_rollout(
    kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = PPO(actor_critic=kit.make_actor_critic(), batch_size=40, capture="off")
    recorded: list[str] = []
    original = module.record

    def record(name: str, *arguments: Any, **named: Any) -> None:
        recorded.append(name)
        original(name, *arguments, **named)

    monkeypatch.setattr(module, "record", record)
    kit.fit(module, length=5)
    assert recorded.count("explained_variance") == 5
    assert recorded.count("approx_kl") == recorded.count("clip_fraction") == 2


def test_statistics_are_the_same_with_and_without_traces(kit: SimpleNamespace) -> None:
    tables = {}
    for capture in ("auto", "off"):
        options: Any = dict(batch_size=20, lr=3e-2, clip_range=0.05, capture=capture)
        module = PPO(actor_critic=kit.make_actor_critic(), grad_norms_by_part=True, **options)
        torch.manual_seed(0)
        kit.fit(module, length=2)
        assert module.capture_refusal is None
        tables[capture] = {name: value for name, value in train_table(module).items() if "/time_" not in name}
    assert tables["auto"].keys() == tables["off"].keys()
    for name, value in tables["off"].items():
        assert tables["auto"][name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    assert 0.0 < tables["off"]["ActorCriticEvents/clip_fraction/substep_0"] < 1.0
    assert tables["off"]["ActorCriticEvents/approx_kl/substep_0"] > 1e-5


# ---------------------------------------------------------------------------------------------- IMPALA


def with_log_probs(rollout: Rollout, changes: dict[Any, Any], actor_critic: Any) -> Rollout:
    """The rollout, acted by a policy with log-probabilities that differ by `changes`, [T, B] by step key."""
    actor_critic.policy.note_log_probs(rollout)
    for key, segment in rollout.segments.items():
        segment.log_prob = (segment.log_prob - changes[key]) * segment.active
    return rollout


@pytest.mark.parametrize("kind", ["shared", "step"])
def test_importance_weights_are_those_that_are_applied(kit: SimpleNamespace, kind: str) -> None:
    torch.manual_seed(1)
    actor_critic = kit.make_actor_critic(kit.team_spec, kind)
    rollout = kit.make_team_rollout()
    changes = {key: torch.randn(part.active.shape) * 0.5 for key, part in rollout.segments.items()}
    rollout = with_log_probs(rollout, changes, actor_critic)
    module = IMPALA(actor_critic=actor_critic, vtrace_clip_rho_threshold=1.3, capture="off")
    kit.fit(module, make=lambda seed: rollout, length=1)
    table = train_table(module)
    row = torch.zeros(rollout.rows.filled.shape)
    for key, part in rollout.segments.items():
        row += (changes[key] * part.active).view(*row.shape, -1).sum(-1)
    for key, part in rollout.segments.items():
        n_slots = part.active.shape[1] // row.shape[1]
        log = row.repeat_interleave(n_slots, 1) if kind == "shared" else changes[key]
        batch = learning_batch(actor_critic, rollout, 0.98, 1.0, normalize_advantage=False, with_log_prob=False)
        ratio = log[part.active].exp()
        if kind == "shared" or len(batch.acts[key].weight) == int(part.active.sum()):  # no open acts
            assert table[f"ImpalaEvents/importance_weight/substep_{key}"] == pytest.approx(
                float(ratio.mean()), rel=1e-3
            )
            for name, limit in (("rho", 1.3), ("c", 1.0)):
                share = (ratio > limit).double().mean()
                assert table[f"ImpalaEvents/{name}_clip_fraction/substep_{key}"] == pytest.approx(float(share))


def test_without_lag_nothing_is_clipped(kit: SimpleNamespace) -> None:
    actor_critic = kit.make_actor_critic()
    rollout = kit.make_flat_rollout()
    actor_critic.policy.note_log_probs(rollout)
    module = IMPALA(actor_critic=actor_critic, capture="off")
    kit.fit(module, make=lambda seed: rollout, length=1)
    table = train_table(module)
    assert table["ImpalaEvents/importance_weight/substep_0"] == pytest.approx(1.0, abs=1e-5)
    assert table["ImpalaEvents/rho_clip_fraction/substep_0"] == 0.0
    assert table["ImpalaEvents/c_clip_fraction/substep_0"] == 0.0


# ------------------------------------------------------------------------------------------ norms by part


@pytest.mark.parametrize(("limit", "capture"), [(0.0, "off"), (0.01, "off"), (0.01, "auto")])
def test_squared_norms_of_the_parts_add_up_to_that_of_the_network(
    kit: SimpleNamespace, limit: float, capture: Any
) -> None:
    module = A2C(
        actor_critic=two_part_networks(), grad_norms_by_part=True, max_grad_norm=limit, capture=capture, lr=1e-3
    )
    kit.fit(module, length=1)
    table = train_table(module)
    for name in ("policy_grad_norm", "critic_grad_norm"):
        parts = {part: table[f"ActorCriticEvents/{name}/substep_0/{part}"] for part in ("body", "heads")}
        whole = table[f"ActorCriticEvents/{name}/substep_0"]
        assert math.hypot(*parts.values()) == pytest.approx(whole, rel=1e-4)
        assert min(parts.values()) > 0.0


def test_norms_of_parts_are_only_recorded_when_asked_for(kit: SimpleNamespace) -> None:
    module = A2C(actor_critic=two_part_networks(), capture="off")
    kit.fit(module, length=1)
    assert not [name for name in train_table(module) if name.endswith(("body", "heads"))]


def two_part_networks() -> Any:
    torch.manual_seed(0)
    return CustomModelComposer(
        ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[8])]),
        SharedStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[8])]),
    ).compose(FLAT_SPEC)


# ------------------------------------------------------------------------------------------ descriptions

PAGE = Path(__file__).parents[2] / "docs" / "diagnostics.md"


def test_every_statistic_has_one_line_and_stands_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, text in DESCRIPTIONS.items():
        assert "\n" not in text
        assert len(text) <= 100, name
        assert f"`{name}`" in page or name.startswith(("n_", "return_mean")), name


@pytest.mark.parametrize("algorithm", [A2C, PPO, IMPALA])
def test_what_is_recorded_is_described(kit: SimpleNamespace, algorithm: Any) -> None:
    options = {"batch_size": 40, "target_kl": 1.0} if algorithm is PPO else {}
    module = algorithm(actor_critic=kit.make_actor_critic(), capture="off", **options)
    kit.fit(module, length=1)
    described = module.described_statistics()
    for name in train_table(module):
        topic, event, *_ = name.split("/")
        assert topic != module.topic or f"{topic}/{event}" in described, name


def test_custom_algorithms_describe_their_own_statistics(kit: SimpleNamespace) -> None:
    class First(A2C):
        topic = "OwnEvents"
        statistics: ClassVar[Mapping[str, str]] = {"size": "its size", "rho": "something else"}

    class Second(First):
        statistics: ClassVar[Mapping[str, str]] = {"width": "its width"}

    described = Second(actor_critic=kit.make_actor_critic()).described_statistics()
    assert described["OwnEvents/size"] == "its size"
    assert described["OwnEvents/rho"] == "something else"
    assert described["OwnEvents/width"] == "its width"
    assert described["OwnEvents/policy_loss"].startswith("loss of the policy")
