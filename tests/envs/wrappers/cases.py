"""Options with which each wrapper fits the environments of the tests, and how these are played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs import GymMazeEnv, MazeEnv, StructuredEnv, Wrapper, wrappers_of
from maze_pl.envs.wrappers import (
    ActionMasksWrapper,
    DictActionWrapper,
    DictObservationWrapper,
    DiscretizeActionsWrapper,
    EventLogsWrapper,
    LogStatsWrapper,
    MazeEnvMonitoringWrapper,
    NoDictActionWrapper,
    NoDictObservationWrapper,
    NoDictSpacesWrapper,
    ObservationNormalizationWrapper,
    ObservationStackWrapper,
    ObservationVisualizationWrapper,
    PreProcessingWrapper,
    RandomResetWrapper,
    ResidualActionWrapper,
    ReturnNormalizationRewardWrapper,
    RewardClippingWrapper,
    RewardScalingWrapper,
    RunningObservationNormalizationWrapper,
    SortedSpacesWrapper,
    SpacesRecordingWrapper,
    SplitActionsWrapper,
    StepSkipWrapper,
    TimeLimitWrapper,
    TrajectoryRecordingWrapper,
)
from tests.envs.structured_example import make_heap_env
from tests.envs.wrappers.environments import (
    CountingWriter,
    make_bare_env,
    make_bare_heap_env,
    make_resting_heap_env,
    make_vector_heap_env,
)

ENVIRONMENTS: dict[str, Callable[[], MazeEnv]] = {
    "flat": lambda: GymMazeEnv("CartPole-v1"),
    "continuous": lambda: GymMazeEnv("Pendulum-v1"),
    "structured": make_heap_env,
    "structured-resting": make_resting_heap_env,  # no agent ends before the episode does
    "structured-vectors": make_vector_heap_env,
    "bare": make_bare_env,
    "structured-bare": make_bare_heap_env,
}
NAMED = ("flat", "continuous", "structured")


def only(names: tuple[str, ...], **options: Any) -> Callable[[str], dict[str, Any] | None]:
    """Options of a wrapper that fits a few environments only."""
    return lambda name: options if name in names else None


def by_head(option: str, make: Callable[[str], Any]) -> Callable[[str], dict[str, Any] | None]:
    """Options of a wrapper for heads that are vectors."""
    heads = {"continuous": "action", "structured-vectors": "amount"}
    return lambda name: {option: {heads[name]: make(name)}} if name in heads else None


def residual(name: str) -> dict[str, Any] | None:
    heads = {"continuous": "action", "structured-vectors": "amount"}
    rule = "tests.envs.wrappers.environments.Leaning"
    return {"corrections": {heads[name]: 0.5}, "policy": rule} if name in heads else None


def split(name: str) -> Any:
    return {"first": {"indices": [0]}} if name == "continuous" else {"a": {"indices": [1]}, "b": {"indices": [0]}}


def unsqueeze(name: str) -> dict[str, Any] | None:
    entry = {"observation": "observation" if name in ("flat", "continuous") else "heap", "keep_original": True}
    entry |= {"class_path": "maze_pl.envs.wrappers.UnSqueezePreProcessor", "config": {"dim": 0}}
    return {"pre_processor_mapping": [entry]} if name in NAMED else None


def stack(name: str) -> dict[str, Any] | None:
    entry = {"observation": "observation" if name in ("flat", "continuous") else "heap", "stack_steps": 3}
    return {"stack_config": [entry, {**entry, "tag": "moves", "delta": True}]} if name in NAMED else None


# Options with which a wrapper fits all NAMED environments, or what makes them for an environment, None if it does not.
WRAPPERS: dict[type[Wrapper], dict[str, Any] | Callable[[str], dict[str, Any] | None]] = {
    ActionMasksWrapper: {"action_masks": {}},
    DictActionWrapper: only(("bare", "structured-bare")),
    DictObservationWrapper: only(("bare", "structured-bare")),
    DiscretizeActionsWrapper: by_head("discretization_config", lambda name: {"num_bins": 4}),
    EventLogsWrapper: lambda name: {"writer": CountingWriter()} if name in NAMED else None,
    LogStatsWrapper: {},
    MazeEnvMonitoringWrapper: {"observation_logging": True, "action_logging": True, "reward_logging": True},
    NoDictActionWrapper: only(("flat", "continuous")),
    NoDictObservationWrapper: only(("flat", "continuous")),
    NoDictSpacesWrapper: only(("flat", "continuous")),
    ObservationNormalizationWrapper: {"default_strategy_config": {"clip_range": [-3, 3], "axis": 0}},
    ObservationStackWrapper: stack,
    ObservationVisualizationWrapper: {"plot_function": "maze_pl.events.display.create_violin_plot"},
    PreProcessingWrapper: unsqueeze,
    RandomResetWrapper: {"min_skip_steps": 1, "max_skip_steps": 3},
    ResidualActionWrapper: residual,
    ReturnNormalizationRewardWrapper: {"gamma": 0.9},
    RunningObservationNormalizationWrapper: {"clip_range": [-3, 3]},
    RewardClippingWrapper: {"min_val": -0.5, "max_val": 0.5},
    RewardScalingWrapper: {"scale": 0.1},
    SortedSpacesWrapper: {},
    SpacesRecordingWrapper: {},
    SplitActionsWrapper: by_head("split_config", split),
    StepSkipWrapper: only(("flat", "continuous", "structured-resting"), n_steps=2),
    TimeLimitWrapper: {"max_episode_steps": 3},
    TrajectoryRecordingWrapper: {},
}
# Where a second one finds nothing to do and says so, or finds other names than the first one.
NOT_TWICE = {
    *(DictActionWrapper, DictObservationWrapper, NoDictActionWrapper, NoDictObservationWrapper, NoDictSpacesWrapper),
    *(DiscretizeActionsWrapper, PreProcessingWrapper, ResidualActionWrapper, SplitActionsWrapper),
}
# Whose options here are no plain values, or fit the first one of its kind only; and what is always outermost.
NOT_IN_FILES = {EventLogsWrapper, ObservationStackWrapper, LogStatsWrapper}
# Whose `reset` or `step` may take several environment steps.
STEPS_BY_ITSELF = {RandomResetWrapper, StepSkipWrapper}


def options_of(wrapper: type[Wrapper], name: str) -> dict[str, Any] | None:
    options = WRAPPERS[wrapper]
    if isinstance(options, dict):
        return options if name in NAMED else None
    return options(name)


CASES = [(wrapper, name) for wrapper in WRAPPERS for name in ENVIRONMENTS if options_of(wrapper, name) is not None]


def wrap(wrapper: type[Wrapper], name: str, env: StructuredEnv | None = None) -> Wrapper:
    return wrapper.wrap(env or ENVIRONMENTS[name](), **(options_of(wrapper, name) or {}))


def build(wrapper: type[Wrapper], name: str, env: StructuredEnv | None = None) -> Wrapper:
    wrapped = wrap(wrapper, name, env)
    wrapped.estimate(50, seed=1)
    return wrapped


def with_dicts(env: StructuredEnv) -> Any:
    """What vector environments take: spaces that are Dicts."""
    (key, *_) = env.agent_counts_dict
    if not isinstance(env.observation_spaces_dict[key], spaces.Dict):
        env = DictObservationWrapper(env)
    return env if isinstance(env.action_spaces_dict[key], spaces.Dict) else DictActionWrapper(env)


def maze_env_of(env: Wrapper) -> Any:
    return list(wrappers_of(env))[-1].env


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return np.asarray(value).tolist()


def play(env: StructuredEnv, n_acts: int, seed: int = 0) -> list[tuple[Any, ...]]:
    """Acts at random, with checks of what comes out on the way; a list of all that happened."""
    observation, _ = env.reset(seed=seed)
    log: list[tuple[Any, ...]] = []
    for _ in range(n_acts):
        key = env.actor_id().step_key
        assert env.observation_space == env.observation_spaces_dict[key]
        assert env.action_space == env.action_spaces_dict[key]
        assert env.observation_space.contains(observation), observation
        action = env.action_space.sample()
        observation, reward, terminated, truncated, info = env.step(action)
        assert isinstance(reward, float)
        assert isinstance(info, dict)
        log.append((key, plain(observation), reward, terminated, truncated, env.get_env_time(), env.is_actor_done()))
        if terminated or truncated:
            assert env.observation_space.contains(observation), observation
            seed += 1
            observation, _ = env.reset(seed=seed)
    return log
