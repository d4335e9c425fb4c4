"""Training batches of runs that RLlib trains: one iteration of its algorithm each."""

from dataclasses import dataclass, field
from typing import Any

from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Experience


@dataclass(kw_only=True)
class RLlibIteration(Experience):
    """Outcome of one iteration of an RLlib algorithm, which has collected and learned.

    Attributes:
        collected: Environment time that passed.
        weights: Step key -> state of the trained part of the networks, as tensors.
        learner_statistics: Step key -> statistics of the learner, by RLlib's names.
        epsilon: Probability of a random action of DQN; None for other algorithms.
    """

    collected: int
    weights: dict[StepKey, dict[str, Any]] = field(default_factory=dict)
    learner_statistics: dict[StepKey, dict[str, float]] = field(default_factory=dict)
    epsilon: float | None = None

    @property
    def env_steps(self) -> int:
        """Environment time that passed."""
        return self.collected
