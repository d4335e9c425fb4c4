"""Runs that are resumed with their replay buffer, and the files beside checkpoints that hold it."""

import errno
import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from gymnasium import spaces
from pytorch_lightning.plugins.io import AsyncCheckpointIO

from maze_pl.collect.replay.buffer import ReplayBuffer
from maze_pl.datamodules.buffer_files import remove_unnamed_buffers
from maze_pl.datasets import InMemoryDataset
from tests.bad_input.project import disk_full_at
from tests.datamodules.drift import Drift, Moody

# Lightning asks back where there are no evaluators.
from tests.datamodules.replay_learner import Learner, Picky, fit, make_data, recorded_episodes, same

pytestmark = pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")


@pytest.fixture(scope="module")
def episodes() -> list[Any]:
    return recorded_episodes()


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "runs": {"split_rollouts_into_transitions": False, "n_rollout_steps": 3, "num_actors": 2},
    "prioritized": {"prioritized": True, "n_step": 3, "replay_buffer_size": 23},
    "files": {"memory_map": True},
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_resumes_exactly_with_its_buffer(tmp_path: Path, case: str) -> None:
    options = {**CASES[case], "save_buffer": True}
    whole = fit(make_data(**options), epochs=4).batches
    begun = fit(make_data(**options), epochs=2, save=tmp_path / "kept.ckpt").batches
    resumed = fit(make_data(**options), epochs=4, ckpt_path=tmp_path / "kept.ckpt").batches
    assert len(whole) == 8 and same(whole, begun + resumed)
    assert [batch.env_steps for batch in whole] == [batch.env_steps for batch in begun + resumed]


@pytest.mark.parametrize("case", ["plain", "runs", "prioritized"])
def test_a_buffer_on_a_device_gives_the_same_run_and_is_resumed_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    options = {**CASES[case], "save_buffer": True}
    whole = fit(make_data(**options), epochs=4).batches
    with monkeypatch.context() as patch:
        patch.setattr("maze_pl.datamodules.replay.device_of_buffer", lambda *_: torch.device("cpu"))
        begun = fit(make_data(**options), epochs=2, save=tmp_path / "kept.ckpt").batches
    resumed = fit(make_data(**options), epochs=4, ckpt_path=tmp_path / "kept.ckpt").batches
    assert same(whole, begun + resumed)


def test_demonstrations_that_are_kept_apart_are_resumed_without_reading_them(
    tmp_path: Path, episodes: list[Any]
) -> None:
    options = {"demonstration_share": 0.5, "save_buffer": True, "prioritized": True}
    whole, begun = (
        fit(make_data(demonstrations=InMemoryDataset(episodes), **options), n, save=tmp_path / f"{n}.ckpt").batches
        for n in (4, 2)
    )
    gone = InMemoryDataset(tmp_path / "gone")
    resumed = fit(make_data(demonstrations=gone, **options), 4, ckpt_path=tmp_path / "2.ckpt").batches
    assert same(whole, begun + resumed)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a buffer."""
    path = tmp_path_factory.mktemp("saved") / "kept.ckpt"
    fit(make_data(save_buffer=True), save=path)
    return path


def buffers(folder: Path) -> list[Path]:
    return sorted(folder.glob("replay-*"))


def test_a_checkpoint_names_its_buffer_and_does_not_hold_it(saved: Path) -> None:
    checkpoint = torch.load(saved, weights_only=True)
    (buffer,) = buffers(saved.parent)
    assert checkpoint["ReplayDataModule"]["replay"]["files"] == [buffer.name]
    state = torch.load(buffer, weights_only=True)
    assert len(state["storages"][0][0]["columns"]["reward"]) == 22, "what is there, and not what could be"


def test_a_buffer_is_found_beside_its_checkpoint_wherever_that_is(saved: Path, tmp_path: Path) -> None:
    (buffer,) = buffers(saved.parent)
    for path in (saved, buffer):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    one, two = (fit(make_data(), 2, ckpt_path=path).batches for path in (saved, tmp_path / saved.name))
    assert same(one, two)


class SavesAtStart(Learner):
    """Writes a checkpoint before the first batch."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def on_train_start(self) -> None:
        self.trainer.save_checkpoint(self.path)


