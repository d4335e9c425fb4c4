"""Networks: weight initialisation, built-in models, and the composers that make an agent's networks fit its spaces."""

from maze_pl.perception.models import (
    CustomModelComposer,
    CutPolicyNet,
    DeltaStateCriticComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ItemSetPolicyNet,
    ItemSetStateValueNet,
    PieceChoicePolicyNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
    StateCriticComposer,
    StateCriticComposerInterface,
    StepStateCriticComposer,
)
from maze_pl.perception.weight_init import make_module_init_normc

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
    "make_module_init_normc",
]
