"""Figures of observations, drawn by a user-defined function, for the dashboards."""

from collections.abc import Callable, Iterator
from typing import Any

from maze_pl.core.actor_id import StepKey
from maze_pl.core.class_path import import_object
from maze_pl.envs.structured_env import Action, Observation, StructuredEnv
from maze_pl.envs.wrappers.sampling_wrapper import SamplingWrapper, Shown
from maze_pl.events import topics
from maze_pl.events.event_names import group_label


class ObservationVisualizationWrapper(SamplingWrapper):
    """Calls a function to draw a sample of the observations that pass through, once per epoch.

    The function is called as `plot_function(value, groups)` for each observation, with the list of
    sampled values and the tuple of step key (as `substep_0`) and name. It returns a matplotlib
    figure or an array `[height, width, 3]`, or None to draw nothing. Let it accept `**kwargs`, too,
    in case later versions pass more. Four observations of an episode are picked at random, from at
    most 100 episodes; avoid drawing large observations in long training runs.

    Args:
        env: The environment to wrap.
        plot_function: The function, or its dotted path. It is called in the process that writes the
            dashboards, and must be importable there.

    Raises:
        ImportError: There is no such function.
        ValueError: The function cannot be imported because it was defined inside another one.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> plot_function = "maze_pl.events.display.create_violin_plot"
        >>> env = ObservationVisualizationWrapper.wrap(GymMazeEnv("CartPole-v1"), plot_function=plot_function)
        >>> observation, info = env.reset(seed=1)
        >>> result = env.step({"action": 0})
        >>> [values.shape for values in env.end_episode().values()]
        [(1, 4)]
    """

    def __init__(self, env: StructuredEnv, plot_function: str | Callable[..., Any]) -> None:
        super().__init__(env, size=4)
        path = plot_function
        if not isinstance(path, str):
            path = f"{path.__module__}.{getattr(path, '__qualname__', '<>')}".replace("__mp_main__", "__main__")
        if "<" in path:
            raise ValueError(f"plot_function={plot_function!r} cannot be imported; define it by `def` in a module")
        if not callable(import_object(path)):
            raise ValueError(f"plot_function={path!r} is not a function")
        self.plot_function = path

    def watch(self, step_key: StepKey, observation: Observation, action: Action) -> Iterator[Shown]:
        """Yield the observation that the policy saw."""
        for name, value in observation.items():
            groups = self.plot_function, group_label("step_key", step_key), name
            yield (
                (topics.ObservationVisualizationEvents.__name__, "observation", None, groups),
                value,
            )
