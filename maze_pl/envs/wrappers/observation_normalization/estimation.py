"""Estimating normalisation statistics from episodes, and keeping them in files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
from gymnasium import spaces

from maze_pl.core.class_path import import_object
from maze_pl.core.output_folder import write_file
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import environment_action
from maze_pl.envs.structured_env import Observation
from maze_pl.envs.wrapper import Wrapper, wrappers_of

if TYPE_CHECKING:
    from maze_pl.core.policy import Policy

PROGRESS_AFTER = 1.0
"""Seconds of estimation after which its progress is shown."""


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
    from tqdm import tqdm

    from maze_pl.core.policy import PolicyBatch, RandomPolicy

    if n_acts < 1:
        raise ValueError(f"n_samples={n_acts} must be at least 1")
    is_flat = list(env.agent_counts_dict.values()) == [1]  # others may not say who acts before they are reset
    while is_flat and not all(isinstance(s, spaces.Dict) for s in (env.observation_space, env.action_space)):
        env = cast(Wrapper, env.env)  # past what hides names from other libraries
    policy = import_object(policy) if isinstance(policy, str) else policy or RandomPolicy
    if isinstance(policy, type) or not isinstance(policy, _Acts):
        policy = cast("Callable[..., Policy]", policy)(env.action_spaces_dict, env.action_masks_dict)
    generator = torch.Generator().manual_seed(derive_seed(seed, "policy"))
    learned = [(wrapper, wrapper.state_dict()) for wrapper in wrappers_of(env)]
    episode, ended = 0, True
    observation: Observation = {}
    # on stderr, and only if it takes long and somebody is looking
    for _ in tqdm(range(n_acts), "normalisation statistics", delay=PROGRESS_AFTER, disable=None, leave=False):
        if ended:
            observation, _ = env.reset(seed=derive_seed(seed, "episode", episode))
            episode, ended = episode + 1, False
        else:
            step_key, agent_id = env.actor_id()
            rows = {name: value[np.newaxis] for name, value in observation.items()}
            batch = PolicyBatch(step_key, rows, np.array([agent_id]), maze_state=[env.get_maze_state()])
            action = policy.act(batch, generator=generator).action
            heads = env.action_spaces_dict[step_key].spaces
            single = {head: environment_action(space, action[head][0]) for head, space in heads.items()}
            observation, _, terminated, truncated, _ = env.step(single)
            ended = terminated or truncated
    for wrapper, state in learned:
        wrapper.load_state_dict(state)


def dump_statistics(statistics: Mapping[str, Mapping[str, Any]], path: str | Path) -> None:
    """Write statistics to a JSON file, which is either complete or as it was before.

    Args:
        statistics: Observation -> statistic -> number or array.
        path: The file; its directory is made if needed.
    """
    write_file(path, json.dumps(statistics, default=lambda value: np.asarray(value).tolist()).encode())


def load_statistics(path: str | Path) -> dict[str, dict[str, Any]]:
    """Read the statistics that `dump_statistics` wrote, for `set_normalization_statistics`."""
    statistics: dict[str, dict[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))
    return statistics
