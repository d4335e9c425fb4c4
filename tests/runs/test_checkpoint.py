"""Checkpoint files: damage and other formats are found before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.checkpoint import CHECKPOINT_FORMAT, CHECKPOINT_KEY, add_to_checkpoint
from maze_pl.runs.checkpoint import checkpoint_path, read_checkpoint, run_configuration, wrapper_statistics_in


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
