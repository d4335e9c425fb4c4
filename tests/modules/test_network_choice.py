"""Algorithms refuse distributions from which they cannot learn."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import (
    CategoricalProbabilityDistribution,
    DeterministicProbabilityDistribution,
    EpsilonGreedyProbabilityDistribution,
)
from maze_pl.modules import A2C, BC, DQN, ES, IMPALA, PPO, SAC, TD3, AlgorithmModule
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateActionValueNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
    SharedStateCriticComposer,
)

OBSERVATION = spaces.Dict({"view": spaces.Box(-1, 1, (3,))})
HEADS = {
    EpsilonGreedyProbabilityDistribution: spaces.Discrete(3),
    DeterministicProbabilityDistribution: spaces.Box(-1.0, 1.0, (2,)),
}
REMEDIES = {
    EpsilonGreedyProbabilityDistribution: "omit the head from distribution_mapper_config",
    DeterministicProbabilityDistribution: "name SquashedGaussianProbabilityDistribution",
}


def make(algorithm: type[AlgorithmModule], distribution: type, head: spaces.Space[Any]) -> AlgorithmModule:
    """An algorithm whose first head has the default distribution, and whose second one has another."""
    policy_net = partial(FlattenConcatPolicyNet, hidden_units=[4])
    critic: Any = None
    if algorithm in (A2C, IMPALA, PPO):
        critic = SharedStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[4])])
    if algorithm in (SAC, TD3):
        critic = SharedStateActionCriticComposer([partial(FlattenConcatStateActionValueNet, hidden_units=[4])])
    config = [{"action_head": "move", "distribution": distribution}]
    composer = CustomModelComposer(ProbabilisticPolicyComposer([policy_net]), critic, config)
    heads: dict[str, spaces.Space[Any]] = {"move": head}
    if algorithm not in (DQN, TD3):
        heads["call"] = spaces.Discrete(2)
    options: dict[str, Any] = {"networks": composer, "spec": Spec({"ship": StepSpec(OBSERVATION, spaces.Dict(heads))})}
    return algorithm(**options)


BY_PROBABILITIES = [A2C, IMPALA, PPO, SAC]


@pytest.mark.parametrize(
    ("algorithm", "distribution"),
    [*itertools.product(BY_PROBABILITIES, HEADS), (BC, EpsilonGreedyProbabilityDistribution)],
)
def test_distributions_whose_scale_of_exploration_is_not_set_are_refused(
    algorithm: type[AlgorithmModule], distribution: type
) -> None:
    where = f"action head 'move' of sub-step 'ship' has the distribution {distribution.__name__}"
    with pytest.raises(ValueError, match=f"{where}, from which {algorithm.__name__} .*{REMEDIES[distribution]}"):
        make(algorithm, distribution, HEADS[distribution])


@pytest.mark.parametrize(
    ("algorithm", "distribution"),
    [
        (DQN, EpsilonGreedyProbabilityDistribution),
        (TD3, DeterministicProbabilityDistribution),
        (BC, DeterministicProbabilityDistribution),
        (ES, DeterministicProbabilityDistribution),  # the perturbations of the weights explore
        (ES, EpsilonGreedyProbabilityDistribution),
    ],
)
def test_algorithms_that_explore_in_another_way_accept_them(
    algorithm: type[AlgorithmModule], distribution: type
) -> None:
    assert make(algorithm, distribution, HEADS[distribution]).policy is not None


class Sharper(CategoricalProbabilityDistribution):
    """A custom distribution that reads its scale of exploration, but has probabilities without one."""

    def _prepare(self) -> None:
        super()._prepare()
        self._masked = self._masked * (1.0 - torch.as_tensor(self.exploration))


class Thrifty(EpsilonGreedyProbabilityDistribution):
    """A custom variant of a distribution that is refused."""


@pytest.mark.parametrize("algorithm", [*BY_PROBABILITIES, BC])
def test_custom_distributions_are_accepted_unless_they_declare_such_a_scale(algorithm: type[AlgorithmModule]) -> None:
    assert make(algorithm, Sharper, spaces.Discrete(3)).policy is not None
    with pytest.raises(ValueError, match="has the distribution Thrifty"):
        make(algorithm, Thrifty, spaces.Discrete(3))


@pytest.mark.parametrize(("spec", "found"), [(nn.Linear, "Linear"), (OBSERVATION, "a Dict"), ({"a": 1}, "a dict")])
def test_a_specification_is_neither_an_environment_nor_a_space(spec: Any, found: str) -> None:
    with pytest.raises(TypeError, match=rf"spec must be a Spec, such as .*\.spec, not {found}$"):
        PPO(spec=spec)
