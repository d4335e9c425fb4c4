"""Off-policy evaluation: estimating from recorded episodes how good a policy is, without playing it.

Estimators, the probabilities that they weight episodes by, and models of values belong here.
Playing episodes and comparing their results belong to `maze_pl.comparison`.
"""

from .estimate import estimate as estimate
from .results import OffPolicyEstimate as OffPolicyEstimate
from .results import OffPolicyEvaluation as OffPolicyEvaluation
from .weighted_episodes import WeightedEpisodes as WeightedEpisodes
