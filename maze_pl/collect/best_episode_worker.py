"""The player that plays several episodes from the same start and returns the best one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from maze_pl.collect.act_recorder import ActRecorder
from maze_pl.collect.rollout_worker import RolloutWorker
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.policy import evaluation_mode
from maze_pl.core.seeding import derive_seed
from maze_pl.records.record_files import SpacesTrajectoryRecord

_TRAINING: Final = "train"  # no evaluator has this name


class BestEpisode(NamedTuple):
    """The best of several episodes from the same start.

    Attributes:
        record: Its observations and actions.
        summaries: Statistics of all episodes.
        place: Number of the best one among them.
        size_of_sums: Sum of the absolute values of all returns, of rewards as changed by wrappers.
        paid: Sum of the absolute values of all rewards that are attributed to acts, as changed by wrappers.
    """

    record: SpacesTrajectoryRecord
    summaries: Sequence[EpisodeSummary]
    place: int
    size_of_sums: float
    paid: float


@dataclass
class BestEpisodeWorker(RolloutWorker):
    """Plays the episodes of evaluators, and several sampled episodes from each start.

    A start is the number of an episode: all environments begin it with the same seed. Everything in
    its episodes depends on the seed of the run, the start and the policy alone.
    """

    def play_best(self, start: int, wrapper_statistics: dict[str, Any], policy: Any = None) -> BestEpisode:
        """Play an episode in each environment, all from the same start, with sampled actions.

        Args:
            start: Number of the start.
            wrapper_statistics: Wrapper statistics, which the episodes do not change.
            policy: The policy; the player's policy if None.

        Returns:
            The episode with the largest return, of rewards as changed by wrappers; the first one if several have it.
        """
        if _TRAINING not in self.vectors:
            self.vectors[_TRAINING] = self.training[0]()
        vector = self.vectors[_TRAINING]
        vector.reset_wrappers()
        vector.load_shared_states(wrapper_statistics, freeze=True)
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "policy", start))
        acting = self.policy if policy is None else policy
        recorder = ActRecorder(vector, acting)
        with evaluation_mode(acting):
            recorder.play(start, generator)
        summaries = vector.drain_summaries()
        returns = recorder.returns()
        place = int(np.argmax(returns))
        record = recorder.record_of(place, self.seed, start)
        return BestEpisode(record, summaries, place, float(np.abs(returns).sum()), recorder.paid())
