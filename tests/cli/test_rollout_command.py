"""`maze-pl rollout`: what it plays, writes, prints and returns."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import maze_pl
from maze_pl.__main__ import main
from maze_pl.agents import DummyCartPolePolicy
from maze_pl.cli import rollout_command
from maze_pl.cli.rollout_command import play
from maze_pl.collect.engines import InProcessEngine
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.trajectory_record import read_trajectories
from maze_pl.envs.wrappers import ObservationNormalizationWrapper
from maze_pl.runs.rollout import rollout
from maze_pl.runs.run_directory import claimed
from maze_pl.system.signals import StoppedBySignal, StopSignals
from maze_pl.viewer.playing import PlayOptions
from maze_pl.viewer.sources import episodes_of_paths
from tests.bad_input.project import SMALL, tree

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing

HERE = f"{__name__}."
CART_POLE = ["rollout", "--env", "env/gym_env", "--runner", "sequential"]
CUTTING = ["rollout", "--env", "env/tutorial_cutting_2d_struct_masked", "--runner", "sequential"]


class Stopping(DummyCartPolePolicy):
    """Sends a signal to its own process in its third act."""

    acts = 0

    def __init__(self, number: int = 15) -> None:
        super().__init__()
        self.number = number

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        self.acts += 1
        if self.acts == 3:
            os.kill(os.getpid(), self.number)
        return super().act(batch)


class OutOfRange(DummyCartPolePolicy):
    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({"action": np.full(len(batch.agent_id), 17)})


class Parities:
    """Calculator of KPIs that only episodes of some lengths have, in an order that differs between episodes."""

    kpi_names = None

    def calculate_kpis(self, episode_event_log: Any, last_maze_state: Any) -> dict[str, float]:
        n = len(episode_event_log.step_event_logs)
        kpis = {"length": float(n)}
        if n % 2:
            kpis = {"odd": 100.0 + n, **kpis}
        if n > 15:
            kpis["long"] = 1000.0 + n
        return kpis


def parities_env() -> GymMazeEnv:
    env = GymMazeEnv("CartPole-v1")
    env.core_env.get_kpi_calculator = Parities  # type: ignore[method-assign]
    return env


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run whose wrappers have learned something, with a best and a last checkpoint."""
    path = tmp_path_factory.mktemp("trained") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAZE_PL_RUN_DIR", "")
        wrappers = ["--data.wrappers", "wrappers/vector_obs", "--run_dir", str(path)]
        assert main(["fit", "--config", "ppo_cartpole", *SMALL, *wrappers]) == 0
    yield path


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def comparable(path: Path) -> dict[str, Any]:
    """The files of rollouts without what names the command and the time of day."""
    of_the_command = ("config.yaml", "command.txt", "provenance.json")
    found: dict[str, Any] = {name: data for name, data in tree(path).items() if name not in of_the_command}
    for name in [name for name in found if name.endswith(".spaces")]:
        found[name] = [record.to_bytes() for record in read_trajectories(path / name)]
    for name in [name for name in found if name.endswith(".csv") and name.startswith("event_logs")]:
        found[name] = [{k: v for k, v in row.items() if k != "episode_started"} for row in table(path / name)]
    return found


