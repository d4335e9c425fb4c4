"""Networks: weight initialisation, built-in models, and the composers that make an agent's networks fit its spaces."""

from maze_pl.perception.blocks import *  # noqa: F403  # all blocks, by their names there
from maze_pl.perception.builders import BaseModelBuilder as BaseModelBuilder
from maze_pl.perception.builders import ConcatModelBuilder as ConcatModelBuilder
from maze_pl.perception.models.built_in.flatten_concat import FlattenConcatPolicyNet as FlattenConcatPolicyNet
from maze_pl.perception.models.built_in.flatten_concat import (
    FlattenConcatSharedStateValueNet as FlattenConcatSharedStateValueNet,
)
from maze_pl.perception.models.built_in.flatten_concat import FlattenConcatStateValueNet as FlattenConcatStateValueNet
from maze_pl.perception.models.built_in.item_set import ItemSetPolicyNet as ItemSetPolicyNet
from maze_pl.perception.models.built_in.item_set import ItemSetStateValueNet as ItemSetStateValueNet
from maze_pl.perception.models.critics import DeltaStateCriticComposer as DeltaStateCriticComposer
from maze_pl.perception.models.critics import SharedStateCriticComposer as SharedStateCriticComposer
from maze_pl.perception.models.critics import StateCriticComposer as StateCriticComposer
from maze_pl.perception.models.critics import StateCriticComposerInterface as StateCriticComposerInterface
from maze_pl.perception.models.critics import StepStateCriticComposer as StepStateCriticComposer
from maze_pl.perception.models.custom_model_composer import CustomModelComposer as CustomModelComposer
from maze_pl.perception.models.policies import ProbabilisticPolicyComposer as ProbabilisticPolicyComposer
from maze_pl.perception.models.template_model_composer import TemplateModelComposer as TemplateModelComposer
from maze_pl.perception.weight_init import compute_sigmoid_bias as compute_sigmoid_bias
from maze_pl.perception.weight_init import make_module_init_normc as make_module_init_normc
