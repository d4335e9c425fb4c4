"""Files of checkpoints: written in place, with content that can be read again."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning.plugins.io import AsyncCheckpointIO

from maze_pl.core.checkpoint_io import ReadableCheckpointIO, readable_io


class OtherIO(TorchCheckpointIO):
    """A plugin of a user, which also notes the files."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        super().save_checkpoint(checkpoint, path, storage_options)
        self.paths.append(Path(path).name)


def test_only_the_default_of_lightning_is_replaced() -> None:
    assert type(readable_io(TorchCheckpointIO())) is ReadableCheckpointIO
    for given in (ReadableCheckpointIO(), OtherIO(), AsyncCheckpointIO()):
        assert readable_io(given) is given


def test_an_incomplete_file_needs_no_folder_of_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    part = tmp_path / ".last.ckpt.1.part"
    ReadableCheckpointIO().save_checkpoint({"state_dict": {"a": torch.ones(2)}, "score": np.float64(1.5)}, part)
    content = torch.load(part, weights_only=True)
    assert torch.equal(content["state_dict"]["a"], torch.ones(2))
    assert content["score"] == 1.5
    assert [path.name for path in tmp_path.iterdir()] == [part.name]
    with pytest.raises(FileNotFoundError, match="missing"):  # as Lightning writes files of other callbacks
        ReadableCheckpointIO().save_checkpoint({}, tmp_path / "epoch=1.ckpt")


@pytest.mark.parametrize("plugin", [TorchCheckpointIO, OtherIO])
def test_content_that_cannot_be_read_is_refused_in_files_of_maze_pl_only(tmp_path: Path, plugin: Any) -> None:
    used = readable_io(plugin())
    checkpoint: dict[str, Any] = {"callbacks": {"Mine": {"x": np.arange(3), "y": np.float64(1.0)}}, "n": np.int64(2)}
    with pytest.raises(ValueError, match=r"^callbacks\['Mine'\]\['x'\] of the checkpoint is a numpy.ndarray"):
        used.save_checkpoint(checkpoint, tmp_path / ".last.ckpt.1.part")
    assert not list(tmp_path.iterdir())
    used.save_checkpoint(checkpoint, tmp_path / "mine.ckpt")
    content = torch.load(tmp_path / "mine.ckpt", weights_only=False)
    assert list(content["callbacks"]["Mine"]["x"]) == [0, 1, 2]
    assert type(content["n"]) is int


def test_plugins_of_users_write_content_that_can_be_read(tmp_path: Path) -> None:
    given = OtherIO()
    for plugin in (readable_io(readable_io(given)), pickle.loads(pickle.dumps(given))):
        assert type(plugin) is OtherIO
        path = tmp_path / ".last.ckpt.1.part"
        plugin.save_checkpoint({"callbacks": {"Mine": {np.int64(1)}}}, path, storage_options=None)
        assert torch.load(path, weights_only=True) == {"callbacks": {"Mine": {1}}}
        assert plugin.paths[-1] == path.name
    assert given.paths == [path.name]
