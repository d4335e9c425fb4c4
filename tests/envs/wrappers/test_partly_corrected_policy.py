"""The heuristic plays the rule also where only some of its heads are corrected."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.wrapper import ObservationWrapper, Wrapper
from maze_pl.envs.wrappers import (
    DiscretizeActionsWrapper,
    NoDictActionWrapper,
    NoDictObservationWrapper,
    ObservationNormalizationWrapper,
    ResidualActionWrapper,
    SortedSpacesWrapper,
    TimeLimitWrapper,
)
from maze_pl.envs.wrappers.partly_corrected_policy import PartlyCorrectedPolicy
from maze_pl.envs.wrappers.partly_corrected_state_policy import PartlyCorrectedStatePolicy
from maze_pl.runs.rollout import rollout
from tests.envs.arrays.yard import YardArrayEnv, make_yard
from tests.envs.wrappers.environments import make_action_env

CORRECTIONS = partial(ResidualActionWrapper, corrections={"effort": 0.3})


class YardRule:
    """Plans what is allowed, and works against the load."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        if batch.step_key == "plan":
            return PolicyStep({"plan": np.argmax(batch.observation["allowed"], axis=-1)})
        effort = np.tanh(0.3 - batch.observation["load"] * 0.1 + batch.agent_id[:, np.newaxis] * 0.05)
        return PolicyStep({"effort": effort.astype(np.float32)})


class StateRule(YardRule, MazeStatePolicy):
    """Works by the state of the simulation."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        step = super().act(batch, **options)
        for head, values in step.action.items():
            if head == "effort":
                loads = [np.asarray(state).sum() for state in self.maze_states(batch)]
                step.action[head] = values - np.float32(0.01) * np.float32(loads)[:, np.newaxis]
        return step

    @staticmethod
    def maze_states(batch: PolicyBatch) -> list[Any]:
        assert batch.maze_state is not None, "a rule that uses states gets them"
        return batch.maze_state


def returns(env: Callable[[], Any], policy: Any, *wrappers: Callable[[Any], Any]) -> list[float]:
    options: dict[str, Any] = {"episodes": 3, "seed": 5, "record": ()}
    return [one.summary.reward for one in rollout(env, policy, wrappers=wrappers, **options)]


@pytest.mark.parametrize("make_rule", [YardRule, StateRule])
def test_the_heuristic_is_the_rule_in_sub_steps_that_are_not_corrected(make_rule: Callable[[], Any]) -> None:
    rule = make_rule()
    expected = returns(make_yard, rule)
    assert len(set(expected)) == 3
    corrections = partial(CORRECTIONS, policy=rule)
    limit = partial(TimeLimitWrapper, max_episode_steps=100)
    assert returns(make_yard, "heuristic", corrections) == expected
    assert returns(make_yard, "heuristic", limit, corrections, limit) == expected


def test_the_heuristic_is_the_rule_in_single_episodes_of_arrays() -> None:
    corrections = partial(CORRECTIONS, policy=YardRule())
    expected = returns(YardArrayEnv, YardRule())
    assert returns(YardArrayEnv, "heuristic", corrections) == expected
    assert returns(partial(make_wrapped_arrays, YardArrayEnv, [corrections]), "heuristic") == expected


class TwoHeads:
    """Acts in the head `x`, and in `y` if it is told to do so."""

    def __init__(self, y: int | None) -> None:
        self.y = y

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        n = len(batch.agent_id)
        action: dict[str, Any] = {"x": np.full((n, 1), 0.25, np.float32)}
        if self.y is not None:
            action["y"] = np.full(n, self.y)
        return PolicyStep(action)


def make_two_heads() -> GymMazeEnv:
    return make_action_env(spaces.Dict(x=spaces.Box(-1, 1, (1,)), y=spaces.Discrete(3)))


BATCH = PolicyBatch(0, {"observation": np.zeros((2, 1), np.float32)}, np.zeros(2, np.int64))


def test_corrections_are_0_and_the_rule_decides_the_other_heads() -> None:
    env = ResidualActionWrapper(make_two_heads(), {"x": 0.5}, TwoHeads(y=2))
    assert env.heuristic_policy == f"{PartlyCorrectedPolicy.__module__}.PartlyCorrectedPolicy"
    action = PartlyCorrectedPolicy(env).act(BATCH).action
    assert action.keys() == {"x_correction", "y"}
    assert action["x_correction"].tolist() == [[0.0]] * 2
    assert action["y"].tolist() == [2, 2]
    env.reset(seed=0)
    assert env.action({head: values[0] for head, values in action.items()}) == {"x": np.float32([0.25]), "y": 2}


@pytest.mark.parametrize("y", [None, 3])
def test_a_rule_for_the_corrected_heads_alone_is_refused(y: int | None) -> None:
    env = ResidualActionWrapper(make_two_heads(), {"x": 0.5}, TwoHeads(y))
    with pytest.raises(
        ValueError, match=r"^TwoHeads gives no value of Discrete\(3\) to 'y' in sub-step 0; the heuristic"
    ):
        PartlyCorrectedPolicy(env).act(BATCH)


def test_environments_without_corrections_of_these_heads_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no wrapper of .* corrects a rule; play the rule itself"):
        PartlyCorrectedPolicy(make_yard())
    env = ResidualActionWrapper(make_two_heads(), {"x": 0.5}, TwoHeads(1))
    bins = DiscretizeActionsWrapper(env, {"x_correction": {"num_bins": 3}})
    with pytest.raises(ValueError, match="PartlyCorrectedPolicy gives actions of"):
        PartlyCorrectedPolicy(bins)
    assert bins.heuristic_policy is not None


class Scaled(ObservationWrapper):
    def observation(self, observation: Any) -> Any:
        return {name: value / 2 for name, value in observation.items()}


class Randomised(YardRule):
    """Plays a random plan unless it is to be deterministic."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        assert options["deterministic"], "both parts of an action come from one decision"
        return super().act(batch)


