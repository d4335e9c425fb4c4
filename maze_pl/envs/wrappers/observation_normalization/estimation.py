"""Estimating normalisation statistics from episodes, and keeping them in files."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
from gymnasium import spaces

from maze_pl.core.seeding import derive_seed
from maze_pl.envs.structured_env import Observation
from maze_pl.envs.wrapper import Wrapper, wrappers_of

if TYPE_CHECKING:
    from maze_pl.core.policy import Policy


@runtime_checkable
class _Acts(Protocol):
    def act(self, *args: Any, **kwargs: Any) -> Any: ...


def sample_episodes(env: Wrapper, n_acts: int, seed: int, policy: str | Policy | Callable[..., Policy] | None) -> None:
    """Step an environment through seeded episodes; what its wrappers have learned stays as it was.

    Args:
        env: The environment, with all its wrappers.
        n_acts: Observations to see, those after a reset included.
        seed: Determines episodes and actions.
        policy: What acts, or what makes it of the action spaces and masks of all sub-steps, or the path of that; at
            random if None.
    """
    import torch  # only here, so that environments can be used without

    from maze_pl.core.policy import PolicyBatch, RandomPolicy

    if n_acts < 1:
        raise ValueError(f"n_samples={n_acts} must be at least 1")
    if policy is None:
        policy = RandomPolicy
    if isinstance(policy, str):
        policy = import_object(policy)
    if isinstance(policy, type) or not isinstance(policy, _Acts):
        policy = cast("Callable[..., Policy]", policy)(env.action_spaces_dict, env.action_masks_dict)
    generator = torch.Generator().manual_seed(derive_seed(seed, "policy"))
    learned = [(wrapper, wrapper.state_dict()) for wrapper in wrappers_of(env)]
    seen, episode, ended = 0, 0, True
    observation: Observation = {}
    while seen < n_acts:
        if ended:
            observation, _ = env.reset(seed=derive_seed(seed, "episode", episode))
            episode, ended = episode + 1, False
        else:
            step_key, agent_id = env.actor_id()
            batch = PolicyBatch(
                step_key, {name: value[np.newaxis] for name, value in observation.items()}, np.array([agent_id])
            )
            action = policy.act(batch, generator=generator).action
            heads = env.action_spaces_dict[step_key].spaces
            observation, _, terminated, truncated, _ = env.step(
                {head: _single(action[head], space) for head, space in heads.items()}
            )
            ended = terminated or truncated
        seen += 1
    for wrapper, state in learned:
        wrapper.load_state_dict(state)


def import_object(path: str) -> Any:
    """The class or function at a dotted path.

    Raises:
        ImportError: There is no such module, or nothing of that name in it.
    """
    module, _, name = path.rpartition(".")
    if not module:
        raise ImportError(f"{path!r} is no class path such as package.module.Name")
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        raise ImportError(f"there is no {name!r} in {module}") from None


def _single(values: Any, space: spaces.Space[Any]) -> Any:
    """[1, ...] -> one action as environments expect it."""
    if isinstance(space, spaces.Discrete):
        return int(values[0])
    return np.clip(values[0], space.low, space.high) if isinstance(space, spaces.Box) else values[0]


def dump_statistics(statistics: Mapping[str, Mapping[str, Any]], path: str | Path) -> None:
    """Write statistics to a JSON file, which is either complete or as it was before.

    Args:
        statistics: Observation -> statistic -> number or array.
        path: The file; its directory is made if needed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {
        name: {statistic: np.asarray(value).tolist() for statistic, value in values.items()}
        for name, values in statistics.items()
    }
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(plain), encoding="utf-8")
    temporary.replace(path)


def load_statistics(path: str | Path) -> dict[str, dict[str, Any]]:
    """Read the statistics that `dump_statistics` wrote, for `set_normalization_statistics`."""
    statistics: dict[str, dict[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))
    return statistics
