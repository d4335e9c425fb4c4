"""An environment that breaks its contract is named, with what came and what was expected, however it is stepped."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.collect.collector import Collector
from maze_pl.collect.episodes import play_acts, play_episodes
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import GymMazeEnv, MazeEnv, RewardWrapper, Wrapper
from maze_pl.envs.contract import EnvContractError, check_observation
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv, VectorEnv
from maze_pl.envs.wrappers import LogStatsWrapper
from tests.envs.structured_example import HeapCoreEnv, WorkObservation, make_heap_env

BOX = spaces.Box(-9, 9, (2,), np.float32)
DICT = spaces.Dict({"x": BOX, "y": spaces.Discrete(5)})
GOOD = np.zeros(2, np.float32)


class Broken(gymnasium.Env[Any, Any]):
    """Behaves until one of its results is replaced."""

    def __init__(self, at: int, change: Callable[[Any], Any], observation_space: spaces.Space[Any] = BOX) -> None:
        self.observation_space, self.action_space = observation_space, spaces.Discrete(2)
        self.at, self.change, self.n_calls = at, change, -1

    def _result(self, result: Any) -> Any:
        self.n_calls += 1
        return self.change(result) if self.n_calls == self.at else result

    def _observe(self) -> Any:
        return {"x": GOOD, "y": 1} if self.observation_space is DICT else GOOD

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._result((self._observe(), {}))

    def step(self, action: Any) -> Any:
        return self._result((self._observe(), 1.0, False, False, {}))


def put(index: int, value: Any) -> Callable[[Any], Any]:
    """Replace one part of a result."""
    return lambda result: (*result[:index], value, *result[index + 1 :])


RESETS: list[tuple[str, Callable[[Any], Any], spaces.Space[Any], str]] = [
    (
        "the old interface",
        lambda r: r[0],
        BOX,
        r"reset of Broken returned an array of shape \(2,\).*old interface; exp",
    ),
    ("nothing", lambda r: None, BOX, r"reset of Broken returned None; expected \(observation, info dict\)"),
    ("three values", lambda r: (*r, 1), BOX, "reset of Broken returned a tuple of 3 values"),
    (
        "no info",
        put(1, 3),
        BOX,
        "reset of Broken returned a tuple of 2 values with '3' of type int instead of info",
    ),
    (
        "a wrong shape",
        put(0, np.zeros(3)),
        BOX,
        r"that reset of Broken returned has shape \(3,\); its space has \(2,\)",
    ),
    ("a shape that fits by accident", put(0, np.zeros(1)), BOX, r"has shape \(1,\); its space has \(2,\)"),
    ("no observation", put(0, None), BOX, "that reset of Broken returned is None; its space expects float32"),
    ("text", put(0, "ab"), BOX, "returned is 'ab' of type str; its space expects float32"),
    ("text among numbers", put(0, [1.0, "2"]), BOX, "is a list of 2 values, one of which is '2'; its space expects"),
    ("rows of all lengths", put(0, [[1], [1, 2]]), BOX, "is a list of 2 values; its space expects float32"),
    ("a missing key", put(0, {"x": GOOD}), DICT, r"is a dict with \['x'\]; its space has \['x', 'y'\]"),
    ("another key", put(0, {"x": GOOD, "y": 1, "z": 2}), DICT, r"is a dict with \['x', 'y', 'z'\]; its space has"),
    (
        "a wrong part",
        put(0, {"x": GOOD, "y": None}),
        DICT,
        "entry 'y' of the observation .* is None; its space expects int",
    ),
]
STEPS: list[tuple[str, Callable[[Any], Any], spaces.Space[Any], str]] = [
    (
        "the old interface",
        lambda r: (*r[:2], False, {}),
        BOX,
        r"step of Broken returned a tuple of 4 values; .*gym's old",
    ),
    ("nothing", lambda r: None, BOX, "step of Broken returned None; expected .observation, reward, terminated"),
    ("a number", lambda r: 3, BOX, "step of Broken returned '3' of type int; expected"),
    ("six values", lambda r: (*r, 1), BOX, "step of Broken returned a tuple of 6 values"),
    ("no reward", put(1, None), BOX, "step of Broken returned None as reward; expected one number"),
    (
        "rewards",
        put(1, np.zeros(2)),
        BOX,
        r"returned an array of shape \(2,\) and type float64 as reward; expected one number",
    ),
    ("a reward in a list", put(1, [1.0]), BOX, "step of Broken returned a list of 1 values as reward; expected one"),
    ("a reward in words", put(1, "much"), BOX, "step of Broken returned 'much' of type str as reward"),
    ("an end in words", put(2, "False"), BOX, "returned terminated='False' of type str; expected True or False"),
    ("a limit in words", put(3, "yes"), BOX, "returned truncated='yes' of type str; expected True or False"),
    ("a wrong shape", put(0, np.zeros(3)), BOX, r"has shape \(3,\); its space has \(2,\)"),
    ("a shape that broadcasts", put(0, np.zeros(1, np.float32)), BOX, r"has shape \(1,\); its space has \(2,\)"),
    ("a number for many", put(0, 0.5), BOX, r"has shape \(\); its space has \(2,\)"),
    ("complex numbers", put(0, np.zeros(2, np.complex64)), BOX, "type complex64; its space expects float32"),
    ("numbers as text", put(0, np.array(["1", "2"])), BOX, "type <U1; its space expects float32"),
    ("a part that broadcasts", put(0, {"x": GOOD[:1], "y": 1}), DICT, r"'x' .* has shape \(1,\); its space has \(2,\)"),
    ("a reward as text", put(1, "1"), BOX, "step of Broken returned '1' of type str as reward; expected one number"),
    ("a complex reward", put(1, 1j), BOX, "step of Broken returned '1j' of type complex as reward; expected one"),
    ("no end", put(2, None), BOX, "step of Broken returned terminated=None; expected True or False"),
    ("no limit", put(3, None), BOX, "step of Broken returned truncated=None; expected True or False"),
    ("text", put(0, "ab"), BOX, "is 'ab' of type str; its space expects float32"),
    ("a missing key", put(0, {"x": GOOD}), DICT, r"is a dict with \['x'\]; its space has \['x', 'y'\]"),
    ("no dict", put(0, GOOD), DICT, r"is an array of shape \(2,\) and type float32; its space has \['x', 'y'\]"),
]


class Transparent(Wrapper):
    """Changes nothing, but is in the way."""


def plain(env: gymnasium.Env[Any, Any]) -> Any:
    return GymMazeEnv(env)


def layered(env: gymnasium.Env[Any, Any]) -> Any:
    return Transparent.wrap(GymMazeEnv(env))


def in_order(env: gymnasium.Env[Any, Any]) -> Any:
    """As gymnasium makes it: its own wrappers unpack results before we see them."""
    return GymMazeEnv(gymnasium.wrappers.TimeLimit(gymnasium.wrappers.OrderEnforcing(env), 100))


def collect(vector: VectorEnv, n_rollout_steps: int = 4) -> None:
    try:
        policy = RandomPolicy({key: step.action_space for key, step in vector.spec.steps.items()})
        Collector(vector, n_rollout_steps, torch.Generator().manual_seed(0)).collect(policy)
    finally:
        vector.close()


def good() -> Broken:
    return Broken(-9, put(0, 0))


@pytest.mark.parametrize("wrap", [plain, layered, in_order])
@pytest.mark.parametrize(
    ("change", "space", "message"), [case[1:] for case in RESETS], ids=[case[0] for case in RESETS]
)
def test_a_broken_reset_is_explained(wrap: Any, change: Any, space: Any, message: str) -> None:
    vector = SequentialVectorEnv([lambda: wrap(Broken(-9, change, space)), lambda: wrap(Broken(0, change, space))])
    with pytest.raises(EnvContractError, match=f"^environment 1: .*{message}"):
        collect(vector)


class WithoutSeed(Broken):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class WithoutOptions(Broken):
    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


class AroundWithoutSeed(gymnasium.Wrapper[Any, Any, Any, Any]):
    def reset(self, **kwargs: Any) -> Any:
        return self.env.reset(**kwargs)


class OutsideWithoutSeed(gymnasium.Wrapper[Any, Any, Any, Any]):
    def reset(self, options: Any = None) -> Any:  # type: ignore[override]
        return self.env.reset(options=options)


@pytest.mark.parametrize("wrap", [plain, layered, in_order])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WithoutSeed(-9, put(0, 0)), "reset of WithoutSeed takes no seed and no options, as in gym's"),
        (lambda: WithoutOptions(-9, put(0, 0)), "reset of WithoutOptions takes no options, as in gym's"),
        (lambda: AroundWithoutSeed(WithoutSeed(-9, put(0, 0))), "reset of WithoutSeed takes no seed and no options"),
        (lambda: OutsideWithoutSeed(good()), "reset of OutsideWithoutSeed takes no seed, as in gym's old interface"),
    ],
)
def test_a_reset_without_seed_or_options_is_explained(wrap: Any, make: Any, message: str) -> None:
    with pytest.raises(EnvContractError, match=rf"{message}.*; expected reset\(self, \*, seed=None, options=None\)"):
        collect(SequentialVectorEnv([lambda: wrap(make())]))
    with pytest.raises(EnvContractError, match=message):
        wrap(make()).reset(seed=1)


def test_a_type_error_in_a_reset_passes_as_it_is() -> None:
    class Failing(Broken):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return self.reset(level=3)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match=r"unexpected keyword argument 'level'"):
        plain(Failing(-9, put(0, 0))).reset()


def test_a_type_error_in_a_compiled_reset_passes_as_it_is() -> None:
    env = good()
    env.reset = max  # type: ignore[method-assign,assignment]
    with pytest.raises(TypeError, match=r"^max"):
        plain(env).reset()


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("wrap", [plain, layered])
@pytest.mark.parametrize(("change", "space", "message"), [case[1:] for case in STEPS], ids=[case[0] for case in STEPS])
def test_a_broken_step_is_explained(wrap: Any, change: Any, space: Any, message: str, at: int) -> None:
    vector = SequentialVectorEnv(
        [lambda: wrap(Broken(-9, change, space)), lambda: wrap(Broken(at, change, space))], first_env_index=4
    )
    with pytest.raises(EnvContractError, match=f"^environment 5: .*{message}"):
        collect(vector)


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: (*r[:2], False, {}), r"did not return five values \(not enough .*got 4\).*`done` is now terminated"),
        (lambda r: (*r, 1), r"did not return five values \(too many values to unpack \(expected 5"),
        (lambda r: None, r"did not return five values \(cannot unpack non-iterable NoneType"),
    ],
)
def test_a_broken_step_that_gymnasiums_wrappers_stumble_over_is_explained(change: Any, message: str, at: int) -> None:
    vector = SequentialVectorEnv([lambda: in_order(Broken(at, change))])
    with pytest.raises(EnvContractError, match=f"environment 0: step of Broken {message}"):
        collect(vector)


@pytest.mark.parametrize(("change", "message"), [STEPS[0][1::2]])
def test_workers_tell_of_broken_contracts_as_plainly(change: Any, message: str) -> None:
    factories = [lambda: GymMazeEnv(good()), lambda: GymMazeEnv(Broken(2, change))]
    vector = SubprocVectorEnv(factories, n_workers=2, first_env_index=4)
    with pytest.raises(EnvContractError, match=f"^environment 5: {message}"):
        collect(vector)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("around", [lambda env: env, LogStatsWrapper.wrap])
@pytest.mark.parametrize(
    ("at", "change", "message"), [(0, *RESETS[0][1::2]), (1, *STEPS[0][1::2]), (1, *STEPS[4][1::2])]
)
def test_a_single_environment_is_explained_too(around: Any, at: int, change: Any, message: str) -> None:
    env = around(GymMazeEnv(Broken(at, change)))
    with pytest.raises(EnvContractError, match=message):
        for _ in range(2):
            env.reset()
            env.step({"action": 0})


@pytest.mark.parametrize("wrap", [plain, layered, in_order])
@pytest.mark.parametrize("error", [ValueError("not enough values to unpack"), TypeError("mine"), KeyError("x")])
def test_an_exception_of_the_environments_own_passes_as_it_is(wrap: Any, error: Exception) -> None:
    def fail(result: Any) -> Any:
        raise error

    vector = SequentialVectorEnv([lambda: wrap(Broken(2, fail))])
    with pytest.raises(type(error)) as caught:
        collect(vector)
    assert caught.value is error
    assert caught.traceback[-1].name == "fail"


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_a_missing_space_is_named(name: str) -> None:
    env = good()
    delattr(env, name)
    with pytest.raises(EnvContractError, match=f"Broken has {name} None; set it to a gymnasium space"):
        GymMazeEnv(env)


@pytest.mark.parametrize("made", [None, "CartPole-v1", 3])
def test_a_factory_that_makes_no_environment_is_named(made: Any) -> None:
    with pytest.raises(TypeError, match=r"returned .*, which is not a gymnasium environment; return a gymnasium\.Env"):
        SequentialVectorEnv([lambda: made])


class Pile(HeapCoreEnv):
    """A simulation of ours that returns too little."""

    def step(self, maze_action: Any) -> Any:
        return super().step(maze_action)[:4]


def test_a_simulation_of_ours_is_named_by_its_class() -> None:
    example = make_heap_env()
    env = MazeEnv(Pile(), example.action_conversion_dict, example.observation_conversion_dict)
    env.reset(seed=0)
    with pytest.raises(EnvContractError, match="step of Pile returned a tuple of 4 values"):
        env.step({"amount": 1})


class Shortened(Wrapper):
    def step(self, action: Any) -> Any:
        return self.env.step(action)[:3]


class Unrewarding(RewardWrapper):
    def reward(self, reward: float) -> float:
        return "nothing"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (Shortened, "environment 0: step of Broken or of Shortened around it returned a tuple of 3 values"),
        (
            Unrewarding,
            "environment 0: step of Broken or of Unrewarding around it returned 'nothing' of type str as reward",
        ),
    ],
)
def test_a_wrapper_that_breaks_the_contract_is_explained(wrapper: type[Wrapper], message: str) -> None:
    with pytest.raises(EnvContractError, match=message):
        collect(SequentialVectorEnv([lambda: wrapper.wrap(GymMazeEnv(good()))]))


# ------------------------------------------------------------------------------------------------------ numbers


NAN = np.array([0, np.nan])


@pytest.mark.parametrize(
    ("vector_class", "index", "value", "what"),
    [
        (SequentialVectorEnv, 0, NAN, "observation 'observation'"),
        (SequentialVectorEnv, 0, np.array([np.inf, 0]), "observation 'observation'"),
        (SequentialVectorEnv, 1, np.nan, "the reward"),
        (SequentialVectorEnv, 1, -np.inf, "the reward"),
        (SubprocVectorEnv, 0, NAN, "observation 'observation'"),
    ],
)
def test_what_is_not_a_number_is_named_with_environment_and_step(
    vector_class: Any, index: int, value: Any, what: str
) -> None:
    factories = [lambda: GymMazeEnv(good()), lambda: GymMazeEnv(Broken(3, put(index, value)))]
    step = 2 if index == 1 else 3  # what the third act returned is what the fourth one sees
    message = rf"^{what} of environment 5, sub-step 0, is not finite \(step {step} of the rollout\)"
    with pytest.raises(EnvContractError, match=message):
        collect(vector_class(factories, first_env_index=4), 8)


def test_the_observation_that_a_rollout_ends_with_is_looked_at_too() -> None:
    vector = SequentialVectorEnv([lambda: GymMazeEnv(good()), lambda: GymMazeEnv(Broken(3, put(0, GOOD + np.nan)))])
    with pytest.raises(
        EnvContractError, match=r"observation 'observation' of environment 1 is not finite \(step 3 of the rollout\)"
    ):
        collect(vector, 3)


@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (0, GOOD + np.nan, r"observation 'observation' of environment 1 is not finite \(step 3 of an episode\)"),
        (1, np.inf, r"the reward of environment 1 is not finite \(step 2 of an episode\)"),
    ],
)
def test_evaluation_names_what_is_not_a_number(index: int, value: Any, message: str) -> None:
    factories = [lambda: GymMazeEnv(good()), lambda: GymMazeEnv(Broken(3, put(index, value)))]
    vector = SequentialVectorEnv(factories, autoreset=False)
    policy = RandomPolicy({0: vector.spec.steps[0].action_space})
    with pytest.raises(EnvContractError, match=message):
        play_episodes(vector, policy, [0, 1], deterministic=True)


def test_a_mask_that_forbids_everything_is_named_with_environment_and_step() -> None:
    class Masked(Broken):
        def __init__(self, at: int) -> None:
            super().__init__(at, put(0, {"mask": np.zeros(2, np.int8)}))
            self.observation_space = spaces.Dict({"mask": spaces.MultiBinary(2)})

        def _observe(self) -> Any:
            return {"mask": np.ones(2, np.int8)}

    from maze_pl.core.spec import Spec

    spec = Spec.of(GymMazeEnv(Masked(-9)), masks={"action": "mask"})
    make_envs = [lambda: GymMazeEnv(Masked(-9)), lambda: GymMazeEnv(Masked(3))]
    message = r"mask 'mask' of environment 1, sub-step 0, allows no action for head 'action' \(step 3 of the rollout\)"
    with pytest.raises(EnvContractError, match=message):
        collect(SequentialVectorEnv(make_envs, spec=spec), 6)
    vector = SequentialVectorEnv(make_envs, spec=spec, autoreset=False)
    policy = RandomPolicy({0: vector.spec.steps[0].action_space})
    with pytest.raises(EnvContractError, match=message.replace("the rollout", "an episode")):
        list(play_acts(vector, policy, [0, 1], deterministic=False, check_masks=True))


@pytest.mark.parametrize("wrap", [plain, layered])
@pytest.mark.parametrize(
    ("change", "space", "message"),
    [
        (put(0, np.full(2, 99.0, np.float32)), spaces.Box(-1, 1, (2,)), "holds 99.0; its space allows -1.0 to 1.0"),
        (put(4, None), BOX, "step of Broken returned None as info; expected a dict"),
    ],
    ids=["bounds", "no info"],
)
def test_full_checks_look_at_everything_in_every_step(wrap: Any, change: Any, space: Any, message: str) -> None:
    for check in ("fast", "full"):
        factories = [lambda: wrap(Broken(-9, change, space)), lambda: wrap(Broken(3, change, space))]
        vector = SequentialVectorEnv(factories, check=check)
        if check == "fast":
            collect(vector)
        else:
            with pytest.raises(EnvContractError, match=f"^environment 1: .*{message}"):
                collect(vector)


def test_full_checks_find_fractions_that_a_conversion_gives_after_a_while() -> None:
    class Late(Leaves):
        n_calls = 0

        def maze_to_space(self, maze_state: Any) -> Any:
            self.n_calls += 1
            return (super() if self.n_calls > 7 else super(Leaves, self)).maze_to_space(maze_state)

    def make() -> Any:
        env = make_heap_env()
        env.observation_conversion_dict["work"] = Late("target", np.array(1.5))
        return env

    collect(SequentialVectorEnv([make]), 8)
    with pytest.raises(EnvContractError, match=r"'target' .* has type float64; its space has int64"):
        collect(SequentialVectorEnv([make], check="full"), 8)


def test_there_are_fast_and_full_checks_only() -> None:
    with pytest.raises(ValueError, match="check='slow' must be 'fast' or 'full'"):
        SequentialVectorEnv([lambda: plain(good())], check="slow")


def test_numbers_of_other_types_and_beyond_their_bounds_are_let_pass() -> None:
    results: Iterator[Any] = iter(
        [
            ([99.0, 1], np.float32(1), np.bool_(False), 0, {}),
            (np.zeros(2, np.float64), 1, False, np.array(False), {}),
            (np.zeros(2, np.int64), np.array(2.0), False, False, {}),
            ((1, 2), True, False, False, {}),
        ]
    )
    env = good()
    env.step = lambda action: next(results)  # type: ignore[method-assign]
    vector = SequentialVectorEnv([lambda: GymMazeEnv(env)])
    collector = Collector(vector, 4, torch.Generator().manual_seed(0))
    rollout = collector.collect(RandomPolicy({0: vector.spec.steps[0].action_space}))
    assert rollout.rows.reward[:, 0].tolist() == [1, 1, 2, 1]
    assert rollout.segments[0].observation["observation"][1, 0].tolist() == [99, 1]


class Leaves(WorkObservation):
    """Gives one thing that its space does not have."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value

    def maze_to_space(self, maze_state: Any) -> Any:
        return {**super().maze_to_space(maze_state), self.name: self.value}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("heap", np.float32([101]), "entry 'heap' .* by Leaves holds 101.0; its space allows 0.0 to 100.0 there"),
        ("heap", np.float32([1, 2]), r"entry 'heap' .* by Leaves has shape \(2,\); its space has \(1,\)"),
        ("target", np.array(4), "entry 'target' .* by Leaves holds 4; its space allows 0 to 3 there"),
        ("target", np.array(1.5), "entry 'target' .* by Leaves has type float64; its space has int64"),
        ("target", None, "entry 'target' .* by Leaves is None; its space expects int64"),
        ("more", np.zeros(1), "by Leaves is a dict with .*'more'.*; its space has"),
    ],
)
def test_a_conversion_that_leaves_its_space_is_named_when_its_sub_step_comes(
    name: str, value: Any, message: str
) -> None:
    env = make_heap_env()
    env.observation_conversion_dict["work"] = Leaves(name, value)
    env.reset(seed=1)
    with pytest.raises(EnvContractError, match=message):
        env.step({"amount": 1})


