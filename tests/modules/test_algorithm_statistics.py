"""Statistics that algorithms record: clipped shares, divergences, importance weights, and norms by part."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from maze_pl.core.batches import Rollout
from maze_pl.modules import A2C, IMPALA, PPO, learning_batch
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from tests.modules.hand_computed import EVEN, LOGIT, constant_networks, minibatch
from tests.modules.kit import FLAT_SPEC, train_table

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")


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


class Logs(A2C):
    """Logs 0, then 1, with options by position and by name; the size of the batch comes last."""

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        options = (False, None, False, True, "mean", False, False, None, True)
        self.log("sized", float(batch_idx), *options, 1 + 2 * batch_idx)
        self.log("unsized", float(batch_idx), *options, None)
        self.log(name="named", value=float(batch_idx), on_step=False, on_epoch=True, batch_size=1 + 2 * batch_idx)


def test_logged_values_count_by_the_size_that_is_given(kit: SimpleNamespace) -> None:
    trainer = kit.fit(Logs(actor_critic=kit.make_actor_critic()))
    means = {name: float(trainer.callback_metrics[name]) for name in ("sized", "unsized", "named")}
    assert means == {"sized": 0.75, "unsized": 0.5, "named": 0.75}


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
            clipped = float(ratio.clamp(max=1.3).mean())
            assert table[f"ImpalaEvents/rho/substep_{key}"] == pytest.approx(clipped, rel=1e-3)
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
