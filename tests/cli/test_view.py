"""`maze-pl view`: the files that it writes, and the mistakes that it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import maze_pl
from maze_pl.__main__ import main
from maze_pl.envs import GymMazeEnv, StateTrajectoryRecord
from maze_pl.runs.rollout import rollout
from maze_pl.viewer.arrays import decoded
from tests.bad_input.project import SMALL, tree

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that has left the view of an episode, and episodes that its agent has played."""
    path = tmp_path_factory.mktemp("trained") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAZE_PL_RUN_DIR", "")
        wrappers = ["--data.wrappers", "wrappers/vector_obs", "--run_dir", str(path)]
        assert main(["fit", "--config", "ppo_cartpole", *SMALL, *wrappers, "--view"]) == 0
        options = ["--n_episodes", "3", "--runner", "sequential", "--max_steps", "20"]
        assert main(["rollout", str(path), *options, "--output_dir", str(path / "rollouts" / "three")]) == 0
    yield path


def document_in(path: Path) -> dict[str, Any]:
    page = path.read_text(encoding="utf-8")
    found = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


def has_probabilities(episode: dict[str, Any]) -> bool:
    return episode["heads"]["0"]["action"]["probabilities"] is not None


@pytest.mark.slow
def test_training_leaves_the_view_of_an_episode(run: Path) -> None:
    (episode,) = document_in(run / "view.html")["episodes"]
    assert has_probabilities(episode)
    assert episode["pictures"]["source"] == "frames"
    assert np.isfinite(decoded(episode["acts"]["value"])).all()


