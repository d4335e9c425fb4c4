"""Steps of a stack of wrappers, in parts between which results come from outside."""

from collections.abc import Callable
from typing import Any

from maze_pl.envs.contract import describe
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.structured_env import Action, StepParts, StructuredEnv
from maze_pl.envs.wrapper import Wrapper, wrappers_of

PartResult = tuple[bool, Any]
"""Whether the step is complete after one of its parts; its result if it is, otherwise the simulation's next action."""


class StackSteps:
    """Runs the step of an environment with wrappers until it needs the next state, and continues with it.

    Each layer's `step_in_parts` is suspended where its `step` would wait for the environment
    inside. No thread is needed, and what the layers do, and in which order, is what they do in
    training.

    Args:
        env: The environment with its wrappers.

    Raises:
        TypeError: A layer cannot be kept in step; see `require_in_step`.
    """

    def __init__(self, env: StructuredEnv) -> None:
        layers = layers_of(env)
        for layer in layers:
            require_in_step(layer)
        self._layers: list[Callable[[Action], StepParts]] = []
        for layer in layers:
            if not _passes_on(layer):
                self._layers.append(layer.step_in_parts)
        self._running: list[StepParts] = []

    def begin(self, action: Action) -> PartResult:
        """Begin a step with the action of the current actor."""
        self.abandon()
        return self._descend(action)

    def resume(self, result: tuple[Any, ...]) -> PartResult:
        """Continue with the result of the simulation's step."""
        value: Any = result
        while self._running:
            try:
                action = self._running[-1].send(value)
            except StopIteration as end:
                self._running.pop()
                value = end.value
            else:
                complete, value = self._descend(action)
                if not complete:
                    return False, value
        return True, value

    def _descend(self, action: Action) -> PartResult:
        """Pass an action on to the layers inside of the running ones; a layer may answer it itself."""
        for layer in self._layers[len(self._running) :]:
            parts = layer(action)
            try:
                action = next(parts)
            except StopIteration as end:
                return self.resume(end.value)
            self._running.append(parts)
        return False, action

    def abandon(self) -> None:
        """Drop a step that waits for a result."""
        running, self._running = self._running, []
        for parts in reversed(running):
            parts.close()


def layers_of(env: StructuredEnv) -> list[Any]:
    """Return the wrappers of an environment, outermost first, and the `MazeEnv` inside of them.

    Raises:
        TypeError: There is none inside.
    """
    layers: list[Any] = list(wrappers_of(env))
    inner = layers[-1].env if layers else env
    if not issubclass(type(inner), MazeEnv):
        raise TypeError(f"{describe(inner)} cannot be deployed: only a MazeEnv has conversions of states and actions")
    return [*layers, inner]


def require_in_step(layer: Any) -> None:
    """Refuse a layer whose `step` cannot wait for states from outside.

    Raises:
        TypeError: Its class overrides `step`, but not `step_in_parts`.
    """
    for kind in type(layer).__mro__:
        if "step_in_parts" in vars(kind):
            return
        if "step" in vars(kind):
            remedy = "define step_in_parts, with `yield action` instead of `self.env.step(action)`"
            raise TypeError(f"{kind.__name__} cannot be kept in step, as it overrides step: {remedy}")


def _passes_on(layer: Any) -> bool:
    """True if a wrapper leaves actions and results as they are."""
    return type(layer).step_in_parts is Wrapper.step_in_parts
