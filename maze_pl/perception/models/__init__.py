"""Model composers and built-in models."""

from maze_pl.perception.models.built_in import (
    CutPolicyNet,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ItemSetPolicyNet,
    ItemSetStateValueNet,
    PieceChoicePolicyNet,
)
from maze_pl.perception.models.critics import (
    DeltaStateCriticComposer,
    SharedStateCriticComposer,
    StateCriticComposer,
    StateCriticComposerInterface,
    StepStateCriticComposer,
)
from maze_pl.perception.models.custom_model_composer import CustomModelComposer
from maze_pl.perception.models.policies import ProbabilisticPolicyComposer

__all__ = [
    "CustomModelComposer",
    "CutPolicyNet",
    "DeltaStateCriticComposer",
    "FlattenConcatPolicyNet",
    "FlattenConcatStateValueNet",
    "ItemSetPolicyNet",
    "ItemSetStateValueNet",
    "PieceChoicePolicyNet",
    "ProbabilisticPolicyComposer",
    "SharedStateCriticComposer",
    "StateCriticComposer",
    "StateCriticComposerInterface",
    "StepStateCriticComposer",
]
