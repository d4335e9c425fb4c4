"""Algorithms: each a LightningModule that learns from what a data module yields."""

from .a2c import A2C as A2C
from .algorithm import AlgorithmModule as AlgorithmModule, ModelComposer as ModelComposer
from .bc import BC as BC
from .es import ES as ES
from .impala import IMPALA as IMPALA
from .on_policy.minibatches import LearningBatch as LearningBatch, Minibatch as Minibatch
from .on_policy.minibatches import PolicySamples as PolicySamples
from .on_policy.learning_batch import learning_batch as learning_batch
from .optimization.flat_optimizer import FlatAdam as FlatAdam
from .ppo import PPO as PPO
from .sac import SAC as SAC
from .target_networks import soft_update as soft_update, target_copy as target_copy
