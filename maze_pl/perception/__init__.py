"""Networks: blocks, built-in models, and composers that make networks fit an agent's spaces.

Choosing actions and estimating values with them belongs to `maze_pl.agents`.
"""

from .blocks import *  # noqa: F403  # all blocks, by their names there
from .blocks.weight_init import compute_sigmoid_bias as compute_sigmoid_bias
from .blocks.weight_init import make_module_init_normc as make_module_init_normc
from .builders import BaseModelBuilder as BaseModelBuilder
from .models.automatic_model_composer import AutomaticModelComposer as AutomaticModelComposer
from .concat_model_builder import ConcatModelBuilder as ConcatModelBuilder
from .models.flatten_concat_policy_net import FlattenConcatPolicyNet as FlattenConcatPolicyNet
from .models.flatten_concat_shared_state_value_net import (
    FlattenConcatSharedStateValueNet as FlattenConcatSharedStateValueNet,
)
from .models.flatten_concat_state_action_value_net import (
    FlattenConcatStateActionValueNet as FlattenConcatStateActionValueNet,
)
from .models.flatten_concat_state_value_net import (
    FlattenConcatStateValueNet as FlattenConcatStateValueNet,
)
from .models.item_set_policy_net import ItemSetPolicyNet as ItemSetPolicyNet
from .models.item_set_state_value_net import ItemSetStateValueNet as ItemSetStateValueNet
from .models.custom_model_composer import CustomModelComposer as CustomModelComposer
from .models.delta_state_critic_composer import DeltaStateCriticComposer as DeltaStateCriticComposer
from .models.probabilistic_policy_composer import (
    ProbabilisticPolicyComposer as ProbabilisticPolicyComposer,
)
from .models.shared_state_action_critic_composer import (
    SharedStateActionCriticComposer as SharedStateActionCriticComposer,
)
from .models.shared_state_critic_composer import (
    SharedStateCriticComposer as SharedStateCriticComposer,
)
from .models.shared_state_critic_composer import StateCriticComposer as StateCriticComposer
from .models.composers import StateCriticComposerInterface as StateCriticComposerInterface
from .models.step_state_action_critic_composer import (
    StepStateActionCriticComposer as StepStateActionCriticComposer,
)
from .models.step_state_critic_composer import StepStateCriticComposer as StepStateCriticComposer
from .models.template_model_composer import TemplateModelComposer as TemplateModelComposer
