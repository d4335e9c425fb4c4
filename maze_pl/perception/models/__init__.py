"""Model composers and built-in models."""

from maze_pl.perception.models.built_in import FlattenConcatPolicyNet, FlattenConcatStateValueNet
from maze_pl.perception.models.critics import (
    SharedStateCriticComposer,
    StateCriticComposer,
    StateCriticComposerInterface,
    StepStateCriticComposer,
)
from maze_pl.perception.models.custom_model_composer import CustomModelComposer
from maze_pl.perception.models.policies import ProbabilisticPolicyComposer

__all__ = [
    "CustomModelComposer",
    "FlattenConcatPolicyNet",
    "FlattenConcatStateValueNet",
    "ProbabilisticPolicyComposer",
    "SharedStateCriticComposer",
    "StateCriticComposer",
    "StateCriticComposerInterface",
    "StepStateCriticComposer",
]
