"""Probability distributions over actions, and the mapping from action spaces to them."""

from maze_pl.distributions.bernoulli import BernoulliProbabilityDistribution as BernoulliProbabilityDistribution
from maze_pl.distributions.beta import BetaProbabilityDistribution as BetaProbabilityDistribution
from maze_pl.distributions.categorical import CategoricalProbabilityDistribution as CategoricalProbabilityDistribution
from maze_pl.distributions.diagonal_gaussian import (
    DiagonalGaussianProbabilityDistribution as DiagonalGaussianProbabilityDistribution,
)
from maze_pl.distributions.dict import DictProbabilityDistribution as DictProbabilityDistribution
from maze_pl.distributions.distribution_mapper import DistributionMapper as DistributionMapper
from maze_pl.distributions.distribution_mapper import distribution_mappers as distribution_mappers
from maze_pl.distributions.multi_categorical import (
    MultiCategoricalProbabilityDistribution as MultiCategoricalProbabilityDistribution,
)
from maze_pl.distributions.probability_distribution import ProbabilityDistribution as ProbabilityDistribution
from maze_pl.distributions.squashed_gaussian import (
    SquashedGaussianProbabilityDistribution as SquashedGaussianProbabilityDistribution,
)
