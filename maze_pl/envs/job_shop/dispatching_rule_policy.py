"""Classical dispatching rules as policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.job_shop.instance import Array
from maze_pl.envs.job_shop.objects import JobShopMazeState
from maze_pl.envs.job_shop.option_policy import OptionPolicy

Rule = Literal["spt", "lpt", "mwkr", "mopnr", "fifo", "fdd_mwkr"]


class DispatchingRulePolicy(OptionPolicy):
    """Schedules the operation that a dispatching rule ranks first.

        spt:      shortest processing time: min duration
        lpt:      longest processing time: max duration
        mwkr:     most work remaining: max remaining work of the job, this operation included
        mopnr:    most operations remaining: max number of unscheduled operations of the job
        fifo:     first in, first out: the job that has waited longest, min completion of its last
                  operation
        fdd_mwkr: flow due date / most work remaining: min (work of the job up to and including this
                  operation) / (remaining work, this operation included)

    Haupt 1989 (OR Spektrum 11, pp. 3-16); Sels et al. 2012 (International Journal of Production
    Research 50(15), pp. 4255-4270) for FDD/MWKR. The rules rank the options that start earliest, so
    that no machine waits for a job while it could work, whatever the environment allows. Ties go to
    the option that completes first, then to the lowest number of the job, then of the alternative.

    Args:
        action_spaces_dict: Action space of each sub-step.
        rule: Name of the rule.
        only_earliest: False ranks all options that the environment allows.

    Raises:
        ValueError: There is no such rule.
    """

    def __init__(
        self,
        action_spaces_dict: Mapping[StepKey, spaces.Dict],
        rule: Rule = "mwkr",
        only_earliest: bool = True,
    ) -> None:
        if rule not in get_args(Rule):
            raise ValueError(f"{rule=} is unknown; known rules are {', '.join(get_args(Rule))}")
        super().__init__(action_spaces_dict)
        self.rule = rule
        self.only_earliest = only_earliest

    def choose(self, state: JobShopMazeState) -> tuple[int, int]:
        """Return the job and the alternative that the rule ranks first.

        Args:
            state: A state in which something may be chosen.
        """
        jobs, alternatives = np.nonzero(state.allowed)
        if self.only_earliest:
            starts = state.starts[jobs, alternatives]
            is_earliest = starts == starts.min()
            jobs = jobs[is_earliest]
            alternatives = alternatives[is_earliest]
        completions = state.completions[jobs, alternatives]
        ranks = self._ranks(state, jobs, alternatives)
        best = np.lexsort((completions, ranks))[0]  # stable, so that the lowest numbers come first
        return int(jobs[best]), int(alternatives[best])

    def _ranks(self, state: JobShopMazeState, jobs: Array, alternatives: Array) -> Array:
        """Number of each option by which the rule ranks, the lowest first."""
        durations = state.option_durations[jobs, alternatives]
        work = state.remaining_work[jobs]
        if self.rule == "spt":
            return durations
        if self.rule == "lpt":
            return -durations
        if self.rule == "mwkr":
            return -work
        if self.rule == "mopnr":
            return -state.remaining_operations[jobs]
        if self.rule == "fifo":
            return state.job_ready[jobs]
        total = state.instance.shortest.sum(axis=1)[jobs]
        next_shortest = state.instance.shortest[jobs, state.next_operation[jobs]]
        return np.asarray((total - work + next_shortest) / np.maximum(work, 1))
