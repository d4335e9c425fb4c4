from __future__ import annotations

import doctest
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from maze_pl.config.messages import message_of
from maze_pl.envs import (
    GymMazeEnv,
    StateTrajectoryRecord,
    TrajectoryFiles,
    read_trajectories,
    trajectory_files,
    trajectory_record,
)
from maze_pl.envs.wrappers import SpacesRecordingWrapper, TrajectoryRecordingWrapper
from maze_pl.records.framing import write_record
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.system.deferred_files import DeferredFiles
from tests.envs.scripted import NOTHING, Scripted


class Bomb:
    """What runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def record(kind: type, writer: Any = None, seeds: tuple[int, ...] = (1, 2)) -> list[Any]:
    env = kind.wrap(GymMazeEnv(Scripted([1.0, 2.0, 3.0])), writer=writer, n_episodes=9)
    for seed in seeds:
        env.reset(seed=seed)
        for _ in range(3):
            env.step(NOTHING)
    return list(env.trajectories)


def test_the_example_in_the_description_runs() -> None:
    assert doctest.testmod(trajectory_record).failed == 0


def test_episodes_of_either_kind_are_files_of_their_own(tmp_path: Path) -> None:
    writer = TrajectoryFiles(str(tmp_path))
    states, arrays = record(TrajectoryRecordingWrapper, writer), record(SpacesRecordingWrapper, writer)
    writer.close()
    names = {f"{one.episode_id}.states" for one in states} | {f"{one.episode_id}.spaces" for one in arrays}
    assert {path.name for path in tmp_path.iterdir()} == names
    for path in tmp_path.iterdir():
        (again,) = read_trajectories(path, trust=path.suffix == ".states")
        assert (path.stem, f".{again.kind}") == (again.episode_id, path.suffix)
        rewards = [step.reward for step in again.steps] if again.kind == "states" else again.reward.tolist()
        assert rewards == [1.0, 2.0, 3.0]
        assert type(again).load(path, **({"trust": True} if again.kind == "states" else {})).episode_id == path.stem


def test_episodes_of_a_named_file_are_added_to_it(tmp_path: Path) -> None:
    writer = TrajectoryFiles(str(tmp_path), name="all")
    states, arrays = record(TrajectoryRecordingWrapper, writer), record(SpacesRecordingWrapper, writer)
    assert sorted(os.listdir(tmp_path)) == ["all.spaces", "all.states"]
    again = [*read_trajectories(tmp_path / "all.states", trust=True), *read_trajectories(tmp_path / "all.spaces")]
    assert [one.episode_id for one in again] == [one.episode_id for one in [*states, *arrays]]


def test_states_are_only_read_by_those_who_trust_them(tmp_path: Path) -> None:
    path, bomb = tmp_path / "all.states", tmp_path / "exploded"
    write_record(path, "states", pickle.dumps(Bomb(bomb)))
    for read in (StateTrajectoryRecord.load, lambda path: list(read_trajectories(path))):
        with pytest.raises(ValueError, match=r"all\.states: reading states runs whatever code .* trust=True"):
            read(path)
    damaged: list[str] = []
    assert list(read_trajectories(path, damaged=damaged)) == []
    assert "trust=True" in damaged[0]
    with pytest.raises(ValueError, match=r"begins with .maze_pl states format 1., expected .maze_pl spaces"):
        SpacesTrajectoryRecord.load(path)
    assert not bomb.exists()


def test_a_pickle_that_pretends_to_hold_spaces_is_not_run(tmp_path: Path) -> None:
    path, bomb = tmp_path / "all.spaces", tmp_path / "exploded"
    for body in (pickle.dumps(Bomb(bomb)), pickle.dumps(Bomb(bomb)).ljust(200, b"\0")):
        write_record(path, "spaces", body)
        with pytest.raises(ValueError, match=r"all\.spaces"):
            list(read_trajectories(path, trust=True))
    path.write_bytes(pickle.dumps(Bomb(bomb)))
    with pytest.raises(ValueError, match="a pickle, which runs whatever code it holds and is not read"):
        list(read_trajectories(path, trust=True))
    assert not bomb.exists()


def test_trusted_pickles_of_something_else_are_named(tmp_path: Path) -> None:
    path = tmp_path / "all.states"
    write_record(path, "states", pickle.dumps([1, 2]))
    with pytest.raises(ValueError, match=r"all\.states: it holds a list, not a StateTrajectoryRecord"):
        StateTrajectoryRecord.load(path, trust=True)
    write_record(path, "states", b"cno_such_module\nThing\n.")
    with pytest.raises(ValueError, match=r"all\.states holds no episode: ModuleNotFoundError.*no_such_module"):
        StateTrajectoryRecord.load(path, trust=True)


def test_names_of_episodes_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (episode,) = record(SpacesRecordingWrapper, seeds=(1,))
    writer = TrajectoryFiles(str(tmp_path / "inside"))
    for name in ("../../etc/passwd", "data/set-v0/3", "a\0b", ".."):
        episode.episode_id = name
        writer.write(episode)
    writer.close()
    assert os.listdir(tmp_path) == ["inside"]
    assert sorted(os.listdir(tmp_path / "inside")) == [
        "...spaces",
        ".._.._etc_passwd.spaces",
        "a_b.spaces",
        "data_set-v0_3.spaces",
    ]


def test_a_killed_process_leaves_a_file_that_is_read_and_gone_on_with(tmp_path: Path) -> None:
    code = """
