"""What surrounds the arithmetic of an update of SAC on a GPU: operations of its graphs, and Python code.

The device is simulated: losses are recorded as for a GPU, but replays of graphs compute nothing, and networks are
tiny. Prints one line of JSON: operations in the graphs of an update, each of which a GPU launches, and microseconds of
an update, in processor time of one thread. Networks have two hidden layers, critics are evaluated in pairs as on a GPU.

    python benchmarks/update_overhead.py
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

os.environ["OMP_NUM_THREADS"] = "1"

import pytorch_lightning as pl
import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload

from maze_pl.agents.torch_state_action_critic import TwinNetwork
from maze_pl.datamodules import ReplayDataModule
from maze_pl.envs import make_gym_maze_env
from maze_pl.modules import SAC
from maze_pl.modules.optimization.trace_graph import simplified
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateActionValueNet,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
)

N_UPDATES = 32
"""Updates of a batch."""


class IdleGraph:
    """Graph of a device that computes its outputs once; replays do nothing once they are stopped."""

    is_idle = False

    def __init__(self, function: Callable[[], Sequence[Tensor]], device: torch.device) -> None:
        self._function = function
        self.outputs = function()

    def replay(self) -> None:
        if not IdleGraph.is_idle:
            for output, value in zip(self.outputs, self._function(), strict=True):
                output.copy_(value)


class Clock(pl.Callback):
    """Measures batches after the first ones, in which losses are recorded and checked."""

    def __init__(self, n_before: int) -> None:
        self._n_before = n_before
        self.seconds: list[float] = []
        self._began = 0.0

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: SAC, batch: Any, batch_idx: int) -> None:
        IdleGraph.is_idle = batch_idx >= self._n_before
        self._began = time.process_time()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: SAC, outputs: Any, batch: Any, batch_idx: int) -> None:
        if IdleGraph.is_idle:
            self.seconds.append(time.process_time() - self._began)


def n_launches(graph: fx.GraphModule) -> int:
    """Number of operations of a graph that compute something."""
    targets = [node.target for node in graph.graph.nodes if isinstance(node.target, OpOverload)]
    return sum(not target.is_view and target is not torch.ops.aten._unsafe_view.default for target in targets)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--units", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    pl.seed_everything(0, verbose=False)
    n_before = 10
    data = ReplayDataModule(
        partial(make_gym_maze_env, "Pendulum-v1"),
        n_rollout_steps=1,
        num_batches_per_iter=N_UPDATES,
        batch_size=8,
        initial_buffer_size=100,
        epoch_length=n_before + options.batches,
        evaluators={},
        seed=0,
    )
    hidden: dict[str, Any] = {"hidden_units": [options.units] * 2, "non_lin": nn.ReLU}
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, **hidden)]),
        critic=SharedStateActionCriticComposer([partial(FlattenConcatStateActionValueNet, **hidden)]),
        distribution_mapper_config=[
            {
                "action_space": "gymnasium.spaces.Box",
                "distribution": "maze_pl.distributions.SquashedGaussianProbabilityDistribution",
            }
        ],
    )
    module = SAC(spec=data.spec, networks=networks)
    clock = Clock(n_before)
    graphs: list[fx.GraphModule] = []
    optimization = "maze_pl.modules.optimization"

    def noted(graph: fx.GraphModule, arguments: Sequence[Tensor]) -> fx.GraphModule:
        graphs.append(simplified(graph, arguments))
        return graphs[-1]

    with (
        patch(f"{optimization}.capture.uses_graphs", lambda device: True),
        patch(f"{optimization}.traced_loss.uses_graphs", lambda device: True),
        patch(f"{optimization}.graphed_trace.DeviceGraph", IdleGraph),
        patch(f"{optimization}.capture.simplified", noted),
        patch.object(TwinNetwork, "always_batched", True),
    ):
        trainer = pl.Trainer(
            max_epochs=1,
            accelerator="cpu",
            devices=1,
            logger=False,
            callbacks=[clock],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, data)
    if module.capture_refusal is not None:
        raise SystemExit(f"updates were not recorded: {module.capture_refusal}")
    microseconds = 1e6 * sorted(clock.seconds)[len(clock.seconds) // 2] / N_UPDATES
    print(json.dumps({"operations": sum(map(n_launches, graphs)), "microseconds": round(microseconds, 1)}))


if __name__ == "__main__":
    main()
