"""Episodes that are sampled to estimate statistics, or to examine an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from gymnasium import spaces

from maze_pl.core.calls_by_name import made_by_name
from maze_pl.core.class_path import import_object
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import environment_action
from maze_pl.envs.structured_env import Observation
from maze_pl.envs.wrapper import Wrapper, wrappers_of

if TYPE_CHECKING:
    from maze_pl.core.policy import Policy

PROGRESS_AFTER: Final = 1.0
"""Seconds after which progress is shown."""


def sample_episodes(env: Wrapper, n_acts: int, seed: int, policy: str | Policy | Callable[..., Policy] | None) -> None:
    """Step an environment through seeded episodes; restore the states of its wrappers at the end.

    Args:
        env: The environment, with all its wrappers.
        n_acts: Number of observations to collect, including those after a reset.
        seed: Determines episodes and actions.
        policy: Policy that acts; or a class or function that makes it from any of `action_spaces_dict`,
            `masks` (by sub-step) and `env`; or the class path of either; random actions if None.

    Raises:
        ValueError: The policy cannot be made.
    """
    import torch  # only here, so that environments can be used without it
    from tqdm import tqdm

    from maze_pl.core.policy import Policy, PolicyBatch
    from maze_pl.core.random_policy import RandomPolicy

    if n_acts < 1:
        raise ValueError(f"n_samples={n_acts} must be at least 1")
    is_flat = list(env.agent_counts_dict.values()) == [1]  # others may have no actor before a reset
    while is_flat and not _has_dict_spaces(env):
        env = cast(Wrapper, env.env)  # past wrappers that remove Dict spaces
    policy = import_object(policy) if isinstance(policy, str) else policy or RandomPolicy
    if isinstance(policy, type) or not isinstance(policy, Policy):
        policy = _made(cast(Callable[..., Policy], policy), env)
    generator = torch.Generator().manual_seed(derive_seed(seed, "policy"))
    states = [(wrapper, wrapper.state_dict()) for wrapper in wrappers_of(env)]
    episode, ended = 0, True
    observation: Observation = {}
    # progress on stderr, only if it takes long and stderr is a terminal
    for _ in tqdm(range(n_acts), "normalisation statistics", delay=PROGRESS_AFTER, disable=None, leave=False):
        if ended:
            observation, _ = env.reset(seed=derive_seed(seed, "episode", episode))
            episode, ended = episode + 1, False
        else:
            step_key, agent_id = env.actor_id()
            rows = {name: np.asarray(value)[np.newaxis] for name, value in observation.items()}
            batch = PolicyBatch(step_key, rows, np.array([agent_id]), maze_state=[env.get_simulation_state()])
            action = policy.act(batch, generator=generator).action
            heads = env.action_spaces_dict[step_key].spaces
            single = {head: environment_action(space, action[head][0]) for head, space in heads.items()}
            observation, _, terminated, truncated, _ = env.step(single)
            ended = terminated or truncated
    for wrapper, state in states:
        wrapper.load_state_dict(state)


def _made(maker: Callable[..., Policy], env: Wrapper) -> Policy:
    """Make a policy of action spaces, masks and environment; a random one gets the masks that it lacks."""
    from maze_pl.core.random_policy import RandomPolicy

    available = {"action_spaces_dict": env.action_spaces_dict, "masks": env.action_masks_dict, "env": env}
    policy: Policy = made_by_name("sampling_policy", maker, available)
    if isinstance(policy, RandomPolicy):
        policy.add_masks(env.action_masks_dict)
    return policy


def _has_dict_spaces(env: Wrapper) -> bool:
    """True if observations and actions of the actor that acts next are Dicts."""
    both: tuple[Any, Any] = (env.observation_space, env.action_space)
    return all(isinstance(space, spaces.Dict) for space in both)
