"""The collector and the returns agree with a reference that plays random structured environments act by act."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maze_pl.core.batches import Rollout
from maze_pl.modules.on_policy.credit import shared_credit, step_credit
from tests.collect.collectors import random_policy
from tests.collect.random_scripts import script_collector, scripts, value_of
from tests.collect.scripted import (
    PlayedAct,
    Reference,
    Script,
    shared_reference,
    step_reference,
)


def check_rows(rollout: Rollout, played: list[list[PlayedAct]], attributed: bool) -> None:
    rows = rollout.rows
    assert all((segment.actor_reward is not None) == attributed for segment in rollout.segments.values())
    assert rows.filled.shape[0] == max(acts[-1].row + 1 for acts in played)
    expected_active = {key: torch.zeros_like(segment.active) for key, segment in rollout.segments.items()}
    for n, acts in enumerate(played):
        n_rows = acts[-1].row + 1
        assert rows.filled[:n_rows, n].all() and not rows.filled[n_rows:, n].any()
        for t in range(n_rows):
            mine = [a for a in acts if a.row == t]
            last = mine[-1]
            assert rows.reward[t, n].item() == pytest.approx(sum(a.act.reward for a in mine), abs=1e-9)
            assert bool(rows.terminated[t, n]) == last.terminated
            assert bool(rows.truncated[t, n]) == last.truncated
            assert rows.env_steps[t, n].item() == last.advance
            assert (rows.first_key[t, n].item(), rows.first_slot[t, n].item()) == (mine[0].act.key, mine[0].slot)
            over = last.terminated or last.truncated
            follower = (-1, -1) if over or last.follower is None else (last.follower[0], last.follower_slot)
            assert (rows.next_key[t, n].item(), rows.next_slot[t, n].item()) == follower
        for a in acts:
            segment = rollout.segments[a.act.key]
            at = a.row, n * rollout.n_slots(a.act.key) + a.slot
            expected_active[a.act.key][at] = True
            assert segment.observation["id"][at].item() == a.obs
            assert segment.reward[at].item() == a.act.reward
            assert segment.position[at].item() == a.position
            assert segment.agent_id[at].item() == a.act.agent
            assert bool(segment.is_first[at]) == a.is_first
            assert bool(segment.actor_done[at]) == a.act.actor_done
            if attributed:
                assert segment.actor_reward is not None and segment.actor_reward[at].item() == a.act.own_reward
    for key, segment in rollout.segments.items():
        assert torch.equal(segment.active, expected_active[key])
    check_finals(rollout, played)


def check_finals(rollout: Rollout, played: list[list[PlayedAct]]) -> None:
    expected = set()
    for n, acts in enumerate(played):
        for a in acts:
            over = a is acts[-1] and not a.terminated
            if a.truncated or over:
                assert a.follower is not None
                expected.add((a.follower[0], a.row, n, a.follower_slot, a.follower[1], a.follower_obs))
    found = set()
    for key, final in rollout.finals.items():
        columns = zip(final.row, final.env, final.slot, final.agent_id, final.observation["id"], strict=True)
        found |= {(key, *map(int, numbers), float(obs)) for *numbers, obs in columns}
    assert found == expected


def check_credit(rollout: Rollout, played: list[list[PlayedAct]], gamma: float, lam: float, attributed: bool) -> None:
    values = {key: torch.from_numpy(value_of(part.observation["id"][..., 0])) for key, part in rollout.segments.items()}
    finals = {key: torch.from_numpy(value_of(part.observation["id"][..., 0])) for key, part in rollout.finals.items()}
    step = step_credit(rollout, values, finals, gamma, lam)
    shared = shared_credit(rollout, values, finals, gamma, lam)
    for n, acts in enumerate(played):
        of_acts = step_reference(acts, value_of, gamma, lam, attributed)
        of_rows = shared_reference(acts, value_of, gamma, lam)
        for a, (_, _, advantage, weight) in zip(acts, of_acts, strict=True):
            at = a.row, n * rollout.n_slots(a.act.key) + a.slot
            credit = step[a.act.key]
            assert credit.weight[at].item() == credit.value_weight[at].item() == weight
            assert credit.advantage[at].item() == pytest.approx(advantage * weight, abs=1e-9)
            assert credit.return_[at].item() == pytest.approx((advantage + value_of(a.obs)) * weight, abs=1e-9)
            row_advantage, row_value = of_rows[a.row]
            assert shared[a.act.key].advantage[at].item() == pytest.approx(row_advantage, abs=1e-9)
            assert shared[a.act.key].return_[at].item() == pytest.approx(row_advantage + row_value, abs=1e-9)
            assert shared[a.act.key].weight[at].item() == 1.0
            assert shared[a.act.key].value_weight[at].item() == float(a.position == 0)
    n_acts = sum(len(acts) for acts in played)
    assert sum(credit.weight.sum().item() for credit in shared.values()) == n_acts


def check_agreement(script: Script, n_rollout_steps: int, gamma: float, lam: float) -> None:
    """Compare rollouts and the credit of their acts with a reference that plays act by act."""
    collector, reference = script_collector(script, n_rollout_steps), Reference(script, n_rollout_steps)
    policy = random_policy(collector)
    for _ in range(3):
        rollout, played = collector.collect(policy), reference.collect()
        check_rows(rollout, played, script.attributed)
        check_credit(rollout, played, gamma, lam, script.attributed)
        assert rollout.env_steps == sum(a.advance for acts in played for a in acts)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    script=scripts(),
    n_rollout_steps=st.integers(1, 6),
    gamma=st.floats(0.5, 1.0),
    lam=st.floats(0.0, 1.0),
)
def test_rollouts_and_credit_agree_with_playing_act_by_act(
    script: Script, n_rollout_steps: int, gamma: float, lam: float
) -> None:
    check_agreement(script, n_rollout_steps, gamma, lam)


@pytest.mark.slow
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    script=scripts(),
    n_rollout_steps=st.integers(1, 6),
    gamma=st.floats(0.5, 1.0),
    lam=st.floats(0.0, 1.0),
)
@pytest.mark.long
def test_rollouts_and_credit_agree_in_many_cases(
    script: Script, n_rollout_steps: int, gamma: float, lam: float
) -> None:
    check_agreement(script, n_rollout_steps, gamma, lam)