def test_what_is_played_is_written_and_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    options = ["--policy", "heuristic", "--n_episodes", "5", "--max_steps", "30", "--seed", "7"]
    assert main([*CART_POLE, *options]) == 0
    output, error = capsys.readouterr()
    (name,) = re.findall(r"^files: (\S+)$", output, re.MULTILINE)
    path = Path(name)
    assert re.fullmatch(r"outputs/rollout/[\d_-]+", name)
    assert "rollouts | 5 episodes | 150 env steps" in output
    assert "\n5 of 5 episodes have reached the limit of 30 env steps (--max_steps, 0 for no limit)\nfiles: " in output
    assert re.search(r"rollout BaseEnvEvents +reward +mean +\| +30\.000", output)
    assert "5/5" in error and "00:00<00:00" in error  # the bar, with the time that is left
    expected = rollout(lambda: maze_pl.envs.GymMazeEnv("CartPole-v1"), "heuristic", 5, 7, max_steps=30)
    episodes = table(path / "episodes.csv")
    assert [(row["episode_id"], int(row["seed"])) for row in episodes] == [(e.episode_id, e.seed) for e in expected]
    assert [(row["episode"], row["return"], row["env_steps"]) for row in episodes] == [
        (str(i), "30.0", "30") for i in range(5)
    ]
    statistics = {row["statistic"]: float(row["value"]) for row in table(path / "statistics.csv")}
    assert statistics["BaseEnvEvents/reward/mean"] == 30
    files = {file.relative_to(path).as_posix() for file in path.glob("trajectories/*/*")}
    assert files == {f"trajectories/{k}/{one.episode_id}.{k}" for one in expected for k in ("spaces", "states")}
    (record,) = read_trajectories(path / "trajectories" / "spaces" / f"{expected[2].episode_id}.spaces")
    assert record.to_bytes() == expected[2].spaces.to_bytes()
    rows = table(path / "event_logs" / "BaseEnvEvents.reward.csv")
    assert [row["episode_id"] for row in rows] == [one.episode_id for one in expected for _ in range(30)]
    config = yaml.safe_load((path / "config.yaml").read_text())
    assert (config["policy"], config["max_steps"], config["env"]["init_args"]) == (
        {"class_path": "heuristic"},
        30,
        {"name": "CartPole-v1"},
    )
    assert (path / "command.txt").read_text() == f"maze-pl {' '.join([*CART_POLE, *options])}\n"


def test_what_is_not_wanted_is_not_written_and_kpis_are(folder: Path) -> None:
    options = ["--n_episodes", "2", "--max_steps", "9", "--trajectories", "none", "--event_logs", "false"]
    assert main([*CUTTING, *options, "--output_dir", "here"]) == 0
    described = {"config.yaml", "command.txt", "provenance.json"}
    assert {name for name in tree(folder / "here")} == {*described, "episodes.csv", "statistics.csv"}
    assert 0 < float(table(folder / "here" / "episodes.csv")[0]["raw_piece_usage_per_step"]) < 1


def test_kpis_that_some_episodes_lack_have_empty_cells_and_can_be_viewed(folder: Path) -> None:
    options = ["--n_episodes", "8", "--runner", "sequential", "--trajectories", "spaces", "--output_dir", "here"]
    assert main(["rollout", "--env", f"{HERE}parities_env", *options]) == 0
    rows = table(folder / "here" / "episodes.csv")
    assert len({frozenset(name for name, value in row.items() if value) for row in rows}) > 2
    for row in rows:
        n = int(row["env_steps"])
        expected = {
            "length": str(float(n)),
            "odd": str(100.0 + n) if n % 2 else "",
            "long": str(1000.0 + n) if n > 15 else "",
        }
        assert {name: row[name] for name in expected} == expected
        assert list(row)[:5] == ["episode", "episode_id", "seed", "return", "env_steps"] and len(row) == 8
    found, _ = episodes_of_paths([folder / "here"], PlayOptions())
    for episode, row in zip(found, rows, strict=True):
        assert episode.kpis == {name: float(row[name]) for name in ("length", "odd", "long") if row[name]}
        assert (episode.episode_id, episode.total_reward) == (row["episode_id"], float(row["return"]))


class Ambiguous(Parities):
    """Calculator of KPIs with the names of columns of the table."""

    def calculate_kpis(self, episode_event_log: Any, last_maze_state: Any) -> dict[str, float]:
        return {"return": 111.0, "seed": 222.0, "env_steps": 333.0, "episode": 444.0, "episode_id": 555.0}


def ambiguous_env() -> GymMazeEnv:
    env = GymMazeEnv("CartPole-v1")
    env.core_env.get_kpi_calculator = Ambiguous  # type: ignore[method-assign]
    return env