def test_a_stochastic_rule_is_asked_for_its_deterministic_actions() -> None:
    expected = returns(make_yard, YardRule())
    assert returns(make_yard, "heuristic", partial(CORRECTIONS, policy=Randomised())) == expected


REFUSED = (
    r"cannot be played: \['{}'\] around ResidualActionWrapper change the observations from which YardRule decides "
    r"all heads; correct all heads instead of \['effort'\], or write the rule as a MazeStatePolicy$"
)


@pytest.mark.parametrize("outer", [Scaled, ObservationNormalizationWrapper])
def test_a_rule_whose_observations_are_changed_by_outer_wrappers_is_refused(outer: Any) -> None:
    corrections = partial(CORRECTIONS, policy=YardRule())
    with pytest.raises(ValueError, match=REFUSED.format(outer.__name__)):
        returns(make_yard, "heuristic", corrections, outer)
    assert returns(make_yard, "heuristic", corrections, SortedSpacesWrapper) == returns(make_yard, YardRule())


class Renamed(Wrapper):
    """Calls the sub-step `work` by another name."""

    def _named(self, by_key: Any) -> dict[Any, Any]:
        return {"effort" if key == "work" else key: value for key, value in by_key.items()}

    @property
    def observation_spaces_dict(self) -> Any:
        return self._named(self.env.observation_spaces_dict)

    @property
    def action_spaces_dict(self) -> Any:
        return self._named(self.env.action_spaces_dict)


def test_a_rule_is_refused_with_a_reason_where_sub_steps_have_other_names() -> None:
    env = Renamed(CORRECTIONS(make_yard(), policy=YardRule()))
    with pytest.raises(ValueError, match=REFUSED.format("Renamed")):
        PartlyCorrectedPolicy(env)
    env = Renamed(CORRECTIONS(make_yard(), policy=StateRule()))
    with pytest.raises(ValueError, match=r"cannot be played: wrappers around .* of sub-step 'effort', and the rule"):
        PartlyCorrectedPolicy(env)


def test_a_rule_is_refused_with_a_reason_where_spaces_are_plain() -> None:
    inner = make_action_env(spaces.Dict(x=spaces.Box(-1, 1, (1,))))
    corrected = ResidualActionWrapper(inner, {"x": 0.5}, TwoHeads(None))
    with pytest.raises(ValueError, match=r"\['NoDictObservationWrapper'\] around ResidualActionWrapper change"):
        PartlyCorrectedPolicy(NoDictActionWrapper(NoDictObservationWrapper(corrected)))
    with pytest.raises(ValueError, match=r"cannot be played: wrappers around .* make Box\(.* of sub-step 0, and"):
        PartlyCorrectedPolicy(NoDictActionWrapper(corrected))


def test_it_is_refused_in_arrays_too() -> None:
    normalization = partial(ObservationNormalizationWrapper, default_statistics={"mean": 0.5, "std": 2.0})
    wrappers = [partial(CORRECTIONS, policy=YardRule()), normalization]
    with pytest.raises(ValueError, match=REFUSED.format("ObservationNormalizationArrayWrapper")):
        returns(partial(make_wrapped_arrays, YardArrayEnv, wrappers), "heuristic")


def test_a_rule_that_uses_states_may_have_other_observations() -> None:
    env = Scaled(CORRECTIONS(make_yard(), policy=StateRule()))
    assert env.heuristic_policy == f"{PartlyCorrectedStatePolicy.__module__}.PartlyCorrectedStatePolicy"
    assert isinstance(PartlyCorrectedStatePolicy(env), MazeStatePolicy)


def test_states_are_asked_for_only_if_the_rule_uses_them() -> None:
    env: Any = CORRECTIONS(make_yard(), policy=YardRule())
    assert not isinstance(PartlyCorrectedPolicy(env), MazeStatePolicy)
    assert not ResidualActionWrapper(env, {"effort_correction": 0.1}).rule.reads_state
    env = CORRECTIONS(make_yard(), policy=StateRule())
    assert ResidualActionWrapper(env, {"effort_correction": 0.1}).rule.reads_state
