from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.backend_bases import KeyEvent

from maze_pl.envs import IntRangeArg, StateTrajectoryRecord, draw_event_statistics
from maze_pl.envs.cutting_2d import maze_env_factory
from maze_pl.envs.wrappers import RandomResetWrapper, StepSkipWrapper, TrajectoryRecordingWrapper
from maze_pl.events import BaseEnvEvents, display
from tests.envs.line import LineEvents, LineRenderer, make_line_env


@pytest.fixture(autouse=True)
def headless() -> Iterator[None]:
    former = matplotlib.get_backend()
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")
    pyplot.switch_backend(former)


@pytest.fixture
def record() -> StateTrajectoryRecord:
    env = TrajectoryRecordingWrapper.wrap(make_line_env(goal=4))
    env.reset(seed=1)
    for stride in (0, 0, 1):
        env.step({"stride": stride})
    return env.trajectories[0]


def press(figure: Any, key: str) -> None:
    figure.canvas.callbacks.process("key_press_event", KeyEvent("key_press_event", figure.canvas, key))


def test_an_integer_in_a_range_offers_all_of_it() -> None:
    assert list(IntRangeArg("piece", "Piece", 2, 5).options) == [2, 3, 4, 5]


def test_recorded_steps_are_drawn_with_their_action_and_events(record: StateTrajectoryRecord) -> None:
    renderer = LineRenderer()
    pictures = [record.draw(renderer, step) for step in range(4)]
    assert renderer.calls == [([0], 1, 3, {}), ([0, 1], 1, 2, {}), ([0, 1, 2], 2, 2, {}), ([0, 1, 2, 4], None, 0, {})]
    assert all((one != other).any() for one, other in itertools.pairwise(pictures))


def test_a_running_environment_is_drawn_like_its_record() -> None:
    renderer = LineRenderer()
    env = TrajectoryRecordingWrapper.wrap(make_line_env(goal=4, renderer=renderer))
    env.reset(seed=1)
    env.render()
    assert renderer.calls.pop() == ([0], None, 1, {})
    for stride in (0, 0, 1):
        env.step({"stride": stride})
        env.render()
    (record,) = env.trajectories
    assert renderer.calls == [
        (step.maze_state["trail"], step.maze_action, len(step.events), {}) for step in record.steps
    ]
    env.reset(seed=1)
    env.render()
    assert renderer.calls[-1] == ([0], None, 1, {})


def test_the_action_that_is_drawn_is_the_one_that_was_decided_on() -> None:
    renderer = LineRenderer()
    line = make_line_env(renderer=renderer)
    started = RandomResetWrapper.wrap(line, min_skip_steps=2, max_skip_steps=2)
    env = StepSkipWrapper.wrap(started, n_steps=2)
    env.reset(seed=1)
    env.render()
    before, action, *_ = renderer.calls[-1]
    assert len(before) == 3 and action is None
    for _ in range(2):
        before = list(line.get_maze_state()["trail"])
        env.step({"stride": 1})
        env.render()
        assert renderer.calls[-1][:2] == (before, 2)


def test_a_copy_of_an_environment_draws_the_same_decision() -> None:
    envs = [maze_env_factory(50, (4, 3), (1, 2)) for _ in range(2)]
    for env in envs:
        env.reset(seed=1)
    envs[0].render()
    envs[0].step({"piece_idx": 0, "cut_rotation": 1, "cut_order": 0})
    envs[1].clone_from(envs[0])
    np.testing.assert_array_equal(envs[0].render(), envs[1].render())


def test_statistics_of_events_are_drawn_over_the_steps_of_an_episode(record: StateTrajectoryRecord) -> None:
    figure = draw_event_statistics(record.event_log(), [LineEvents.moved, BaseEnvEvents.reward, LineEvents.placed])
    moved, reward, placed = figure.axes
    lines = {line.get_label(): list(line.get_ydata()) for line in moved.lines}
    assert lines == {"sum": [1, 1, 2], "count": [1, 1, 1], "as it is": [1, 1, 2]}
    assert [list(line.get_ydata()) for line in reward.lines] == [[1.0, 1.0, 2.0]]
    assert [list(line.get_ydata()) for line in placed.lines] == [[1, 0.0, 0.0]]
    assert moved.get_title() == "LineEvents.moved"
    summed = draw_event_statistics(record.event_log(), BaseEnvEvents.reward, cumulative=True)
    assert list(summed.axes[0].lines[0].get_ydata()) == [1.0, 2.0, 4.0]
    nothing = draw_event_statistics(record.event_log(), BaseEnvEvents.kpi)
    assert not nothing.axes[0].lines


def test_without_matplotlib_the_remedy_is_said(record: StateTrajectoryRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "maze-pl\[rendering\]"'):
        draw_event_statistics(record.event_log(), LineEvents.moved)
