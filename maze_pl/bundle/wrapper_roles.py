"""Assignment of an environment's wrappers: those that a bundle contains, and those left to its caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any, Final

from maze_pl.envs import wrappers as ours
from maze_pl.envs.building import wrapper_stack
from maze_pl.envs.wrapper import RewardWrapper, Wrapper
from maze_pl.envs.wrappers.replaced_heads_wrapper import ReplacedHeadsWrapper

_SILENT: Final = (ours.LogStatsWrapper, ours.ActionMasksWrapper)
"""Wrappers that change nothing for the policy; they are not mentioned."""
_INCLUDED: Final = (
    ours.DiscretizeActionsWrapper,
    ours.ObservationNormalizationWrapper,
    ours.ObservationStackWrapper,
    ours.PreProcessingWrapper,
    ours.RunningObservationNormalizationWrapper,
    ours.SortedSpacesWrapper,
    ours.SplitActionsWrapper,
)
_PRE_PROCESSORS: Final = (
    ours.FlattenPreProcessor,
    ours.OneHotPreProcessor,
    ours.ResizeImgPreProcessor,
    ours.Rgb2GrayPreProcessor,
    ours.TransposePreProcessor,
    ours.UnSqueezePreProcessor,
)
_STRATEGIES: Final = (
    ours.MeanZeroStdOneObservationNormalizationStrategy,
    ours.RangeZeroOneObservationNormalizationStrategy,
)
_REWARDS_ONLY: Final = "changes rewards, which a trained policy does not need"
_UNCHANGED: Final = (
    "step",
    "step_in_parts",
    "reset",
    "actor_id",
    "is_actor_done",
    "get_done_actors",
    "agent_counts_dict",
    "observation_spaces_dict",
    "action_spaces_dict",
    "action_masks_dict",
    "observation_space",
    "action_space",
)
"""Attributes of a wrapper that changes nothing but rewards."""


def _step_skip_note(wrapper: Any) -> str:
    others = "repeat its action" if wrapper.skip_mode == "sticky" else "do nothing"
    return f"ask the policy once in {wrapper.n_steps} steps, and {others} in the others"


_LEFT_OUT: Final[dict[type, Callable[[Any], str]]] = {
    ours.EventLogsWrapper: lambda _: "writes event logs",
    ours.MazeEnvMonitoringWrapper: lambda _: "collects statistics",
    ours.ObservationVisualizationWrapper: lambda _: "draws observations",
    ours.RandomResetWrapper: lambda _: "starts episodes with random actions",
    ours.ReturnNormalizationRewardWrapper: lambda _: _REWARDS_ONLY,
    ours.SpacesRecordingWrapper: lambda _: "records episodes",
    ours.StepSkipWrapper: _step_skip_note,
    ours.TimeLimitWrapper: lambda wrapper: f"end episodes after {wrapper.max_episode_steps} steps",
    ours.TrajectoryRecordingWrapper: lambda _: "records episodes",
}
"""Wrappers that the policy does not see -> the reason, or what the caller has to do instead."""


@dataclass(frozen=True)
class WrapperRole:
    """The role of a wrapper in a bundle.

    Attributes:
        name: Its name, as in `wrapper_stack`.
        is_included: Whether the bundle contains it.
        note: The reason, or what the caller has to do instead.
    """

    name: str
    is_included: bool
    note: str


@dataclass(frozen=True)
class WrapperRoles:
    """The roles of all wrappers of an environment.

    Attributes:
        roles: From the innermost outwards.
        included: The wrappers that the bundle contains, the outermost first.
        parent: The wrapper around the point at which a bundle takes observations and gives actions.
    """

    roles: list[WrapperRole]
    included: list[Wrapper]
    parent: Wrapper

    @property
    def outside(self) -> Any:
        """The environment as the caller of the bundle sees it."""
        return self.parent.env


def wrapper_roles(env: Wrapper) -> WrapperRoles:
    """Decide which wrappers of an environment a bundle contains.

    From the outermost inwards, it contains all that are arithmetic, up to the first one that is not.

    Args:
        env: The environment, with all its wrappers.
    """
    roles: list[WrapperRole] = []
    included: list[Wrapper] = []
    repeating: list[Wrapper] = []  # wrappers further out that step several times for one decision
    stopped_by = ""
    for name, wrapper in wrapper_stack(env).items():
        kind = type(wrapper)
        if kind in _SILENT:
            continue
        if stopped_by:
            roles.append(WrapperRole(name, False, f"it is inside of {stopped_by}"))
        elif kind in _LEFT_OUT:
            roles.append(WrapperRole(name, False, _LEFT_OUT[kind](wrapper)))
            if kind in (ours.StepSkipWrapper, ours.RandomResetWrapper):
                repeating.append(wrapper)
        elif _changes_rewards_only(wrapper):
            roles.append(WrapperRole(name, False, _REWARDS_ONLY))
        elif reason := _reason_to_stop(wrapper, repeating):
            roles.append(WrapperRole(name, False, reason))
            stopped_by = name
        else:
            roles.append(WrapperRole(name, True, "part of the graphs"))
            included.append(wrapper)
    return WrapperRoles(roles[::-1], included, included[-1] if included else env)


def _changes_rewards_only(wrapper: Wrapper) -> bool:
    """True for a `RewardWrapper` that leaves actors, spaces, observations and actions as they are."""
    kind = type(wrapper)
    if not issubclass(kind, RewardWrapper) or {"_observation_spaces", "_action_spaces"} & vars(wrapper).keys():
        return False
    return all(getattr_static(kind, name) is getattr_static(RewardWrapper, name) for name in _UNCHANGED)


def _reason_to_stop(wrapper: Wrapper, repeating: list[Wrapper]) -> str:
    """Return the reason why a bundle cannot contain a wrapper; empty if it can."""
    if type(wrapper) not in _INCLUDED:
        return "its code is not known to be arithmetic"
    own: Any = wrapper
    if type(wrapper) is ours.ObservationNormalizationWrapper:
        for name, strategy in own.strategies.items():
            if type(strategy) not in _STRATEGIES:
                return f"the strategy {type(strategy).__name__} of {name!r} is not known to be arithmetic"
    if type(wrapper) is ours.PreProcessingWrapper:
        for entry in own.pipeline:
            if type(entry.processor) not in _PRE_PROCESSORS:
                return f"{type(entry.processor).__name__} of {entry.observation!r} is not known to be arithmetic"
    for outer in repeating:
        name = type(outer).__name__
        if type(wrapper) is ours.ObservationStackWrapper:
            return f"it also stacks the observations between decisions, because {name} is around it"
        if issubclass(type(wrapper), ReplacedHeadsWrapper):
            return f"{name} around it chooses actions, too"
    return ""
