"""Environments in tensors with the tensor forms of wrappers for single episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maze_pl.envs.array_forms import outdated_form
from maze_pl.envs.arrays.action_masks_array_wrapper import ActionMasksArrayWrapper
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper
from maze_pl.envs.arrays.time_limit_array_wrapper import TimeLimitArrayWrapper
from maze_pl.envs.building import Env, make_wrapped, wrapper_stack

if TYPE_CHECKING:
    from maze_pl.envs.tensors.tensor_env import TensorEnv


def make_wrapped_tensors(
    env: Callable[[], ArrayEnv],
    wrappers: Sequence[Callable[..., Env]] = (),
    action_masks: Mapping[str, str] | None = None,
) -> TensorEnv | None:
    """Make an environment in tensors with the tensor forms of wrappers, the first one innermost.

    The wrappers are first put around one episode, as by `make_wrapped_arrays`. Masks are declared
    by the spaces of the policy alone.

    Args:
        env: Makes the environment.
        wrappers: As for `make_wrapped`.
        action_masks: As for `make_wrapped`.

    Returns:
        The environment; None if `env` makes one that does not lie in tensors.

    Raises:
        ValueError: A wrapper has no tensor form; the message says which and why.
    """
    from maze_pl.envs.tensors.tensor_env import TensorEnv
    from maze_pl.envs.tensors.tensor_wrapper import TensorWrapper

    made = env()
    if not isinstance(made.unwrapped, TensorEnv):
        made.close()
        return None
    built = _without_array_wrappers(made)
    episode = make_wrapped(env, wrappers, action_masks)
    try:
        stack = list(wrapper_stack(episode).items())[1:]  # statistics are outermost
        for name, wrapper in reversed(stack):
            if reason := outdated_form(type(wrapper), "tensor_form"):
                raise ValueError(reason)
            inside, built = built, _checked_form(wrapper, built)
            if isinstance(built, TensorWrapper) and built is not inside:
                built.statistics_name = name
    except BaseException:
        made.close()
        raise
    finally:
        episode.close()
    return built


def _checked_form(wrapper: Any, env: TensorEnv) -> TensorEnv:
    """Return the tensor form of a wrapper.

    Raises:
        ValueError: There is none, or something else was returned.
    """
    from maze_pl.envs.tensors.tensor_env import TensorEnv

    try:
        form: object = wrapper.tensor_form(env)
    except TypeError as error:
        raise ValueError(str(error)) from error
    if not isinstance(form, TensorEnv):
        came = f"tensor_form of {type(wrapper).__name__} returned {form!r}"
        raise ValueError(f"{came}, which is not a TensorEnv")
    return form


def _without_array_wrappers(env: Any) -> TensorEnv:
    """Return the environment in tensors inside of array wrappers, with their time limits.

    Raises:
        ValueError: Another array wrapper is around it.
    """
    limits = []
    known = (TimeLimitArrayWrapper, ActionMasksArrayWrapper)
    while isinstance(env, ArrayWrapper):
        if type(env) not in known:  # a subclass may do more
            raise ValueError(f"{type(env).__name__} wraps arrays")
        if isinstance(env, TimeLimitArrayWrapper):
            limits.append(env.max_episode_steps)
        env = env.env
    innermost: TensorEnv = env
    for limit in limits:
        innermost.limit_steps(limit)
    return innermost
