"""Comparison of a checkpoint with a run that is to continue from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.compatibility import require_epochs


def test_a_run_is_not_continued_to_fewer_epochs_than_it_has(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": {}, "epoch": 11}, path)
    fault = r"trainer\.max_epochs=10 is less than the 12 epochs of .*last\.ckpt: it counts all epochs of a run"
    with pytest.raises(ConfigurationError, match=fault):
        require_epochs(path, 10)
    for n_epochs in (12, 13, -1, None):
        require_epochs(path, n_epochs)
    require_epochs(None, 1)
