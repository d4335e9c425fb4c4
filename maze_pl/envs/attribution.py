"""Test of whether rewards of an environment are attributed to single actors."""

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
    wrappers = [wrapper for wrapper in wrappers_of(env) if type(wrapper) not in but_for]
    layers = (*wrappers, env.unwrapped, env.core_env)  # type: ignore[attr-defined]
    classes = (Wrapper, RewardWrapper, StructuredEnv, CoreEnv)
    passing_on = [vars(part)["get_actor_rewards"] for part in classes]
    return any(getattr_static(layer, "get_actor_rewards") not in passing_on for layer in layers)
