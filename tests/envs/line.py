"""A flat simulation that changes its one state object in place, and draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from matplotlib.figure import Figure

from maze_pl.envs import (
    ActionConversionInterface,
    CoreEnv,
    IntRangeArg,
    MazeEnv,
    ObservationConversionInterface,
    OptionsArrayArg,
    Renderer,
)
from maze_pl.events import EventRecord, define_episode_stats, define_epoch_stats, define_step_stats


class LineEvents:
    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="distance")
    @define_step_stats(len, output_name="count")
    @define_step_stats(None, input_name="distance", output_name="as it is")
    def moved(self, distance: int, trail: Any) -> None:
        """The walker moved."""

    @define_epoch_stats(sum)
    @define_episode_stats(sum)
    @define_step_stats(len)
    def placed(self) -> None:
        """The walker was put at its start."""


class LineRenderer(Renderer):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, int, dict[str, Any]]] = []

    def arguments(self) -> Sequence[OptionsArrayArg]:
        return [IntRangeArg("scale", "Scale", 1, 3), OptionsArrayArg("colour", "Colour", ["red", "blue"])]

    def render(
        self, maze_state: Any, maze_action: Any = None, events: Sequence[EventRecord] = (), **arguments: Any
    ) -> Figure:
        self.calls.append((list(maze_state["trail"]), maze_action, len(events), arguments))
        figure = Figure(figsize=(2, 1), dpi=50)
        axes = figure.add_subplot(xlim=(-1, 12), ylim=(-1, 1))
        axes.scatter([maze_state["trail"][-1]], [0], s=40 * arguments.get("scale", 1), c=arguments.get("colour", "red"))
        return figure


class LineCoreEnv(CoreEnv):
    """The walker goes on by 1 or 2; the episode terminates at `goal`."""

    def __init__(self, goal: int = 8, renderer: Renderer | None = None) -> None:
        super().__init__()
        self.events = self.pubsub.create_event_topic(LineEvents)
        self.goal, self.renderer = goal, renderer
        self.state: dict[str, Any] = {"trail": [0]}

    def step(self, maze_action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        trail = self.state["trail"]
        trail.append(trail[-1] + maze_action)
        self.events.moved(distance=maze_action, trail=trail)
        return self.state, 1.0 * maze_action, trail[-1] >= self.goal, False, {"trail": trail}

    def reset(self) -> Any:
        self.state["trail"].clear()
        self.state["trail"].append(0)
        self.events.placed()
        return self.state

    def seed(self, seed: int) -> None:
        self.last_seed = seed

    def close(self) -> None:
        self.closed = True

    def get_maze_state(self) -> Any:
        return self.state

    def get_renderer(self) -> Renderer | None:
        return self.renderer

    def get_serializable_components(self) -> dict[str, Any]:
        return {"length": np.array(len(self.state["trail"]))}


class LineObservation(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"place": spaces.Box(0, 20, (1,), np.float32)})

    def maze_to_space(self, maze_state: Any) -> dict[str, np.ndarray]:
        return {"place": np.array([maze_state["trail"][-1]], np.float32)}


class LineAction(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"stride": spaces.Discrete(2)})

    def space_to_maze(self, action: Any, maze_state: Any) -> int:
        return 1 + int(action["stride"])

    def maze_to_space(self, maze_action: int) -> dict[str, int]:
        return {"stride": maze_action - 1}


def make_line_env(goal: int = 8, renderer: Renderer | None = None) -> MazeEnv:
    return MazeEnv(LineCoreEnv(goal, renderer), {0: LineAction()}, {0: LineObservation()})


def make_drawn_line_env() -> MazeEnv:
    return make_line_env(goal=4, renderer=LineRenderer())
