"""Assignment of an environment's wrappers: those that a bundle contains, and those left to its caller."""

from __future__ import annotations

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
_LEFT_OUT: Final = {
    ours.EventLogsWrapper: "writes event logs",
    ours.MazeEnvMonitoringWrapper: "collects statistics",
    ours.ObservationVisualizationWrapper: "draws observations",
    ours.RandomResetWrapper: "starts episodes with random actions",
    ours.ReturnNormalizationRewardWrapper: "changes rewards, which a trained policy does not need",
    ours.SpacesRecordingWrapper: "records episodes",
    ours.StepSkipWrapper: "ask the policy once in {n_steps} steps, and {others} in the others",
    ours.TimeLimitWrapper: "end episodes after {max_episode_steps} steps",
    ours.TrajectoryRecordingWrapper: "records episodes",
}
"""Wrappers that the policy does not see, and what the caller has to do instead, with numbers of the wrapper."""
_UNCHANGED: Final = (
    "step",
    "step_in_parts",
    "reset",
    "actor_id",
    "is_actor_done",
    "agent_counts_dict",
    "observation_spaces_dict",
    "action_spaces_dict",
    "action_masks_dict",
    "observation_space",
    "action_space",
)
"""Attributes of a wrapper that changes nothing but rewards."""


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
            roles.append(WrapperRole(name, False, _note(wrapper)))
            if kind in (ours.StepSkipWrapper, ours.RandomResetWrapper):
                repeating.append(wrapper)
        elif _changes_rewards_only(wrapper):
            roles.append(WrapperRole(name, False, "changes rewards, which a trained policy does not need"))
        elif reason := _reason_to_stop(wrapper, repeating):
            roles.append(WrapperRole(name, False, reason))
            stopped_by = name
        else:
            roles.append(WrapperRole(name, True, "part of the graphs"))
            included.append(wrapper)
    return WrapperRoles(roles[::-1], included, included[-1] if included else env)


def _note(wrapper: Wrapper) -> str:
    """Return the reason why a wrapper is left out, or what the caller has to do instead."""
    own: Any = wrapper
    note = _LEFT_OUT[type(wrapper)]
    if type(wrapper) is ours.StepSkipWrapper:
        others = "repeat its action" if own.skip_mode == "sticky" else "do nothing"
        return note.format(n_steps=own.n_steps, others=others)
    if type(wrapper) is ours.TimeLimitWrapper:
        return note.format(max_episode_steps=own.max_episode_steps)
    return note


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