def test_a_moved_run_that_saves_before_its_first_batch_puts_the_buffer_beside(tmp_path: Path) -> None:
    fit(make_data(save_buffer=True), save=tmp_path / "old" / "kept.ckpt")
    expected = fit(make_data(save_buffer=True), 2, ckpt_path=tmp_path / "old" / "kept.ckpt").batches
    (tmp_path / "old").rename(tmp_path / "moved")
    third = tmp_path / "third" / "kept.ckpt"
    ckpt_path = tmp_path / "moved" / "kept.ckpt"
    module = fit(make_data(save_buffer=True), 2, ckpt_path=ckpt_path, module=SavesAtStart(third))
    assert same(expected, module.batches)
    assert [path.name for path in buffers(third.parent)] == [path.name for path in buffers(ckpt_path.parent)]
    (tmp_path / "moved").rename(tmp_path / "gone")
    assert same(expected, fit(make_data(save_buffer=True), 2, ckpt_path=third).batches)


WITHOUT_BUFFER = "save_buffer was off, or an error ended it within a batch"


def test_without_its_buffer_a_run_fills_a_new_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(make_data(), save=tmp_path / "kept.ckpt")
    assert buffers(tmp_path) == []
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr("maze_pl.datamodules.replay.rank_zero_info", said.append)
        (batch, _) = fit(make_data(), 2, ckpt_path=tmp_path / "kept.ckpt").batches
    assert said == [f"the checkpoint names no replay buffer ({WITHOUT_BUFFER}): the buffer is filled as at the start"]
    assert batch.env_steps == 21 and (batch.acts[0].action["action"] < 50).any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"replay_buffer_size": 999}, "replay_buffer_size was 1000 and is 999"),
        ({"n_step": 2}, "n_step was 1 and is 2"),
        ({"prioritized": True}, "alpha was None and is 0.6"),
        ({"num_actors": 2}, "ranks and actors was"),
        ({"env": Picky}, "action 'action' of sub-step 0 was"),
    ],
    ids=str,
)
def test_a_buffer_of_another_kind_is_refused(saved: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(make_data(**options), 2, ckpt_path=saved)


def test_a_buffer_for_another_gamma_is_refused(saved: Path) -> None:
    with pytest.raises(ValueError, match=r"gamma was 0.9 and is 0.8"):
        fit(make_data(), 2, ckpt_path=saved, module=Learner(0.8))


@pytest.mark.parametrize("change", ["missing", "altered", "empty"])
def test_a_buffer_that_is_not_what_was_written_is_refused(saved: Path, tmp_path: Path, change: str) -> None:
    (buffer,) = buffers(saved.parent)
    content = bytearray(buffer.read_bytes())
    checkpoint = torch.load(saved, weights_only=True)
    checkpoint["ReplayDataModule"]["replay"]["folder"] = str(tmp_path)
    torch.save(checkpoint, tmp_path / saved.name)
    content[len(content) // 2] ^= 1
    if change != "missing":
        (tmp_path / buffer.name).write_bytes(content if change == "altered" else b"")
    with pytest.raises(ValueError, match="which the checkpoint names, is missing or was altered"):
        fit(make_data(), 2, ckpt_path=tmp_path / saved.name)


def crafted(saved: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A checkpoint with a buffer in which something was changed, and which it names all the same."""
    (buffer,) = buffers(saved.parent)
    content, checkpoint = (torch.load(path, weights_only=True) for path in (buffer, saved))
    change(content)
    torch.save(content, folder / "made")
    name = f"replay-{hashlib.sha256((folder / 'made').read_bytes()).hexdigest()}.pt"
    (folder / "made").rename(folder / name)
    checkpoint["ReplayDataModule"]["replay"] = {"folder": str(folder), "files": [name]}
    torch.save(checkpoint, folder / saved.name)
    return folder / saved.name


def test_a_buffer_of_another_format_is_refused(saved: Path, tmp_path: Path) -> None:
    path = crafted(saved, tmp_path, lambda content: content.update(format=3))
    with pytest.raises(ValueError, match=r"replay-.* has format 3, this version reads formats up to 2"):
        fit(make_data(), 2, ckpt_path=path)


@pytest.mark.parametrize("name", ["capacity", "written"])
@pytest.mark.parametrize("number", [-1, 10**15])
def test_a_buffer_with_a_number_that_it_cannot_hold_is_refused(
    saved: Path, tmp_path: Path, name: str, number: int
) -> None:
    def change(content: dict[str, Any]) -> None:
        content["storages"][0][0][name] = number

    with pytest.raises(ValueError, match=r"replay-.* is damaged: it (holds|has a column).*"):
        fit(make_data(), 2, ckpt_path=crafted(saved, tmp_path, change))


def test_a_buffer_of_bytes_that_were_never_written_is_refused(saved: Path, tmp_path: Path) -> None:
    path = crafted(saved, tmp_path, lambda content: None)
    (buffer,) = buffers(tmp_path)
    with buffer.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="it is sparse"):
        fit(make_data(), 2, ckpt_path=path)


class Failing(Learner):
    """Fails in its third update."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        if len(self.batches) == 2:
            raise OSError("the machine is on fire")
        super().training_step(batch, batch_idx)


class Failed(Drift):
    """Fails in its tenth episode."""

    def reset(self, **options: Any) -> Any:
        if len(self.log.rewards[self.number]) == 9:
            raise OSError("the machine is on fire")
        return super().reset(**options)


def failed_run(folder: Path, module: Learner, data: Any) -> tuple[pl.Trainer, dict[str, Any]]:
    """A run that an error ends, and the state of its data module in the checkpoint that follows."""
    trainer = pl.Trainer(
        max_epochs=40,
        logger=False,
        callbacks=[pl.callbacks.OnExceptionCheckpoint(folder), Folder(folder)],
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
    )
    with (
        warnings.catch_warnings(action="ignore"),  # Lightning looks for a file of the callback first
        pytest.raises(OSError, match="the machine is on fire"),
    ):
        trainer.fit(module, data)
    return trainer, torch.load(folder / "on_exception.ckpt", weights_only=True)["ReplayDataModule"]


def said_when_resumed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr("maze_pl.datamodules.replay.rank_zero_info", said.append)
    fit(make_data(save_buffer=True), 40, ckpt_path=folder / "on_exception.ckpt")
    return said


def test_a_run_continues_with_its_buffer_after_an_error_in_an_update(tmp_path: Path) -> None:
    _, state = failed_run(tmp_path, Failing(), make_data(save_buffer=True))
    assert len(state["ranks"]) == 1 and len(buffers(tmp_path)) == 1
    resumed = fit(make_data(save_buffer=True), epochs=3, ckpt_path=tmp_path / "on_exception.ckpt").batches
    assert [batch.env_steps for batch in resumed] == [1] * len(resumed)
    assert resumed[0].measures["buffer_size"] == 20 + 3 + 1, "with the steps of the update that failed"


def test_no_buffer_is_named_without_the_states_of_its_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, state = failed_run(tmp_path, Learner(), make_data(Failed, save_buffer=True))
    assert not state.keys() & {"ranks", "replay"} and buffers(tmp_path) == []
    assert trainer.global_step > 2
    missing = "the checkpoint holds no state of the environments: the buffer is filled as at the start"
    assert said_when_resumed(tmp_path, monkeypatch) == [missing]


def test_no_buffer_is_named_that_lacks_steps_of_its_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(buffer: ReplayBuffer, rollout: Any) -> None:
        if len(buffer) > 25:
            raise OSError("the machine is on fire")
        add(buffer, rollout)

    add = ReplayBuffer.add
    with monkeypatch.context() as patch:
        patch.setattr(ReplayBuffer, "add", fail)
        trainer, state = failed_run(tmp_path, Learner(), make_data(save_buffer=True))
    assert "ranks" in state and "replay" not in state and buffers(tmp_path) == []
    assert trainer.global_step > 2
    missing = f"the checkpoint names no replay buffer ({WITHOUT_BUFFER}): the buffer is filled as at the start"
    assert said_when_resumed(tmp_path, monkeypatch) == [missing]


def test_checkpoints_that_are_written_later_are_refused(tmp_path: Path) -> None:
    options: Any = {"logger": False, "enable_progress_bar": False, "default_root_dir": tmp_path}
    trainer = pl.Trainer(max_epochs=1, plugins=[AsyncCheckpointIO()], accelerator="cpu", devices=1, **options)
    with pytest.raises(ValueError, match=r"save_buffer=True does not work with the plugin AsyncCheckpointIO: .*"):
        trainer.fit(Learner(), make_data(save_buffer=True))


class Keep(pl.Callback):
    """Writes a checkpoint twice after each epoch, and another one after the first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.there = folder, list[list[str]]()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        names = ["last", "last"] + ["best"] * (trainer.current_epoch == 0)
        for name in names:
            trainer.save_checkpoint(self.folder / f"{name}.ckpt")
        self.there.append([buffer.name for buffer in buffers(self.folder)])


class Folder(pl.callbacks.Checkpoint):
    """A callback for checkpoints that has a folder."""

    def __init__(self, dirpath: Path) -> None:
        self.dirpath = dirpath


def test_buffers_that_no_checkpoint_names_any_more_are_removed(tmp_path: Path) -> None:
    keep, data = Keep(tmp_path), make_data(save_buffer=True)
    (tmp_path / "replay-notes.txt").write_bytes(b"of the user")
    trainer = pl.Trainer(
        max_epochs=4,
        logger=False,
        callbacks=[keep, Folder(tmp_path)],
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
        default_root_dir=tmp_path / "elsewhere",
    )
    trainer.fit(Learner(), data)
    assert [len(there) for there in keep.there] == [2, 3, 4, 4], "until the next batch, also the former ones"
    (tmp_path / "replay-notes.txt").unlink()
    named = [
        torch.load(tmp_path / f"{name}.ckpt", weights_only=True)["ReplayDataModule"]["replay"]["files"][0]
        for name in ("best", "last")
    ]
    assert [buffer.name for buffer in buffers(tmp_path)] == sorted(named) and len(set(named)) == 2


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_buffer_that_a_killed_run_has_left_is_removed_even_if_nothing_remains_to_be_trained(
    tmp_path: Path, epochs: int
) -> None:
    """The run was killed after its last checkpoint, before it could remove the buffer of the checkpoint before."""
    path = tmp_path / "last.ckpt"
    fit(make_data(save_buffer=True), save=path)
    (named,) = buffers(tmp_path)
    left = tmp_path / f"replay-{64 * 'a'}.pt"
    for save_buffer in (False, True):
        left.write_bytes(b"of the checkpoint before")
        trainer = pl.Trainer(
            max_epochs=epochs,
            logger=False,
            callbacks=[Folder(tmp_path)],
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
            devices=1,
        )
        trainer.fit(Learner(), make_data(save_buffer=save_buffer), ckpt_path=path, weights_only=True)
        assert left.exists() == (not save_buffer)
    assert buffers(tmp_path) == [named]


@pytest.mark.filterwarnings("ignore:You are using fast_dev_run")
def test_a_run_that_writes_no_files_removes_no_buffer(tmp_path: Path) -> None:
    fit(make_data(save_buffer=True), save=tmp_path / "last.ckpt")
    (named,) = buffers(tmp_path)
    moved = tmp_path / "moved" / "last.ckpt"
    moved.parent.mkdir()
    (tmp_path / "last.ckpt").rename(moved)
    trainer = pl.Trainer(
        fast_dev_run=True,
        callbacks=[Folder(tmp_path)],
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
    )
    trainer.fit(Learner(), make_data(save_buffer=True), ckpt_path=moved, weights_only=True)
    assert buffers(tmp_path) == [named]


def test_a_buffer_that_a_checkpoint_in_another_folder_names_is_kept(tmp_path: Path) -> None:
    class Last(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            trainer.save_checkpoint(tmp_path / "two" / "last.ckpt")

    trainer = pl.Trainer(
        max_epochs=2,
        logger=False,
        callbacks=[Last(), Folder(tmp_path / "one"), Folder(tmp_path / "two")],
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
    )
    data = make_data(save_buffer=True)
    trainer.fit(Learner(), data)
    first, beside = *buffers(tmp_path / "one"), *buffers(tmp_path / "two")
    assert first.samefile(beside)
    assert (first.parent.name, beside.parent.name) == ("one", "two")
    other = first.with_name(f"replay-{64 * 'a'}.pt")
    other.write_bytes(b"of a run that goes on")
    data.teardown("validate")
    assert other.exists(), "evaluation of a run may take place while it goes on"
    other.unlink()
    assert len(fit(make_data(), 3, ckpt_path=tmp_path / "two" / "last.ckpt").batches) == 2
    first.unlink()
    beside.unlink()
    trainer.save_checkpoint(tmp_path / "two" / "once_more.ckpt")
    assert first.samefile(beside)


def test_buffers_are_written_within_the_run_where_no_other_run_removes_them(tmp_path: Path) -> None:
    class OtherRun(pl.Callback):
        """Another run with the same folder, which removes what no checkpoint there names."""

        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            trainer.save_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")
            remove_unnamed_buffers([tmp_path / "shared"])
            trainer.save_checkpoint(tmp_path / "shared" / "last.ckpt")

    trainer = pl.Trainer(
        max_epochs=2,
        logger=False,
        callbacks=[OtherRun(), Folder(tmp_path / "shared"), Folder(tmp_path / "run" / "checkpoints")],
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
        default_root_dir=tmp_path / "run",
    )
    trainer.fit(Learner(), make_data(save_buffer=True))
    (own,), (beside,) = buffers(tmp_path / "run" / "checkpoints"), buffers(tmp_path / "shared")
    assert own.samefile(beside)
    assert len(fit(make_data(), 3, ckpt_path=tmp_path / "shared" / "last.ckpt").batches) == 2


@pytest.mark.parametrize("can_link", [True, False])
def test_a_checkpoint_that_is_written_elsewhere_keeps_its_buffer_when_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_link: bool
) -> None:
    class Elsewhere(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            if trainer.current_epoch == 1:
                trainer.save_checkpoint(tmp_path / "elsewhere" / "kept.ckpt")
            trainer.save_checkpoint(tmp_path / "run" / "last.ckpt")

    def link(*_: Any) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    if not can_link:
        monkeypatch.setattr(os, "link", link)
    trainer = pl.Trainer(
        max_epochs=4,
        logger=False,
        callbacks=[Elsewhere(), Folder(tmp_path / "run")],
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
    )
    learner = Learner()
    trainer.fit(learner, make_data(save_buffer=True))
    assert [len(buffers(tmp_path / name)) for name in ("run", "elsewhere")] == [1, 1]
    (tmp_path / "elsewhere").rename(tmp_path / "moved")
    resumed = fit(make_data(), 4, ckpt_path=tmp_path / "moved" / "kept.ckpt").batches
    assert same(learner.batches[4:], resumed)


def test_a_checkpoint_that_no_buffer_can_be_put_beside_is_refused(tmp_path: Path) -> None:
    trainer = fit(make_data(save_buffer=True), save=tmp_path / "kept.ckpt").trainer
    with pytest.raises(ValueError, match=r"save_buffer=True needs checkpoints in local folders, not memory://kept"):
        trainer.save_checkpoint("memory://kept.ckpt")


def test_a_full_disk_leaves_the_former_buffer_as_it_was(tmp_path: Path) -> None:
    class Full(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            if trainer.current_epoch == 0:
                trainer.save_checkpoint(tmp_path / "kept.ckpt")
            else:
                with disk_full_at(2000):
                    trainer.save_checkpoint(tmp_path / "kept.ckpt")

    trainer = pl.Trainer(
        max_epochs=2,
        logger=False,
        callbacks=[Full(), Folder(tmp_path)],
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
    )
    with pytest.raises(OSError, match=f"the replay buffer cannot be written to {tmp_path}: File too large$") as raised:
        trainer.fit(Learner(), make_data(save_buffer=True))
    assert raised.value.errno == errno.EFBIG
    assert len(buffers(tmp_path)) == 1
    assert list(tmp_path.glob(".*")) == []
    assert len(fit(make_data(), 2, ckpt_path=tmp_path / "kept.ckpt").batches) == 2


def test_environments_that_start_anew_leave_no_transition_between_episodes(tmp_path: Path) -> None:
    fit(make_data(Moody, save_buffer=True, n_rollout_steps=4), save=tmp_path / "kept.ckpt")
    data = make_data(Moody, n_rollout_steps=4, batch_size=200, initial_buffer_size=200, num_batches_per_iter=2)
    (batch, _) = fit(data, 2, ckpt_path=tmp_path / "kept.ckpt").batches
    seen, following = batch.acts[0].observation["observation"], batch.acts[0].next_observation["observation"]
    assert torch.equal(seen[..., 0], following[..., 0])


class SmallNumbers(Drift):
    """Also shows the time as an int32."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(
            observation=self.observation_space, time=spaces.Discrete(9, dtype=np.int32)
        )

    def _observe(self) -> Any:
        return {"observation": super()._observe(), "time": np.int32(self.time)}


def test_a_buffer_of_an_earlier_version_which_did_not_describe_integers_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.ckpt"
    with monkeypatch.context() as earlier:
        earlier.setattr("maze_pl.core.spaces._integer_type", lambda space: {})
        fit(make_data(SmallNumbers, save_buffer=True), save=path)
    assert len(fit(make_data(SmallNumbers, save_buffer=True), 2, ckpt_path=path).batches) == 2
