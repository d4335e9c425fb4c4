"""Model composers and built-in models."""

from maze_pl.perception.models.built_in import CutPolicyNet as CutPolicyNet
from maze_pl.perception.models.built_in import FlattenConcatPolicyNet as FlattenConcatPolicyNet
from maze_pl.perception.models.built_in import FlattenConcatStateValueNet as FlattenConcatStateValueNet
from maze_pl.perception.models.built_in import ItemSetPolicyNet as ItemSetPolicyNet
from maze_pl.perception.models.built_in import ItemSetStateValueNet as ItemSetStateValueNet
from maze_pl.perception.models.built_in import PieceChoicePolicyNet as PieceChoicePolicyNet
from maze_pl.perception.models.critics import DeltaStateCriticComposer as DeltaStateCriticComposer
from maze_pl.perception.models.critics import SharedStateCriticComposer as SharedStateCriticComposer
from maze_pl.perception.models.critics import StateCriticComposer as StateCriticComposer
from maze_pl.perception.models.critics import StateCriticComposerInterface as StateCriticComposerInterface
from maze_pl.perception.models.critics import StepStateCriticComposer as StepStateCriticComposer
from maze_pl.perception.models.custom_model_composer import CustomModelComposer as CustomModelComposer
from maze_pl.perception.models.policies import ProbabilisticPolicyComposer as ProbabilisticPolicyComposer