import sys
import threading
from maze_pl.envs import GymMazeEnv, TrajectoryFiles
from maze_pl.config.messages import message_of
from maze_pl.envs.wrappers import SpacesRecordingWrapper
env = SpacesRecordingWrapper.wrap(GymMazeEnv("CartPole-v1"), writer=TrajectoryFiles(sys.argv[1], name="all"))
for seed in range(10**9):
    env.reset(seed=seed)
    while not any(env.step({"action": 1})[2:4]):
        continue
    if seed == 30:
        print(flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    damaged: list[str] = []
    before = [one.episode_id for one in read_trajectories(tmp_path / "all.spaces", damaged=damaged)]
    assert len(before) > 30
    assert len(damaged) <= 1
    (episode,) = record(SpacesRecordingWrapper, TrajectoryFiles(str(tmp_path), name="all"), seeds=(1,))
    after = [one.episode_id for one in read_trajectories(tmp_path / "all.spaces")]
    assert after[: len(before)] == before
    assert after[-1] == episode.episode_id


@pytest.mark.parametrize("made_up", ["empty", "cut", "pickle", "another kind", "newer"])
def test_commands_tell_what_is_wrong_with_a_file_in_one_message(made_up: str, tmp_path: Path) -> None:
    path = tmp_path / "demonstrations.spaces"
    (episode,) = record(SpacesRecordingWrapper, seeds=(1,))
    episode.save(path)
    content = path.read_bytes()
    contents = {
        "empty": b"",
        "cut": content[:-1],
        "pickle": pickle.dumps([1]),
        "another kind": b"GIF89a" * 99,
        "newer": content.replace(b"format 1", b"format 2"),
    }
    path.write_bytes(contents[made_up])
    with pytest.raises(ValueError, match="demonstrations") as caught:
        list(read_trajectories(path))
    message = message_of(caught.value)
    assert message is not None
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


def choose(kind: type, folder: Path, *episodes: tuple[int, str]) -> None:
    """Play episodes of CartPole, each with a seed and these actions; another process would do the same."""
    env = kind.wrap(GymMazeEnv("CartPole-v1"), writer=TrajectoryFiles(str(folder)))
    for seed, actions in episodes:
        env.reset(seed=seed)
        for action in actions:
            env.step({"action": int(action)})
    env.close()


def lengths(folder: Path) -> dict[str, list[int]]:
    """Number of the file of each episode id -> lengths of the episodes in it, for the only id."""
    found = {}
    for path in folder.iterdir():
        number = path.stem[36:]
        read = list(read_trajectories(path, trust=True))
        found[number] = [len(one) if one.kind == "spaces" else len(one.steps) for one in read]
    return found


@pytest.mark.parametrize("kind", [SpacesRecordingWrapper, TrajectoryRecordingWrapper])
def test_other_episodes_with_the_same_id_have_other_files(kind: type, tmp_path: Path) -> None:
    choose(kind, tmp_path, (1, "01"), (1, "10"), (1, "01"))
    assert lengths(tmp_path) == {"": [2], "-2": [2], "-3": [2]}
    choose(kind, tmp_path, (1, "00"))
    assert lengths(tmp_path) == {"": [2], "-2": [2], "-3": [2], "-4": [2]}


@pytest.mark.parametrize("kind", [SpacesRecordingWrapper, TrajectoryRecordingWrapper])
def test_an_episode_that_another_run_continues_or_repeats_replaces_its_file(kind: type, tmp_path: Path) -> None:
    choose(kind, tmp_path, (1, "00"), (1, "01"))
    choose(kind, tmp_path, (1, "0110"))  # continues the second one
    assert lengths(tmp_path) == {"": [2], "-2": [4]}
    choose(kind, tmp_path, (1, "00"))
    assert lengths(tmp_path) == {"": [2], "-2": [4]}
    choose(kind, tmp_path, (1, "011"))  # is not as long
    assert lengths(tmp_path) == {"": [2], "-2": [4], "-3": [3]}


@pytest.mark.parametrize("kind", [SpacesRecordingWrapper, TrajectoryRecordingWrapper])
def test_other_episodes_that_processes_write_at_the_same_time_have_other_files(
    kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    are_written, synchronize = threading.Event(), os.fsync

    def fsync(descriptor: int) -> None:
        assert are_written.wait(30)
        synchronize(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    processes = [DeferredFiles(), DeferredFiles()]  # which do not know of each other's files
    processes[1]._numbers = itertools.count(10)  # of parts, whose names hold the number of a process
    for files, actions in zip(processes, ("01", "100"), strict=True):
        monkeypatch.setattr(trajectory_files, "deferred_files", lambda files=files: files)
        env = kind.wrap(GymMazeEnv("CartPole-v1"), writer=TrajectoryFiles(str(tmp_path)))
        env.reset(seed=1)
        for action in actions:
            env.step({"action": int(action)})
        env.reset(seed=2)  # writes the first episode
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    are_written.set()
    for files in processes:
        files.flush()
    assert sorted(lengths(tmp_path).values()) == [[2], [3]]
    assert set(lengths(tmp_path)) == {"", "-2"}


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    choose(SpacesRecordingWrapper, tmp_path, (1, "01"))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    choose(SpacesRecordingWrapper, tmp_path, (1, "00"))
    assert lengths(tmp_path) == {"": [2]}


def test_states_are_compared_without_loading_pickles(tmp_path: Path) -> None:
    path, bomb = tmp_path / "all.states", tmp_path / "exploded"
    write_record(path, "states", pickle.dumps(Bomb(bomb)))
    (episode,) = record(TrajectoryRecordingWrapper, seeds=(1,))
    path.rename(tmp_path / f"{episode.episode_id}.states")
    writer = TrajectoryFiles(str(tmp_path))
    writer.write(episode)
    episode.steps[0].maze_action = lambda: None  # which has no digest
    writer.write(episode)
    writer.close()
    assert {path.stem[36:] for path in tmp_path.iterdir()} == {"", "-2", "-3"}
    assert not bomb.exists()
