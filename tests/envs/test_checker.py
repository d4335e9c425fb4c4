"""The environment doctor finds every fault, names its source, and finds nothing in sound environments."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

from examples.catch.catch_env import CatchEnv
from maze_pl.core.actor_id import ActorID
from maze_pl.envs import (
    ActionConversionInterface,
    CoreEnv,
    GymMazeEnv,
    MazeEnv,
    ObservationConversionInterface,
    ObservationWrapper,
    RewardWrapper,
    Wrapper,
    take_over,
)
from maze_pl.envs.checker import CheckLine, CheckReport, check_env
from maze_pl.envs.cutting_2d import masked_struct_env_factory
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    TimeLimitWrapper,
)
from tests.envs.structured_example import (
    N_STEPS,
    RETIREMENT,
    HeapCoreEnv,
    TwoHalvesWrapper,
    make_heap_env,
    make_timeless,
)


class WalkEvents:
    def moved(self, by: int) -> None:
        """A step was made."""

    def fallen(self) -> None:
        """The walk has left its road."""


class WalkCoreEnv(CoreEnv):
    """A sound walk that ends off the road or, at a random length, at its goal."""

    def __init__(self) -> None:
        super().__init__()
        self.events = self.pubsub.create_event_topic(WalkEvents)
        self.generator = np.random.default_rng(0)
        self.state = {"place": np.zeros(2, np.float32), "left": 0}

    def step(self, maze_action: Any) -> Any:
        by = maze_action["by"]
        self.events.moved(by=by)
        self.state["place"] = self.state["place"] + np.float32([0.1 * by, self.generator.normal() / 10])
        self.state["left"] -= 1
        fallen = bool(np.abs(self.state["place"]).max() > 0.3)
        if fallen:
            self.events.fallen()
        return self.state, float(-abs(self.state["place"][1])), fallen, not fallen and self.state["left"] == 0, {}

    def reset(self) -> Any:
        self.state = {"place": np.zeros(2, np.float32), "left": int(self.generator.integers(10, 20))}
        return self.state

    def seed(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def close(self) -> None:
        self.state = {}

    def get_maze_state(self) -> Any:
        return self.state

    def clone_from(self, env: Any) -> None:
        take_over(self, env)


class Seen(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        road = spaces.Box(-1, 1, (2,), np.float32)
        return spaces.Dict({"place": road, "allowed": spaces.Box(0, 1, (3,), np.float32), "left": spaces.Discrete(20)})

    def maze_to_space(self, maze_state: Any) -> Any:
        allowed = np.float32([maze_state["place"][0] > -0.2, 1, 1])
        return {"place": maze_state["place"].copy(), "allowed": allowed, "left": np.array(maze_state["left"])}


class Move(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"move": spaces.Discrete(3)})

    def space_to_maze(self, action: Any, maze_state: Any) -> Any:
        return {"by": action["move"] - 1}

    def maze_to_space(self, maze_action: Any) -> Any:
        return {"move": maze_action["by"] + 1}

    @property
    def action_masks(self) -> dict[str, str]:
        return {"move": "allowed"}


def walk(
    core: type[CoreEnv] = WalkCoreEnv,
    seen: type[ObservationConversionInterface] = Seen,
    move: type[ActionConversionInterface] = Move,
) -> Callable[[], MazeEnv]:
    return lambda: MazeEnv(core(), {0: move()}, {0: seen()})


# ------------------------------------------------------------------------------------------------ one fault in each


class WrongShape(Seen):
    def maze_to_space(self, maze_state: Any) -> Any:
        return {**super().maze_to_space(maze_state), "place": np.zeros(3, np.float32)}


class MissingName(Seen):
    def maze_to_space(self, maze_state: Any) -> Any:
        return {"place": maze_state["place"].copy()}


class NoNames(Seen):
    def maze_to_space(self, maze_state: Any) -> Any:
        return maze_state["place"].copy()


class OutOfBoundsAtOnce(Seen):
    def maze_to_space(self, maze_state: Any) -> Any:
        return {**super().maze_to_space(maze_state), "left": np.array(20)}


class OutOfBounds(Seen):
    """Only later: the first observations are looked at in training, too."""

    def maze_to_space(self, maze_state: Any) -> Any:
        place = maze_state["place"] * np.float32(30 if maze_state["left"] < 9 else 1)
        return {**super().maze_to_space(maze_state), "place": place}


class Fraction(Seen):
    def maze_to_space(self, maze_state: Any) -> Any:
        return {**super().maze_to_space(maze_state), "left": np.array(0.5 + maze_state["left"] / 2)}


class NotANumber(Seen):
    def maze_to_space(self, maze_state: Any) -> Any:
        place = np.float32([np.nan, 0]) if maze_state["left"] < 9 else maze_state["place"].copy()
        return {**super().maze_to_space(maze_state), "place": place}


class OneBuffer(Seen):
    def __init__(self) -> None:
        self.buffer = np.zeros(2, np.float32)

    def maze_to_space(self, maze_state: Any) -> Any:
        self.buffer[:] = maze_state["place"]
        return {**super().maze_to_space(maze_state), "place": self.buffer}


class ChangesState(Seen):
    def maze_to_space(self, maze_state: Any) -> Any:
        maze_state["looked_at"] = maze_state.get("looked_at", 0) + 1
        return super().maze_to_space(maze_state)


class AllowsNothing(Seen):
    def maze_to_space(self, maze_state: Any) -> Any:
        allowed = np.full(3, maze_state["left"] > 9, np.float32)
        return {**super().maze_to_space(maze_state), "allowed": allowed}


class HalfMask(Seen):
    def maze_to_space(self, maze_state: Any) -> Any:
        return {**super().maze_to_space(maze_state), "allowed": np.float32([0, 0.5, 1])}


class MaskNotANumber(Seen):
    def maze_to_space(self, maze_state: Any) -> Any:
        return {**super().maze_to_space(maze_state), "allowed": np.float32([0, np.nan, 1])}


class AllowsAll(Seen):
    def maze_to_space(self, maze_state: Any) -> Any:
        return {**super().maze_to_space(maze_state), "allowed": np.ones(3, np.float32)}


class Constant(Seen):
    def maze_to_space(self, maze_state: Any) -> Any:
        return {**super().maze_to_space(maze_state), "place": np.float32([0.5, 0.5])}


class TextSpace(Seen):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"place": spaces.Text(3)})


class Huge(Seen):
    def space(self) -> spaces.Dict:
        return spaces.Dict({**super().space(), "place": spaces.Box(-1e9, 1e9, (2,), np.float32)})

    def maze_to_space(self, maze_state: Any) -> Any:
        return {**super().maze_to_space(maze_state), "place": 1e6 * maze_state["place"]}


class MoveChangesState(Move):
    def space_to_maze(self, action: Any, maze_state: Any) -> Any:
        maze_state["last"] = action["move"]
        return super().space_to_maze(action, maze_state)


class BrokenCore(WalkCoreEnv):
    def step(self, maze_action: Any) -> Any:
        if self.state["left"] < 9:
            raise KeyError("inventory")
        return super().step(maze_action)


class GlobalChance(WalkCoreEnv):
    def step(self, maze_action: Any) -> Any:
        self.state["place"] = self.state["place"] + np.float32([0, np.random.normal() / 100])
        return super().step(maze_action)


class Forgetful(WalkCoreEnv):
    """Its `reset` leaves something over."""

    def __init__(self) -> None:
        super().__init__()
        self.worn = 0.0

    def step(self, maze_action: Any) -> Any:
        self.worn += 0.01
        state, reward, *rest = super().step(maze_action)
        return (state, reward - self.worn, *rest)


class NeverEnds(WalkCoreEnv):
    def step(self, maze_action: Any) -> Any:
        state, reward, *_ = super().step(maze_action)
        state["left"] = max(state["left"], 1)
        state["place"] = state["place"].clip(-0.4, 0.4)
        return state, reward, False, False, {}


class Drifts(NeverEnds):
    def step(self, maze_action: Any) -> Any:
        state, *rest = super().step(maze_action)
        state["place"] = np.float32([self.context.env_time / 1000, state["place"][1]])
        return (state, *rest)


class LimitTerminates(WalkCoreEnv):
    def step(self, maze_action: Any) -> Any:
        state, reward, *_ = super().step(maze_action)
        state["place"], state["left"] = state["place"].clip(-0.4, 0.4), max(state["left"], 0)
        return state, reward, self.context.env_time == 6, False, {}


class BothEnds(WalkCoreEnv):
    def step(self, maze_action: Any) -> Any:
        state, reward, terminated, truncated, info = super().step(maze_action)
        return state, reward, terminated or truncated, terminated or truncated, info


class NoReward(WalkCoreEnv):
    def step(self, maze_action: Any) -> Any:
        state, _, *rest = super().step(maze_action)
        return (state, 0.0, *rest)


class LargeReward(WalkCoreEnv):
    def step(self, maze_action: Any) -> Any:
        state, reward, *rest = super().step(maze_action)
        return (state, 1e5 * reward, *rest)


class RewardNotANumber(WalkCoreEnv):
    def step(self, maze_action: Any) -> Any:
        state, reward, *rest = super().step(maze_action)
        return (state, reward if state["left"] > 9 else float("nan"), *rest)


class NeverFires(WalkCoreEnv):
    def step(self, maze_action: Any) -> Any:
        self.events = type("Nothing", (), {"moved": lambda self, by: None, "fallen": lambda self: None})()
        return super().step(maze_action)


class HalfClone(WalkCoreEnv):
    def clone_from(self, env: Any) -> None:
        self.state = dict(env.state)  # without the random generator


class SharedClone(WalkCoreEnv):
    def clone_from(self, env: Any) -> None:
        self.state, self.generator = env.state, env.generator


class Locked(WalkCoreEnv):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class WrapperLeavesSpace(ObservationWrapper):
    def observation(self, observation: Any) -> Any:
        return {**observation, "place": 100 * observation["place"]}


class WrapperSpoilsReward(RewardWrapper):
    def reward(self, reward: float) -> float:
        return float("inf")


class StepSpoilsReward(Wrapper):
    def step(self, action: Any) -> Any:
        observation, _, *rest = self.env.step(action)
        return observation, float("inf"), *rest


class NamesAnotherActor(MazeEnv):
    def actor_id(self) -> ActorID:
        return ActorID(7, 0)


class OldStep(CartPoleEnv):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


FAULTS: list[tuple[Any, str, str, str]] = [
    (walk(seen=TextSpace), "spaces", "error", "sub-step 0.*'place' of type Text"),
    (walk(seen=WrongShape), "steps", "error", r"entry 'place' .* by WrongShape has shape \(3,\); its space has \(2,\)"),
    (walk(seen=MissingName), "steps", "error", r"by MissingName is a dict with \['place'\]; its space has \['all"),
    (walk(seen=NoNames), "steps", "error", r"by NoNames is an array of shape \(2,\) and type float32; its space has"),
    (walk(seen=OutOfBoundsAtOnce), "steps", "error", "'left' .* by OutOfBoundsAtOnce holds 20; its space allows 0 to"),
    (walk(seen=OutOfBounds), "steps", "error", "'place' .* by OutOfBounds holds .*; its space allows -1.0 to 1"),
    (walk(seen=Fraction), "steps", "error", "'left' .* by Fraction has type float64; its space has int64"),
    (walk(core=BrokenCore), "steps", "error", r"KeyError: 'inventory' \(test_checker.py:\d+ in step\)"),
    (walk(core=RewardNotANumber), "steps", "error", "RewardNotANumber returned the reward nan, which is not finite"),
    (walk(seen=AllowsNothing), "steps", "error", "mask 'allowed' in .* by AllowsNothing allows nothing for 'move'"),
    (
        lambda: NamesAnotherActor(WalkCoreEnv(), {0: Move()}, {0: Seen()}),
        "steps",
        "error",
        r"^actor_id\(\) names sub-step 7; declared are \[0\]$",
    ),
    (OldStep(), "steps", "error", "step of OldStep returned a tuple of 4 values"),
    (lambda: WrapperLeavesSpace.wrap(walk()()), "steps", "error", "by Seen, WrapperLeavesSpace holds"),
    (walk(seen=ChangesState), "conversions", "error", "ChangesState.maze_to_space changes the state"),
    (walk(move=MoveChangesState), "conversions", "error", "MoveChangesState.space_to_maze changes the state"),
    (walk(seen=OneBuffer), "memory", "error", "'place' of sub-step 0 by OneBuffer changes after it was returned"),
    (walk(core=GlobalChance), "determinism", "error", "and actions there was another reward at environment step 1"),
    (walk(core=Forgetful), "determinism", "error", "and actions there was another reward at environment step 1"),
    (walk(core=NeverEnds), "episodes", "warning", "none ended within 400 acts: add TimeLimitWrapper"),
    (walk(core=LimitTerminates), "episodes", "warning", "all terminated after 7 steps: if that is a time limit"),
    (walk(core=BothEnds), "episodes", "warning", "terminated and truncated occur together"),
    (walk(seen=HalfMask), "steps", "error", r"by HalfMask \(act 0\): the mask 'allowed' of .* holds \[0.5\]"),
    (
        walk(seen=MaskNotANumber),
        "steps",
        "error",
        r"by MaskNotANumber \(act 0\): the mask 'allowed' of .* holds \[nan\]",
    ),
    (walk(seen=AllowsAll), "masks", "warning", "'allowed' of sub-step 0 by AllowsAll never forbids anything"),
    (walk(seen=NotANumber), "observations", "error", "'place' of sub-step 0 by NotANumber is not finite: it holds nan"),
    (walk(seen=Constant), "observations", "warning", "'place' of sub-step 0 by Constant never changes"),
    (
        walk(seen=Huge),
        "observations",
        "warning",
        "'place' of sub-step 0 by Huge has a size .*use ObservationNormalizationWrapper",
    ),
    (walk(core=Drifts), "observations", "warning", "'place' of sub-step 0 by Seen drifts"),
    (walk(core=NoReward), "rewards", "warning", "never changes"),
    (walk(core=LargeReward), "rewards", "warning", "has a size .*use RewardScalingWrapper"),
    (lambda: WrapperSpoilsReward.wrap(walk()()), "steps", "error", "WrapperSpoilsReward turned .* into inf"),
    (lambda: StepSpoilsReward.wrap(walk()()), "rewards", "error", "is not finite: it holds inf"),
    (walk(core=NeverFires), "events", "warning", "never fired: WalkEvents.moved, WalkEvents.fallen"),
    (walk(core=HalfClone), "saving", "error", "a copy leads to (another|EnvContractError)"),
    (walk(core=SharedClone), "saving", "error", "a copy leads to (another|EnvContractError)"),
    (walk(core=Locked), "saving", "warning", "a copy leads to TypeError: .*lock.*; let clone_from copy"),
    (walk(core=Locked)(), "pickling", "warning", "cannot be sent to other processes.*lock"),
    ("CartPole-v1", "spaces", "error", "'CartPole-v1'"),
    (lambda: 3, "spaces", "error", "'3' of type int"),
]


@pytest.mark.parametrize(
    ("env", "name", "verdict", "explanation"), FAULTS, ids=[f"{row[1]}: {row[3][:40]}" for row in FAULTS]
)
def test_a_fault_is_found_and_named_and_nothing_else_is_wrong(
    env: Any, name: str, verdict: str, explanation: str
) -> None:
    report = check_env(env, n_steps=400)
    found = [line for line in report.lines if line.verdict == verdict and line.name == name]
    assert len(found) == 1, str(report)
    assert re.search(explanation, found[0].explanation), found[0].explanation
    errors = [line for line in report.lines if line.verdict == "error"]
    assert errors == (found if verdict == "error" else []), str(report)
    assert report.ok == (verdict != "error")


class Beyond(HeapCoreEnv):
    """Counts its workers from 1."""

    def actor_id(self) -> ActorID:
        actor = super().actor_id()
        return actor if actor.step_key == "plan" else ActorID("work", actor.agent_id + 1)


class BelowZero(HeapCoreEnv):
    """Counts its workers from -1, and does not say how many there are."""

    def actor_id(self) -> ActorID:
        actor = super().actor_id()
        return actor if actor.step_key == "plan" else ActorID("work", actor.agent_id - 1)

    @property
    def agent_counts_dict(self) -> dict[int | str, int]:
        return {"plan": 1, "work": -1}


class ActsAgain(HeapCoreEnv):
    """Says that worker 0 is done after its first act."""

    def is_actor_done(self) -> bool:
        return self.context.env_time == 0 and self.actor == ("work", 1)


class EndsEarly(HeapCoreEnv):
    """Says that worker 1 is done after the first step."""

    def get_done_actors(self) -> list[ActorID]:
        return [ActorID("work", 1)] if self.context.env_time == 1 else []


class EndsLate(HeapCoreEnv):
    """Says that worker 1 is done after a step in which it rests."""

    def get_done_actors(self) -> list[ActorID]:
        return [ActorID("work", 1)] if self.context.env_time == N_STEPS else []


class ShortInTheLastStep(HeapCoreEnv):
    """Attributes too few rewards where the episode ends."""

    def get_actor_rewards(self) -> np.ndarray | None:
        rewards = super().get_actor_rewards()
        return rewards[1:] if rewards is not None and self.context.env_time == N_STEPS else rewards


@pytest.mark.parametrize(
    ("core", "explanation"),
    [
        (Beyond, r"^actor_id\(\) names agent 3 of sub-step 'work'; there are 3, numbered from 0$"),
        (BelowZero, r"^actor_id\(\) names agent -1 of sub-step 'work'; agents are numbered from 0$"),
        (ActsAgain, r"^actor_id\(\) names agent 0 of sub-step 'work', which is done; is_actor_done\(\) tells of"),
        (EndsEarly, r"^actor_id\(\) names agent 1 of sub-step 'work', which is done; .* as get_done_actors\(\) does$"),
        (EndsLate, r"^get_done_actors\(\) names agent 1 of sub-step 'work', which has not acted in the environment"),
        (ShortInTheLastStep, r"returned shape \(2,\) for 3 acts; return one reward for each act"),
    ],
)
def test_faults_of_several_actors_are_found(core: type[HeapCoreEnv], explanation: str) -> None:
    def make() -> Any:
        env: Any = make_heap_env()
        env.core_env.__class__ = core
        return env

    report = check_env(make, n_steps=100)
    (line,) = (line for line in report.lines if line.verdict == "error")
    assert line.name == "steps" and re.search(explanation, line.explanation), str(report)


class Changing(HeapCoreEnv):
    """Does not say how many workers there are."""

    @property
    def agent_counts_dict(self) -> dict[int | str, int]:
        return {"plan": 1, "work": -1}


class NeverDone(Changing):
    """Does not tell of the worker that retires."""

    def is_actor_done(self) -> bool:
        return False


class DoneAtTheEnd(NeverDone):
    """Tells of the worker that retires when the step ends."""

    def get_done_actors(self) -> list[ActorID]:
        return [ActorID("work", 1)] if self.context.env_time == RETIREMENT else []


@pytest.mark.parametrize(("core", "is_warned"), [(Changing, False), (NeverDone, True), (DoneAtTheEnd, False)])
def test_agents_that_leave_without_being_done_are_warned_of(core: type[HeapCoreEnv], is_warned: bool) -> None:
    def make() -> Any:
        env: Any = make_heap_env()
        env.core_env.__class__ = core
        return env

    report = check_env(make, n_steps=100)
    found = [line.explanation for line in report.lines if line.name == "steps" and line.verdict == "warning"]
    assert len(found) == is_warned and report.ok, str(report)
    if is_warned:
        expected = r"^\d of \d+ agents of sub-step 'work' stop acting .* is_actor_done\(\) must be true"
        assert re.search(expected, found[0])


def test_an_environment_whose_time_never_advances_is_found() -> None:
    report = check_env(make_timeless, n_steps=100)
    (line,) = (line for line in report.lines if line.verdict == "error")
    assert line.name == "env_time"
    assert "call self.context.increment_env_step() in the act that completes an environment step" in line.explanation


def normalised() -> RewardWrapper:
    limited = TimeLimitWrapper.wrap(GymMazeEnv("Pendulum-v1"), max_episode_steps=50)
    return ReturnNormalizationRewardWrapper.wrap(ObservationNormalizationWrapper.wrap(limited))


class PlainNumber(Seen):
    def maze_to_space(self, maze_state: Any) -> Any:
        return {**super().maze_to_space(maze_state), "left": maze_state["left"]}


SOUND: list[tuple[str, Any, list[str] | None]] = [
    ("a walk", walk(), []),
    ("a walk itself", walk()(), []),
    ("a number that is not an array", walk(seen=PlainNumber), []),
    ("CartPole", lambda: GymMazeEnv("CartPole-v1"), []),
    ("gymnasium's own", gymnasium.make("CartPole-v1"), []),
    ("Pendulum", lambda: GymMazeEnv("Pendulum-v1"), []),
    ("images of bytes", lambda: GymMazeEnv(CatchEnv()), ["episodes"]),  # which always take as many steps
    ("a heap", make_heap_env, ["episodes"]),  # it always takes four steps
    ("sub-steps", lambda: TwoHalvesWrapper.wrap(GymMazeEnv("CartPole-v1")), []),
    ("wrappers that learn", normalised, []),
    ("wrappers that learn themselves", normalised(), []),
    ("cutting", lambda: masked_struct_env_factory(20, (10, 10), (3, 4)), None),
]


@pytest.mark.parametrize(("env", "warned"), [row[1:] for row in SOUND], ids=[row[0] for row in SOUND])
def test_nothing_is_wrong_with_a_sound_environment(env: Any, warned: list[str] | None) -> None:
    report = check_env(env, n_steps=500)
    assert report.ok, str(report)
    assert warned is None or [line.name for line in report.lines if line.verdict == "warning"] == warned, str(report)


def test_a_report_is_a_table_of_at_most_100_columns() -> None:
    lines = (CheckLine("steps", "ok", "all well"), CheckLine("vectorization", "error", "wrong " * 40))
    text = str(CheckReport("Walk: 3 acts in 1 episodes", lines))
    assert max(map(len, text.splitlines())) <= 100
    assert text.splitlines()[:3] == [
        "Walk: 3 acts in 1 episodes",
        "check         | verdict | explanation",
        "steps         | ok      | all well",
    ]
    assert text.endswith("errors: 1, warnings: 0")
    assert text.count("wrong") == 40


def test_what_is_learned_is_estimated_once_and_what_runs_is_left_as_it_was() -> None:
    env = normalised()
    assert check_env(env, n_steps=200).ok
    learned = env.state_dict()
    assert check_env(env, n_steps=100, seed=1).ok
    assert env.state_dict() == learned


class Strict(gymnasium.Env[Any, Any]):
    """Refuses what its mask forbids; importable, since a class that is pickled by value forgets its file."""

    observation_space = spaces.Dict({"mask": spaces.MultiBinary(3), "x": spaces.Box(-1, 1, (1,))})
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._observe(), {}

    def _observe(self) -> Any:
        self.forbidden = int(self.np_random.integers(3))
        mask = np.ones(3, np.int8)
        mask[self.forbidden] = 0
        return {"mask": mask, "x": self.np_random.uniform(-1, 1, 1).astype(np.float32)}

    def step(self, action: Any) -> Any:
        if action == self.forbidden:
            raise RuntimeError(f"{action} is forbidden")
        x = self._observe()
        return x, float(x["x"][0]), bool(x["x"] > 0.9), False, {}


def test_masks_can_be_given_and_are_obeyed() -> None:
    report = check_env(Strict, n_steps=200, action_masks={"action": "mask"})
    assert report.ok, str(report)
    (line,) = (line for line in check_env(Strict, n_steps=200).lines if line.verdict == "error")
    assert "RuntimeError" in line.explanation
    assert "test_checker.py" in line.explanation


class BrokenReset(gymnasium.Env[Any, Any]):
    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self) -> Any:  # type: ignore[override]
        return 0, {}


class BrokenStep(BrokenReset):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        return 0, 0.0


@pytest.mark.parametrize(
    ("env", "title", "explanation"),
    [
        (BrokenReset, "BrokenReset: 0 acts in 0 episodes", "reset of BrokenReset takes no seed and no options"),
        (BrokenStep, "BrokenStep: 0 acts in 1 episode", "step of BrokenStep returned a tuple of 2 values"),
    ],
)
def test_a_broken_interface_is_explained(env: Any, title: str, explanation: str) -> None:
    report = check_env(env, n_steps=20)
    assert report.title == title
    (line,) = (line for line in report.lines if line.verdict == "error")
    assert explanation in line.explanation and "TypeError" not in line.explanation


def test_too_few_acts_are_refused() -> None:
    with pytest.raises(ValueError, match="n_steps=3 must be at least 10"):
        check_env(walk(), n_steps=3)
