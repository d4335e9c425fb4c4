"""Probability distributions over actions, and the mapping from action spaces to them."""

from maze_pl.distributions.bernoulli import BernoulliProbabilityDistribution
from maze_pl.distributions.categorical import CategoricalProbabilityDistribution
from maze_pl.distributions.diagonal_gaussian import DiagonalGaussianProbabilityDistribution
from maze_pl.distributions.dict import DictProbabilityDistribution
from maze_pl.distributions.distribution_mapper import DistributionMapper, distribution_mappers
from maze_pl.distributions.multi_categorical import MultiCategoricalProbabilityDistribution
from maze_pl.distributions.probability_distribution import ProbabilityDistribution

__all__ = [
    "BernoulliProbabilityDistribution",
    "CategoricalProbabilityDistribution",
    "DiagonalGaussianProbabilityDistribution",
    "DictProbabilityDistribution",
    "DistributionMapper",
    "MultiCategoricalProbabilityDistribution",
    "ProbabilityDistribution",
    "distribution_mappers",
]
