"""Training on a real cluster of several nodes, which join and are killed meanwhile."""

from __future__ import annotations

import csv
import json
import re
from functools import partial
from pathlib import Path

import gymnasium
import pytest
import pytorch_lightning as pl
import torch

from maze_pl.__main__ import main
from maze_pl.collect.engines import RayEngine
from maze_pl.datamodules import RolloutDataModule
from maze_pl.modules import PPO
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from tests.collect.engines.players import Player, RandomActs
from tests.distributed.ray_cluster import Cluster, ClusterEvents, NodeReport, alive, cluster, join, wait_for

__all__ = ["cluster"]

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]
REPORT = "tests.distributed.ray_cluster.NodeReport"
SMALL = [
    *("--data.n_envs", "4", "--data.n_rollout_steps", "50", "--data.epoch_length", "1", "--model.batch_size", "50"),
    *("--trainer.max_epochs", "2", "--data.evaluators.eval.init_args.n_episodes", "5"),
    *("--data.wrappers+=" + json.dumps({"class_path": REPORT}),),
]


def fit(run_dir: Path, *arguments: str) -> int:
    return main(["fit", "--config", "ppo_cartpole", "--run_dir", str(run_dir), *SMALL, *arguments])


def outcome(run_dir: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, str]]]:
    """Weights, and all metrics but those of time."""
    weights = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    with (run_dir / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return weights, [{key: value for key, value in row.items() if not re.search("time|second", key)} for row in rows]


@pytest.mark.long
def test_a_node_that_joins_is_used_and_results_are_those_of_one_process(cluster: Cluster, tmp_path: Path) -> None:
    assert fit(tmp_path / "dev", "--data", "runner/dev", "--data.n_shards", "0") == 0
    ClusterEvents.nodes.clear()
    joins = {"class_path": "tests.distributed.ray_cluster.ClusterEvents", "init_args": {"join_after": 0}}
    engine = ["--data", "runner/ray", "--data.engine.address", cluster.address]
    assert fit(tmp_path / "ray", *engine, "--trainer.callbacks+=" + json.dumps(joins)) == 0
    (weights, metrics), (same_weights, same_metrics) = outcome(tmp_path / "dev"), outcome(tmp_path / "ray")
    assert list(weights) == list(same_weights)
    assert all(torch.equal(weights[name], same_weights[name]) for name in weights)
    assert metrics == same_metrics and len(metrics) >= 2
    stepped = {path.name for path in (tmp_path / "ray" / "nodes").iterdir()}
    assert len(ClusterEvents.nodes) == 1 and len(stepped) == 2 and ClusterEvents.nodes < stepped


@pytest.mark.long
def test_training_goes_on_when_a_node_is_killed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path))
    if len(cluster.nodes) < 2:
        cluster.add()
    ray = join(cluster)
    wait_for(lambda: len(alive()) == 2)
    ray.shutdown()
    ClusterEvents.nodes.clear()
    data = RolloutDataModule(
        partial(gymnasium.make, "CartPole-v1"),
        [partial(NodeReport.wrap, seconds=0.02)],
        n_envs=4,
        n_shards=0,
        n_rollout_steps=25,
        epoch_length=1,
        evaluators={},
        engine=RayEngine(cluster.address, max_replacements=0),
        seed=1,
    )
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[8])]),
        critic=SharedStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[8])]),
    )
    module = PPO(networks=networks, spec=data.spec, batch_size=50)
    events = ClusterEvents(kill_in=1, join_after=2)
    trainer = pl.Trainer(
        max_epochs=4,
        accelerator="cpu",
        logger=False,
        callbacks=[events],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    trainer.fit(module, data)
    assert module.env_steps == 4 * 4 * 25
    stepped = {path.name for path in (tmp_path / "nodes").iterdir()}
    assert len(events.nodes) == 1 and events.nodes < stepped and len(stepped) == 3
    assert cluster.nodes[1].returncode is not None


def test_more_workers_than_there_is_room_for_are_refused(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = ["--data", "runner/ray", "--data.engine.address", cluster.address, "--data.engine.n_workers", "99"]
    assert fit(tmp_path, *engine) == 2
    error = capsys.readouterr().err
    assert "maze-pl: error: n_workers=99 with a CPU each: the Ray cluster has room for " in error
    assert "Traceback" not in error


def test_a_cluster_of_another_version_is_refused(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ray._common.usage import usage_lib
    from ray._raylet import GcsClient

    client = GcsClient(address=cluster.address)
    key, space = usage_lib.usage_constant.CLUSTER_METADATA_KEY, b"cluster"
    content = client.internal_kv_get(key, space)
    other = json.dumps(json.loads(content) | {"ray_version": "2.9.3"}).encode()
    client.internal_kv_put(key, other, True, space)
    try:
        assert fit(tmp_path, "--data", "runner/ray", "--data.engine.address", cluster.address) == 2
    finally:
        client.internal_kv_put(key, content, True, space)
    error = capsys.readouterr().err
    assert f"maze-pl: error: cannot use the Ray cluster at {cluster.address}: Version mismatch" in error
    assert "2.9.3" in error and "Traceback" not in error


def test_a_node_without_maze_pl_is_told_of(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # Ray has workers import from the working directory, too
    (tmp_path / "maze_pl").mkdir()
    (tmp_path / "maze_pl" / "__init__.py").write_text("raise ImportError('No module named maze_pl')")
    ray = join(cluster)
    try:
        n_workers = len(alive()) + 1
        cluster.add(variables={"PYTHONPATH": str(tmp_path)})
        wait_for(lambda: len(alive()) == n_workers)
        engine = RayEngine(cluster.address, n_workers)
        engine.start(Player, RandomActs())
        with pytest.raises(ValueError, match=r"all nodes of the Ray cluster need the Python packages .*maze_pl"):
            engine.map([(player, "count", ()) for player in range(n_workers)])
    finally:
        ray.shutdown()
        cluster.kill(len(cluster.nodes) - 1)
    assert "Traceback" not in capsys.readouterr().err
