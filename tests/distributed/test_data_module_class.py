"""A checkpoint holds a data module's state under the name of its class: under another name it must not be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.__main__ import main
from maze_pl.datamodules import RolloutDataModule
from tests.distributed.cartpole import make, trainer


class RenamedDataModule(RolloutDataModule):
    """Another class, which would look for its state under its own name."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    first = trainer(1)
    first.fit(*make(RolloutDataModule))
    path = tmp_path_factory.mktemp("run") / "last.ckpt"
    first.save_checkpoint(path)
    return path


@pytest.mark.parametrize("resume", ["fit", "validate"])
def test_another_class_of_data_module_is_refused_by_name(checkpoint: Path, resume: str) -> None:
    with pytest.raises(ValueError, match=r"last\.ckpt holds no state of a RenamedDataModule; resume with the class"):
        getattr(trainer(2), resume)(*make(RenamedDataModule), ckpt_path=checkpoint, weights_only=True)


@pytest.mark.parametrize("resume", ["fit", "validate"])
def test_the_class_that_wrote_it_goes_on(checkpoint: Path, resume: str) -> None:
    module, data = make(RolloutDataModule)
    getattr(trainer(2), resume)(module, data, ckpt_path=checkpoint, weights_only=True)
    assert module.env_steps == (10 if resume == "fit" else 5)


def content(run_dir: Path) -> dict[Path, bytes]:
    """Files of a run but for its evidence, which a refused command adds to."""
    files = [path for path in run_dir.rglob("*") if path.is_file()]
    evidence = ("run.log", "command.txt", "provenance.json")
    kept = [path for path in files if path.name not in evidence and path.parent.name != "tensorboard"]
    return {path: path.read_bytes() for path in kept}


@pytest.mark.slow
def test_on_the_command_line_it_is_refused_and_nothing_but_the_log_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "renamed.py").write_text(
        "from maze_pl.datamodules import RolloutDataModule\n"
        "class RenamedDataModule(RolloutDataModule):\n"
        '    """Another class."""\n',
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    small = ["--trainer.max_epochs", "1", "--data.epoch_length", "1", "--data.n_envs", "1", "--data.evaluators", "{}"]
    assert main(["fit", "--config", "a2c_cartpole", *small, "--run_dir", "here"]) == 0
    before = content(Path("here"))
    capsys.readouterr()
    options = ["--trainer.max_epochs", "2", "--data.class_path", "renamed.RenamedDataModule"]
    assert main(["fit", "--resume", "here", *options]) == 2
    assert "last.ckpt holds no state of a RenamedDataModule" in capsys.readouterr().err
    assert content(Path("here")) == before
    assert main(["fit", "--resume", "here", "--trainer.max_epochs", "2"]) == 0
