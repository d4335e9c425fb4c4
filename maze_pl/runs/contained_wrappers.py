"""Environments without the wrappers that a bundle contains, which would otherwise be applied twice."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import gymnasium

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.spec import fitting_masks
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.building import (
    adapted,
    class_of,
    make_wrapped,
    with_statistics,
    with_wrapper,
    wrapper_stack,
)
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.envs.wrappers.action_masks_wrapper import ActionMasksWrapper, require_used, with_action_masks
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.events.trial_registrations import forgetting_newer
from maze_pl.runs.closed_on_error import closed_on_error


@dataclass(frozen=True)
class StackWithout:
    """An environment without some of its wrappers.

    Attributes:
        env: The environment.
        names: Name of each wrapper in the complete stack -> its name in this one, where these differ.
        removed: Names of the wrappers that are left out.
    """

    env: LogStatsWrapper
    names: Mapping[str, str]
    removed: Sequence[str]

    def statistics_of(self, wrapper_statistics: Mapping[str, Any]) -> dict[str, Any]:
        """Return the statistics of the remaining wrappers, by their names in this environment.

        Args:
            wrapper_statistics: Statistics by the names of the complete stack.
        """
        kept: dict[str, Any] = {}
        for name, state in wrapper_statistics.items():
            if name not in self.removed:
                kept[self.names.get(name, name)] = state
        return kept


@dataclass(frozen=True)
class MakeWithout:
    """Makes an environment with its wrappers, except for those that a bundle contains.

    Wrappers of the list that are around these are made again around the environment without them, so
    that they read its spaces. Their first instances are dropped, and not closed, as that would close
    the environment. Wrappers that `env` itself, or a single entry of the list, puts around contained
    ones are copied, with what they have read.

    Attributes:
        env: Makes the environment, or returns one; its own stack is not changed.
        wrappers: As for `make_wrapped`.
        action_masks: As for `make_wrapped`.
        removed: Names of the wrappers that are left out, as in `wrapper_stack`.
        is_given: Whether `env` returns one of the caller, which stays open if it is refused.
    """

    env: Callable[[], Any]
    wrappers: Sequence[Callable[..., Any]] = ()
    action_masks: Mapping[str, str] | None = None
    removed: Sequence[str] = ()
    is_given: bool = False

    def __call__(self) -> LogStatsWrapper:
        """Make an environment; see `build`."""
        return self.build().env

    def build(self) -> StackWithout:
        """Make an environment. One that has none of the wrappers keeps all that it has.

        Raises:
            ConfigurationError: It has only some of them, or another number of wrappers of their classes;
                or a function in the list makes other wrappers without them.
        """
        made = self.env()
        is_environment = isinstance(made, gymnasium.Env | ArrayEnv)
        with closed_on_error(made, self.is_given or not is_environment):
            base: Any = adapted(made)
        with closed_on_error(base, self.is_given):
            if not self.removed:
                complete = make_wrapped(lambda: base, self.wrappers, self.action_masks)
                return StackWithout(complete, {}, ())
            return self._build_around(base)

    def _build_around(self, base: Any) -> StackWithout:
        """Put the wrappers around an environment, first all of them, then those that remain."""
        masks = self.action_masks or {}
        classes = {class_of(name) for name in self.removed}
        inside: Any = with_action_masks(base, masks)
        complete = inside
        is_inside = not _has_any(wrappers_of(base), classes)
        around: list[tuple[Callable[..., Any], list[Wrapper]]] = []
        with ExitStack() as trial:
            trial.callback(forgetting_newer(base.pubsub))
            for wrapper in self.wrappers:
                wrapped = with_wrapper(complete, wrapper, masks)
                layers = _layers(wrapped, complete)
                complete = wrapped
                is_inside = is_inside and not _has_any(layers, classes)
                if is_inside:
                    inside = complete
                    trial.pop_all()
                    trial.callback(forgetting_newer(base.pubsub))
                else:
                    around.append((wrapper, layers))
            require_used(complete, masks)
        stack = wrapper_stack(complete)
        _require_all_or_none(stack, self.removed)
        removed = [stack[name] for name in self.removed if name in stack]
        built: Any = with_action_masks(_without(inside, removed), masks)
        for wrapper, complete_layers in around:
            are_removed = [_is_among(layer, removed) for layer in complete_layers]
            if not are_removed or not all(are_removed):
                wrapped = with_wrapper(built, wrapper, masks)
                layers_here = _layers(wrapped, built)
                built = _without(wrapped, _counterparts(layers_here, complete_layers, are_removed))
        env = with_statistics(built)
        return StackWithout(env, _new_names(stack, env, removed), self.removed)


def _has_any(layers: Iterable[Wrapper], paths: Collection[str]) -> bool:
    """True if a wrapper is of one of some classes, given by their paths."""
    return any(class_path_of(type(layer)) in paths for layer in layers)


def class_path_of(kind: type) -> str:
    """Return a class path, as in the names of `wrapper_stack`."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _layers(env: Any, inside: Any) -> list[Wrapper]:
    """Return the wrappers around another environment, the outermost first, without declared masks."""
    found = []
    for layer in wrappers_of(env):
        if layer is inside:
            break
        if type(layer) is not ActionMasksWrapper:  # which exists where its masks do
            found.append(layer)
    return found


