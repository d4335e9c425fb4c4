"""Probability distributions over actions, and the mapping from action spaces to them.

Networks that compute their parameters belong to `maze_pl.perception`.
"""

from .continuous import BetaProbabilityDistribution as BetaProbabilityDistribution
from .continuous import (
    DiagonalGaussianProbabilityDistribution as DiagonalGaussianProbabilityDistribution,
)
from .continuous import (
    SquashedGaussianProbabilityDistribution as SquashedGaussianProbabilityDistribution,
)
from .probability_distribution import (
    BernoulliProbabilityDistribution as BernoulliProbabilityDistribution,
)
from .probability_distribution import (
    CategoricalProbabilityDistribution as CategoricalProbabilityDistribution,
)
from .probability_distribution import (
    MultiCategoricalProbabilityDistribution as MultiCategoricalProbabilityDistribution,
)
from .distribution_mapper import (
    DistributionMapper as DistributionMapper,
    distribution_mappers as distribution_mappers,
)
from .dict_probability_distribution import (
    DictProbabilityDistribution as DictProbabilityDistribution,
)
from .probability_distribution import ProbabilityDistribution as ProbabilityDistribution
