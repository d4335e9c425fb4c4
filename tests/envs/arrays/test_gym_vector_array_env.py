"""Gymnasium's vector environments give the numbers of the environments for single episodes, in each autoreset mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from maze_pl.collect.episodes import play_episodes
from maze_pl.config.factories import Factory
from maze_pl.envs import ArrayVectorEnv, GymMazeEnv, GymVectorArrayEnv, SequentialVectorEnv
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.checker import compare_envs
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import LogStatsWrapper, ObservationStackWrapper
from tests.envs.arrays.fuse_vectors import MODES, N, fuses, in_sync, singles, streams
from tests.envs.arrays.fuses import Fuse, FusePolicy, FuseVector


@pytest.mark.parametrize("mode", MODES)
def test_vectors_of_single_environments_equal_these_with_all_seeds(mode: AutoresetMode) -> None:
    comparison = compare_envs(
        lambda: ArrayVectorEnv(lambda: in_sync(mode), N, seed=5), lambda: singles(uses_seed=True), n_steps=300
    )
    assert comparison.difference is None
    assert comparison.n_episodes > 30


class Reusing(gymnasium.Env[Any, Any]):
    """Counts noisily up to a random number, always in the same array."""

    observation_space = spaces.Box(-100, 100, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.seen = np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Start at 0."""
        super().reset(seed=seed)
        self.last = self.np_random.integers(3, 9)
        self.seen[:] = self.np_random.normal(), 0
        return self.seen, {}

    def step(self, action: Any) -> Any:
        """Count."""
        self.seen += np.array([self.np_random.normal(), 1], np.float32)
        return self.seen, float(action), False, bool(self.seen[1] >= self.last), {}


@pytest.mark.parametrize("mode", MODES)
def test_final_observations_are_right_where_an_environment_reuses_its_array(mode: AutoresetMode) -> None:
    def make() -> GymVectorArrayEnv:
        return GymVectorArrayEnv(lambda n: gymnasium.vector.SyncVectorEnv([Reusing] * n, autoreset_mode=mode))

    one_by_one = [lambda: LogStatsWrapper.wrap(GymMazeEnv(Reusing()))] * N
    comparison = compare_envs(
        lambda: ArrayVectorEnv(make, N, seed=2), lambda: SequentialVectorEnv(one_by_one, seed=2), n_steps=200
    )
    assert comparison.difference is None
    assert comparison.n_episodes > 30


def test_a_mask_and_a_list_of_seeds_give_each_episode_its_seed() -> None:
    def make() -> GymVectorArrayEnv:
        return GymVectorArrayEnv(lambda n: FuseVector(n, AutoresetMode.DISABLED), seed_each=True)

    comparison = compare_envs(lambda: ArrayVectorEnv(make, N, seed=5), lambda: singles(uses_seed=True), n_steps=300)
    assert comparison.difference is None


@pytest.mark.parametrize("batched_finals", [False, True])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_environments_that_reset_themselves_equal_single_ones(mode: AutoresetMode, batched_finals: bool) -> None:
    make = fuses(mode, batched_finals=batched_finals)
    comparison = compare_envs(lambda: ArrayVectorEnv(make, N, seed=5), singles, n_steps=300)
    assert comparison.difference is None
    assert comparison.n_episodes > 30


@pytest.mark.parametrize("n_steps", [1, 9])
def test_transitions_that_only_restart_reach_neither_rollouts_nor_statistics(n_steps: int) -> None:
    n_rollouts = 90 // n_steps
    late = ArrayVectorEnv(fuses(AutoresetMode.NEXT_STEP), N, seed=5)
    acts, finals, summaries = streams(late, n_rollouts, n_steps)
    expected, expected_finals, expected_summaries = streams(singles(), n_rollouts, n_steps)
    for n in range(N):
        n_acts = len(acts[n]["reward"])
        n_ends = int((acts[n]["terminated"] | acts[n]["truncated"]).sum())
        assert 90 - n_ends <= n_acts < 90
        for name, tensor in acts[n].items():
            assert torch.equal(tensor, expected[n][name][:n_acts]), name
        assert all(torch.equal(one, other) for one, other in zip(finals[n], expected_finals[n], strict=False))
    assert sum(map(len, finals)) > 5
    outcomes = {(one.env_steps, one.reward) for one in summaries}
    assert outcomes == {(one.env_steps, one.reward) for one in expected_summaries}