def test_what_is_as_good_as_declared_is_let_pass() -> None:
    env = make_heap_env()
    for name, value in (
        ("heap", np.array([3])),
        ("heap", np.array([2.0])),
        ("target", 3),
        ("amount_mask", [1, 0, 0, 1]),
    ):
        env.observation_conversion_dict["work"] = Leaves(name, value)
        env.reset(seed=1)
        assert env.step({"amount": 1})[0][name] is value


def test_only_the_first_observations_of_a_sub_step_are_looked_at() -> None:
    env = make_heap_env()
    for _ in range(3):
        env.reset(seed=1)
        env.step({"amount": 1})
    env.observation_conversion_dict["work"] = Leaves("heap", np.float32([101]))
    env.reset(seed=1)
    assert env.step({"amount": 1})[0]["heap"] == 101


def test_values_of_every_kind_of_space_are_compared_with_their_bounds() -> None:
    for space, good, bad in [
        (spaces.Discrete(3, start=2), 4, 5),
        (spaces.MultiDiscrete([2, 3]), [1, 2], [2, 2]),
        (spaces.MultiDiscrete([2, 3], start=[1, 5]), [2, 7], [0, 5]),
        (spaces.MultiBinary(2), [0, 1], [0, 2]),
        (spaces.Box(np.float32([-1, 0]), np.float32([1, np.inf])), np.float32([1, 1e9]), np.float32([0, -0.1])),
    ]:
        check_observation(np.array(good), space, "it", exactly=True)
        with pytest.raises(EnvContractError, match=r"it holds .*; its space allows"):
            check_observation(np.array(bad), space, "it", exactly=True)
        check_observation(np.array(bad), space, "it")