def test_kpis_with_names_of_columns_replace_none_of_them(folder: Path) -> None:
    options = ["--n_episodes", "3", "--runner", "sequential", "--trajectories", "spaces", "--output_dir", "here"]
    assert main(["rollout", "--env", f"{HERE}ambiguous_env", "--max_steps", "9", *options]) == 0
    played = rollout(ambiguous_env, episodes=3, max_steps=9)
    assert [row["return"] for row in table(folder / "here" / "episodes.csv")] == [str(e.summary.reward) for e in played]
    found, _ = episodes_of_paths([folder / "here"], PlayOptions())
    assert [(episode.name, episode.seed, episode.total_reward, episode.kpis) for episode in found] == [
        (f"random {number}", one.seed, one.summary.reward, Ambiguous().calculate_kpis(None, None))
        for number, one in enumerate(played)
    ]


def test_a_table_whose_rows_have_more_cells_than_names_is_viewed_without_kpis(folder: Path) -> None:
    """Such tables were written when the first episode lacked KPIs of others."""
    options = ["--n_episodes", "2", "--max_steps", "3", "--trajectories", "spaces", "--output_dir", "here"]
    assert main([*CART_POLE, *options]) == 0
    path = folder / "here" / "episodes.csv"
    first, *rows = path.read_text().splitlines()
    path.write_text("\n".join([f"{first},cost", *(f"{row},1.0,2.0" for row in rows)]) + "\n")
    found, _ = episodes_of_paths([folder / "here"], PlayOptions())
    assert [(episode.kpis, episode.total_reward) for episode in found] == [({}, 3.0)] * 2


def test_tables_appear_when_they_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []
    rename = os.replace

    def note(source: Path, target: Path) -> None:
        named.append(Path(target).name)
        rename(source, target)

    monkeypatch.setattr(os, "replace", note)
    assert main([*CART_POLE, "--n_episodes", "1", "--max_steps", "3", "--output_dir", "here"]) == 0
    assert named[-2:] == ["episodes.csv", "statistics.csv"]


def test_all_episodes_in_one_file_are_those_of_one_file_each(folder: Path) -> None:
    for files, kinds in (("one", "spaces"), ("each", "both")):
        command = [*CUTTING, "--n_episodes", "3", "--max_steps", "5", "--files", files, "--trajectories", kinds]
        assert main([*command, "--output_dir", files]) == 0
    episodes = [row["episode_id"] for row in table(folder / "one" / "episodes.csv")]
    whole = list(read_trajectories(folder / "one" / "trajectories" / "spaces" / "episodes.spaces"))
    assert [record.episode_id for record in whole] == episodes
    for record in whole:
        (single,) = read_trajectories(folder / "each" / "trajectories" / "spaces" / f"{record.episode_id}.spaces")
        assert single.to_bytes() == record.to_bytes()
    again = [
        "--policy",
        "policy/replay_recorded_actions",
        "--policy.records",
        "one/trajectories/spaces/episodes.spaces",
    ]
    assert main([*CUTTING, "--n_episodes", "3", "--max_steps", "5", *again, "--output_dir", "again"]) == 0
    assert (folder / "again" / "episodes.csv").read_bytes() == (folder / "one" / "episodes.csv").read_bytes()


class Endless(GymMazeEnv):
    """Gets a signal in its third step, which does not end."""

    def __init__(self) -> None:
        super().__init__("CartPole-v1")
        self.n_steps = 0

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        if self.n_steps == 3:
            signal.raise_signal(signal.SIGTERM)
            while True:
                signal.pause()
        return super().step(action)


def test_an_episode_that_does_not_end_after_a_signal_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    with StopSignals(patience=0.01) as signals, pytest.raises(StoppedBySignal):
        play({}, signals, Endless, InProcessEngine(), output_dir="episodes")
    message = capsys.readouterr().err
    place = r"\(at test_rollout_command.py:\d+ in step\)"
    assert re.search(f"maze-pl: stopped by SIGTERM in an episode that took more than 0 s longer {place}\n", message)


def test_gifs_are_rendered(folder: Path) -> None:
    options = ["--n_episodes", "1", "--max_steps", "2", "--trajectories", "none", "--render", "--output_dir", "here"]
    assert main([*CUTTING, *options]) == 0
    assert len(list((folder / "here" / "renderings").glob("*.gif"))) == 1


