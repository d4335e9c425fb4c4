"""Refuses what no algorithm could learn from: observations and rewards that are not numbers, and empty masks."""

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from maze_pl.collect.storage import Array, SegmentArrays
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import EnvContractError


def check_acts(spec: Spec, segments: Mapping[StepKey, SegmentArrays], n_rows: int, first_env_index: int) -> None:
    """Look at the acts of a whole rollout at once.

    Args:
        spec: What agents see and do.
        segments: The acts, by step key.
        n_rows: Rows of the rollout.
        first_env_index: Number of the first environment, for the message.

    Raises:
        EnvContractError: Something is not finite, or a mask allows nothing; says in which environment and step.
    """
    for key, segment in segments.items():
        trees = {f"observation {name!r}": array for name, array in segment.observation.items()}
        trees |= {"the reward": segment.reward, "the actor's reward": segment.actor_reward}
        findings = [(what, "is not finite", _finite(array[:n_rows], 2)) for what, array in trees.items()]
        for head, name in spec.steps[key].masks.items():
            space = spec.steps[key].action_space.spaces[head]
            if isinstance(space, spaces.MultiBinary):
                continue
            mask = segment.observation[name][:n_rows] != 0
            ends = np.cumsum(space.nvec)[:-1].tolist() if isinstance(space, spaces.MultiDiscrete) else []
            for part in np.split(mask, ends, axis=-1):
                findings.append((f"mask {name!r}", f"allows no action for head {head!r}", np.any(part, axis=-1)))
        for what, fault, good in findings:
            bad = None if good is None else segment.active[:n_rows] & ~good
            if bad is not None and bad.any():
                t, actor = np.argwhere(bad)[0].tolist()
                who = f"environment {first_env_index + actor // spec.steps[key].n_slots}, sub-step {key!r}"
                raise EnvContractError(f"{what} of {who}, {fault} (step {t} of the rollout)")


def check_now(arrays: Mapping[str, Array], envs: Array, steps: Array, where: str, first_env_index: int) -> None:
    """Look at one entry of each of some environments.

    Args:
        arrays: What it is -> [n, ...].
        envs: [n] the environments.
        steps: [n] the step that each of them is in.
        where: What the steps are counted in.
        first_env_index: Number of the first environment, for the message.

    Raises:
        EnvContractError: Something is not finite.
    """
    for what, array in arrays.items():
        finite = _finite(array, 1)
        if finite is not None:
            n, step = first_env_index + int(envs[~finite][0]), int(steps[~finite][0])
            raise EnvContractError(f"{what} of environment {n} is not finite (step {step} of {where})")


def _finite(array: Array, n_dimensions: int) -> Array | None:
    """Whether all numbers below the first dimensions are finite; None if all are in the whole array."""
    if array.dtype.kind != "f" or (finite := np.isfinite(array)).all():
        return None
    below: Array = np.all(finite.reshape(*array.shape[:n_dimensions], -1), axis=-1)
    return below
