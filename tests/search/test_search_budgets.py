"""Searches keep their time, reuse their plans whatever the types of observations, and close what they make."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.spec import Spec
from maze_pl.deployment import AgentDeployment
from maze_pl.envs import GymMazeEnv, MazeEnv, ObservationWrapper
from maze_pl.envs.wrappers import SpacesRecordingWrapper, TimeLimitWrapper
from maze_pl.modules import PPO
from maze_pl.runs.rollout import rollout
from maze_pl.search import SearchError, decision
from maze_pl.search.decision import Decision
from tests.search.problems import TableCore, table_env


class Slow(gymnasium.Env[Any, Any]):
    """Two hundred steps of five milliseconds with four actions, of which the last one is best."""

    observation_space = spaces.Box(0, 200, (1,), np.float32)
    action_space = spaces.Discrete(4)
    seconds = 0.005
    most_steps = 0  # of any episode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.n_steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        self.n_steps += 1
        Slow.most_steps = max(Slow.most_steps, self.n_steps)
        return np.array([self.n_steps], np.float32), float(action), self.n_steps == 200, False, {}


class Short(Slow):
    """Five steps that take no time."""

    seconds = 0.0

    def step(self, action: Any) -> Any:
        observation, reward, *_ = super().step(action)
        return observation, reward, self.n_steps == 5, False, {}


class Widened(ObservationWrapper):
    """Observations of float64 that are no float32, in a space of float32."""

    def observation(self, observation: Any) -> Any:
        return {name: value.astype(np.float64) + 0.1 for name, value in observation.items()}


@pytest.mark.parametrize("search", ["best_of:100ms", "lookahead:random:100ms", "puct:100ms"])
def test_a_time_is_kept_within_simulations(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation to its end takes a second."""
    monkeypatch.setattr(Slow, "most_steps", 0)
    make = lambda: GymMazeEnv(Slow())  # noqa: E731
    system = make()
    system.reset(seed=0)
    with AgentDeployment("random", make, search=search, seed=0) as deployment:
        action = deployment.act(system.get_maze_state(), simulation=system)
    assert action in range(4)
    assert 0 < Slow.most_steps < 200


def test_the_time_of_a_search_is_used() -> None:
    """Episodes of three steps: many are played in the time, so that the best one is found."""
    make = lambda: TimeLimitWrapper(GymMazeEnv(Slow()), 3)  # noqa: E731
    (played,) = rollout(make, "random", search="best_of:2000ms", n_envs=1)
    assert played.summary.reward >= 7.0


class Clock:
    """A clock that only environments advance."""

    def __init__(self) -> None:
        self.now = 0.0
        self.jumps_at = 0  # number of the step that takes an hour
        self.acts: list[int] = []

    def perf_counter(self) -> float:
        return self.now

    def __deepcopy__(self, memo: Any) -> Clock:
        return self