def test_wrappers_see_no_transition_that_only_restarts() -> None:
    days = {"observation": "level", "tag": "days", "keep_original": True, "stack_steps": 3}
    stack = partial(ObservationStackWrapper, stack_config=[days])
    late = ArrayVectorEnv(partial(make_wrapped_arrays, fuses(AutoresetMode.NEXT_STEP), [stack]), N, seed=5)
    factories = [partial(make_wrapped, partial(Fuse, number), [stack]) for number in range(N)]
    acts, _, _ = streams(late, 5)
    expected, _, _ = streams(SequentialVectorEnv(factories, seed=5), 5)
    for n in range(N):
        stacks = acts[n]["level-days"]
        assert len(stacks) < 45
        assert torch.equal(stacks, expected[n]["level-days"][: len(stacks)])


class Pair(gymnasium.Env[Any, Any]):
    """An environment whose spaces are nested and Tuples."""

    observation_space = spaces.Tuple(
        [spaces.Box(-9, 9, (2,), np.float32), spaces.Dict({"inner": spaces.MultiBinary(3)})]
    )
    action_space = spaces.Tuple([spaces.Discrete(3), spaces.MultiDiscrete([2, 4])])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2).astype(np.float32)
        return self.observation(), {}

    def observation(self) -> Any:
        return self.place.copy(), {"inner": (np.arange(3) < self.place.sum()).astype(np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        first, second = action
        self.place += np.float32(0.1) * np.asarray(second, np.float32) + np.float32(first - 1)
        self.place += self.np_random.normal(size=2).astype(np.float32)
        is_over = bool(np.abs(self.place).max() > 4)
        return self.observation(), float(self.place[0]), is_over, False, {"note": "text"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_nested_and_tuple_spaces_have_the_names_of_single_environments(kind: str, mode: AutoresetMode) -> None:
    form: Any = gymnasium.vector.SyncVectorEnv if kind == "sync" else gymnasium.vector.AsyncVectorEnv
    make = partial(GymVectorArrayEnv, lambda n: form([Pair] * n, autoreset_mode=mode))
    pairs = [lambda: LogStatsWrapper.wrap(GymMazeEnv(Pair()))] * N
    comparison = compare_envs(
        lambda: ArrayVectorEnv(make, N, seed=5), lambda: SequentialVectorEnv(pairs, seed=5), n_steps=200
    )
    assert comparison.difference is None
    assert comparison.n_episodes > 5


def test_environments_without_a_state_cannot_be_copied() -> None:
    one, other = (ArrayMazeEnv(GymVectorArrayEnv("CartPole-v1")) for _ in range(2))
    one.reset(seed=1)
    with pytest.raises(TypeError, match="GymVectorArrayEnv cannot be copied: its state cannot be saved"):
        other.clone_from(one)


@pytest.mark.parametrize("mode", MODES)
def test_evaluation_plays_the_same_episodes_however_often(mode: AutoresetMode) -> None:
    vector = ArrayVectorEnv(lambda: in_sync(mode), N, seed=5, autoreset=False, seed_by_env=False)
    policy: Any = FusePolicy()
    found = []
    for episodes in (range(4), range(4, 6), range(4), range(4, 6)):
        played = play_episodes(vector, policy, episodes, deterministic=True)
        found.append([(one.env_steps, one.reward) for one in played])
    assert found[:2] == found[2:]
    assert len(set(found[0] + found[1])) > 1


@pytest.mark.parametrize("vectorization_mode", ["vector_entry_point", "sync"])
def test_cartpole_is_made_by_name(vectorization_mode: Any) -> None:
    make = partial(GymVectorArrayEnv, "CartPole-v1", vectorization_mode, max_episode_steps=9)
    vector = ArrayVectorEnv(make, 3, seed=1)
    vector.reset()
    for _ in range(30):
        vector.step()
    assert {one.env_steps for one in vector.drain_summaries()} <= set(range(8, 10))
    assert make().starts_late == (vectorization_mode == "vector_entry_point")
    vector.close()


def test_a_single_environment_gets_its_seed_from_any_vector_environment() -> None:
    array_env = GymVectorArrayEnv("CartPole-v1")
    array_env.allocate(1)
    first = array_env.reset(np.zeros(1, np.int64), np.array([7])).observation[0]["observation"].copy()
    array_env.step({0: {"action": np.array([1])}}, slice(None))
    again = array_env.reset(np.zeros(1, np.int64), np.array([7])).observation[0]["observation"]
    assert np.array_equal(first, again)


def test_resuming_starts_new_episodes_and_says_which() -> None:
    vector = ArrayVectorEnv(fuses(AutoresetMode.SAME_STEP), N, seed=5)
    vector.reset()
    state = vector.state_dict()
    resumed = ArrayVectorEnv(fuses(AutoresetMode.SAME_STEP), N, seed=5)
    assert resumed.load_state_dict(state) == [0, 1, 2, 3]
    assert resumed.state_dict()["episodes"].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("declared", "acts_as", "message"),
    [
        (
            "NextStep",
            None,
            r"FuseVector declares the autoreset mode 'NextStep'; set metadata.*'AutoresetMode.NEXT_STEP'",
        ),
        (None, AutoresetMode.DISABLED, "FuseVector declares no autoreset mode; set metadata"),
        (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, r"environment 1\d of FuseVector ended without final_obs"),
        (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, "NEXT_STEP, but its step returned final_obs"),
        (AutoresetMode.DISABLED, AutoresetMode.SAME_STEP, "DISABLED, but its step returned final_obs"),
    ],
)
def test_a_wrong_autoreset_mode_is_refused(declared: Any, acts_as: Any, message: str) -> None:
    with pytest.raises(EnvContractError, match=message):
        streams(ArrayVectorEnv(fuses(declared, acts_as=acts_as), N, seed=5, first_env_index=10), 1)


class Faulty(FuseVector):
    """Changes what a step returns.

    Args:
        num_envs: Number of environments.
        change: Changes a list of observation, rewards, terminations, truncations and infos.
    """

    def __init__(self, num_envs: int, change: Callable[[list[Any]], None], mode: Any = AutoresetMode.DISABLED) -> None:
        super().__init__(num_envs, mode)
        self.change = change

    def step(self, actions: Any) -> Any:
        result = list(super().step(actions))
        self.change(result)
        return tuple(result)


def put(place: int, value: Any) -> Callable[[list[Any]], None]:
    return lambda result: result.__setitem__(place, value)


FAULTS: list[tuple[Callable[[list[Any]], None], str]] = [
    (put(0, {"level": np.zeros((3, 1), np.float32), "day": np.zeros(4, np.int64)}), r"'level'.*\(3, 1\).*\(4, 1\)"),
    (put(0, {"level": np.zeros((4, 1), "U1"), "day": np.zeros(4, np.int64)}), "'level'.*<U1.*float32"),
    (put(0, {"level": np.zeros((4, 1), np.float32)}), r"Faulty returned observations a dict with \['level'\]"),
    (put(1, np.zeros(5)), "reward of GymVectorArrayEnv is .*expected numbers"),
    (put(2, np.zeros(4)), r"terminations of Faulty .*float64; expected booleans of shape \(4,\)"),
    (put(3, np.zeros(3, np.bool_)), r"truncations of Faulty .*\(3,\).*; expected booleans of shape \(4,\)"),
    (lambda result: result.pop(), "step of Faulty returned a tuple of 4 values; expected"),
    (lambda result: result[1].__setitem__(2, np.nan), "reward.* of environment 2.*not finite"),
    (lambda result: result[0]["level"].__setitem__(3, np.nan), "'level' of environment 3.*not finite"),
]


@pytest.mark.parametrize(("change", "message"), FAULTS)
def test_faulty_results_of_a_step_are_named(change: Callable[[list[Any]], None], message: str) -> None:
    vector = ArrayVectorEnv(lambda: GymVectorArrayEnv(lambda n: Faulty(n, change)), N, seed=5)
    with pytest.raises(EnvContractError, match=message):
        streams(vector, 1, 3)


def _without_one(result: list[Any]) -> None:
    result[4]["final_obs"][:] = None


def _of_earlier_gymnasium(result: list[Any]) -> None:
    result[4] = {name.replace("final_obs", "final_observation"): value for name, value in result[4].items()}


def _incomplete(result: list[Any]) -> None:
    for final in result[4]["final_obs"]:
        final.pop("day")


def _in_the_memory_of_the_next(result: list[Any]) -> None:
    level = result[0]["level"]
    for n, final in enumerate(result[4]["final_obs"]):
        final["level"] = level[n]


def _all_in_the_memory_of_the_next(result: list[Any]) -> None:
    result[4]["final_obs"] = result[0]


_OVERWRITTEN = "final_obs of Faulty is a view of the observations .* have overwritten it; put a copy into infos"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_in_the_memory_of_the_next, _OVERWRITTEN),
        (_all_in_the_memory_of_the_next, _OVERWRITTEN),
        (_without_one, r"Faulty returned final_obs of environment 1\d None; expected observations of Dict"),
        (_incomplete, r"Faulty returned final_obs of environment 1\d a dict with \['level'\]; expected obs"),
        (
            _of_earlier_gymnasium,
            r"environment 1\d of Faulty ended without final_obs.*; rename final_observation in inf",
        ),
    ],
)
def test_final_observations_that_cannot_be_read_are_named(change: Any, message: str) -> None:
    def change_at_ends(result: list[Any]) -> None:
        if "final_obs" in result[4]:
            change(result)

    def make() -> GymVectorArrayEnv:
        return GymVectorArrayEnv(lambda n: Faulty(n, change_at_ends, AutoresetMode.SAME_STEP))

    with pytest.raises(EnvContractError, match=message):
        streams(ArrayVectorEnv(make, N, seed=5, first_env_index=10), 1)


