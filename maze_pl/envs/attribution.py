"""Tests of whether an environment tells anything of single actors at the end of an environment step."""

from inspect import getattr_static

from maze_pl.envs.core_env import CoreEnv
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import RewardWrapper, Wrapper, wrappers_of


def attributes_rewards(env: StructuredEnv, *but_for: type[Wrapper]) -> bool:
    """True if any part of a stack attributes rewards to actors; if not, there is no need to ask.

    Args:
        env: The stack.
        but_for: Wrappers that are not asked, because they only pass on the rewards of others.
    """
    return _is_overridden("get_actor_rewards", env, but_for)


def ends_actors(env: StructuredEnv) -> bool:
    """True if any part of a stack may end actors that have acted earlier in the environment step."""
    return _is_overridden("get_done_actors", env)


def _is_overridden(method: str, env: StructuredEnv, but_for: tuple[type[Wrapper], ...] = ()) -> bool:
    """True if any part of a stack, except for some wrappers, does more than to pass the results of a method on."""
    wrappers = [wrapper for wrapper in wrappers_of(env) if type(wrapper) not in but_for]
    layers = (*wrappers, env.unwrapped, env.core_env)  # type: ignore[attr-defined]
    passing_on = [vars(part).get(method) for part in (Wrapper, RewardWrapper, StructuredEnv, CoreEnv)]
    return any(getattr_static(layer, method) not in passing_on for layer in layers)