@pytest.mark.slow
def test_processes_write_the_same_files(folder: Path) -> None:
    options = [
        "--env",
        "env/tutorial_cutting_2d_struct_masked",
        "--n_episodes",
        "10",
        "--max_steps",
        "20",
        "--seed",
        "3",
    ]
    for runner in ("sequential", "parallel"):
        assert main(["rollout", *options, "--runner", runner, "--output_dir", runner]) == 0
    assert comparable(folder / "sequential") == comparable(folder / "parallel")


@pytest.mark.parametrize(
    ("policy", "mean"),
    [
        (["--policy", "heuristic"], 50),
        (["--policy", "maze_pl.agents.DummyCartPolePolicy"], 50),
        (["--policy", "heuristic", "--policy.look_ahead", "-10", "--deterministic"], 9.5),
        (["--policy", "maze_pl.agents.DummyCartPolePolicy", "--policy.look_ahead", "-10"], 9.5),
        (["--policy", "{class_path: maze_pl.agents.DummyCartPolePolicy, init_args: {look_ahead: -10}}"], 9.5),
        (["--policy", "policy/random_policy"], None),
        ([], None),
    ],
)
def test_policies_by_name_group_and_class_path(policy: list[str], mean: float | None, folder: Path) -> None:
    options = ["--n_episodes", "4", "--max_steps", "50", "--trajectories", "none", "--output_dir", "here"]
    assert main([*CART_POLE, *policy, *options]) == 0
    returns = [float(row["return"]) for row in table(folder / "here" / "episodes.csv")]
    assert np.mean(returns) == (pytest.approx(mean, abs=1.0) if mean else pytest.approx(22, abs=12))


@pytest.mark.slow
def test_a_run_is_rolled_out_with_its_environment_wrappers_and_statistics(trained: Path, folder: Path) -> None:
    options = ["--runner", "sequential", "--n_episodes", "3", "--deterministic", "--trajectories", "spaces"]
    assert main(["rollout", str(trained), *options]) == 0
    (path,) = (trained / "rollouts").iterdir()
    env, module = maze_pl.load_env(trained), maze_pl.load(trained)
    for row in table(path / "episodes.csv"):
        (record,) = read_trajectories(path / "trajectories" / "spaces" / f"{row['episode_id']}.spaces")
        observation, total = env.reset(seed=int(row["seed"]))[0], 0.0
        np.testing.assert_array_equal(record.observation[0]["observation"][0], observation["observation"])
        for _ in range(200):
            observation, reward, terminated, _, _ = env.step(module.act(observation))
            total += reward
            if terminated:
                break
        assert total == float(row["return"])
    last = ["--checkpoint", "last", "--output_dir", "last", *options]
    assert main(["rollout", str(trained), *last]) == 0
    learned = ["--env", "env/gym_env", "--policy", "policy/torch_policy", "--policy.path", str(trained), *options]
    assert main(["rollout", *learned, "--output_dir", "learned"]) == 0
    assert main(["rollout", str(trained), "--policy", "random", "--output_dir", "random", *options]) == 0
    returns = [(folder / name / "episodes.csv").read_bytes() for name in ("last", "learned", "random")]
    assert returns[0] == (path / "episodes.csv").read_bytes()  # best and last are one after one epoch
    assert returns[0] not in returns[1:]


def test_wrappers_of_which_nothing_is_known_learn_before_they_are_used(folder: Path) -> None:
    played = rollout(
        lambda: maze_pl.envs.GymMazeEnv("CartPole-v1"),
        wrappers=[ObservationNormalizationWrapper],
        wrapper_statistics={},
    )
    assert played[0].spaces is not None


