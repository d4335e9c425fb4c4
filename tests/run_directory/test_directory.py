"""Where a run goes, and what it says at its end."""

from __future__ import annotations

import os
import shlex
import shutil
from datetime import datetime
from pathlib import Path

import pytest
import torch

from maze_pl.__main__ import main
from maze_pl.callbacks import WandbLog
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.checkpoint_content import CHECKPOINT_FORMAT
from maze_pl.runs import run_directory
from tests.run_directory import wandb_file
from tests.run_directory.command import SMALL, TWO_EPISODES, maze_pl


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    return tmp_path


def fit(*options: str) -> int:
    return main(["fit", "--config", "ppo_cartpole", *SMALL, *TWO_EPISODES, "--trainer.max_epochs", "1", *options])


class OneMoment(datetime):
    @classmethod
    def now(cls, tz: object = None) -> OneMoment:
        return cls(2026, 11, 21, 12, 0, 0)


@pytest.mark.slow
def test_runs_that_begin_in_the_same_second_have_directories_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "datetime", OneMoment)
    for _ in range(3):
        assert fit("--experiment", "mine") == 0
    found = sorted(Path("outputs", "mine").iterdir())
    assert [path.name for path in found] == ["2026-11-21_12-00-00", "2026-11-21_12-00-00-2", "2026-11-21_12-00-00-3"]
    for path in found:
        assert len((path / "metrics.csv").read_text(encoding="utf-8").splitlines()) == 2
        assert (path / "run.log").read_text(encoding="utf-8").count("epoch 1 |") == 1


def test_a_run_that_fails_before_it_begins_leaves_no_empty_directory(project: Path) -> None:
    assert fit("--model.batch_size", "7") == 2
    assert list(project.iterdir()) == []


