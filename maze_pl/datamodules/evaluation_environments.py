"""Environments in which evaluators play: the one of training, or others with the same spaces."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from maze_pl.datamodules.environment_maker import SINGLE, EnvironmentMaker, MakeEnv
from maze_pl.datamodules.evaluation_spaces import require_same_spaces
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator
from maze_pl.datamodules.statistics_of_other_stacks import require_known_statistics, taken_statistics
from maze_pl.envs.gif_files import GifFiles
from maze_pl.envs.vector import VectorEnv
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
            training = self._training.description
            own = other.description
            has_bounds = evaluator.env is None  # which only its wrappers have changed then
            require_same_spaces(name, training.spec, own.spec, has_bounds)
            require_known_statistics(f"evaluators[{name!r}]", training, own)
            self._others[name] = other
        return self._others[name]

    def check(self) -> None:
        """Refuse evaluators that cannot play, or render, before anything is trained.

        Raises:
            ValueError: As for `of` and `vector`, or an evaluator cannot render its environment.
        """
        for name, evaluator in self._evaluators.items():
            if not evaluator.has_env_of_training:
                self.vector(name)
            if evaluator.render:
                with _named(name):
                    self.of(name).require_makeable(self._renderer(name))

    def require_playable(self, wrapper_statistics: Mapping[str, Any]) -> None:
        """Refuse evaluators that cannot play, or whose wrappers cannot use the statistics of training.

        Args:
            wrapper_statistics: State of each wrapper of training that has statistics, by name.

        Raises:
            ValueError: They do not fit an evaluator, or as for `vector`.
        """
        for name, evaluator in self._evaluators.items():
            self.vector(name)
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
        return taken_statistics(self.of(name).description, wrapper_statistics)

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
        return environments.factory(self._renderer(name))

    def _renderer(self, name: str) -> Callable[[Any], Any]:
        """Return the wrapper that shows the episodes of an evaluator as pictures."""
        writer = GifFiles(f"renderings/{name}", keep_all=False)
        return partial(TrajectoryRecordingWrapper, writer=writer, n_episodes=0)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the evaluator in errors about options and environments, which keep their kind and their traceback."""
    evaluator = f"evaluators[{name!r}]"
    try:
        yield
    except (TypeError, ValueError) as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (f"{evaluator}: {error.args[0]}", *error.args[1:])
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:  # which messages show in place of the arguments
            error.strerror = f"{error.strerror} ({evaluator})"
        else:
            error.add_note(f"raised by {evaluator}")
        raise
