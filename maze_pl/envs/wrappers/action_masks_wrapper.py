"""Declaration of action masks that an environment does not declare itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import fitting_masks
from maze_pl.envs.arrays.action_masks_array_wrapper import ActionMasksArrayWrapper
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.envs.wrapper_classes import passed_on, require_spaces_by_step_key

if TYPE_CHECKING:
    from maze_pl.envs.tensors.tensor_env import TensorEnv


class ActionMasksWrapper(Wrapper):
    """Declares observations as action masks, as `action_masks_dict` of an environment does.

    All outer wrappers and all policies respect such masks: they are not normalised, and forbidden
    actions are not taken, not even in random resets or while statistics are estimated.
    `data.action_masks` puts this wrapper as far inside as both the action head and the observation
    exist. It adds no cost to a step.

    Args:
        env: The environment to wrap.
        action_masks: Action head -> observation whose entries are 1 where an action is allowed and 0 where it is not,
            in every sub-step that has both.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = ActionMasksWrapper(GymMazeEnv("CartPole-v1"), action_masks={})
        >>> env.action_masks_dict
        {0: {}}
    """

    accepts_plain_spaces = True
    step = cast(Any, passed_on("step"))
    step_in_parts = Wrapper.step_in_parts
    reset = cast(Any, passed_on("reset"))

    def __init__(self, env: StructuredEnv, action_masks: Mapping[str, str]) -> None:
        super().__init__(env)
        declared = {key: dict(masks) for key, masks in env.action_masks_dict.items()}
        for key, masks in fitting_masks(env, action_masks).items():
            declared[key] = declared.get(key, {}) | masks
        self._action_masks = declared

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """For each sub-step, action head -> observation that masks it."""
        return self._action_masks

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        """Return the form for array environments."""
        return ActionMasksArrayWrapper(env, self._action_masks)

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        """Return the environment: masks are declared by the spaces of the policy."""
        return env


def require_used(env: Any, action_masks: Mapping[str, str]) -> None:
    """Refuse masks that neither the environment nor any of its wrappers declares.

    Args:
        env: The environment, with all its wrappers.
        action_masks: Action head -> observation.

    Raises:
        ValueError: There are such masks; the message names them.
    """
    layers = [*wrappers_of(env), env.unwrapped]
    declared = {item for layer in layers for masks in layer.action_masks_dict.values() for item in masks.items()}
    if unknown := sorted(head for head, name in action_masks.items() if (head, name) not in declared):
        reason = "head or observation does not exist, or the head is a Box, which cannot be masked"
        heads = sorted({head for space in env.action_spaces_dict.values() for head in space})
        observations = sorted({name for space in env.observation_spaces_dict.values() for name in space})
        there_are = f"there are the heads {heads} and the observations {observations}"
        raise ValueError(f"action masks {unknown} fit no sub-step: {reason}; {there_are}")


def with_action_masks(env: Any, action_masks: Mapping[str, str]) -> Any:
    """Make an environment declare the masks whose heads and observations it has.

    An environment that declares them already is returned unchanged.

    Args:
        env: The environment, with some wrappers.
        action_masks: Action head -> observation.

    Raises:
        TypeError: Spaces are not given by step key.
    """
    require_spaces_by_step_key(env)
    declared = env.action_masks_dict
    fitting = fitting_masks(env, action_masks).items()
    if all(masks.items() <= dict(declared.get(key, {})).items() for key, masks in fitting):
        return env
    return ActionMasksWrapper(env, action_masks)
