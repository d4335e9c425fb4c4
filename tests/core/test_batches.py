"""Rollouts of groups of environments are put together as one collector would have written them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maze_pl.collect.collector import Collector
from maze_pl.core.batches import Rollout, TransitionBatch
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.spec import Spec
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.vector import SequentialVectorEnv
from tests.collect.collectors import dynamic_envs
from tests.collect.random_scripts import scripts
from tests.collect.scripted import Act, Episode, Script, make_env, spec_of
from tests.equality import assert_equal
from tests.modules.kit import make_flat_rollout
from tests.structured import agreement, hierarchy, team


class Steady:
    """Does what follows from what it sees and remembers, whoever acts at the same time; remembers some keys only."""

    def __init__(self, spec: Spec, remembers: bool) -> None:
        self.spec, self.remembers = spec, remembers

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        n = len(batch.agent_id)
        seen = sum(array.reshape(n, -1).astype(np.float64).sum(1) for array in batch.observation.values())
        carried = (batch.policy_state or {"sum": np.zeros((n, 2))})["sum"] if self.remembers else np.zeros((n, 2))
        total = carried + np.abs(seen)[:, None]
        action = {
            head: (np.floor(total[:, 0]).astype(space.dtype) % 2) * np.ones(space.shape, space.dtype)
            for head, space in self.spec.steps[batch.step_key].action_space.spaces.items()
        }
        remembers = self.remembers and batch.step_key == self.spec.step_keys[-1]
        return PolicyStep(action, policy_state={"sum": total} if remembers else None)


def collected(factories: list[Any], sizes: list[int], remembers: bool, **options: Any) -> list[list[Rollout]]:
    """Three rollouts of each group of environments."""
    parts: list[list[Rollout]] = [[], [], []]
    first = 0
    for size in sizes:
        vector = SequentialVectorEnv(factories[first : first + size], seed=5, first_env_index=first, **options)
        collector = Collector(vector, 6, torch.Generator())
        for rollouts in parts:
            rollouts.append(collector.collect(Steady(collector.spec, remembers)).clone())
        vector.close()
        first += size
    return parts


def settled(rollout: Rollout) -> Rollout:
    """The rollout without what means nothing, and with its final observations in order of environment and row."""
    rows = rollout.rows
    for name in ("first_slot", "next_slot"):
        getattr(rows, name)[~rows.filled] = 0
    for final in rollout.finals.values():
        order = np.lexsort((final.row, final.env))
        for name, value in vars(final).items():
            changed = {key: one[order] for key, one in value.items()} if isinstance(value, dict) else value[order]
            setattr(final, name, changed)
    return rollout


def assert_as_one(factories: list[Any], sizes: list[int], remembers: bool, **options: Any) -> list[Rollout]:
    together = collected(factories, [len(factories)], remembers, **options)
    apart = collected(factories, sizes, remembers, **options)
    joined = [Rollout.concatenated(parts) for parts in apart]
    for (one,), other in zip(together, joined, strict=True):
        assert_equal(settled(one), settled(other))
    return joined


@pytest.mark.parametrize("sizes", [[2, 3], [4, 1], [1, 1, 1, 1, 1]])
@pytest.mark.parametrize("remembers", [False, True], ids=["forgets", "remembers"])
@pytest.mark.parametrize("kind", ["cartpole", "agreement", "team", "hierarchy", "dynamic"])
def test_groups_of_environments_make_the_rollout_of_all_of_them(kind: str, remembers: bool, sizes: list[int]) -> None:
    options: dict[str, Any] = {}
    if kind == "dynamic":
        factories: list[Any] = dynamic_envs(5)
        options["spec"] = Spec.of(factories[0](), max_agents={0: 3})
    elif kind == "cartpole":
        factories = [partial(make_gym_maze_env, "CartPole-v1", max_episode_steps=9)] * 5
    else:
        factories = [{"agreement": agreement, "team": team, "hierarchy": hierarchy}[kind].make_env] * 5
    rollouts = assert_as_one(factories, sizes, remembers, **options)
    assert {rollout.flat for rollout in rollouts} == {kind == "cartpole"}
    assert [rollout.n_envs for rollout in rollouts] == [5, 5, 5]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=scripts(), remembers=st.booleans(), data=st.data())
def test_any_environments_may_be_collected_apart(script: Script, remembers: bool, data: st.DataObject) -> None:
    factories = [partial(make_env, script, n) for n in range(len(script.episodes))]
    first = data.draw(st.integers(1, len(factories) - 1))
    assert_as_one(factories, [first, len(factories) - first], remembers, spec=spec_of(script))


def test_environments_that_attribute_rewards_do_not_go_with_others_that_do_not() -> None:
    episodes = ((Episode((Act(0, 0, 1.0, 0.5, 1),), False, (0, 0)),),)
    parts = [
        collected([partial(make_env, Script((1, 1), attributed, episodes), 0)], [1], False)[0][0]
        for attributed in (True, False)
    ]
    with pytest.raises(ValueError, match="get_actor_rewards"):
        Rollout.concatenated(parts)


def test_a_rollout_of_one_group_is_taken_as_it_is() -> None:
    ((rollout,), *_) = collected([agreement.make_env], [1], False)
    assert Rollout.concatenated([rollout]) is rollout


def test_acts_know_their_outcomes_or_name_what_adds_them() -> None:
    observation, agent_id = {"view": torch.zeros(2, 3)}, torch.zeros(2, dtype=torch.int64)
    following, reward, discount = {"view": torch.ones(2, 3)}, torch.tensor([1.0, 2.0]), torch.tensor([0.9, 0.0])
    acts = TransitionBatch(observation, {}, agent_id, following, reward, discount)
    assert acts.outcome == (following, reward, discount)
    with pytest.raises(ValueError, match="IdentityWithNextObservationTrajectoryProcessor"):
        TransitionBatch(observation, {}, agent_id).outcome  # noqa: B018


def test_a_rollout_that_is_where_it_should_be_is_not_copied() -> None:
    rollout = make_flat_rollout()
    assert rollout.to("cpu").rows.reward is rollout.rows.reward
    moved = rollout.to(torch.device("meta"))
    assert moved.rows.filled.device.type == moved.segments[0].observation["observation"].device.type == "meta"


class Staying(torch.Tensor):
    """A tensor that must not be copied to a device."""

    def to(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("it was copied")


def test_the_numbers_of_environments_are_not_copied_to_the_device() -> None:
    rollout = make_flat_rollout()
    rollout.env_index = torch.arange(rollout.n_envs).as_subclass(Staying)
    assert rollout.to("meta").env_index is rollout.env_index


def test_means_of_transitions_are_weighted_where_acts_have_weights() -> None:
    agent_id, values = torch.zeros(3, dtype=torch.int64), torch.tensor([1.0, 2.0, 6.0])
    assert TransitionBatch({}, {}, agent_id).weighted_mean(values) == 3.0
    weighted = TransitionBatch({}, {}, agent_id, weight=torch.tensor([1.0, 0.5, 0.5]))
    assert weighted.weighted_mean(values) == pytest.approx((1.0 + 1.0 + 3.0) / 3)
