"""Checkpoint files: damage and other formats are found before anything is loaded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.checkpoint_content import CHECKPOINT_FORMAT, CHECKPOINT_KEY, add_to_checkpoint
from maze_pl.runs.checkpoint_files import (
    checkpoint_digest,
    checkpoint_path,
    named_checkpoint,
    read_checkpoint,
    run_configuration,
    wrapper_statistics_in,
    write_checkpoint,
)
from maze_pl.system import deferred_files


@pytest.mark.parametrize(("size", "reason"), [(0, "it is empty"), (300, "it is truncated")])
def test_a_checkpoint_of_which_a_part_or_all_is_missing_is_said_to_be_so(
    tmp_path: Path, size: int, reason: str
) -> None:
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": {"weight": torch.arange(64.0)}}, path)
    path.write_bytes(path.read_bytes()[:size])
    remedy = "restore it from a copy, or use another checkpoint of the run"
    with pytest.raises(ConfigurationError, match=rf"last\.ckpt cannot be read: {reason}; {remedy}$"):
        read_checkpoint(path)


def test_a_flipped_bit_of_a_checkpoint_is_found_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": {"weight": torch.arange(64.0), "bias": torch.ones(8)}, "epoch": 3}, path)
    whole = path.read_bytes()
    n_found = n_tried = 0
    for bit in range(0, 8 * len(whole), 499):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        n_tried += 1
        try:
            content = read_checkpoint(path)
        except ConfigurationError as error:
            assert str(path) in str(error)
            n_found += 1
            continue
        assert content["epoch"] == 3
        assert torch.equal(content["state_dict"]["weight"], torch.arange(64.0)), bit
        assert torch.equal(content["state_dict"]["bias"], torch.ones(8)), bit
    assert n_found > n_tried / 4  # the rest is padding


def saved(tmp_path: Path, **entries: Any) -> Path:
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": {}, **entries}, path)
    return path


@pytest.mark.parametrize("found", [1, 3, CHECKPOINT_FORMAT + 1])
def test_another_format_is_refused_with_what_was_found_and_what_is_read(tmp_path: Path, found: int) -> None:
    path = saved(tmp_path, **{CHECKPOINT_KEY: {"format": found, "version": "0.0.1"}})
    with pytest.raises(ConfigurationError) as error:
        read_checkpoint(path)
    message = str(error.value)
    assert message.startswith(f"the checkpoint {path} has format {found} (maze_pl 0.0.1), this version (")
    assert message.endswith(f") reads format {CHECKPOINT_FORMAT}")
    assert "\n" not in message


def test_an_entry_without_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has format None"):
        read_checkpoint(saved(tmp_path, **{CHECKPOINT_KEY: {"env_steps": 3}}))


def test_a_checkpoint_of_another_program_can_be_read_but_has_no_configuration(tmp_path: Path) -> None:
    path = saved(tmp_path, epoch=3)
    content = read_checkpoint(path)
    assert content["epoch"] == 3
    with pytest.raises(ConfigurationError, match=r"last\.ckpt does not hold the configuration of its run"):
        run_configuration(content, path)


def test_a_checkpoint_of_a_plain_trainer_names_how_its_module_is_loaded() -> None:
    content: dict[str, Any] = {"state_dict": {}, "optimizer_states": []}
    add_to_checkpoint(content, class_path="maze_pl.modules.ppo.PPO")
    with pytest.raises(ConfigurationError, match=r"use PPO\.load_from_checkpoint\(path, networks=.*RunContext"):
        run_configuration(content, "one.ckpt")


def test_wrapper_statistics_are_found_by_the_class_of_the_data_module(tmp_path: Path) -> None:
    content: dict[str, Any] = {"state_dict": {}, "RolloutDataModule": {"shared": {"Norm": {"mean": torch.ones(2)}}}}
    for name, expected in (("RolloutDataModule", ["Norm"]), ("ReplayDataModule", [])):
        add_to_checkpoint(content, config={"model": {}, "data": {"class_path": f"maze_pl.datamodules.{name}"}})
        assert list(wrapper_statistics_in(content, "run")) == expected


def test_a_checkpoint_without_the_state_of_its_run_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "weights.ckpt"
    content: dict[str, Any] = {CHECKPOINT_KEY: {"spec": {}, "format": CHECKPOINT_FORMAT}, "state_dict": {}}
    with pytest.raises(
        ConfigurationError, match=r"^\S+weights.ckpt was written with save_weights_only, and holds neither"
    ):
        run_configuration(content, path)
    content[CHECKPOINT_KEY]["config"] = {"model": {}, "data": {}}
    assert run_configuration(content, path) == {"model": {}, "data": {}}


@pytest.mark.parametrize(
    ("file", "fault"),
    [
        ("seeds.json", r"holds the runs of several seeds: name one of them \(.*seed_3, .*seed_7\)"),
        ("sweep.yaml", r"holds the trials of a sweep: name one of them, such as .*trial_0000"),
    ],
)
def test_a_folder_of_several_runs_stands_for_no_checkpoint(tmp_path: Path, file: str, fault: str) -> None:
    (tmp_path / file).write_text("{}", encoding="utf-8")
    for seed in (3, 7):
        (tmp_path / f"seed_{seed}").mkdir()
    with pytest.raises(ConfigurationError, match=fault):
        checkpoint_path(tmp_path)


def test_an_option_names_a_checkpoint_of_the_run_or_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run/checkpoints/best.ckpt", "run/checkpoints/last.ckpt", "run/checkpoints/epoch=3.ckpt", "mine.ckpt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    expected = {
        "best": "run/checkpoints/best.ckpt",
        "last": "run/checkpoints/last.ckpt",
        "epoch=3": "run/checkpoints/epoch=3.ckpt",
        "mine.ckpt": "mine.ckpt",
        "run/checkpoints/epoch=3.ckpt": "run/checkpoints/epoch=3.ckpt",
    }
    assert {name: str(named_checkpoint("run", name)) for name in expected} == expected
    Path("last").touch()  # the names of maze_pl mean the checkpoints of the run
    assert named_checkpoint("run", "last") == Path("run/checkpoints/last.ckpt")
    assert named_checkpoint("mine.ckpt") == Path("mine.ckpt")
    with pytest.raises(ConfigurationError, match=r"mine.ckpt is a checkpoint: name no other one \(last\)"):
        named_checkpoint("mine.ckpt", "last")
    with pytest.raises(ConfigurationError, match=r"neither lost nor run/checkpoints/lost.ckpt is a file"):
        named_checkpoint("run", "lost")
    Path("seeds.json").touch()
    with pytest.raises(ConfigurationError, match="holds the runs of several seeds"):
        named_checkpoint(".", "lost")


def test_a_digest_is_that_of_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "a.ckpt").write_bytes(b"abc")  # the example of FIPS 180
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert checkpoint_digest(tmp_path / "a.ckpt") == expected


class FakeTrainer:
    """Stands for a trainer in one process."""

    is_global_zero = True
    strategy: Any

    def __init__(self) -> None:
        self.strategy = self

    def barrier(self, name: str) -> None:
        """There is nothing to wait for."""

    def save_checkpoint(self, path: Path, weights_only: bool) -> None:
        Path(path).write_bytes(b"new")


def test_a_checkpoint_that_a_link_names_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "epoch=3.ckpt").write_bytes(b"earlier")
    (tmp_path / "last.ckpt").symlink_to("epoch=3.ckpt")
    write_checkpoint(cast(Any, FakeTrainer()), tmp_path / "last.ckpt")
    found = {path.name: (path.is_symlink(), path.read_bytes()) for path in tmp_path.iterdir()}
    assert found == {"epoch=3.ckpt": (False, b"earlier"), "last.ckpt": (False, b"new")}


def test_files_that_were_written_before_a_checkpoint_have_their_names_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = deferred_files.put_in_place_together

    def slow_rename(files: Any) -> None:
        time.sleep(0.1)
        rename(files)

    class Trainer(FakeTrainer):
        def save_checkpoint(self, path: Path, weights_only: bool) -> None:
            assert (tmp_path / "episode").read_bytes() == b"recorded"
            super().save_checkpoint(path, weights_only)

    monkeypatch.setattr(deferred_files, "put_in_place_together", slow_rename)
    deferred_files.deferred_files().write(tmp_path / "episode", b"recorded")
    write_checkpoint(cast(Any, Trainer()), tmp_path / "last.ckpt")
    assert (tmp_path / "last.ckpt").read_bytes() == b"new"