@pytest.mark.slow
def test_training_logs_pictures_of_the_episode(run: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard")).Reload()
    assert "view" in events.Tags()["images"]


@pytest.mark.slow
def test_drawing_without_a_display_is_silent(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert main(["view", str(run), "--max_steps", "3", "--to", "silent.html"]) == 0
    assert "error" not in capfd.readouterr().err
    assert "SDL_VIDEODRIVER" not in os.environ


@pytest.mark.slow
def test_agent_and_second_policy_play_the_same_seed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--compare_with", "heuristic", "--max_steps", "15", "--to", "pages/both.html", "--seed", "4"]
    assert main(["view", str(run), *options]) == 0
    assert capsys.readouterr().out == "pages/both.html\n"
    document = document_in(Path("pages/both.html"))
    trained, heuristic = document["episodes"]
    assert document["pairs"] == [[0, 1]]
    assert trained["seed"] == heuristic["seed"]
    assert (has_probabilities(trained), has_probabilities(heuristic)) == (True, False)
    assert [trained["policy"], heuristic["policy"]] == ["trained", "heuristic"]
    assert document["title"] == f"{run.parent.name}/run: trained, heuristic"
    unit = trained["observations"]["0"]["observation"]["unit"]
    assert unit == heuristic["observations"]["0"]["observation"]["unit"] == "after ObservationNormalizationWrapper"


@pytest.mark.slow
def test_a_second_run_acts_with_the_wrappers_of_its_own_training(run: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    assert main(["fit", "--config", "ppo_cartpole", *SMALL, "--run_dir", str(plain)]) == 0
    options = ["--max_steps", "9", "--pictures", "false", "--to", "both.html"]
    assert main(["view", str(plain), "--compare_with", str(run), *options]) == 0
    first, second = document_in(Path("both.html"))["episodes"]
    assert first["seed"] == second["seed"]
    assert has_probabilities(first) and has_probabilities(second)
    observation = [episode["observations"]["0"]["observation"]["values"] for episode in (first, second)]
    assert observation[0] != observation[1]  # normalised in one of them


@pytest.mark.slow
def test_most_likely_and_sampled_actions_are_compared(run: Path) -> None:
    options = ["--actions", "both", "--n_episodes", "2", "--max_steps", "15", "--pictures", "false"]
    assert main(["view", str(run), *options, "--to", "view.html"]) == 0
    document = document_in(Path("view.html"))
    assert document["pairs"] == [[0, 1], [2, 3]]
    for episode in document["episodes"][::2]:
        head = episode["heads"]["0"]["action"]
        np.testing.assert_array_equal(decoded(head["action"]), decoded(head["most_likely"]))


@pytest.mark.slow
def test_rollout_of_a_run_has_the_probabilities_of_its_agent(run: Path) -> None:
    rollouts = run / "rollouts" / "three"
    assert main(["view", str(rollouts)]) == 0
    episodes = document_in(rollouts / "view.html")["episodes"]
    assert [episode["name"] for episode in episodes] == ["trained 0", "trained 1", "trained 2"]
    assert all(has_probabilities(episode) for episode in episodes)
    table = maze_pl.events_table(rollouts)
    rewards = table[table["event"] == "reward"].groupby("episode_id")["value"].sum()
    assert {episode["episode_id"]: episode["return"] for episode in episodes} == rewards.to_dict()
    file = next((rollouts / "trajectories" / "spaces").iterdir())
    assert main(["view", str(file), "--to", "one.html"]) == 0
    (one,) = document_in(Path("one.html"))["episodes"]
    assert one in episodes


@pytest.mark.slow
def test_rollout_in_another_folder_has_the_probabilities_of_the_run_that_it_names(run: Path) -> None:
    options = ["--n_episodes", "1", "--runner", "sequential", "--max_steps", "5", "--output_dir", "elsewhere"]
    assert main(["rollout", str(run), *options]) == 0
    assert main(["view", "elsewhere"]) == 0
    assert has_probabilities(document_in(Path("elsewhere/view.html"))["episodes"][0])


@pytest.mark.slow
def test_only_the_agent_that_played_a_rollout_has_probabilities(
    run: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run, folder / "copy")
    provenance = folder / "copy/rollouts/three/provenance.json"
    text = provenance.read_text(encoding="utf-8")
    provenance.write_text(text.replace(str(run / "checkpoints"), "gone"), encoding="utf-8")  # not found there either
    played = Path("copy/checkpoints/best.ckpt")
    played.touch()  # copies are newer than the episodes, but the same
    assert main(["view", "copy/rollouts/three"]) == 0
    assert has_probabilities(document_in(Path("copy/rollouts/three/view.html"))["episodes"][0])
    Path("copy/checkpoints/last.ckpt").unlink()  # the same after one epoch
    content = torch.load(played, weights_only=True)
    for weights in content["state_dict"].values():
        if weights.is_floating_point():
            weights += 1
    torch.save(content, played)
    os.utime(played, (0, 0))  # as in a copy whose files have other times
    assert main(["view", "copy/rollouts/three"]) == 0
    message = "there are no probabilities: copy/checkpoints/best.ckpt is not the checkpoint that played the episodes"
    assert message in capsys.readouterr().err
    assert not has_probabilities(document_in(Path("copy/rollouts/three/view.html"))["episodes"][0])
    shutil.copy(run / "checkpoints" / "best.ckpt", "copy/checkpoints/last.ckpt")  # found by its content
    assert main(["view", "copy/rollouts/three"]) == 0
    assert has_probabilities(document_in(Path("copy/rollouts/three/view.html"))["episodes"][0])


@pytest.mark.slow
def test_rollout_of_an_earlier_version_that_is_older_than_the_agent_has_no_probabilities(
    run: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run, folder / "copy")
    provenance = folder / "copy/rollouts/three/provenance.json"
    (entry,) = json.loads(provenance.read_text(encoding="utf-8"))["commands"]
    del entry["checkpoint"]
    provenance.write_text(json.dumps({"commands": [entry]}), encoding="utf-8")
    os.utime("copy/checkpoints/best.ckpt", (0, 0))
    assert main(["view", "copy/rollouts/three"]) == 0
    assert has_probabilities(document_in(folder / "copy/rollouts/three/view.html")["episodes"][0])
    (folder / "copy" / "checkpoints" / "best.ckpt").touch()
    assert main(["view", "copy/rollouts/three"]) == 0
    assert "there are no probabilities: copy/checkpoints/best.ckpt is newer" in capsys.readouterr().err
    assert not has_probabilities(document_in(folder / "copy/rollouts/three/view.html")["episodes"][0])


@pytest.mark.slow
def test_rollout_of_another_checkpoint_has_its_probabilities(run: Path, folder: Path) -> None:
    shutil.copytree(run, folder / "copy")
    shutil.copy("copy/checkpoints/last.ckpt", "mine.ckpt")
    options = ["--n_episodes", "1", "--runner", "sequential", "--max_steps", "5", "--output_dir", "copy/rollouts/mine"]
    assert main(["rollout", "copy", "--checkpoint", "mine.ckpt", *options]) == 0
    assert main(["view", "copy/rollouts/mine"]) == 0
    assert has_probabilities(document_in(folder / "copy/rollouts/mine/view.html")["episodes"][0])


def recorded(max_steps: int = 5) -> Any:
    return rollout(lambda: GymMazeEnv("CartPole-v1"), "heuristic", record=["spaces", "states"], max_steps=max_steps)[0]


def test_files_of_one_episode_are_viewed_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trajectory = recorded()
    trajectory.spaces.save("a.spaces")
    trajectory.states.save("a.states")
    assert main(["view", "a.spaces", "--to", "a.html"]) == 0
    assert main(["view", ".", "--trust"]) == 0
    (episode,) = document_in(folder / "view.html")["episodes"]
    (of_spaces,) = document_in(folder / "a.html")["episodes"]
    assert "LineEvents" not in episode["events"]["names"]
    assert episode["return"] == of_spaces["return"] == 5.0


def test_states_need_trust(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded().states.save("a.states")
    before = tree(folder)
    assert main(["view", "a.states"]) == 2
    message = capsys.readouterr().err
    assert "a.states has only state records" in message and "repeat the command with --trust" in message
    assert tree(folder) == before
    recorded().spaces.save("a.spaces")
    assert main(["view", "."]) == 0
    assert "state records, and with them pictures, are left out" in capsys.readouterr().err


def truncated() -> None:
    recorded().spaces.save("whole.spaces")
    Path("cut.spaces").write_bytes(Path("whole.spaces").read_bytes()[:-40])


def other_file() -> None:
    Path("notes.txt").write_text("hello")


def empty_folder() -> None:
    Path("empty").mkdir()


def damaged_log() -> None:
    folder = Path("rollout")
    (folder / "event_logs").mkdir(parents=True)
    (folder / "event_logs" / "A.b.csv").write_text("x,y\n1,2\n")
    (folder / "config.yaml").write_text("policy: random\n")
    (folder / "episodes.csv").write_text("episode,episode_id\n")
    recorded().spaces.save(folder / "a.spaces")


def several_seeds() -> None:
    Path("seeds/seed_3").mkdir(parents=True)
    Path("seeds/seeds.json").write_text("{}")


def no_checkpoint() -> None:
    Path("begun").mkdir()
    Path("begun/config.yaml").write_text("{}")


def no_acts() -> None:
    StateTrajectoryRecord("id").save("a.states")


MISTAKES: dict[str, tuple[Any, list[str], str]] = {
    "nothing named": (None, [], "name what to view: a run directory, the folder of a rollout, or files of episodes"),
    "missing path": (None, ["missing"], "missing does not exist: name a run directory"),
    "folder with nothing to show": (empty_folder, ["empty"], "there is nothing to view in empty"),
    "runs of several seeds": (several_seeds, ["seeds"], "name one of them (seeds/seed_3)"),
    "run without checkpoint": (no_checkpoint, ["begun"], "the run begun has no checkpoint yet"),
    "other file": (other_file, ["notes.txt"], "notes.txt is not a file of episodes"),
    "truncated file": (truncated, ["cut.spaces"], "cut.spaces: it is cut short"),
    "damaged event log": (damaged_log, ["rollout"], "A.b.csv is not an event log"),
    "unknown option": (None, ["x", "--pictues", "false"], "pictues"),
    "wrong number": (truncated, ["whole.spaces", "--n_episodes", "0"], "n_episodes=0 of a view must be at least 1"),
    "file as folder": (truncated, ["whole.spaces", "--to", "cut.spaces/view.html"], "cut.spaces is a file"),
    "no renderer": (truncated, ["whole.spaces", "--renderer_arguments", '{"scale": 2}'], "no renderer draws"),
    "folder as target": (truncated, ["whole.spaces", "--to", "."], "--to . is a folder"),
    "states without acts": (no_acts, ["a.states", "--trust"], "has no acts"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_told_in_one_message_and_nothing_is_written(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare, arguments, expected = MISTAKES[name]
    if prepare is not None:
        prepare()
    before = tree(folder)
    assert main(["view", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("maze-pl: error: ") and shown.err.count("maze-pl:") == 1
    assert expected in shown.err
    assert tree(folder) == before


@pytest.mark.slow
def test_policy_that_does_not_exist_is_refused(run: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(run), "--compare_with", "heuristik", "--to", "new.html"]) == 2
    error = capsys.readouterr().err
    assert "no policy 'heuristik'" in error
    assert "episode/s" not in error  # nothing was played before
    assert not list(folder.iterdir())


def test_only_a_command_that_names_nothing_to_view_is_answered_with_an_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["view"]) == 2
    assert "; for example maze-pl view outputs/" in capsys.readouterr().err
    assert main(["view", "run", "--actions", "greedy"]) == 2
    error = capsys.readouterr().err
    assert "actions: expected one of 'most_likely', 'sampled', 'both'" in error and "for example" not in error
