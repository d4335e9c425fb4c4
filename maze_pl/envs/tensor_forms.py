"""Environments in tensors with the tensor forms of wrappers for single episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from maze_pl.envs.array_forms import outdated_form
from maze_pl.envs.arrays.action_masks_array_wrapper import ActionMasksArrayWrapper
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper
from maze_pl.envs.arrays.time_limit_array_wrapper import TimeLimitArrayWrapper
from maze_pl.envs.building import Env, make_wrapped, wrapper_stack
from maze_pl.envs.contract import describe
from maze_pl.envs.no_tensor_form_error import NoTensorFormError
from maze_pl.envs.wrapper import Wrapper

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
        NoTensorFormError: A wrapper has no tensor form; the message says which and why.
        TypeError: A tensor form is not an environment in tensors.
    """
    from maze_pl.envs.tensors.tensor_env import TensorEnv
    from maze_pl.envs.tensors.tensor_wrapper import TensorWrapper

    made = env()
    if not isinstance(made.unwrapped, TensorEnv):
        made.close()
        return None
    try:
        built = _without_array_wrappers(made)
        with closing(make_wrapped(env, wrappers, action_masks)) as episode:
            stack = list(wrapper_stack(episode).items())[1:]  # statistics are outermost
            for name, wrapper in reversed(stack):
                inside, built = built, _form_of(wrapper, built)
                if isinstance(built, TensorWrapper) and built is not inside:
                    built.statistics_name = name
    except BaseException:
        made.close()
        raise
    return built


def merging_wrappers(env: TensorEnv) -> list[str]:
    """Return the `statistics_name` of each wrapper of an environment that merges its statistics."""
    from maze_pl.envs.tensors.tensor_wrapper import TensorWrapper, tensor_wrappers_of

    merging = [one for one in tensor_wrappers_of(env) if type(one).merge is not TensorWrapper.merge]
    return [wrapper.statistics_name for wrapper in merging]


def _form_of(wrapper: Wrapper, env: TensorEnv) -> TensorEnv:
    """Return the tensor form of a wrapper.

    Raises:
        NoTensorFormError: There is none.
        TypeError: It is not an environment in tensors.
    """
    from maze_pl.envs.tensors.tensor_env import TensorEnv

    if reason := outdated_form(type(wrapper), "tensor_form"):
        raise NoTensorFormError(reason)
    form: object = wrapper.tensor_form(env)
    if not isinstance(form, TensorEnv):
        came = f"tensor_form of {type(wrapper).__name__} returned {describe(form)}"
        raise TypeError(f"{came}; return a TensorWrapper around the environment that it gets")
    return form


def _without_array_wrappers(env: Any) -> TensorEnv:
    """Return the environment in tensors inside of array wrappers, with their time limits.

    Raises:
        NoTensorFormError: Another array wrapper is around it.
    """
    limits = []
    known = (TimeLimitArrayWrapper, ActionMasksArrayWrapper)
    while isinstance(env, ArrayWrapper):
        if type(env) not in known:  # a subclass may do more
            raise NoTensorFormError(f"{type(env).__name__} wraps arrays")
        if isinstance(env, TimeLimitArrayWrapper):
            limits.append(env.max_episode_steps)
        env = env.env
    innermost: TensorEnv = env
    for limit in limits:
        innermost.limit_steps(limit)
    return innermost
