"""The collector and the returns agree with a reference that plays random structured environments act by act."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maze_pl.collect.collector import Collector
from maze_pl.core.batches import Rollout
from maze_pl.core.policy import RandomPolicy
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.modules.on_policy.credit import shared_credit, step_credit
from tests.collect.scripted import (
    Act,
    Episode,
    PlayedAct,
    Reference,
    Script,
    make_env,
    shared_reference,
    spec_of,
    step_reference,
)

REWARD = st.floats(-3, 3, width=32)


def value_of(observation: Any) -> Any:
    """An arbitrary smooth value of an observation id."""
    return np.sin(np.asarray(observation) * 0.37) * 2.0


@st.composite
def episodes(draw: st.DrawFn, n_agents: tuple[int, ...], max_agents: tuple[int, ...]) -> Episode:
    fixed = [(key, agent) for key, count in enumerate(n_agents) for agent in range(count)]
    is_flat, come = n_agents == (1,), dict.fromkeys(range(len(n_agents)), 0)
    acts, alive = list[Act](), list(fixed)

    def choices() -> list[tuple[int, int]]:
        """Who is alive, and who may come next."""
        n_alive = {key: sum(other == key for other, _ in alive) for key in come}
        dynamic = [key for key, count in enumerate(n_agents) if count < 0]
        return alive + [(key, come[key]) for key in dynamic if n_alive[key] < max_agents[key]]

    for _ in range(draw(st.integers(1, 10))):
        actor = draw(st.sampled_from(choices()))
        if actor not in alive:
            alive.append(actor)
            come[actor[0]] += 1
        is_dynamic = n_agents[actor[0]] < 0
        done = (is_dynamic or len(alive) > 1) and draw(st.integers(0, 1 if is_dynamic else 5)) == 0
        if done:
            alive.remove(actor)
        if not choices():
            alive.append(actor)
            done = False
        advance = draw(st.sampled_from([1, 1, 2] if is_flat else [0, 0, 1, 1, 1, 2]))
        acts.append(Act(*actor, draw(REWARD), draw(REWARD), advance, done))
    return Episode(tuple(acts), draw(st.booleans()), draw(st.sampled_from(choices())))


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    n_agents = tuple(draw(st.lists(st.sampled_from([1, 2, 3, -1, -1]), min_size=1, max_size=3)))
    max_agents = tuple(draw(st.integers(1, 3)) for _ in n_agents)
    n_envs = draw(st.integers(2, 5))
    plays = [draw(st.lists(episodes(n_agents, max_agents), min_size=1, max_size=3)) for _ in range(n_envs)]
    for play in plays:  # as those in which time never advances are refused
        *before, last = play[0].acts
        play[0] = replace(play[0], acts=(*before, replace(last, advance=max(1, last.advance))))
    return Script(n_agents, draw(st.booleans()), tuple(tuple(play) for play in plays), max_agents)


def collector_of(script: Script, n_rollout_steps: int) -> Collector:
    factories = [partial(make_env, script, index) for index in range(len(script.episodes))]
    return Collector(SequentialVectorEnv(factories, spec=spec_of(script)), n_rollout_steps, torch.Generator())


def random_policy(collector: Collector) -> RandomPolicy:
    return RandomPolicy({key: step.action_space for key, step in collector.spec.steps.items()})


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


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    script=scripts(),
    n_rollout_steps=st.integers(1, 6),
    gamma=st.floats(0.5, 1.0),
    lam=st.floats(0.0, 1.0),
)
def test_rollouts_and_credit_agree_with_playing_act_by_act(
    script: Script, n_rollout_steps: int, gamma: float, lam: float
) -> None:
    collector, reference = collector_of(script, n_rollout_steps), Reference(script, n_rollout_steps)
    policy = random_policy(collector)
    for _ in range(3):
        rollout, played = collector.collect(policy), reference.collect()
        check_rows(rollout, played, script.attributed)
        check_credit(rollout, played, gamma, lam, script.attributed)
        assert rollout.env_steps == sum(a.advance for acts in played for a in acts)