@pytest.mark.slow
def test_a_run_without_a_best_checkpoint_says_which_one_is_played(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, "run")
    played = ["--runner", "sequential", "--n_episodes", "1", "--trajectories", "none", "--event_logs", "false"]
    commands = (["rollout", "run", *played], ["validate", "run"])
    for command in commands:
        assert main(command) == 0
        assert "has no best.ckpt" not in capsys.readouterr().err
    Path("run", "checkpoints", "best.ckpt").unlink()
    for command in commands:
        assert main(command) == 0
        said = "maze-pl: run has no best.ckpt, though its final evaluation played with one: the file has been removed; "
        assert f"{said}using run/checkpoints/last.ckpt\n" in capsys.readouterr().err
    assert main(["rollout", "run", *played, "--checkpoint", "last"]) == 0
    assert "has no best.ckpt" not in capsys.readouterr().err


@pytest.mark.slow
def test_any_checkpoint_can_be_played_and_is_noted_with_its_digest(trained: Path, folder: Path) -> None:
    options = ["--runner", "sequential", "--n_episodes", "2", "--trajectories", "none", "--event_logs", "false"]
    shutil.copy(trained / "checkpoints" / "last.ckpt", folder / "mine.ckpt")
    for name in ("last", "mine.ckpt"):
        assert main(["rollout", str(trained), "--checkpoint", name, *options, "--output_dir", f"by_{name}"]) == 0
    tables = [(folder / f"by_{name}" / "episodes.csv").read_bytes() for name in ("last", "mine.ckpt")]
    assert tables[0] == tables[1]
    (entry,) = json.loads((folder / "by_mine.ckpt" / "provenance.json").read_text())["commands"]
    digest = hashlib.sha256((folder / "mine.ckpt").read_bytes()).hexdigest()
    assert entry["checkpoint"] == {"file": "mine.ckpt", "sha256": digest}


def test_a_folder_in_which_another_rollout_writes_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*CART_POLE, "--n_episodes", "1", "--max_steps", "3", "--output_dir", "here"]
    with claimed(folder / "here"):
        assert main(command) == 2
    assert "here is in use: process" in capsys.readouterr().err
    assert not (folder / "here" / ".lock").exists()

    @contextmanager
    def claimed_later(path: Path, keeps_lock_file: bool) -> Iterator[None]:
        (path / "episodes.csv").write_text("of another rollout")
        with claimed(path, keeps_lock_file):
            yield

    monkeypatch.setattr(rollout_command, "claimed", claimed_later)
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "the folder here is not empty: choose one that does not exist or is empty" in error
    assert "--resume" not in error
    assert tree(folder / "here") == {"episodes.csv": b"of another rollout"}


def test_a_run_whose_environment_is_replaced_by_one_with_other_spaces_is_refused(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(trained)
    assert main(["rollout", str(trained), "--env.name", "Acrobot-v1", "--runner", "sequential"]) == 2
    assert "box [4] there and box [6] here" in capsys.readouterr().err
    assert main(["rollout", str(trained), "--checkpoint", "lost", "--runner", "sequential"]) == 2
    assert "there is no checkpoint" in capsys.readouterr().err
    assert tree(trained) == before


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["rollout"], ["env"]),
        (["rollout", "nowhere"], ["nowhere is not a run directory"]),
        ([*CART_POLE, "--n_episodes", "0"], ["episodes=0 must be at least 1"]),
        ([*CART_POLE, "--n_episodes", "x"], ["n_episodes", "expected int"]),
        ([*CART_POLE, "--max_steps", "-1"], ["max_steps=-1 must be at least 0"]),
        ([*CART_POLE, "--n_episode", "1"], ["did you mean --n_episodes"]),
        ([*CART_POLE, "--policy", "randm"], ["no policy 'randm'", "random, heuristic"]),
        ([*CART_POLE, "--policy", "maze_pl.agents.Nobody"], ["maze_pl.agents has nothing named Nobody"]),
        ([*CART_POLE, "--policy", "policy/nobody"], ["policy/nobody"]),
        (
            [*CART_POLE, "--policy", "maze_pl.agents.LunarLanderHeuristicPolicy"],
            ["LunarLanderHeuristicPolicy is not a policy for"],
        ),
        (
            [*CART_POLE, "--policy", "maze_pl.envs.cutting_2d.GreedyCuttingPolicy"],
            ["GreedyCuttingPolicy is not a policy for"],
        ),
        ([*CART_POLE, "--policy", "maze_pl.envs.GymMazeEnv"], ["has no method act"]),
        ([*CART_POLE, "--policy", "random", "--policy.look_ahead", "3"], ["look_ahead"]),
        ([*CART_POLE, "--policy", f"{HERE}OutOfRange"], ["are not 4 actions of {'action': Discrete(2)}"]),
        ([*CART_POLE, "--env.name", "Acrobot-v1", "--policy", "heuristic"], ["no policy 'heuristic' for Acrobot-v1"]),
        ([*CART_POLE, "--trajectories", "all"], ["trajectories", "'both'"]),
        ([*CART_POLE, "--render"], ["nothing draws CartPole-v1"]),
        ([*CART_POLE, "--output_dir", "full"], ["the folder full is not empty: choose one that does not exist"]),
        ([*CART_POLE, "--env.name", "CartPol-v1"], ["CartPol"]),
        ([*CART_POLE[:-1], "paralel"], ["runner", "paralel"]),
        (["rollout", "--env", "env/gym_env", "--runner.n_workers", "-1"], ["n_workers=-1 of ProcessEngine"]),
    ],
)
def test_a_command_that_is_wrong_ends_with_2_and_leaves_nothing(
    arguments: list[str], parts: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "precious.txt").write_text("mine", encoding="utf-8")
    before = tree(folder)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("maze-pl: error: ") == 1
    for part in parts:
        assert part in error
    assert tree(folder) == before


