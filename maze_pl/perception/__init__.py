"""Networks: weight initialisation, built-in models, and the composers that make an agent's networks fit its spaces."""

from maze_pl.perception.blocks import ActionMaskingBlock as ActionMaskingBlock
from maze_pl.perception.blocks import DenseBlock as DenseBlock
from maze_pl.perception.blocks import InferenceBlock as InferenceBlock
from maze_pl.perception.blocks import LinearOutputBlock as LinearOutputBlock
from maze_pl.perception.blocks import PerceptionBlock as PerceptionBlock
from maze_pl.perception.blocks import ShapeNormalizationBlock as ShapeNormalizationBlock
from maze_pl.perception.models import CustomModelComposer as CustomModelComposer
from maze_pl.perception.models import CutPolicyNet as CutPolicyNet
from maze_pl.perception.models import DeltaStateCriticComposer as DeltaStateCriticComposer
from maze_pl.perception.models import FlattenConcatPolicyNet as FlattenConcatPolicyNet
from maze_pl.perception.models import FlattenConcatStateValueNet as FlattenConcatStateValueNet
from maze_pl.perception.models import ItemSetPolicyNet as ItemSetPolicyNet
from maze_pl.perception.models import ItemSetStateValueNet as ItemSetStateValueNet
from maze_pl.perception.models import PieceChoicePolicyNet as PieceChoicePolicyNet
from maze_pl.perception.models import ProbabilisticPolicyComposer as ProbabilisticPolicyComposer
from maze_pl.perception.models import SharedStateCriticComposer as SharedStateCriticComposer
from maze_pl.perception.models import StateCriticComposer as StateCriticComposer
from maze_pl.perception.models import StateCriticComposerInterface as StateCriticComposerInterface
from maze_pl.perception.models import StepStateCriticComposer as StepStateCriticComposer
from maze_pl.perception.weight_init import make_module_init_normc as make_module_init_normc
