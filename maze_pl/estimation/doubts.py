"""Reasons to doubt estimates, which are shown as warnings."""

import math
from pathlib import Path
from typing import Any, Final

import numpy as np

from maze_pl.core.cancelled_rewards import cancel_out
from maze_pl.estimation.recorded_acts import RecordedActs
from maze_pl.estimation.results import FEW_EPISODES
from maze_pl.estimation.weighted_episodes import Array, WeightedEpisodes
from maze_pl.runs.checkpoint_files import checkpoint_path
from maze_pl.runs.observation_units import (
    doubts_of_observations,
    observation_statistics,
    recorder_at,
    recorder_of,
)

_LARGE_EXCESS: Final = 3.0
"""Standard errors by which chance hardly ever puts the mean weight above 1."""
_LARGE_DEFICIT: Final = 4.0
"""Standard errors below 1; more of them, since a sample often lacks the few large weights."""
_IRRELEVANT: Final = 0.05
"""Difference of the mean weight from 1 that does not matter."""
_IMPOSSIBLE: Final = 1000.0
"""Mean weight that chance exceeds in one of 1,000 cases at most, by Markov's inequality."""


def doubts_of_estimates(size: float, acts: RecordedActs, log_ratio: Array, gamma: float | None) -> list[str]:
    """Reasons to doubt the estimates.

    Args:
        size: Effective sample size in episodes; NaN without weighted estimates.
        acts: The recorded acts.
        log_ratio: [A] log-ratios of the probabilities of the acts.
        gamma: Discount of the values by a model; None if no estimator uses any.
    """
    found = []
    enough = FEW_EPISODES
    if acts.n_episodes < FEW_EPISODES:
        found.append(f"there are only {acts.n_episodes} recorded episodes: record more")
        enough = acts.n_episodes / 2
    if size < enough:
        fault = f"the effective sample size of the weighted estimates is {size:.1f} episodes"
        found.append(f"{fault}: the agent acts too differently; trust fitted_q more, or record more episodes")
    if cancel_out(acts.padded(acts.reward).sum(axis=1), acts.paid):
        found.append("the rewards of the agents add up to 0 in each episode, and only their sum is estimated")
    n_never = int(np.isneginf(log_ratio).sum())
    if n_never:
        found.append(f"the agent never takes {n_never:,} of the recorded acts: their episodes have no weight")
    if gamma is None:
        return found
    n_unknown = int(acts.is_unknown.sum())
    if n_unknown:
        found.append(f"{n_unknown:,} truncated episodes have no last observation: fitted_q leaves out their last acts")
    if (acts.is_last & (acts.next_row >= 0)).any():
        found.append("some episodes were truncated: the model values what would follow, the weights do not")
        if gamma == 1.0:
            fault = "nothing limits the values of what would follow truncated episodes, as gamma is 1"
            remedy = "set gamma below 1, or record whole episodes"
            found.append(f"{fault}: the model's may grow without end; {remedy}")
    return found


def doubts_of_weights(episodes: WeightedEpisodes, size: float) -> list[str]:
    """Reason to doubt the weights: their mean over the episodes, which is 1 by expectation.

    Args:
        episodes: The episodes.
        size: Effective sample size in episodes; a small one explains a mean below 1.
    """
    if episodes.n_episodes < FEW_EPISODES:
        return []
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.exp(episodes.log_weights[:, -1])
        mean = float(weights.mean())
        error = float(weights.std(ddof=1)) / math.sqrt(len(weights))
    is_impossible = mean > _IMPOSSIBLE  # also if it, and so the error, cannot be represented
    found = f"the mean weight of the episodes is {mean:.2f}, but should be 1 (standard error {error:.2f})"
    if is_impossible:
        found = f"the mean weight of the episodes is {mean:.1e}, but should be 1"
    remedy = "use other episodes, or more, or name the policy that recorded them as behaviour"
    if is_impossible or mean - 1.0 > max(_LARGE_EXCESS * error, _IRRELEVANT):
        cause = "the agent was trained on these episodes, or the behaviour's probabilities are wrong"
        return [f"{found}: {cause}; {remedy}"]
    if 1.0 - mean > max(_LARGE_DEFICIT * error, _IRRELEVANT) and size >= FEW_EPISODES:
        cause = "the episodes lack acts that the agent takes, or the behaviour's probabilities are wrong"
        return [f"{found}: {cause}; {remedy}"]
    return []


def doubts_of_records(acts: RecordedActs, agent: Path | None, behaviour: Any, trust: bool) -> list[str]:
    """Reasons to doubt that space records have the observations that the agent was trained with.

    Those of an agent that was trained without an environment are unknown.

    Args:
        acts: The recorded acts.
        agent: The agent's checkpoint; None if the agent is not a run.
        behaviour: The run named as behaviour, for records of which no run is known; None without one.
        trust: Whether classes of other packages may be imported.
    """
    if agent is None or not acts.space_folders:
        return []
    trained = observation_statistics(agent, trust)
    if trained is None:
        return []
    named = None
    candidate = None
    if behaviour is not None:
        named = recorder_at(f"the run {behaviour}", behaviour, trust)
        candidate = checkpoint_path(behaviour)
    recorders = [recorder_of(folder, trust, candidate) or named for folder in acts.space_folders]
    return doubts_of_observations(trained, recorders)
