"""Completion and checks of the classes of wrappers, and messages about mistakes in them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from gymnasium import spaces

from maze_pl.core.class_path import definer_of
from maze_pl.envs.contract import EnvContractError, describe
from maze_pl.envs.structured_env import Action, StepResult, StructuredEnv

if TYPE_CHECKING:
    from maze_pl.envs.wrapper import Wrapper

_BASES: Final = f"{__package__}.wrapper"
"""Module of `Wrapper` and of the bases that change observations, actions and rewards."""
_PASSED_ON: Final = """
    render close metadata render_mode spec np_random np_random_seed heuristic_policy core_env context pubsub
    actor_id is_actor_done get_done_actors agent_counts_dict get_actor_rewards get_env_time get_maze_state
    get_simulation_state get_episode_id get_step_events get_kpi_calculator get_renderer get_serializable_components
    reseed
"""


def passed_on(name: str) -> property:
    """Return a property that forwards to the wrapped environment without a call per layer."""
    doc = getattr(getattr(StructuredEnv, name, None), "__doc__", None)
    return property(attrgetter(f"env.{name}"), lambda self, value: setattr(self.env, name, value), doc=doc)


def forward_attributes(kind: type[Wrapper]) -> None:
    """Let the class `Wrapper` forward attributes to the wrapped environment."""
    for name in _PASSED_ON.split():
        setattr(kind, name, passed_on(name))
    for name in ("observation_space", "action_space"):
        setattr(kind, name, _space_of_next_actor(name))
    kind.step_simulation = _refuse_to_step_simulation  # type: ignore[attr-defined]


def _refuse_to_step_simulation(wrapper: Wrapper, maze_action: Any) -> NoReturn:
    """Refuse `MazeEnv.step_simulation`, which wrappers take no part in.

    Raises:
        TypeError: Always.
    """
    name = type(wrapper).__name__
    fault = f"step_simulation steps a MazeEnv without its wrappers, but {name} is one"
    remedy = "call env.step(action), or env.unwrapped.step_simulation(maze_action) without them"
    raise TypeError(f"{fault}; {remedy}")


def _space_of_next_actor(name: str) -> property:
    """Return `observation_space` or `action_space` of `StructuredEnv`, with an explanation for wrappers that set it."""
    inherited = cast(property, inspect.getattr_static(StructuredEnv, name))

    def refuse(self: Any, value: Any) -> None:
        fault = f"{type(self).__name__} cannot set {name}, which is that of the next actor"
        raise AttributeError(f"{fault}; override {name}s_dict, a property with a space for each step key")

    return property(inherited.fget, refuse, doc=inherited.__doc__)


def step_by_parts(self: Wrapper, action: Action) -> StepResult:
    """Perform an act by `Wrapper.step_in_parts`, as the method `step` of a wrapper.

    Raises:
        EnvContractError: `step_in_parts` is not a generator, or yields something else than actions.
    """
    parts = self.step_in_parts(action)
    result: Any = None
    while True:
        try:
            inner = parts.send(result)
        except StopIteration as end:
            return cast(StepResult, end.value)
        except AttributeError:
            if isinstance(parts, Generator):
                raise
            came = f"step_in_parts of {type(self).__name__} returned {describe(parts)}"
            remedy = "write `yield action` instead of `self.env.step(action)`"
            raise EnvContractError(f"{came}, as it does not yield; {remedy}") from None
        try:
            result = self.env.step(inner)
        except Exception as error:
            explain_action(self, inner, "step_in_parts", "yielded", error)
            raise


def explain_action(wrapper: Wrapper, action: Any, method: str, verb: str, error: Exception) -> None:
    """Raise EnvContractError if a wrapper passed something on that cannot be an action.

    Args:
        wrapper: The wrapper.
        action: What it passed on.
        method: Its method that made the action.
        verb: What the method did with it, in the past tense.
        error: The exception that followed.
    """
    if isinstance(action, Mapping):
        return
    if not all(isinstance(space, spaces.Dict) for space in wrapper.env.action_spaces_dict.values()):
        return
    came = f"{method} of {type(wrapper).__name__} {verb} {describe(action)}"
    is_result = isinstance(action, tuple) and len(action) == 5
    remedy = "a dict from head to value"
    if is_result:
        remedy += ", as in `yield action` instead of `yield self.env.step(action)`"
    raise EnvContractError(f"{came}; expected an action, {remedy}") from error


def require_spaces_by_step_key(env: StructuredEnv) -> None:
    """Refuse an environment whose spaces are not given for each step key.

    Raises:
        TypeError: One of its properties returns a space.
    """
    for name in ("observation_spaces_dict", "action_spaces_dict"):
        given = getattr(env, name)
        if isinstance(given, spaces.Space):
            remedy = "return a dict from step key to space, such as {0: spaces.Dict(...)}"
            raise TypeError(f"{name} of {type(env).__name__} returned the space {given}; {remedy}")


def complete_class(kind: type[Wrapper]) -> None:
    """Give a class of wrappers that only defines `step_in_parts` a `step` that runs it, and check the class.

    Raises:
        TypeError: `reset` does not take its keywords, or `step` leaves out a base that changes results.
    """
    order = kind.__mro__
    if order.index(definer_of(kind, "step_in_parts")) < order.index(definer_of(kind, "step")):
        kind.step = step_by_parts  # type: ignore[method-assign]
        kind.step_in_parts = kind.step_in_parts  # type: ignore[method-assign]  # they belong together
    _check_reset(kind)
    definer = definer_of(kind, "step")
    changing = [base for base in order if base.__module__ == _BASES and base.__name__ != "Wrapper"]
    if len(changing) > 1 and not all(issubclass(definer, base) for base in changing):
        names = " and ".join(base.__name__ for base in changing)
        fault = f"its step is that of {definer.__name__} and leaves out what the others change"
        raise TypeError(f"{kind.__name__} derives from {names}, but {fault}; write one wrapper for each")


def _check_reset(kind: type[Wrapper]) -> None:
    """Refuse a `reset` that does not accept a seed and options."""
    reset: Callable[..., Any] = kind.reset
    if not inspect.isfunction(reset):
        return
    try:
        inspect.signature(reset).bind(None, seed=None, options=None)
    except TypeError as error:
        remedy = "define it as reset(self, *, seed=None, options=None), and pass both on to self.env.reset"
        raise TypeError(f"reset of {kind.__name__} does not accept seed and options ({error}); {remedy}") from None
