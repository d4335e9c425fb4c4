"""Exports of a trained run: the file decides as the run does, and nothing is written if it would not."""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import json
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import maze_pl
from maze_pl.__main__ import main
from maze_pl.bundle import export as exporting
from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.traced_policy import TracedPolicy, traced
from maze_pl.core.checkpoint_content import CHECKPOINT_KEY
from maze_pl_runtime import Policy

pytestmark = pytest.mark.slow
WRAPPERS = [
    {"class_path": "ObservationNormalizationWrapper", "init_args": {"default_strategy_config": {"axis": 0}}},
    {
        "class_path": "ObservationStackWrapper",
        "init_args": {"stack_config": [{"observation": "observation", "stack_steps": 3}]},
    },
    {"class_path": "TimeLimitWrapper", "init_args": {"max_episode_steps": 60}},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    options = [
        "--data.epoch_length",
        "1",
        "--data.n_envs",
        "2",
        "--data.n_rollout_steps",
        "50",
        "--model.batch_size",
        "50",
    ]
    options += ["--trainer.max_epochs", "1", "--data.evaluators", '{"eval": {"n_episodes": 1}}']
    options += ["--data.n_normalization_samples", "50", "--data.wrappers", json.dumps(WRAPPERS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["fit", "--config", "ppo_cartpole", *options, "--run_dir", str(folder / "here")]) == 0
    return folder / "here"


@pytest.fixture(scope="module")
def bundle(run: Path) -> Path:
    path = run.parent / "agent.bundle"
    maze_pl.export(run, path, episodes=2)
    return path


def test_the_manifest_says_what_the_bundle_is_and_leaves_to_its_caller(bundle: Path) -> None:
    manifest = Policy.load(bundle).manifest
    assert manifest["format"] == 1 and manifest["maze_pl"] == maze_pl.__version__
    assert manifest["parity"]["episodes"] == 2 and manifest["parity"]["decisions"] > 10
    assert manifest["parity"]["largest_difference"] <= 1e-5
    assert [role["is_included"] for role in manifest["wrappers"]] == [True, True, False]
    assert manifest["wrappers"][2]["note"] == "end episodes after 60 steps"
    assert manifest["provenance"]["command"].startswith("maze-pl fit")
    assert manifest["checkpoint"]["env_steps"] == 100
    assert {"torch", "onnx", "onnxruntime"} <= manifest["versions"].keys()
    (step,) = manifest["steps"]
    assert step["observations"]["observation"]["shape"] == [4]
    assert step["state"] == {
        "history_1_observation": {"dtype": "float32", "shape": [3, 4]},
        "started": {"dtype": "float32", "shape": []},
    }


def test_any_checkpoint_can_be_exported(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(run / "checkpoints" / "last.ckpt", "mine.ckpt")
    manifest = maze_pl.export(run, "agent.bundle", checkpoint="mine.ckpt", episodes=1, max_steps=5)
    assert manifest["checkpoint"]["name"] == "mine.ckpt"
    assert manifest["checkpoint"]["sha256"] == hashlib.sha256(Path("mine.ckpt").read_bytes()).hexdigest()


def test_graphs_name_no_files_of_the_machine_that_wrote_them(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        graphs = [archive.read(name) for name in archive.namelist() if name.endswith(".onnx")]
    assert graphs
    assert not [graph for graph in graphs if b".py" in graph or b"stack_trace" in graph]


def test_a_rollout_of_the_bundle_is_the_rollout_of_the_run(
    run: Path, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--n_episodes", "4", "--deterministic", "true", "--runner", "sequential", "--trajectories", "none"]
    for name, policy in {"run": [], "bundle": ["--policy", str(bundle)]}.items():
        assert main(["rollout", str(run), *policy, *options, "--output_dir", name]) == 0
    episodes: dict[str, Any] = {}
    for name in ("run", "bundle"):
        with Path(name, "episodes.csv").open(encoding="utf-8") as file:
            episodes[name] = [(row["seed"], row["return"], row["env_steps"]) for row in csv.DictReader(file)]
    assert episodes["run"] == episodes["bundle"]
    assert len({length for _, _, length in episodes["run"]}) > 1


def test_a_batch_is_decided_as_its_rows_are(bundle: Path) -> None:
    policy = Policy.load(bundle)
    rows = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    states: Any = [None] * 5
    state = None
    for _ in range(4):
        _, state = policy.act({"observation": rows}, state=state)
        singly = [policy.decide({"observation": row}, state=own) for row, own in zip(rows, states, strict=True)]
        states = [decision.state for decision in singly]
        for name, array in state.items():
            np.testing.assert_allclose(array, [own[name] for own in states], rtol=1e-6)
        rows = rows + 0.1


def broken(policy: Any, env: Any) -> TracedPolicy:
    """Trace the policy, and then change its weights."""
    result = traced(policy, env)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.5)
    return result


def test_nothing_is_written_if_the_graph_decides_differently(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exporting, "traced", broken)
    target = tmp_path / "folder" / "agent.bundle"
    assert main(["export", str(run), "--to", str(target)]) == 2
    assert "the bundle does not decide as the policy does: decision 0 of sub-step 0" in capsys.readouterr().err
    assert not target.exists() and not list(tmp_path.iterdir())


@pytest.mark.long
def test_mistakes_are_told_in_one_message(
    run: Path, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    changed = tmp_path / "changed.bundle"
    data = bytearray(bundle.read_bytes())
    data[len(data) // 2] ^= 1
    changed.write_bytes(data)
    cases = {
        ("export", str(tmp_path), "--to", "a"): "there is no checkpoint",
        ("export", str(run)): "the following arguments are required: --to",
        ("export", str(run), "--to", "a", "--episodes", "0"): "episodes=0 must be at least 1",
        ("rollout", str(run), "--policy", str(changed)): "was changed or cut off",
        ("rollout", "--env", "env/gym_env", "--env.name", "Acrobot-v1", "--policy", str(bundle)): "does not fit",
        ("rollout", str(run), "--policy", str(bundle), "--temperature", "2.0"): "leave it at 1",
    }
    for command, message in cases.items():
        assert main([*command]) == 2
        output = capsys.readouterr().err
        assert message in output and "Traceback" not in output
    assert [path.name for path in tmp_path.iterdir()] == ["changed.bundle"]


def test_a_module_is_neither_a_run_nor_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"expected a run directory or a checkpoint, .*, not a Linear"):
        maze_pl.export(torch.nn.Linear(1, 1), tmp_path / "agent.bundle")  # type: ignore[arg-type]


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_again(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run" / "checkpoints" / "last.ckpt"
    shutil.copytree(run, tmp_path / "run")
    content = torch.load(path, weights_only=False)
    load, read = exporting.load, []

    def load_and_replace(*arguments: Any, **options: Any) -> Any:
        """Load the module; after the first time, a training writes a later checkpoint."""
        module = load(*arguments, **options)
        read.append(module.env_steps)
        if len(read) == 1 or is_training:
            content[CHECKPOINT_KEY]["env_steps"] = 100 + len(read)
            torch.save(content, path)
        return module

    monkeypatch.setattr(exporting, "load", load_and_replace)
    is_training = False
    manifest = maze_pl.export(tmp_path / "run", tmp_path / "a", checkpoint="last", episodes=1, max_steps=5)
    assert read == [100, 101]
    assert manifest["checkpoint"]["env_steps"] == 101
    assert manifest["checkpoint"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    is_training = True
    with pytest.raises(ExportError, match="was replaced each time that it was read: export a copy of it"):
        maze_pl.export(tmp_path / "run", tmp_path / "b", checkpoint="last", episodes=1, max_steps=5)
    assert not (tmp_path / "b").exists()


WRAPPED = """
from torch import nn


class Careful(nn.Module):
    def __init__(self, torch_policy):
        super().__init__()
        self.inner, self.spec = torch_policy, torch_policy.spec

    def act(self, batch, **options):
        return self.inner.act(batch, **options)
"""


def test_a_policy_with_a_wrapper_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("careful_policies.py").write_text(WRAPPED, encoding="utf-8")
    options = ["--trainer.max_epochs", "1", "--data.epoch_length", "1", "--data.evaluators", "{}"]
    options += ["--data.n_rollouts_per_update", "4", "--model.policy_wrapper", "careful_policies.Careful"]
    assert main(["fit", "--config", "es_cartpole", *options, "--run_dir", "run"]) == 0
    with pytest.raises(ExportError, match="the policy is a Careful, whose code is not part of a bundle"):
        maze_pl.export("run", "a.bundle", checkpoint="last", trust=True)


def test_the_version_of_onnx_runtime_needs_no_distribution_of_its_name(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str:  # as with onnxruntime-gpu
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    manifest = maze_pl.export(run, tmp_path / "a", episodes=1, max_steps=5)
    assert manifest["versions"]["onnxruntime"] == onnxruntime.__version__


def test_without_the_extra_the_message_says_how_to_install_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"pip install maze-pl\[onnx\]"):
        maze_pl.export(run, "never")
