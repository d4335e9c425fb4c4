"""Networks: blocks, built-in models, and composers that make networks fit an agent's spaces.

Choosing actions and estimating values with them belongs to `maze_pl.agents`.
"""

from .blocks import *  # noqa: F403  # all blocks, by their names there
from .blocks.weight_init import compute_sigmoid_bias as compute_sigmoid_bias
from .blocks.weight_init import make_module_init_normc as make_module_init_normc
from .builders import BaseModelBuilder as BaseModelBuilder, ConcatModelBuilder as ConcatModelBuilder
from .models.built_in import FlattenConcatPolicyNet as FlattenConcatPolicyNet
from .models.built_in import FlattenConcatSharedStateValueNet as FlattenConcatSharedStateValueNet
from .models.built_in import FlattenConcatStateActionValueNet as FlattenConcatStateActionValueNet
from .models.built_in import FlattenConcatStateValueNet as FlattenConcatStateValueNet
from .models.built_in import (
    ItemSetPolicyNet as ItemSetPolicyNet,
    ItemSetStateValueNet as ItemSetStateValueNet,
)
from .models.composers import CustomModelComposer as CustomModelComposer
from .models.composers import DeltaStateCriticComposer as DeltaStateCriticComposer
from .models.composers import ProbabilisticPolicyComposer as ProbabilisticPolicyComposer
from .models.composers import SharedStateActionCriticComposer as SharedStateActionCriticComposer
from .models.composers import SharedStateCriticComposer as SharedStateCriticComposer
from .models.composers import StateCriticComposer as StateCriticComposer
from .models.composers import StateCriticComposerInterface as StateCriticComposerInterface
from .models.composers import StepStateActionCriticComposer as StepStateActionCriticComposer
from .models.composers import StepStateCriticComposer as StepStateCriticComposer
from .models.composers import TemplateModelComposer as TemplateModelComposer
