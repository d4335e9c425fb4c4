"""Algorithms: each a LightningModule that learns from what a data module yields."""

from maze_pl.modules.a2c import A2C as A2C
from maze_pl.modules.algorithm import AlgorithmModule as AlgorithmModule
from maze_pl.modules.algorithm import ModelComposer as ModelComposer
from maze_pl.modules.bc import BC as BC
from maze_pl.modules.minibatches import Acts as Acts
from maze_pl.modules.minibatches import LearningBatch as LearningBatch
from maze_pl.modules.minibatches import Minibatch as Minibatch
from maze_pl.modules.on_policy import learning_batch as learning_batch
from maze_pl.modules.optimizer import FlatAdam as FlatAdam
from maze_pl.modules.ppo import PPO as PPO
