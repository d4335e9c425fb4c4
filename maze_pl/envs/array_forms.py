"""Array environments with the array forms of the wrappers that are made for single episodes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from maze_pl.core.class_path import definer_of
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper
from maze_pl.envs.building import Env, make_wrapped, wrapper_stack
from maze_pl.envs.contract import describe
from maze_pl.envs.no_array_form_error import NoArrayFormError
from maze_pl.envs.wrapper import Wrapper

_REMEDY = "leave it out, give it an array_form, or use the form of the environment for single episodes"


def make_wrapped_arrays(
    env: Callable[[], ArrayEnv],
    wrappers: Sequence[Callable[..., Env]] = (),
    action_masks: Mapping[str, str] | None = None,
) -> ArrayEnv:
    """Make an array environment with the array forms of wrappers, the first one innermost.

    The wrappers are first put around one episode, as by `make_wrapped`, so that they read their
    arguments and check them; each then makes its array form.

    Args:
        env: Makes the array environment.
        wrappers: As for `make_wrapped`.
        action_masks: As for `make_wrapped`.

    Raises:
        ValueError: A wrapper has no array form.
        TypeError: An array form is not an array environment.
    """
    episode = make_wrapped(env, wrappers, action_masks)
    stack = list(wrapper_stack(episode).items())[1:]  # statistics, outermost, are those of `ArrayVectorEnv`
    built = env()
    for name, wrapper in reversed(stack):
        inside, built = built, form_of(wrapper, built)
        if isinstance(built, ArrayWrapper) and built is not inside:
            built.statistics_name = name
    episode.close()
    return built


def form_of(wrapper: Wrapper, env: ArrayEnv) -> ArrayEnv:
    """Return the array form of a wrapper around an array environment.

    Raises:
        ValueError: There is none.
        TypeError: It is not an array environment, or cannot be made.
    """
    kind = type(wrapper)
    if reason := outdated_form(kind, "array_form"):
        raise ValueError(f"the environment is an array environment, and {reason}; {_REMEDY}")
    try:
        form: Any = wrapper.array_form(env)
    except NoArrayFormError as error:
        raise ValueError(f"the environment is an array environment, and {error}; {_REMEDY}") from error
    except TypeError as error:
        raise TypeError(f"array_form of {kind.__name__} failed: {error}") from error
    if isinstance(form, ArrayEnv):
        return form
    remedy = "return the ArrayWrapper around the environment that array_form gets"
    raise TypeError(f"array_form of {kind.__name__} returned {describe(form)}; {remedy}")


def outdated_form(kind: type[Wrapper], method: str) -> str:
    """Return why a form of wrappers of a class is not theirs: a derived class behaves differently; empty if it is.

    Args:
        kind: The class.
        method: Name of the method that makes the form.
    """
    definer = definer_of(kind, method)
    later = [] if definer is Wrapper else kind.__mro__[: kind.__mro__.index(definer)]
    for derived in later:
        changed = [name for name, value in vars(derived).items() if _is_behaviour(name, value)]
        if changed:
            form = method.replace("_", " ")
            return f"{derived.__name__} changes {changed} of {definer.__name__}, whose {form} does not know of it"
    return ""


def _is_behaviour(name: str, value: Any) -> bool:
    """True for methods and properties of a class, except special methods, its constructor and those that make forms."""
    is_special = name.startswith("__") or name in ("array_form", "tensor_form")
    return not is_special and (callable(value) or isinstance(value, property | classmethod | staticmethod))