@pytest.mark.slow
def test_a_run_stays_in_its_directory_if_environments_change_the_current_folder(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moving = ["--data.env", "tests.run_directory.moving.Moving", "--data.env.folder", str(project / "elsewhere")]
    kept = ["--best_checkpoint.dirpath", "kept"]
    assert fit("--run_dir", "run", "--trust", "--wandb", *moving, *kept) == 0
    assert Path.cwd() == project / "elsewhere" / "reset"
    assert [path for path in (project / "elsewhere").rglob("*") if path.is_file()] == []
    written = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    for name in ("config.yaml", "run.log", "metrics.csv", "final_evaluation.json", "checkpoints/last.ckpt"):
        assert f"run/{name}" in written
    assert "kept/best.ckpt" in written
    assert any(name.startswith("run/tensorboard/events") for name in written)
    output = capsys.readouterr().out
    assert output.count("run directory: run\n") == 2 and "tensorboard --logdir run/tensorboard\n" in output
    assert str(project / "run") not in output + (project / "run" / "config.yaml").read_text()
    os.chdir(project)
    options = ["--n_episodes", "2", "--runner", "sequential", "--output_dir", "played"]
    assert main(["rollout", "run", "--checkpoint", "last", *options, "--trust"]) == 0
    assert (project / "played" / "statistics.csv").is_file() and (project / "played" / "trajectories").is_dir()
    assert "files: played\n" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("how", ["absolute", "copied"])
def test_a_run_keeps_its_best_checkpoint_wherever_it_is_resumed(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    assert fit("--run_dir", "run", "--model.lr", "1e-30") == 0
    best = Path("run", "checkpoints", "best.ckpt").resolve()
    former = best.read_bytes()
    (project / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    if how == "copied":
        shutil.copytree(project / "run", "copy")
        run_dir, kept = "copy", Path("copy", "checkpoints", "best.ckpt")
    else:
        run_dir, kept = str(project / "run"), best
    capsys.readouterr()
    assert main(["fit", "--resume", run_dir, "--trainer.max_epochs", "2"]) == 0
    said = capsys.readouterr().out
    assert "epoch 2 |" in said
    assert "new best" not in said
    assert "(best.ckpt)" in said
    assert former == best.read_bytes() == kept.read_bytes()


@pytest.mark.slow
def test_a_run_with_checkpoints_elsewhere_is_resumed_from_them(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = ["--last_checkpoint.dirpath", "kept", "--best_checkpoint.dirpath", "kept"]
    assert fit("--run_dir", "run", *elsewhere) == 0
    assert not list(Path("run").rglob("*.ckpt"))
    capsys.readouterr()
    assert main(["fit", "--resume", "run", "--trainer.max_epochs", "2"]) == 0
    said = capsys.readouterr().out
    assert "epoch 2 |" in said
    assert "epoch 1 |" not in said
    (project / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["fit", "--resume", "../run", "--trainer.max_epochs", "3"]) == 2
    assert "--last_checkpoint.dirpath kept of the run ../run does not exist" in capsys.readouterr().err


def written_checkpoint(path: Path, env_steps: int) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"state_dict": {}, "maze_pl": {"format": CHECKPOINT_FORMAT, "env_steps": env_steps}}, path)
    return str(path)


def logged(*steps: int) -> None:
    Path("run", "metrics.csv").write_text("\n".join(["step", *map(str, steps), ""]), encoding="utf-8")


def test_a_run_that_has_lost_its_last_checkpoint_is_not_started_again() -> None:
    best = written_checkpoint(Path("run", "checkpoints", "best.ckpt"), 200)
    logged(200, 400)  # after best.ckpt, there had been a last.ckpt
    lost = r"run/checkpoints/last.ckpt, is missing: .* --ckpt_path run/checkpoints/"
    with pytest.raises(ConfigurationError, match=f"{lost}best.ckpt"):
        run_directory.last_checkpoint("run")
    Path(best).rename("run/checkpoints/mine.ckpt")
    with pytest.raises(ConfigurationError, match=f"{lost}mine.ckpt"):
        run_directory.last_checkpoint("run")
    Path("run/checkpoints/mine.ckpt").unlink()
    assert run_directory.last_checkpoint("run") is None


@pytest.mark.parametrize("folder", [None, "elsewhere"])
def test_a_run_that_was_killed_before_its_first_last_checkpoint_continues_from_the_best(folder: str | None) -> None:
    best = written_checkpoint(Path(folder or "run/checkpoints", "best.ckpt"), 200)
    Path("run").mkdir(exist_ok=True)
    Path("run", "config.yaml").write_text(f"best_checkpoint: {{dirpath: {folder or 'null'}}}", encoding="utf-8")
    assert run_directory.last_checkpoint("run") == best
    logged(100, 200)
    assert run_directory.last_checkpoint("run") == best
    last = written_checkpoint(Path("run/checkpoints/last.ckpt"), 200)
    assert run_directory.last_checkpoint("run") == last


def test_a_run_that_was_killed_in_its_first_epoch_starts_again_in_spite_of_other_checkpoints() -> None:
    written_checkpoint(Path("run", "checkpoints", "step=10.ckpt"), 50)
    assert run_directory.last_checkpoint("run") is None


@pytest.mark.slow
def test_the_flag_for_wandb_stands_anywhere_and_the_mode_of_the_environment_holds() -> None:
    for index, options in enumerate((["--wandb"], ["--wandb=true"], ["--wandb", "false"])):
        assert fit(*options, "--run_dir", f"run{index}") == 0
        assert not list(Path(f"run{index}").glob("wandb/offline-run-*"))
        assert Path(f"run{index}", "wandb").exists() == (index < 2)
    assert fit("--run_dir", "last", "--wandb") == 0
    assert Path("last", "wandb").exists()
    assert "tensorboard --logdir" in Path("last", "run.log").read_text(encoding="utf-8").splitlines()[-1]


def test_an_option_of_wandb_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert fit("--wandb.projct", "mine") == 2
    assert "projct" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "filed"),
    [
        ({}, ("maze_pl", "here", "mine")),
        ({"WANDB_PROJECT": "a", "WANDB_NAME": "b", "WANDB_RUN_GROUP": "c"}, ("a", "b", "c")),
    ],
)
def test_the_environment_variables_of_wandb_say_where_a_run_is_filed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], filed: tuple[str, str, str]
) -> None:
    for name in ("WANDB_PROJECT", "WANDB_NAME", "WANDB_RUN_GROUP"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    log = WandbLog(str(tmp_path / "mine" / "here"))
    try:
        assert (log.experiment.project, log.experiment.name, log.experiment.group) == filed
    finally:
        log.finalize("success")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "reason", "goes_on"),
    [
        ([], "max_epochs=1 reached", "--trainer.max_epochs 2"),
        (
            ["--trainer.max_epochs", "9", "--early_stopping.patience", "1", "--model.lr", "1e-30"],
            "eval/return has not improved for 1 evaluations",
            "--early_stopping.patience 2",
        ),
        (
            ["--trainer.max_epochs", "3", "--stop_at_return.threshold", "1"],
            "eval/return has reached 1.0",
            "--stop_at_return.threshold null",
        ),
    ],
)
def test_the_commands_that_come_next_work(
    capsys: pytest.CaptureFixture[str], options: list[str], reason: str, goes_on: str
) -> None:
    assert fit("--run_dir", "a run", *options) == 0
    log = Path("a run", "run.log")
    text = log.read_text(encoding="utf-8")
    end = text.split("\nended: ")[1].splitlines()
    n_epochs = text.count("\nepoch ")
    assert end[0] == reason
    assert end[1].startswith(f"{200 * n_epochs:,} env steps in 0:00:")
    assert end[2:4] == ["run directory: a run", "next:"]
    validate, resume, tensorboard = (shlex.split(line) for line in end[4:7])
    assert all(line.startswith("  ") for line in end[4:7])
    assert tensorboard[:2] == ["tensorboard", "--logdir"]
    assert any(Path(tensorboard[2]).glob("events.*"))
    capsys.readouterr()
    assert main(validate[1:]) == 0
    assert "eval BaseEnvEvents" in capsys.readouterr().out
    assert shlex.join(resume).endswith(goes_on)
    assert main(resume[1:]) == 0
    assert log.read_text(encoding="utf-8").count("\nepoch ") > n_epochs


