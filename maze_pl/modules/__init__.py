"""Algorithms: each a LightningModule that learns from what a data module yields.

Besides the algorithms, it exports what authors of algorithms need: `AlgorithmModule` and
`OnPolicyModule` to derive from, and the types that their methods take and return. Generating data
belongs to `maze_pl.datamodules`.
"""

from maze_pl.core.training_data import DataRequirements as DataRequirements

from .a2c import A2C as A2C
from .algorithm import AlgorithmModule as AlgorithmModule
from .bc import BC as BC
from .dqn import DQN as DQN
from .es import ES as ES
from .impala import IMPALA as IMPALA
from .network_choice import ModelComposer as ModelComposer
from .on_policy.credit import Method as Method, VTrace as VTrace, step_credit as step_credit
from .on_policy.learning_batch import learning_batch as learning_batch
from .on_policy.minibatches import LearningBatch as LearningBatch, Minibatch as Minibatch
from .on_policy.minibatches import (
    PolicySamples as PolicySamples,
    count_minibatches as count_minibatches,
)
from .on_policy.on_policy_module import OnPolicyModule as OnPolicyModule
from .optimization.flat_adam import FlatAdam as FlatAdam
from .optimization.flat_sgd import FlatSGD as FlatSGD
from .optimization.parameter_group import ParameterGroup as ParameterGroup
from .ppo import PPO as PPO
from .sac import SAC as SAC
from .target_networks import soft_update as soft_update, target_copy as target_copy
from .td3 import TD3 as TD3
