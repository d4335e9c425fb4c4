"""Pictures of networks in the run directory and in the files of the dashboards, of whole runs."""

from __future__ import annotations

import importlib.util
import io
import resource
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from maze_pl.__main__ import main
from tests.run_directory.wandb_file import read_finished

pytest.importorskip("matplotlib")

FIT = ["fit", "--config", "ppo_cartpole", "--run_dir", "run", "--trainer.max_epochs", "1", "--data.evaluators", "{}"]
SMALL = ["--data.epoch_length", "1", "--data.n_envs", "2", "--data.n_rollout_steps", "32", "--model.batch_size", "32"]
RESUME = ["fit", "--resume", "run", "--trainer.max_epochs", "2"]
PICKY = """
from maze_pl.perception import FlattenConcatPolicyNet

class Picky(FlattenConcatPolicyNet):
    is_built = False

    def forward(self, in_dict):
        if self.is_built and not in_dict["observation"].any():
            raise ArithmeticError("nothing but zeros")
        self.is_built = True
        return super().forward(in_dict)
"""
FILES = ["critic.png", "critic.svg", "policy.png", "policy.svg"]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))


def files() -> list[str]:
    return sorted(path.name for path in Path("run", "networks").iterdir())


def logged(tag: str) -> list[tuple[int, tuple[int, int]]]:
    """Env steps and size of the pictures that TensorBoard has."""
    found = EventAccumulator("run/tensorboard", size_guidance={"images": 0}).Reload().Images(tag)
    return [(one.step, Image.open(io.BytesIO(one.encoded_image_string)).size) for one in found]


@pytest.mark.slow
def test_a_run_has_pictures_of_its_networks_in_its_directory_and_in_tensorboard() -> None:
    assert main([*FIT, *SMALL]) == 0
    assert files() == FILES
    for name in ("policy", "critic"):
        ElementTree.parse(f"run/networks/{name}.svg")
        with Image.open(f"run/networks/{name}.png") as picture:
            pixels = np.array(picture.convert("RGB"))
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20
        assert logged(f"networks/{name}") == [(64, (pixels.shape[1], pixels.shape[0]))]


@pytest.mark.slow
def test_weights_and_biases_has_the_pictures_too() -> None:
    assert main([*FIT, *SMALL, "--wandb"]) == 0
    (path,) = Path("run", "wandb").glob("offline-run-*/run-*.wandb")
    history = read_finished(path).history
    for name in ("policy", "critic"):
        (row,) = (row for row in history if f"networks/{name}.path" in row)
        assert row["env_steps"] == 64
        (file,) = Path("run", "wandb").glob(f"offline-run-*/files/{row[f'networks/{name}.path']}")
        with Image.open(file) as shown, Image.open(f"run/networks/{name}.png") as drawn:
            assert shown.size == drawn.size


@pytest.mark.slow
def test_a_resumed_run_draws_them_anew() -> None:
    main([*FIT, *SMALL])
    Path("run", "networks", "critic.svg").unlink()
    assert main(RESUME) == 0
    assert files() == FILES
    assert [step for step, _ in logged("networks/policy")] == [64, 128]


@pytest.mark.slow
def test_without_matplotlib_a_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name))
    assert main([*FIT, *SMALL]) == 0
    said = 'no pictures of the networks: drawing the networks needs matplotlib: pip install "maze-pl[rendering]"'
    assert said in capsys.readouterr().out.splitlines()
    assert not Path("run", "networks").exists()


@pytest.mark.slow
def test_where_pictures_cannot_be_written_that_is_said_and_training_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    main([*FIT, *SMALL])
    for name in FILES:
        Path("run", "networks", name).unlink()
    Path("run", "networks").rmdir()
    Path("run", "networks").write_text("mine", encoding="utf-8")
    assert main(RESUME) == 0
    said = capsys.readouterr().out.partition("no pictures of the networks: ")[2]
    assert "run/networks" in said.partition("\n")[0]
    assert Path("run", "networks").read_text(encoding="utf-8") == "mine"


@pytest.mark.slow
def test_a_full_disk_ends_the_run_and_leaves_no_half_of_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, former[1]))
    try:
        assert main([*FIT, *SMALL]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    error = capsys.readouterr().err
    assert "File too large" in error.partition("maze-pl: error: ")[2]
    assert "Traceback" not in error
    assert files() == []


def test_a_network_that_cannot_run_on_zeros_is_not_drawn_and_still_learns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("picky_network.py").write_text(PICKY, encoding="utf-8")
    network = '[{"class_path": "picky_network.Picky"}]'
    assert main([*FIT, *SMALL, "--model.networks.policy.networks", network, "--model.capture", "off"]) == 0
    assert "no pictures of the networks: nothing but zeros" in capsys.readouterr().out.splitlines()
    assert not Path("run", "networks").exists()
