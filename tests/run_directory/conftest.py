from __future__ import annotations

from pathlib import Path

import pytest

from tests.run_directory.command import SMALL, TWO_EPISODES, maze_pl
from tests.run_directory.probe import option


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run `here` that was killed in its third epoch, after this was logged, and resumed to the end of four.

    It counts from just below 2**24 env steps, and `probe.txt` has what should have been logged.
    """
    folder = tmp_path_factory.mktemp("resumed")
    probe = option(folder / "probe.txt", begin_at=2**24 - 201, kill_in_epoch=2)
    options = [*SMALL, *TWO_EPISODES, "--wandb", "--run_dir", "here", "--trainer.max_epochs", "4", probe]
    killed = maze_pl(["fit", "--config", "ppo_cartpole", *options], folder)
    assert killed.returncode == -9, killed.stderr
    once_more = option(folder / "probe.txt", kill_in_epoch=None).replace("callbacks+=", "callbacks=[") + "]"
    result = maze_pl(["fit", "--resume", "here", "--trust", once_more, "--model.lr", "1e-3"], folder)
    assert result.returncode == 0, result.stderr
    (folder / "output.txt").write_text(result.stdout, encoding="utf-8")
    return folder
