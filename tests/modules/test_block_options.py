"""Normalisation, dropout and other options of blocks while networks learn: traces, ratios, resumes, ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from maze_pl.agents.torch_state_action_critic import TwinNetwork
from maze_pl.core.policy import evaluation_mode
from maze_pl.modules import A2C, PPO
from maze_pl.perception import DenseBlock, InferenceBlock, PointNetFeatureBlock, RecurrentBlock
from maze_pl.system.ranks import gather_objects
from tests.modules.block_networks import BLOCKS, AroundBlock, around_block
from tests.modules.kit import KIT

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")
FAST = ["dropout", "batch norm"]


def make_ppo(name: str, capture: Any = "auto") -> PPO:
    return PPO(actor_critic=around_block(name), batch_size=20, n_optimization_epochs=2, lr=1e-2, capture=capture)


def state(module: nn.Module) -> Tensor:
    """All weights and statistics."""
    return torch.cat([tensor.double().reshape(-1).clone() for tensor in module.state_dict().values()])


def assert_traced_as_eager(kit: Any, name: str) -> None:
    traced, eager = make_ppo(name), make_ppo(name, "off")
    for module in (traced, eager):
        torch.manual_seed(1)
        kit.fit(module, epochs=2)
    assert torch.equal(state(traced), state(eager))
    if "batch norm" in name:  # the statistics of a batch change in each update
        assert traced.capture_refusal is not None and "batch normalisation" in traced.capture_refusal
    else:
        assert traced.capture_refusal is None and traced.n_traces > 0


@pytest.mark.parametrize("name", FAST)
def test_traced_updates_draw_new_dropout_masks_and_give_the_weights_of_eager_ones(
    kit: SimpleNamespace, name: str
) -> None:
    assert_traced_as_eager(kit, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BLOCKS if name not in FAST])
def test_blocks_with_options_are_traced_with_the_numbers_of_eager_updates(kit: SimpleNamespace, name: str) -> None:
    assert_traced_as_eager(kit, name)


@pytest.mark.parametrize(("name", "is_one"), [("layer norm", True), ("dropout", False), ("batch norm", False)])
def test_ratios_of_the_first_update_are_one_unless_learning_differs_from_acting(
    kit: SimpleNamespace, name: str, is_one: bool
) -> None:
    ratios: list[Tensor] = []

    class Watched(PPO):
        def _policy_losses(self, step_key: Any, acts: Any, log_prob: Tensor) -> Tensor:
            ratios.append((log_prob - acts.old_log_prob).exp().detach())
            return super()._policy_losses(step_key, acts, log_prob)

    module = Watched(actor_critic=around_block(name), batch_size=40, n_optimization_epochs=1, capture="off")
    kit.fit(module, length=1)
    assert bool(torch.allclose(ratios[0], torch.ones(()), atol=1e-6)) == is_one


def test_agents_act_by_the_running_statistics_that_learning_has_moved(kit: SimpleNamespace) -> None:
    module = make_ppo("batch norm")
    network: Any = module.policy.networks[0][0]
    norm = network.block.net[1].norm
    kit.fit(module, epochs=2)
    assert int(norm.num_batches_tracked) == 2 * 2 * 2 * 2 and bool(norm.running_mean.any())
    observation = {"observation": torch.randn(1, 3)}  # a batch of one act has no variance
    before = state(module)
    module.train()
    with evaluation_mode(module), torch.no_grad():
        given = network(observation)["action"]
    linear = network.block.net[0].weight @ network.before(observation["observation"])[0]
    normalised = (linear - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
    torch.testing.assert_close(given[0], network.after(normalised.tanh()))
    assert torch.equal(state(module), before)


@pytest.mark.parametrize("name", ["dropout", pytest.param("batch norm", marks=pytest.mark.slow)])
def test_a_resumed_run_has_the_masks_and_statistics_of_an_uninterrupted_one(
    kit: SimpleNamespace, tmp_path: Path, name: str
) -> None:
    whole, half, resumed = (make_ppo(name, "off") for _ in range(3))
    torch.manual_seed(1)
    kit.fit(whole, epochs=3)
    torch.manual_seed(1)
    kit.fit(half, epochs=1).save_checkpoint(tmp_path / "half.ckpt")
    kit.fit(resumed, epochs=3, ckpt_path=tmp_path / "half.ckpt")
    assert torch.equal(state(resumed), state(whole)) and not torch.equal(state(half), state(whole))


def test_a_minibatch_with_fewer_than_two_acts_uses_running_statistics() -> None:
    block = DenseBlock("in", "out", [3], [4], nn.Tanh, normalization="batch")
    block({"in": torch.randn(20, 3)})
    before = state(block)
    for n in (0, 1):
        x = torch.randn(n, 3)
        given = block.train()({"in": x})["out"]
        assert torch.equal(state(block), before)
        torch.testing.assert_close(given, block.eval()({"in": x})["out"])
        given.sum().backward()
    points = PointNetFeatureBlock(["x", "mask"], "out", [[3, 2], [3]], 4, normalization="batch")
    before = state(points)
    output = points({"x": torch.randn(2, 3, 2), "mask": torch.zeros(2, 3)})["out"]
    assert not output.any() and torch.equal(state(points), before)


def test_statistics_of_a_recurrent_minibatch_are_of_all_acts_of_all_sequences() -> None:
    torch.manual_seed(0)
    dense = DenseBlock("in", "x", [3], [4], nn.Identity, normalization="batch")
    network = InferenceBlock("in", "out", [3], {"dense": dense, "memory": RecurrentBlock("x", "out", [4], 2)})
    linear, ours, _ = dense.net
    reference = nn.BatchNorm1d(4)
    sequences = torch.randn(5, 7, 3)  # [L, S, n]
    before = {name: torch.zeros(7, *shape) for name, shape in network.state_shapes.items()}
    network({"in": sequences, **before})
    reference(linear(sequences.flatten(0, 1)))
    torch.testing.assert_close(ours.norm.running_mean, reference.running_mean)
    torch.testing.assert_close(ours.norm.running_var, reference.running_var)


@pytest.mark.parametrize("name", ["batch norm", "points batch norm", "graph batch norm"])
def test_twins_as_one_batch_have_the_statistics_of_each(name: str) -> None:
    torch.manual_seed(0)
    pair = [AroundBlock(name, "q", 1) for _ in range(2)]
    observation = {"observation": torch.randn(6, 3)}
    batched, alone = TwinNetwork(pair), TwinNetwork(pair)
    batched.always_batched = True
    torch.testing.assert_close(batched(observation)["q"], alone(observation)["q"])
    torch.testing.assert_close(state(batched), state(alone))
    assert not torch.equal(state(alone), state(TwinNetwork(pair)))


def run_on_two_ranks(folder: Path) -> None:
    """What each of two ranks does: learn from different data, save, and resume."""
    os.environ.setdefault("PL_GLOBAL_SEED", "7")
    options: dict[str, Any] = dict(devices=2, strategy="ddp_find_unused_parameters_true", use_distributed_sampler=False)
    rank = int(os.environ.get("LOCAL_RANK", "0"))

    def make(seed: int) -> Any:
        return KIT.make_flat_rollout(seed=2 * seed + rank)

    def algorithm() -> A2C:
        return A2C(actor_critic=around_block("batch norm"), lr=1e-2)

    whole, half, resumed = algorithm(), algorithm(), algorithm()
    KIT.fit(whole, make, epochs=4, **options)
    KIT.fit(half, make, epochs=2, **options).save_checkpoint(folder / "half.ckpt")
    KIT.fit(resumed, make, epochs=4, ckpt_path=folder / "half.ckpt", **options)
    states = gather_objects((state(whole).tolist(), state(resumed).tolist()))
    if rank == 0:
        report = {"ranks": states[0] == states[1], "resumed": states[0][0] == states[0][1]}
        (folder / "report.json").write_text(json.dumps(report))


@pytest.mark.slow
@pytest.mark.long
def test_ranks_share_the_statistics_that_they_act_by(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-W", "ignore", __file__, str(tmp_path)]
    process = subprocess.run(command, timeout=240, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-5000:]
    assert json.loads((tmp_path / "report.json").read_text()) == {"ranks": True, "resumed": True}


if __name__ == "__main__":
    run_on_two_ranks(Path(sys.argv[1]))