def test_a_restart_with_a_reward_is_refused() -> None:
    def change(result: list[Any]) -> None:
        result[1][:] = 1.0

    make = partial(GymVectorArrayEnv, lambda n: Faulty(n, change, AutoresetMode.NEXT_STEP))
    with pytest.raises(EnvContractError, match=r"environment \d gave reward 1.0 .*NEXT_STEP of Faulty requires"):
        streams(ArrayVectorEnv(make, N, seed=5), 1)


def make_vector(n_envs: int = 1) -> FuseVector:
    return FuseVector(n_envs)


def make_unannotated(n_envs):  # type: ignore[no-untyped-def]
    return FuseVector(n_envs)


@pytest.mark.parametrize("function", [make_vector, make_unannotated])
def test_a_function_in_a_configuration_makes_a_vector_of_the_number_that_it_is_given(function: Any) -> None:
    named = {"class_path": f"{__name__}.{function.__name__}"}
    env = Factory("maze_pl.envs.GymVectorArrayEnv", {"env": named})()
    env.allocate(3)
    observation = env.reset(np.arange(3), seeds=np.arange(3)).observation[0]
    assert {len(values) for values in observation.values()} == {3}
    env.close()


def test_refuses_what_makes_no_vector_environment() -> None:
    with pytest.raises(EnvContractError, match=r"made .*; expected a gymnasium.vector.VectorEnv"):
        GymVectorArrayEnv(lambda n: Fuse())  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="Pendulum-v1 has no vector form"):
        GymVectorArrayEnv("Pendulum-v1")
    with pytest.raises(ValueError, match=r"^Environment `CartPol` doesn't exist. Did you mean: `CartPole`\?$"):
        GymVectorArrayEnv("CartPol-v1", vectorization_mode="sync")
    with pytest.raises(ValueError, match=r"^Environment version `v99` for environment `CartPole` doesn't exist[^;]*$"):
        GymVectorArrayEnv("CartPole-v99")
    with pytest.raises(ValueError, match=r"doesn't exist\..* write {class_path: tests\.fuses\.make_vector}\.$"):
        GymVectorArrayEnv("tests.fuses.make_vector")
    with pytest.raises(ModuleNotFoundError, match=r"^[^{]*$"):
        GymVectorArrayEnv("no.such_module:Env-v0")
    with pytest.raises(TypeError, match="are arguments for making an environment by name"):
        GymVectorArrayEnv(FuseVector, gravity=1)
    with pytest.raises(ValueError, match="DISABLED, which needs reset_mask"):
        GymVectorArrayEnv(FuseVector, reset_mask=False)
    with pytest.raises(EnvContractError, match="has num_envs=2; expected 1"):
        GymVectorArrayEnv(lambda n: FuseVector(2))


def test_environments_that_start_late_are_not_compared() -> None:
    make = fuses(AutoresetMode.NEXT_STEP)
    with pytest.raises(ValueError, match="starts its episodes one step late"):
        compare_envs(lambda: ArrayVectorEnv(make, N), singles)
