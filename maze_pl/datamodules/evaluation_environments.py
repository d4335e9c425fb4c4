"""Environments in which evaluators play: the one of training, or others with the same spaces."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from gymnasium import spaces

from maze_pl.core.spaces import space_to_dict
from maze_pl.core.spec import Spec
from maze_pl.datamodules.environment_maker import SINGLE, EnvironmentMaker, MakeEnv
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator
from maze_pl.envs.gif_files import GifFiles
from maze_pl.envs.vector import VectorEnv
from maze_pl.envs.wrapper import ObservationWrapper
from maze_pl.envs.wrappers.trajectory_recording_wrapper import TrajectoryRecordingWrapper


class EvaluationEnvironments:
    """Makes the environments of the evaluators of a data module.

    Args:
        training: Makes the environments of training.
        evaluators: The evaluators, by name.
    """

    def __init__(self, training: EnvironmentMaker, evaluators: Mapping[str, RolloutEvaluator]) -> None:
        self._training = training
        self._evaluators = evaluators
        self._others: dict[str, EnvironmentMaker] = {}  # of evaluators with another environment, once checked

    def of(self, name: str) -> EnvironmentMaker:
        """Return what makes the environments of an evaluator.

        Args:
            name: Name of the evaluator.

        Raises:
            ValueError: Its spaces, agents or wrappers do not fit those of training.
        """
        evaluator = self._evaluators[name]
        if evaluator.has_env_of_training:
            return self._training
        if name not in self._others:
            with _named(name):
                other = self._training.with_others(evaluator.env, evaluator.wrappers)
                if other.description.is_array:
                    other.vectorization = "sequential"  # of single episodes in training
            self._require_same_spaces(name, other)
            self._require_known_statistics(name, other)
            self._others[name] = other
        return self._others[name]

    def check(self) -> None:
        """Refuse evaluators that cannot play, or render, before anything is trained.

        Raises:
            ValueError: As for `of`, or an evaluator cannot render its environment.
        """
        for name, evaluator in self._evaluators.items():
            self.of(name)
            if evaluator.render:
                factory = self._factory(name)
                with _named(name):
                    factory().close()

    def require_loadable(self, wrapper_statistics: Mapping[str, Any]) -> None:
        """Refuse evaluators whose wrappers cannot use the statistics of training.

        Args:
            wrapper_statistics: State of each wrapper of training that has statistics, by name.

        Raises:
            ValueError: They do not fit an evaluator.
        """
        for name, evaluator in self._evaluators.items():
            chosen = self.statistics_for(name, wrapper_statistics)
            if chosen and not evaluator.has_env_of_training:
                with _named(name):
                    self.of(name).require_loadable(chosen)

    def statistics_for(self, name: str, wrapper_statistics: Mapping[str, Any]) -> dict[str, Any]:
        """Return the statistics of the wrappers that an evaluator has.

        Args:
            name: Name of the evaluator.
            wrapper_statistics: State of each wrapper of training that has statistics, by name.
        """
        if self._evaluators[name].has_env_of_training:
            return dict(wrapper_statistics)
        wrappers = self.of(name).description.wrappers
        return {wrapper: state for wrapper, state in wrapper_statistics.items() if wrapper in wrappers}

    def log_folders(self) -> set[str]:
        """Return the folders of event logs that environments of evaluators write."""
        folders: set[str] = set()
        for name in self._evaluators:
            folders.update(self.of(name).description.log_folders)
        return folders

    # ------------------------------------------------------------------------------------------------- vectors

    def vector(self, name: str, **options: Any) -> Callable[[], VectorEnv]:
        """Return a factory of the vector of environments of an evaluator.

        Args:
            name: Name of the evaluator.
            options: Options of the class of vectors.

        Raises:
            ValueError: Environments in arrays cannot be made with these options.
        """
        evaluator = self._evaluators[name]
        environments = self.of(name)
        n_envs = len(evaluator.groups[0])
        if evaluator.render or not environments.description.is_array:
            return environments.vector_of([self._factory(name)] * n_envs, **options)
        if evaluator.has_env_of_training:
            return environments.array_vector(n_envs, **options)
        with _named(name):
            return environments.array_vector(n_envs, **options)

    def _factory(self, name: str) -> MakeEnv:
        """Return a factory of single environments of an evaluator, which may show its episodes as pictures."""
        environments = self.of(name)
        if not self._evaluators[name].render:
            return environments.factory()
        if environments.description.is_array:
            raise ValueError(f"evaluators[{name!r}] cannot render an array environment; {SINGLE}")
        writer = GifFiles(f"renderings/{name}", keep_all=False)
        return environments.factory(partial(TrajectoryRecordingWrapper, writer=writer, n_episodes=0))

    # ------------------------------------------------------------------------------------------- checks of others

    def _require_same_spaces(self, name: str, other: EnvironmentMaker) -> None:
        """Refuse an environment whose spaces or agents are not those of training."""
        has_bounds = self._evaluators[name].env is None  # which only its wrappers have changed then
        training = _parts(self._training.description.spec, has_bounds)
        own = _parts(other.description.spec, has_bounds)
        for part in {**training, **own}:
            compared, shown = own.get(part, _MISSING)
            expected, shown_there = training.get(part, _MISSING)
            if compared != expected:
                fault = f"{part} is {shown} in evaluators[{name!r}], but {shown_there} in training"
                remedy = "give the evaluator an env and wrappers with those of training"
                example = "for instances of other sizes, the same largest number of items in both"
                raise ValueError(f"{fault}: {remedy} ({example})")

    def _require_known_statistics(self, name: str, other: EnvironmentMaker) -> None:
        """Refuse wrappers whose statistics training does not have, and missing statistics of observations."""
        training = self._training.description
        own = other.description
        unknown = [wrapper for wrapper in own.with_statistics if wrapper not in training.with_statistics]
        if unknown:
            fault = f"evaluators[{name!r}] has the wrappers {unknown}, whose statistics training does not have"
            known = f"there are {list(training.with_statistics)}"
            remedy = "leave them out, or use as many of each class as in the wrappers of training"
            raise ValueError(f"{fault} ({known}): {remedy}")
        for wrapper in training.with_statistics:
            if wrapper not in own.wrappers and issubclass(training.wrappers[wrapper], ObservationWrapper):
                fault = f"evaluators[{name!r}] has no wrapper {wrapper}, with which the policy is trained"
                raise ValueError(f"{fault}: add it to the wrappers of the evaluator, which takes its statistics")


_MISSING: tuple[Any, str] = (None, "missing")


def _parts(spec: Spec, has_bounds: bool) -> dict[str, tuple[Any, str]]:
    """Return each part of a specification that must be the same: its value, and a short text.

    Args:
        spec: The specification.
        has_bounds: Whether observations must have the same bounds, too. Networks depend on shapes alone, but in
            other bounds, actions mean something else.
    """
    parts: dict[str, tuple[Any, str]] = {}
    for key, step in spec.steps.items():
        place = f"of sub-step {key!r}"
        agents = (step.n_agents, step.n_slots)
        parts[f"the number of agents {place}"] = (agents, str(step.n_agents))
        for observation, space in step.observation_space.spaces.items():
            parts[f"observation {observation!r} {place}"] = (_compared(space, has_bounds), str(space))
        for head, space in step.action_space.spaces.items():
            parts[f"action {head!r} {place}"] = (_compared(space, True), str(space))
            mask = step.masks.get(head)
            parts[f"the mask of action {head!r} {place}"] = (mask, "missing" if mask is None else repr(mask))
    return parts


def _compared(space: spaces.Space[Any], has_bounds: bool) -> dict[str, Any]:
    """Describe a space without the type of its numbers, and with or without bounds."""
    left_out = {"dtype"} if has_bounds else {"dtype", "low", "high"}
    return {name: value for name, value in space_to_dict(space).items() if name not in left_out}


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the evaluator in errors about options and environments, which keep their kind and their traceback."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (f"evaluators[{name!r}]: {error.args[0]}", *error.args[1:])
        raise