class Timed(gymnasium.Env[Any, Any]):
    """Eight steps of a millisecond with three actions, of which the last one is best."""

    observation_space = spaces.Box(0, 8, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.n_steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.clock.acts.append(int(action))
        self.clock.now += 3600 if len(self.clock.acts) == self.clock.jumps_at else 0.001
        self.n_steps += 1
        return np.array([self.n_steps], np.float32), float(action), self.n_steps == 8, False, {}


def first_decision(search: str, clock: Clock, seconds: float, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Actions that the simulations of a decision take, if making an environment takes some seconds."""
    monkeypatch.setattr(decision, "time", clock)

    def make() -> Any:
        clock.now += seconds
        return GymMazeEnv(Timed(clock))

    system = make()
    system.reset(seed=0)
    with AgentDeployment("random", make, search=search, seed=0) as deployment:
        deployment.act(system.get_maze_state(), simulation=system)
    return clock.acts


@pytest.mark.parametrize("search", ["best_of:50ms", "lookahead:random:50ms", "puct:50ms"])
def test_the_time_in_which_environments_are_made_does_not_count(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    acts = first_decision(search, Clock(), 0.1, monkeypatch)
    assert acts == first_decision(search, Clock(), 0.0, monkeypatch)
    assert len(acts) >= 24, "each action is tried"


@pytest.mark.parametrize("jumps_at", range(602, 606))
def test_no_descent_goes_on_after_the_time(jumps_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    clock.jumps_at = jumps_at
    acts = first_decision("puct:1000ms", clock, 0.0, monkeypatch)
    assert jumps_at <= len(acts) < jumps_at + 3, "one act for each action"


@pytest.mark.parametrize("search", ["best_of:4", "beam:4"])
def test_plans_are_followed_if_observations_are_of_another_type_than_their_space(
    search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Decision] = []
    original = Decision.__init__

    def counted(self: Decision, *arguments: Any, **options: Any) -> None:
        made.append(self)
        original(self, *arguments, **options)

    monkeypatch.setattr(Decision, "__init__", counted)
    rollout(lambda: Widened(GymMazeEnv(Short())), "random", search=search, n_envs=1)
    assert len(made) == 1


class Masked(gymnasium.Env[Any, Any]):
    """Masks all actions from the second state on."""

    observation_space = spaces.Dict(allowed=spaces.MultiBinary(3), place=spaces.Box(0, 3, (1,), np.float32))
    action_space = spaces.Discrete(3)

    def shown(self) -> Any:
        allowed = np.full(3, self.n_steps == 0, np.int8)
        return {"allowed": allowed, "place": np.array([self.n_steps], np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.n_steps = 0
        return self.shown(), {}

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        return self.shown(), float(action), self.n_steps == 3, False, {}


@pytest.mark.parametrize("search", ["puct:20", "lookahead:policy:40", "beam:30"])
def test_masks_that_allow_nothing_are_played_as_without_a_search(search: str) -> None:
    options: Any = {"action_masks": {"action": "allowed"}, "n_envs": 1}
    rollout(lambda: GymMazeEnv(Masked()), "random", **options)
    (played,) = rollout(lambda: GymMazeEnv(Masked()), "random", search=search, **options)
    assert played.summary.env_steps == 3


class Plain:
    """Takes the first action; has no probabilities."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"action": np.zeros(len(batch.agent_id), np.int64)})


class Impossible(Plain):
    """Gives no action a positive probability."""

    def probabilities(self, batch: PolicyBatch, temperature: float = 1.0) -> dict[str, Any]:
        return {"action": np.zeros((len(batch.agent_id), 4))}


@pytest.mark.parametrize("search", ["puct:4", "lookahead:policy", "beam:3"])
def test_a_policy_without_a_possible_action_is_named(search: str) -> None:
    message = r"^Impossible gives no action of sub-step 0 a positive probability"
    with pytest.raises(SearchError, match=message):
        rollout(lambda: GymMazeEnv(Short()), Impossible(), search=search, n_envs=1)


class Counted(GymMazeEnv):
    """Counts its copies, and which of them were closed."""

    open_envs: ClassVar[set[int]] = set()

    def __init__(self) -> None:
        super().__init__("CartPole-v1")
        self.open_envs.add(id(self))

    def close(self) -> None:
        self.open_envs.discard(id(self))
        super().close()


@pytest.mark.parametrize("deploys", [True, False])
def test_environments_of_simulations_are_closed(deploys: bool) -> None:
    Counted.open_envs.clear()
    if not deploys:
        rollout(Counted, "random", search="best_of:3", max_steps=5, n_envs=1)
        assert not Counted.open_envs
        return
    system = GymMazeEnv("CartPole-v1")
    system.reset(seed=0)
    with AgentDeployment("random", Counted, search="best_of:3:horizon=5", seed=0) as deployment:
        deployment.act(system.get_maze_state(), simulation=system)
        assert len(Counted.open_envs) == 4
    assert not Counted.open_envs


def test_recorders_of_deployments_are_not_copied_into_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    cloned: list[type] = []
    original = SpacesRecordingWrapper.clone_from

    def noted(self: Any, env: Any) -> None:
        cloned.append(type(self))
        original(self, env)

    monkeypatch.setattr(SpacesRecordingWrapper, "clone_from", noted)
    system = GymMazeEnv("CartPole-v1")
    system.reset(seed=0)
    make: Callable[[], Any] = partial(GymMazeEnv, "CartPole-v1")
    options: Any = {"search": "best_of:3:horizon=5", "seed": 0}
    with AgentDeployment("random", make, [SpacesRecordingWrapper], **options) as deployment:
        deployment.act(system.get_maze_state(), simulation=system)
    assert not cloned


def test_a_critic_that_is_trained_meanwhile_changes_no_decision() -> None:
    env = GymMazeEnv("CartPole-v1")
    module: Any = PPO(spec=Spec.of(env))
    with AgentDeployment(module, partial(GymMazeEnv, "CartPole-v1"), search="puct:4", seed=0) as deployment:
        policy: Any = deployment._decider.policy
        assert policy._critic is not module.networks.critic
        assert type(policy._critic) is type(module.networks.critic)


def test_environments_that_cannot_be_copied_are_refused_before_anything_is_played() -> None:
    steps: list[int] = []

    class Locked(Short):
        def __init__(self) -> None:
            self.licence = threading.Lock()

        def step(self, action: Any) -> Any:
            steps.append(action)
            return super().step(action)

    with pytest.raises(SearchError, match=r"search tries actions in copies of the environment, but .*cannot"):
        rollout(lambda: GymMazeEnv(Locked()), "random", search="best_of:3")
    assert not steps


def test_environment_whose_copying_is_not_implemented_is_named() -> None:
    class Unfinished(TableCore):
        def clone_from(self, env: Any) -> None:
            raise NotImplementedError

    def unfinished() -> MazeEnv:
        made = table_env()
        return MazeEnv(Unfinished(), made.action_conversion_dict, made.observation_conversion_dict)

    with pytest.raises(SearchError, match=r"but Unfinished cannot be copied; define its clone_from$"):
        rollout(unfinished, "random", search="best_of:3")
