"""Views in notebooks and files, of everything that holds episodes."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

import maze_pl
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import PPO
from maze_pl.runs.rollout import Trajectory, rollout
from maze_pl.viewer.arrays import decoded
from tests.envs.line import LineRenderer, make_line_env

HOSTILE = "</script><script>alert('1')</script><img src=x onerror=alert(2)>"


def cart_pole() -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1")


@pytest.fixture(scope="module")
def played() -> list[Trajectory]:
    return rollout(cart_pole, "heuristic", 2, record=["spaces", "events"], max_steps=6)


@pytest.fixture(scope="module")
def walked() -> Trajectory:
    return rollout(make_line_env, "random", record=["spaces", "states", "events"], max_steps=3)[0]


def document_in(page: str) -> dict[str, Any]:
    """The document that a page holds."""
    found = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


def test_notebook_shows_a_frame_of_its_own(played: list[Trajectory]) -> None:
    shown = maze_pl.view(played, title="two episodes", height=300)._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" title="two episodes"')
    assert "height: 300px" in shown
    page = html.unescape(shown.partition('srcdoc="')[2].removesuffix('"></iframe>'))
    assert len(document_in(page)["episodes"]) == 2
    assert shown.count("<") == 2  # nothing of the page is markup of the notebook


def test_file_holds_the_document(played: list[Trajectory], tmp_path: Path) -> None:
    view = maze_pl.view(played[0])
    path = view.save(tmp_path / "folder" / "view.html")
    assert document_in(path.read_text(encoding="utf-8")) == view.document
    assert [file.name for file in path.parent.iterdir()] == ["view.html"]


def test_agent_gives_probabilities_and_values(played: list[Trajectory]) -> None:
    agent = PPO(spec=Spec.of(cart_pole()))
    (episode,) = maze_pl.view(played[0], agent=agent).document["episodes"]
    assert decoded(episode["heads"]["0"]["action"]["probabilities"]).shape == (6, 2)
    assert decoded(episode["acts"]["value"]).shape == (6,)
    assert episode["policy"] == "PPO"


def test_environment_gives_renderer(walked: Trajectory) -> None:
    def make() -> Any:
        return make_line_env(renderer=LineRenderer())

    assert maze_pl.view(walked).document["episodes"][0]["pictures"] is None
    assert maze_pl.view(walked, env=make, pictures=False).document["episodes"][0]["pictures"] is None
    for env in (make, make()):
        pictures = maze_pl.view(walked, env=env).document["episodes"][0]["pictures"]
        assert decoded(pictures["index"]).shape == (4,)


def test_arguments_of_the_renderer_can_be_chosen(walked: Trajectory) -> None:
    renderer = LineRenderer()
    env = make_line_env(renderer=renderer)
    maze_pl.view(walked, env=env, renderer_arguments={"scale": 3})
    assert all(arguments == {"scale": 3} for *_, arguments in renderer.calls)
    assert len(renderer.calls) == 4
    with pytest.raises(ConfigurationError, match=r"scale=9 is not possible; LineRenderer has the arguments .*'red'"):
        maze_pl.view(walked, env=env, renderer_arguments={"scale": 9})


def test_records_of_one_episode_belong_together(walked: Trajectory) -> None:
    (episode,) = maze_pl.view([walked.spaces, walked.states]).document["episodes"]
    assert episode["acts"]["n"] == 3
    assert "LineEvents.moved" in episode["events"]["names"]


def test_document_can_be_viewed_again(played: list[Trajectory]) -> None:
    document = maze_pl.view(played).document
    assert maze_pl.view(document).document == document


def test_frames_of_a_gymnasium_environment_are_its_pictures() -> None:
    def drawn() -> GymMazeEnv:
        return GymMazeEnv("CartPole-v1", render_mode="rgb_array")

    trajectory = rollout(drawn, "heuristic", record=["spaces", "states", "frames"], max_steps=4)[0]
    pictures = maze_pl.view(trajectory).document["episodes"][0]["pictures"]
    assert (pictures["source"], pictures["per"]) == ("frames", "env_step")
    assert decoded(pictures["index"]).shape == (5,)
    assert 1 < len(pictures["images"]) <= 5


def test_hostile_text_stays_text(walked: Trajectory) -> None:
    columns = {"episode_id": "str", "episode_started": "float", "env_time": "int", HOSTILE: "str"}
    walked.events.append((HOSTILE, columns, [("id", 0.0, 0, HOSTILE)]))
    view = maze_pl.view(walked, title=HOSTILE)
    walked.events.pop()
    assert HOSTILE not in view.html()
    assert "<script>alert" not in view.html() + view._repr_html_()
    events = document_in(view.html())["episodes"][0]["events"]
    assert HOSTILE in events["names"]
    assert {HOSTILE: HOSTILE} in events["attributes"]


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        (3, TypeError, "int cannot be viewed; expected trajectories"),
        ([], ValueError, "there are no episodes to view"),
        ("missing", ConfigurationError, "missing does not exist: name a run directory"),
    ],
)
def test_other_sources_are_refused(source: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        maze_pl.view(source)


def test_trajectory_without_records_is_refused() -> None:
    (trajectory,) = rollout(cart_pole, "heuristic", record=[], max_steps=2)
    with pytest.raises(ValueError, match="has neither spaces nor states: play with record="):
        maze_pl.view(trajectory)


def test_options_of_playing_need_a_run(played: list[Trajectory]) -> None:
    with pytest.raises(TypeError, match=r"\['seed'\] are options of playing, but Trajectory is not a path"):
        maze_pl.view(played, seed=3)
