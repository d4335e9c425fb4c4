"""Resets of gymnasium's vector environments with a seed for each environment."""

from collections.abc import Mapping
from typing import Any

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from maze_pl.envs.contract import EnvContractError

_Vector = VectorEnv[Any, Any, Any]


def reset_with(vector: _Vector, seed: Any, **options: Any) -> Any:
    """Return the result of `reset`.

    Args:
        vector: The vector environment.
        seed: A seed, a list of seeds or None.
        options: Further arguments of `reset`.

    Raises:
        EnvContractError: It takes one seed, but no list of seeds.
    """
    try:
        return vector.reset(seed=seed, **options)
    except Exception as error:
        if not isinstance(seed, list) or not _takes_one_only(vector, seed, options):
            raise
        name = type(vector.unwrapped).__name__
        fault = f"reset of {name} takes one seed, but no list of seeds ({error})"
        raise EnvContractError(f"{fault}: leave seed_each=True out") from error


def _takes_one_only(vector: _Vector, seeds: list[int | None], options: Mapping[str, Any]) -> bool:
    """Return whether a vector environment of a user takes a seed, but no list of whole numbers."""
    if type(vector.unwrapped) in (SyncVectorEnv, AsyncVectorEnv):  # which take both
        return False
    number = next((seed for seed in seeds if seed is not None), 0)
    if not _takes(vector, number, options):
        return False
    whole = [number if seed is None else seed for seed in seeds]
    return None not in seeds or not _takes(vector, whole, options)


def _takes(vector: _Vector, seed: int | list[int], options: Mapping[str, Any]) -> bool:
    """Return whether `reset` takes a seed."""
    try:
        vector.reset(seed=seed, **options)  # type: ignore[arg-type]
    except Exception:
        return False
    return True
