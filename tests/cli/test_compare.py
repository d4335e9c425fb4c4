"""`maze-pl compare`: what it plays, prints, writes and returns, and what it refuses."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from maze_pl.__main__ import main
from maze_pl.envs import GymMazeEnv
from maze_pl.runs.rollout import rollout
from tests.bad_input.project import SMALL, tree

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing

CART_POLE = ["--env", "env/gym_env", "--env.name", "CartPole-v1"]
CUTTING = ["--env", "env/tutorial_cutting_2d_struct_masked", "--max_steps", "15"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Runs `a` and `b` of one configuration with different seeds, and `c` with wrappers that learn."""
    path = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAZE_PL_RUN_DIR", "")
        for name, options in (
            ("a", ["--seed_everything", "1"]),
            ("b", ["--seed_everything", "2"]),
            ("c", ["--data.wrappers", "wrappers/vector_obs"]),
        ):
            assert main(["fit", "--config", "ppo_cartpole", *SMALL, "--run_dir", str(path / name), *options]) == 0
    yield path


def results(path: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads((path / "comparison.json").read_text(encoding="utf-8"))
    return content


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The only message of a command that is refused, which leaves nothing behind."""
    before = tree(Path.cwd())
    assert main(["compare", *arguments]) == 2
    output, error = capsys.readouterr()
    messages = [line for line in error.splitlines() if line.startswith("maze-pl:")]
    assert output == "" and len(messages) == 1
    assert tree(Path.cwd()) == before
    return messages[0].removeprefix("maze-pl: error: ")


def test_policies_are_compared_shown_and_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)  # for bars
    options = ["--baseline", "random", "--n_episodes", "12", "--seed", "3", "--max_steps", "60", "--to", "out"]
    assert main(["compare", "heuristic", *CART_POLE, *options]) == 0
    output, error = capsys.readouterr()
    assert "2 entries | 12 episodes of each run | seed 3 | at most 60 env steps" in output
    assert re.search(r"^return +heuristic +1 +60 +60 to 60 +60 +60 to 60$", output, re.MULTILINE)
    assert re.search(r"^return +heuristic +random +12 +\d\S+ +\S+ to \S+ +1 +0\.\S+ to 1$", output, re.MULTILINE)
    assert "winner by return: heuristic" in output
    later = output.partition("\nwinner by return: heuristic\n")[2]
    drawing = "playing and drawing the episodes of out (--views false leaves them out)"
    assert later == f"\n{drawing}\n\nfiles: out\npage: out/comparison.html\n"
    assert " 24/24 " in error and " 8/8 " not in error  # one bar, though a group of each is played before the others
    files = {"comparison.json", "comparison.csv", "episodes.csv", "comparison.png", "comparison.html"}
    assert files <= {path.name for path in Path("out").iterdir()}
    found = results(Path("out"))
    assert found["winner"] == "heuristic"
    assert str(found["command"]).startswith("maze-pl compare heuristic")
    expected = rollout(lambda: GymMazeEnv("CartPole-v1"), "random", 12, 3, max_steps=60)
    with Path("out", "episodes.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["entry"] == "random"]
    assert [(int(row["seed"]), float(row["return"])) for row in rows] == [(e.seed, e.summary.reward) for e in expected]


@pytest.mark.slow
def test_runs_that_differ_in_their_seed_are_one_entry(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = [str(runs / name) for name in "abc"]
    options = ["--baseline", "random", "--n_episodes", "5", "--max_steps", "20", "--to", "out"]
    assert main(["compare", *sources, *options]) == 0
    found = results(Path("out"))
    entries = found["entries"]
    assert isinstance(entries, list)
    assert [(entry["sources"], entry["n_runs"]) for entry in entries] == [
        (sources[:2], 2),
        (sources[2:], 1),
        (["random"], 1),
    ]
    assert {one["baseline"] for one in found["differences"]} == {"random"}  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_folder_of_seeds_is_one_entry_and_its_runs_have_their_last_checkpoints(
    runs: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, name in ((1, "a"), (2, "b")):
        shutil.copytree(runs / name, folder / "seeds" / f"seed_{seed}")
    (folder / "seeds" / "seeds.json").write_text('{"seeds": [1, 2], "options": []}', encoding="utf-8")
    (folder / "seeds" / "seed_2" / "checkpoints" / "best.ckpt").unlink()  # as after a kill before the first evaluation
    options = ["--env.name", "CartPole-v0", "--n_episodes", "2", "--max_steps", "9", "--to", "out"]
    assert main(["compare", "seeds", "heuristic", *options]) == 0
    assert "has no best.ckpt" in capsys.readouterr().err
    (entry, other) = results(Path("out"))["entries"]  # type: ignore[misc]
    assert (entry["name"], entry["n_runs"], entry["is_baseline"]) == ("seeds", 2, True)
    assert other["name"] == "heuristic"


def test_the_exit_status_says_if_another_entry_is_beaten(capsys: pytest.CaptureFixture[str]) -> None:
    common = [*CART_POLE, "--n_episodes", "12", "--max_steps", "100"]
    assert main(["compare", "heuristic", *common, "--must-beat", "random"]) == 0  # which is a baseline thereby
    assert main(["compare", "random", *common, "--baseline", "heuristic", "--must-beat", "heuristic"]) == 1
    assert "random is not better than heuristic by return: the difference is -" in capsys.readouterr().err
    lower = ["--lower-is-better", "--baseline", "heuristic", "--must-beat", "heuristic"]
    assert main(["compare", "random", *common, *lower]) == 0


def test_a_policy_with_search_must_beat_the_policy_itself(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["random", *CART_POLE, "--n_episodes", "2", "--max_steps", "9", "--search", "best_of:2"]
    assert main(["compare", *words, "--must-beat", "random"]) == 1  # after so few steps
    assert "random best_of:2 is not better than random by return" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_must_beat_another_seed_of_its_configuration(
    runs: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = str(runs / "a"), str(runs / "b")
    options = ["--n_episodes", "8", "--max_steps", "20", "--views", "false"]
    for number, words in enumerate(([a, "--must-beat", f"{b}/"], [a, b, "--must-beat", "b"])):
        status = main(["compare", *words, *options, "--to", f"out{number}"])
        found = results(Path(f"out{number}"))
        entries: list[dict[str, object]] = found["entries"]  # type: ignore[assignment]
        assert [(entry["sources"], entry["is_baseline"]) for entry in entries] == [([a], False), ([b], True)]
        (difference,) = found["differences"]  # type: ignore[misc]
        assert status == int(difference["interval"][0] <= 0.0)
    for seed, name in ((1, "a"), (2, "b")):
        shutil.copytree(runs / name, folder / "seeds" / f"seed_{seed}")
    (folder / "seeds" / "seeds.json").write_text('{"seeds": [1, 2], "options": []}', encoding="utf-8")
    capsys.readouterr()
    for words in (["seeds/", "--must-beat", "seeds/seed_1/"], ["seeds/seed_1", "--must-beat", str(folder / "seeds")]):
        assert main(["compare", *words, *options]) == 1
        error = capsys.readouterr().err
        assert error.count("maze-pl: ") == 1 and f" is not better than {words[-1].rstrip('/')}" in error


@pytest.mark.slow
def test_kpis_are_compared_and_can_choose_the_winner(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--n_episodes", "9", "--metric", "kpi/raw_piece_usage_per_step", "--lower-is-better", "--to", "out"]
    assert main(["compare", "random", "heuristic", *CUTTING, *options]) == 0
    found = results(Path("out"))
    assert (found["winner"], found["metric"]) == ("heuristic", "kpi/raw_piece_usage_per_step")
    (ours,) = [one for one in found["differences"] if one["metric"] == found["metric"]]  # type: ignore[attr-defined]
    assert ours["difference"] < 0.0 and ours["probability_of_improvement"] > 0.5
    assert "kpi/raw_pieces_per_order_served" in capsys.readouterr().out


def test_episodes_are_added_until_the_interval_is_narrow(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["compare", "random", *CART_POLE, "--n_episodes", "8"]
    assert main([*common, "--precision", "18", "--to", "out"]) == 0
    found = results(Path("out"))
    (entry,) = found["entries"]  # type: ignore[misc]
    low, high = entry["metrics"]["return"]["mean_interval"]
    assert high - low < 18 and found["is_precise"]
    assert found["n_episodes"] > 8
    assert "return to a precision of 18: reached after" in capsys.readouterr().out
    assert main([*common, "--precision", "0.1", "--max_episodes", "12"]) == 0
    assert "not reached after 12 episodes" in capsys.readouterr().out


def test_deterministic_policies_in_an_environment_without_chance_tie(capsys: pytest.CaptureFixture[str]) -> None:
    sources = ["heuristic", "maze_pl.agents.DummyCartPolePolicy"]
    options = ["--n_episodes", "9", "--max_steps", "30", "--deterministic"]
    assert main(["compare", *sources, *CART_POLE, *options]) == 0
    output = capsys.readouterr().out
    assert re.search(r"DummyCartPolePolicy +heuristic +9 +0 +0 to 0 +0.5 +0.2825 to 0.7175$", output, re.MULTILINE)
    assert "no winner" in output


def test_a_single_episode_has_no_interval_and_no_winner(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "heuristic", "random", *CART_POLE, "--n_episodes", "1"]) == 0
    output = capsys.readouterr().out
    assert " to " not in output and "no winner" in output


@pytest.mark.slow
def test_the_page_is_one_file_that_runs_and_loads_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "heuristic", "random", *CART_POLE, "--n_episodes", "8", "--to", "out/<b>"]) == 0
    page = Path("out/<b>/comparison.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page and "light-dark(" in page and "width=device-width" in page
    assert "<script" not in page and "script-src" not in page and "http:" not in page and "https:" not in page
    assert "out/&lt;b&gt;" in page and "<b>" not in page  # of the command


REFUSED = {
    "nothing": ([], "there is nothing to compare"),
    "no run": (["elsewhere"], "elsewhere is neither a run directory nor a policy"),
    "no run directory": (["empty"], "empty is not a run directory: it has no config.yaml"),
    "no environment": (["random"], "policies need an environment"),
    "twice": (["random", "random", *CART_POLE], "random is given twice"),
    "unknown metric": (["random", *CART_POLE, "--metric", "kpi/x"], "there is no metric 'kpi/x': use return"),
    "unknown opponent": (
        ["random", *CART_POLE, "--must-beat", "heuristik"],
        "heuristik is neither a run directory nor",
    ),
    "only baselines": (["random", *CART_POLE, "--must-beat", "random"], "needs an entry that is not a baseline"),
    "no value": (["random", "--baseline"], "--baseline needs a value"),
    "unknown option": (["random", *CART_POLE, "--metrik", "return"], "did you mean --metric?"),
    "no episodes": (["random", *CART_POLE, "--n_episodes", "0"], "n_episodes=0 must be from 1"),
    "precision": (["random", *CART_POLE, "--precision", "0"], "precision=0.0 must be above 0"),
    "few episodes": (["random", *CART_POLE, "--precision", "1", "--max_episodes", "9"], "max_episodes=9 must be from"),
    "full folder": (["random", *CART_POLE, "--to", "full"], "the folder full is not empty"),
    "no heuristic": (["heuristic", "--env", "env/gym_env", "--env.name", "Acrobot-v1"], "no policy 'heuristic'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_impossible_comparisons_are_refused(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "empty").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "file").write_text("mine", encoding="utf-8")
    arguments, message = REFUSED[case]
    assert message in refused(arguments, capsys)


def test_a_run_that_must_beat_itself_by_another_path_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run").mkdir()
    (folder / "link").symlink_to("run")
    for path in (str(folder / "run"), "link", "run/../run/"):
        assert "needs an entry that is not a baseline" in refused(["run", "--must-beat", path], capsys)


def test_a_short_name_that_several_entries_have_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in ("x/run", "y/run"):
        (folder / path).mkdir(parents=True)
    message = refused(["x/run", "y/run", "--must-beat", "run"], capsys)
    assert message == "--must-beat run may be x/run or y/run: name one of them"
    (folder / "run").mkdir()
    assert "run is not a run directory" in refused(["x/run", "y/run", "--must-beat", "run"], capsys)


@pytest.mark.slow
def test_runs_of_other_environments_are_refused(runs: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(runs / "a", folder / "other")
    import torch

    path = folder / "other" / "checkpoints" / "best.ckpt"
    content = torch.load(path, weights_only=True)
    content["maze_pl"]["config"]["data"]["init_args"]["env"]["init_args"]["name"] = "CartPole-v0"
    torch.save(content, path)
    written = folder / "other" / "config.yaml"
    written.write_text(written.read_text().replace("CartPole-v1", "CartPole-v0"))
    message = refused([str(runs / "a"), "other", "--to", "out"], capsys)
    assert "other was trained in another environment: env.name is 'CartPole-v0' there" in message
    message = refused([str(runs / "a"), "random", "--env.name", "Acrobot-v1", "--to", "out"], capsys)
    assert "the policy was trained with other spaces" in message


@pytest.mark.slow
def test_runs_that_name_foreign_classes_need_trust(
    runs: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "a", folder / "foreign")
    import torch

    path = folder / "foreign" / "checkpoints" / "best.ckpt"
    content = torch.load(path, weights_only=True)
    content["maze_pl"]["config"]["data"]["init_args"]["env"] = {"class_path": "os.getcwd"}
    torch.save(content, path)
    message = refused(["foreign", "--baseline", "random"], capsys)
    assert "os.getcwd" in message and "use --trust" in message


@pytest.mark.slow
def test_several_runs_with_the_same_seed_are_separate_entries(
    runs: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "a", folder / "again")
    config = yaml.safe_load((folder / "again" / "config.yaml").read_text(encoding="utf-8"))
    assert config["seed_everything"] == 1
    options = ["--n_episodes", "2", "--max_steps", "9", "--to", "out"]
    assert main(["compare", str(runs / "a"), "again", *options]) == 0
    (first, second) = results(Path("out"))["entries"]  # type: ignore[misc]
    assert (first["n_runs"], second["n_runs"]) == (1, 1)
    assert np.isclose(first["metrics"]["return"]["mean"], second["metrics"]["return"]["mean"])