def test_where_nothing_more_can_be_written_is_told_and_what_was_written_is_whole(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        options = ["--trajectories", "spaces", "--files", "one", "--event_logs", "false", "--output_dir", "here"]
        assert main([*CART_POLE, *options]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    error = capsys.readouterr().err
    assert "maze-pl: error: here: File too large" in error
    assert re.search(r"maze-pl: \d+ complete episodes are in here\n", error)
    damaged: list[str] = []
    path = folder / "here" / "trajectories" / "spaces" / "episodes.spaces"
    whole = [record.episode_id for record in read_trajectories(path, damaged=damaged)]
    assert 2 < len(whole) < 50
    assert len(damaged) == 1
    assert [row["episode_id"] for row in table(folder / "here" / "episodes.csv")] == whole
    statistics = {row["statistic"]: float(row["value"]) for row in table(folder / "here" / "statistics.csv")}
    assert statistics["BaseEnvEvents/reward/episode_count"] == len(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_after_the_group_with_what_was_played(
    number: signal.Signals, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping = ["--policy", f"{HERE}Stopping", "--policy.number", str(int(number))]
    assert main([*CART_POLE, *stopping, "--max_steps", "20", "--output_dir", "here"]) == 128 + number
    output, error = capsys.readouterr()
    assert f"stopped by {number.name} after 4 of 50 episodes" in error
    assert "4 episodes | 80 env steps" in output
    assert len(table(folder / "here" / "episodes.csv")) == 4
    assert len(list((folder / "here" / "trajectories").glob("*/*"))) == 8


@pytest.mark.slow
def test_a_signal_to_the_whole_group_of_processes_leaves_whole_files_and_no_process(folder: Path) -> None:
    command = [sys.executable, "-m", "maze_pl", "rollout", "--env", "env/gym_env", "--policy", "heuristic"]
    command += ["--n_episodes", "100000", "--output_dir", "here"]
    process = subprocess.Popen(command, cwd=folder, start_new_session=True, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while len(list((folder / "here").glob("trajectories/*/*"))) < 20:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130, error
    deadline = time.monotonic() + 120
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:  # helpers of multiprocessing end a moment later
            os.killpg(process.pid, 0)
            time.sleep(0.1)
    episodes = [row["episode_id"] for row in table(folder / "here" / "episodes.csv")]
    files = list((folder / "here").glob("trajectories/*/*"))
    assert {file.stem for file in files} == set(episodes)
    assert all(len(list(read_trajectories(file, trust=True))) == 1 for file in files)
