"""Files of checkpoints: written in place, with content that can be read again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning.plugins.io import AsyncCheckpointIO

from maze_pl.core.checkpoint_io import ReadableCheckpointIO, ReadableContentIO, readable_io
from maze_pl.datamodules.buffer_files import BuffersBesideCheckpoints
from maze_pl.modules import A2C
from tests.modules.kit import KIT


class OtherIO(TorchCheckpointIO):
    """A plugin of a user, which also notes the files."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        super().save_checkpoint(checkpoint, path, storage_options)
        self.paths.append(Path(path).name)


def test_the_default_of_lightning_is_replaced_and_plugins_of_users_are_wrapped() -> None:
    assert type(readable_io(TorchCheckpointIO())) is ReadableCheckpointIO
    for given in (OtherIO(), AsyncCheckpointIO()):
        attributes = dict(vars(given))
        assert type(readable_io(given)) is ReadableContentIO
        assert vars(given) == attributes


def test_plugins_of_maze_pl_are_used_as_they_are() -> None:
    buffers = BuffersBesideCheckpoints(OtherIO(), "ReplayDataModule")
    for given in (ReadableCheckpointIO(), readable_io(OtherIO()), buffers):
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


class KeywordIO(TorchCheckpointIO):
    """A plugin that knows the call of Lightning only; its method is an attribute of the object."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.save_checkpoint = self.save  # type: ignore[assignment]

    def save(self, checkpoint: dict[str, Any], path: Any, *, storage_options: Any) -> None:
        self.calls.append("save")

    def teardown(self) -> None:
        self.calls.append("teardown")


def test_plugins_of_users_are_called_as_lightning_calls_them(tmp_path: Path) -> None:
    given = KeywordIO()
    plugin = readable_io(given)
    plugin.save_checkpoint({}, tmp_path / "a.ckpt", storage_options=None)
    plugin.teardown()
    assert given.calls == ["save", "teardown"]


def test_plugins_of_users_write_content_that_can_be_read(tmp_path: Path) -> None:
    plugin = readable_io(OtherIO())
    path = tmp_path / ".last.ckpt.1.part"
    plugin.save_checkpoint({"callbacks": {"Mine": {np.int64(1)}}}, path)
    assert plugin.load_checkpoint(path, weights_only=True) == {"callbacks": {"Mine": {1}}}
    plugin.remove_checkpoint(path)
    assert not path.exists()


def test_the_plugin_of_a_user_stays_as_it_is_in_training(tmp_path: Path) -> None:
    given = OtherIO()
    trainer = KIT.fit(A2C(actor_critic=KIT.make_actor_critic()), length=1, plugins=[given])
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    assert given.paths == ["a.ckpt"] and vars(given) == {"paths": given.paths}
