"""Wrappers with which a policy was trained, and which its deployment must have, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.class_path import import_object
from maze_pl.envs.building import class_of, wrapper_stack
from maze_pl.envs.wrapper import ObservationWrapper, Wrapper
from maze_pl.envs.wrappers.observation_normalization_wrapper import (
    ObservationNormalizationWrapper,
    configured_statistics_of,
)
from maze_pl.events.pubsub import Pubsub
from maze_pl.events.trial_registrations import trial_registrations
from maze_pl.runs.contained_wrappers import StackWithout, class_path_of
from maze_pl.runs.recorders import class_made_by

Make = Callable[[Any], Any]
Makers = dict[str, Make | None]
"""What makes wrappers in a run, by their names in a deployment; None where that is not known."""
_NORMALIZATION: Final = class_path_of(ObservationNormalizationWrapper)


@dataclass(frozen=True)
class TrainedWrappers:
    """The wrappers of a training that decide what observations mean.

    No environment of the training is made for them: names of estimated statistics are in the
    checkpoint, and of the wrappers of the run only normalisations are made, around the environment
    of the deployment.

    Attributes:
        estimated: Names of the wrappers of observations that have statistics in the run.
        normalizers: Class path -> what makes the normalisations of this class in the list of the
            run, the innermost first.
        has_functions: Whether the list of the run has functions, which do not tell what they make.
        keeps_env: Whether the deployment has the environment of the run.
        bundle: Names of all wrappers with which the policy of a bundle was trained, the innermost
            first; None for the policy of the run.
    """

    estimated: Sequence[str]
    normalizers: Mapping[str, Sequence[Make]]
    has_functions: bool
    keeps_env: bool
    bundle: Sequence[str] | None

    @classmethod
    def of_run(
        cls,
        wrappers: Sequence[Make],
        names: Sequence[str],
        *,
        trust: bool,
        keeps_env: bool,
        bundle: Sequence[str] | None,
    ) -> TrainedWrappers:
        """Return the wrappers of the training of a run, or of a bundle.

        Args:
            wrappers: List of wrappers of the run.
            names: Names of the wrappers that have statistics in its checkpoint.
            trust: Whether their classes may be imported from outside of maze_pl.
            keeps_env: As in the class.
            bundle: As in the class.
        """
        kinds: dict[str, type] = {}
        normalizers: dict[str, list[Make]] = {}
        for wrapper in wrappers:
            kind = class_made_by(wrapper)
            if kind is not None:
                path = class_path_of(kind)
                kinds[path] = kind
                if issubclass(kind, ObservationNormalizationWrapper):
                    normalizers.setdefault(path, []).append(wrapper)
        estimated = [name for name in names if _is_of_observations(class_of(name), kinds, trust)]
        has_functions = any(class_made_by(wrapper) is None for wrapper in wrappers)
        return cls(estimated, normalizers, has_functions, keeps_env, bundle)

    def require(self, built: StackWithout, inner: Sequence[str]) -> None:
        """Refuse an environment that lacks such a wrapper, or normalises by other statistics.

        Args:
            built: The environment, before statistics are loaded.
            inner: Class paths of the wrappers in it that are not from the list of wrappers.

        Raises:
            ConfigurationError: It does, so that observations would not mean the same as in training.
        """
        from maze_pl.datamodules.statistics_of_other_stacks import Wrappers, require_known_statistics

        stack = wrapper_stack(built.env)
        trained = self._in_list(stack, inner) if self.bundle is None else self._in_bundle(built)
        configured = configured_statistics_of(stack)
        for name, make in trained.items():
            if make is None:
                configured.pop(name, None)  # there is nothing to compare it with
        kinds = {name: type(wrapper) for name, wrapper in stack.items()}
        found = Wrappers(kinds, [name for name in stack if _normalizes(stack[name])], configured)
        trained_kinds = dict.fromkeys(trained, ObservationWrapper)
        try:
            stated = _configured(trained, stack, built.env.pubsub)
            require_known_statistics("the deployment", Wrappers(trained_kinds, [*trained], stated), found)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(str(error)) from error

    def _in_list(self, stack: Mapping[str, Wrapper], inner: Sequence[str]) -> Makers:
        """Return what makes the wrappers of the run.

        Normalisations that an environment has itself are those of training if it is that of the
        run. In another one they count as its conversions, unless the list has some of their class.
        Further ones are those of functions in the list, as far as one can tell.
        """
        trained: Makers = dict.fromkeys(self.estimated)
        in_deployment = [class_of(name) for name in stack if _normalizes(stack[name])]
        for path in dict.fromkeys([*self.normalizers, *in_deployment]):
            of_list = self.normalizers.get(path, ())
            is_in_training = self.keeps_env or not of_list
            of_env: list[None] = [None] * inner.count(path) if is_in_training else []
            makers = [*of_env, *of_list]
            names = [name for name in stack if class_of(name) == path]
            if self.has_functions and len(names) > len(makers):
                trained.update(dict.fromkeys(names))
            else:
                trained.update(zip(_numbered(path, len(makers)), makers, strict=True))
        return trained

    def _in_bundle(self, built: StackWithout) -> Makers:
        """Return what makes the wrappers that the bundle leaves to its caller."""
        stack, bundle = wrapper_stack(built.env), self.bundle or ()
        known: dict[str, Make] = {}
        for path, makers in self.normalizers.items():
            names = [name for name in bundle if class_of(name) == path]
            if len(names) == len(makers):  # else the bundle is of another run
                known.update(zip(names, makers, strict=True))
        trained: Makers = {}
        left = built.statistics_of({name: name for name in bundle})
        for name, name_in_training in left.items():
            is_known = name_in_training in known or name_in_training in self.estimated
            is_normalization = name in stack and _normalizes(stack[name])
            if is_known or is_normalization or class_of(name) == _NORMALIZATION:
                trained[name] = known.get(name_in_training)
        return trained


def _is_of_observations(path: str, kinds: Mapping[str, type], trust: bool) -> bool:
    """True if a wrapper is one of observations, or its class is not known.

    Args:
        path: Its class path.
        kinds: Classes that are known, by path.
        trust: Whether it may be imported from outside of maze_pl.
    """
    kind: Any = kinds.get(path)
    if kind is None and (trust or path.startswith("maze_pl.")):
        with suppress(ImportError):
            kind = import_object(path)
    return kind is None or issubclass(kind, ObservationWrapper)


def _normalizes(wrapper: Wrapper) -> bool:
    """True for a normalisation of observations; `isinstance` would see through to inner ones."""
    return issubclass(type(wrapper), ObservationNormalizationWrapper)


def _configured(trained: Makers, stack: Mapping[str, Wrapper], pubsub: Pubsub) -> dict[str, Any]:
    """Return the statistics that the run configures for the normalisations of a deployment.

    Args:
        trained: What makes them in the run.
        stack: The wrappers of the deployment.
        pubsub: Its events.
    """
    configured: dict[str, Any] = {}
    with trial_registrations(pubsub):
        for name, make in trained.items():
            if make is not None and name in stack:
                statistics = make(stack[name].env).configured_statistics
                if statistics:
                    configured[name] = statistics
    return configured


def _numbered(path: str, n: int) -> list[str]:
    """Return the names of n wrappers of a class, the innermost first, as in `wrapper_stack`."""
    return [path] if n == 1 else [f"{path} ({number} of {n})" for number in range(1, n + 1)]