def _counterparts(
    layers: Sequence[Wrapper], complete_layers: Sequence[Wrapper], are_removed: Sequence[bool]
) -> list[Wrapper]:
    """Return the layers at the places of those that are removed from the complete stack.

    Args:
        layers: Layers that a wrapper of the list has made without contained ones inside.
        complete_layers: Layers that it has made in the complete stack.
        are_removed: Whether each of these is removed.

    Raises:
        ConfigurationError: The classes differ, so that places mean nothing.
    """
    before = [class_path_of(type(layer)) for layer in complete_layers]
    after = [class_path_of(type(layer)) for layer in layers]
    if after != before:
        fault = f"a function in the list of wrappers made {before}, and {after} without those that"
        remedy = "make each wrapper by a separate function, whatever is inside of it"
        raise ConfigurationError(f"{fault} the bundle contains: {remedy}")
    return [layer for layer, is_removed in zip(layers, are_removed, strict=True) if is_removed]


def _is_among(wrapper: Any, wrappers: Sequence[Wrapper]) -> bool:
    """True if a wrapper is one of several, not only equal to it."""
    return any(wrapper is other for other in wrappers)


def _require_all_or_none(stack: Mapping[str, Wrapper], names: Sequence[str]) -> None:
    """Refuse a stack that has only some of the wrappers, or another number of the same classes.

    Raises:
        ConfigurationError: It is such a stack; the message names the wrappers.
    """
    missing = [name for name in names if name not in stack]
    if not missing:
        return
    contained = f"the bundle contains {list(names)}"
    if len(missing) < len(names):
        raise ConfigurationError(f"{contained}, of which the environment lacks {missing}: add them all")
    classes = {class_of(name) for name in names}
    if others := [name for name in stack if class_of(name) in classes]:
        remedy = "give all wrappers of the training, or none of these classes"
        raise ConfigurationError(f"{contained}, but the environment has {others} of the same class: {remedy}")


def _without(env: Any, removed: Sequence[Wrapper]) -> Any:
    """Return a stack without some wrappers, and without masks that exist only with them.

    Args:
        env: The stack; it is not changed, as wrappers around others are copied, but its statistics are detached.
        removed: The wrappers.
    """
    if not issubclass(type(env), Wrapper):
        return env
    inside = _without(env.env, removed)
    if _is_among(env, removed):
        return inside
    if inside is env.env:
        return env
    if issubclass(type(env), LogStatsWrapper):  # which reads spaces and wrappers when it is made
        env.detach()
        return LogStatsWrapper(inside, env.logging_prefix, env.count_unfinished)
    copied = copy.copy(env)
    copied.env = inside
    return inside if type(copied) is ActionMasksWrapper and not _masks_exist(copied) else copied


def _masks_exist(wrapper: ActionMasksWrapper) -> bool:
    """True if the environment inside of it has all heads and observations that it declares as masks."""
    for key, masks in wrapper.action_masks_dict.items():
        if fitting_masks(wrapper.env, masks).get(key, {}) != dict(masks):
            return False
    return True


def _new_names(stack: Mapping[str, Wrapper], env: Any, removed: Sequence[Wrapper]) -> dict[str, str]:
    """Return the name of each remaining wrapper in the complete stack -> its name in the other one."""
    silent = (ActionMasksWrapper, LogStatsWrapper)
    kept = [name for name, wrapper in stack.items() if not _is_among(wrapper, removed)]
    names: dict[str, str] = {}
    for kind in {class_of(name) for name in kept}:
        before = [name for name in kept if class_of(name) == kind]
        after = [name for name in wrapper_stack(env) if class_of(name) == kind]
        if not issubclass(type(stack[before[0]]), silent):
            names.update(zip(before, after, strict=True))
    return names
