"""Checks of what environments return: finite numbers, and masks that allow an action.

Other observations and rewards are refused, because no algorithm could learn from them.
"""

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.core.allowed_options import choices_with_options
from maze_pl.core.policy import Array, PolicyBatch
from maze_pl.core.rows import SegmentOf
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs.contract import EnvContractError


def check_acts(spec: Spec, segments: Mapping[StepKey, SegmentOf[Array]], n_rows: int, first_env_index: int) -> None:
    """Check all acts of a rollout at once.

    Args:
        spec: Specification of observations and actions.
        segments: The acts, by step key.
        n_rows: Rows of the rollout.
        first_env_index: Number of the first environment, for the message.

    Raises:
        EnvContractError: A value is not finite, or a mask allows no action; the message names the
            environment and step.
    """
    for key, segment in segments.items():
        step = spec.steps[key]
        active = segment.active[:n_rows]
        for what, fault, is_valid in _findings(step, segment, n_rows):
            is_wrong = active & ~is_valid
            if not is_wrong.any():
                continue
            t, column = np.argwhere(is_wrong)[0].tolist()
            environment = first_env_index + column // step.n_slots
            where = f"environment {environment}, sub-step {key!r}"
            raise EnvContractError(f"{what} of {where}, {fault} (step {t} of the rollout)")


def _findings(step: StepSpec, segment: SegmentOf[Array], n_rows: int) -> Iterator[tuple[str, str, Array]]:
    """Yield a description of some values, the possible fault, and [T, B] whether they are valid."""
    values = {f"observation {name!r}": array for name, array in segment.observation.items()}
    values["the reward"] = segment.reward
    if segment.actor_reward is not None:
        values["the actor's reward"] = segment.actor_reward
    for what, array in values.items():
        is_finite = _finite(array[:n_rows], 2)
        if is_finite is not None:
            yield what, "is not finite", is_finite
    for head, name in step.masks.items():
        for is_allowed in choices_with_options(step, head, segment.observation[name][:n_rows]):
            yield f"mask {name!r}", f"allows no action for head {head!r}", is_allowed


def check_current_values(
    arrays: Mapping[str, Array],
    envs: Array,
    steps: Array,
    where: str,
    first_env_index: int,
    unbounded: Collection[str] = (),
) -> None:
    """Check the current values of some environments.

    Args:
        arrays: Description of the values -> [n, ...].
        envs: [n] the environments.
        steps: [n] the current step of each.
        where: Name of the unit in which steps are counted, such as "an episode".
        first_env_index: Number of the first environment, for the message.
        unbounded: Descriptions of values that may be infinite, but must be numbers.

    Raises:
        EnvContractError: A value is not finite.
    """
    for what, array in arrays.items():
        may_be_infinite = what in unbounded
        is_valid = _finite(np.where(np.isinf(array), 0, array) if may_be_infinite else array, 1)
        if is_valid is not None:
            environment = first_env_index + int(envs[~is_valid][0])
            step = int(steps[~is_valid][0])
            fault = "is not a number" if may_be_infinite else "is not finite"
            raise EnvContractError(f"{what} of environment {environment} {fault} (step {step} of {where})")


def check_current_masks(spec: Spec, batch: PolicyBatch, envs: Array, steps: Array, first_env_index: int) -> None:
    """Check the current masks of some environments.

    Args:
        spec: Specification of observations and actions.
        batch: The observations of the actors.
        envs: [n] the environments.
        steps: [n] the current step of their episodes.
        first_env_index: Number of the first environment, for the message.

    Raises:
        EnvContractError: A mask allows no action.
    """
    key = batch.step_key
    step = spec.steps[key]
    for head, name in step.masks.items():
        for is_allowed in choices_with_options(step, head, batch.observation[name]):
            if not is_allowed.all():
                where = f"environment {first_env_index + int(envs[~is_allowed][0])}, sub-step {key!r}"
                fault = f"allows no action for head {head!r} (step {int(steps[~is_allowed][0])} of an episode)"
                raise EnvContractError(f"mask {name!r} of {where}, {fault}")


def _finite(array: Array, n_dimensions: int) -> Array | None:
    """Return, over the first dimensions, whether all numbers below are finite; None if all are."""
    if array.dtype.kind != "f":
        return None
    is_finite = np.isfinite(array)
    if is_finite.all():
        return None
    leading = array.shape[:n_dimensions]
    below: Array = np.all(is_finite.reshape(*leading, -1), axis=-1)
    return below
