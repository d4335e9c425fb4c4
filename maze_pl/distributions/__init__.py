"""Probability distributions over actions, and the mapping from action spaces to them.

Networks that compute their parameters belong to `maze_pl.perception`.
"""

from .beta_probability_distribution import (
    BetaProbabilityDistribution as BetaProbabilityDistribution,
)
from .deterministic_probability_distribution import (
    DeterministicProbabilityDistribution as DeterministicProbabilityDistribution,
)
from .diagonal_gaussian_probability_distribution import (
    DiagonalGaussianProbabilityDistribution as DiagonalGaussianProbabilityDistribution,
)
from .epsilon_greedy_probability_distribution import (
    EpsilonGreedyProbabilityDistribution as EpsilonGreedyProbabilityDistribution,
)
from .squashed_gaussian_probability_distribution import (
    SquashedGaussianProbabilityDistribution as SquashedGaussianProbabilityDistribution,
)
from .bernoulli_probability_distribution import (
    BernoulliProbabilityDistribution as BernoulliProbabilityDistribution,
)
from .categorical_probability_distribution import (
    CategoricalProbabilityDistribution as CategoricalProbabilityDistribution,
)
from .multi_categorical_probability_distribution import (
    MultiCategoricalProbabilityDistribution as MultiCategoricalProbabilityDistribution,
)
from .distribution_mapper import (
    DistributionMapper as DistributionMapper,
    distribution_mappers as distribution_mappers,
)
from .dict_probability_distribution import (
    DictProbabilityDistribution as DictProbabilityDistribution,
)
from .exploration import Exploration as Exploration
from .probability_distribution import ProbabilityDistribution as ProbabilityDistribution
