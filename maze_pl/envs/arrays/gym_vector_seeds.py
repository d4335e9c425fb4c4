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
        if not isinstance(seed, list) or not _takes_one(vector, seed[0], options):
            raise
        name = type(vector.unwrapped).__name__
        fault = f"reset of {name} takes one seed, but no list of seeds ({error})"
        raise EnvContractError(f"{fault}: leave seed_each=True out") from error


def _takes_one(vector: _Vector, seed: int | None, options: Mapping[str, Any]) -> bool:
    """Return whether a vector environment of a user takes one seed."""
    if type(vector.unwrapped) in (SyncVectorEnv, AsyncVectorEnv):  # which take both
        return False
    try:
        vector.reset(seed=seed, **options)
    except Exception:
        return False
    return True