@pytest.mark.slow
@pytest.mark.long
def test_wandb_is_not_imported_unless_it_is_asked_for(project: Path) -> None:
    (project / "watch.py").write_text(
        "import sys\nimport pytorch_lightning as pl\n"
        "class Watch(pl.Callback):\n"
        "    def teardown(self, trainer, pl_module, stage):\n"
        "        print('imported:', [name for name in ('wandb', 'pandas') if name in sys.modules])\n"
    )
    options = ["--trainer.callbacks+", "watch.Watch", "--trainer.max_epochs", "1", *SMALL, *TWO_EPISODES]
    result = maze_pl(["fit", "--config", "ppo_cartpole", *options], project, PYTHONPATH=str(project))
    assert result.returncode == 0, result.stderr
    assert "imported: []" in result.stdout


@pytest.mark.slow
def test_warnings_and_the_trace_of_an_error_are_in_the_log(project: Path) -> None:
    (project / "broken.py").write_text(
        "import warnings\nimport pytorch_lightning as pl\n"
        "class Broken(pl.Callback):\n"
        "    def on_train_epoch_end(self, trainer, pl_module):\n"
        "        warnings.warn('watch out')\n"
        "        print('a print of the user')\n"
        "        raise RuntimeError('a bug of the user')\n"
    )
    options = ["--trainer.callbacks+", "broken.Broken", "--trainer.max_epochs", "1", *SMALL, *TWO_EPISODES]
    options += ["--run_dir", "here", "--wandb"]
    result = maze_pl(["fit", "--config", "ppo_cartpole", *options], project, PYTHONPATH=str(project))
    assert result.returncode == 1
    log = Path("here", "run.log").read_text(encoding="utf-8")
    for text in ("UserWarning: watch out", "a print of the user", "Traceback", "RuntimeError: a bug of the user"):
        assert text in log
    assert log.count("RuntimeError: a bug of the user") == 1
    assert len(Path("here", "metrics.csv").read_text(encoding="utf-8").splitlines()) == 2
    (file,) = Path("here").glob("wandb/offline-run-*/*.wandb")
    assert wandb_file.read(file).exit_code == 1
