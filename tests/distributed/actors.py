"""Trains IMPALA on one of several ranks, with actors in processes. usage: actors.py CASE in the folder to write to"""

from __future__ import annotations

import logging
import sys
import warnings
from functools import partial

import torch

from maze_pl.collect.engines import ProcessEngine
from maze_pl.datamodules import ActorDataModule, RolloutEvaluator
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import ReturnNormalizationRewardWrapper
from maze_pl.modules import IMPALA
from tests.distributed.worker import make, trainer


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    for case in sys.argv[1:]:
        data = ActorDataModule(
            partial(GymMazeEnv, "CartPole-v1"),
            wrappers=[ReturnNormalizationRewardWrapper],
            num_actors=2,
            actors_batch_size=2,
            n_rollout_steps=20,
            epoch_length=3,
            evaluators={"eval": RolloutEvaluator(n_episodes=3)},
            seed=5,
            engine=ProcessEngine(1) if case == "workers" else None,
        )
        trainer(case).fit(make(IMPALA, data), data)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
