"""Episode documents: the content of a view, as JSON.

A document is a mapping of plain values. Arrays are texts in base64, see `maze_pl.viewer.arrays`.
The page of the viewer reads nothing else.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.actor_id import StepKey
from maze_pl.core.version import __version__
from maze_pl.events import EpisodeEventLog, RunningKpiCalculator
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.viewer.arrays import Array, encoded, finite
from maze_pl.viewer.document_checks import FORMAT, VERSION
from maze_pl.viewer.drawing import pictures_of
from maze_pl.viewer.episode import Episode
from maze_pl.viewer.events import EpisodeEvents, rows_of_states
from maze_pl.viewer.heads import heads_of
from maze_pl.viewer.observations import observations_of

FILE_NAME: Final = "view.html"
"""Name of a view in the folder of its episodes, unless another one is given."""
_MOST_KPI_STEPS: Final = 500
"""Env steps up to which KPIs are computed after each step by calculators that need all events at once."""


def episode_document(
    episodes: Sequence[Episode], pairs: Sequence[tuple[int, int]] = (), title: str = "", progress: bool = False
) -> dict[str, Any]:
    """Make the document of one or several episodes.

    Args:
        episodes: The episodes.
        pairs: Episodes of the same seed that are shown side by side, by their positions.
        title: Title of the view.
        progress: Whether to show the progress of drawing.

    Raises:
        ConfigurationError: A state cannot be drawn.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "title": title or _default_title(episodes),
        "created_by": f"maze_pl {__version__}",
        "episodes": [_episode(episode, progress) for episode in episodes],
        "pairs": [list(pair) for pair in pairs],
    }


def _default_title(episodes: Sequence[Episode]) -> str:
    """Return the sources of episodes with their policies; the names of episodes without a source."""
    sources = ", ".join(dict.fromkeys(episode.source for episode in episodes if episode.source))
    if not sources:
        return ", ".join(dict.fromkeys(episode.name for episode in episodes))
    policies = ", ".join(dict.fromkeys(episode.policy for episode in episodes if episode.policy))
    return f"{sources}: {policies}" if policies else sources


def _episode(episode: Episode, progress: bool) -> dict[str, Any]:
    """Return the entry of an episode."""
    record = episode.spaces
    acts = _acts_of_states(episode) if record is None else _acts_of_spaces(record)
    if not len(acts.env_step):
        raise ConfigurationError(f"the episode {episode.episode_id} has no acts, so that there is nothing to view")
    n_env_steps = acts.n_env_steps
    rows = episode.events or ([] if episode.states is None else rows_of_states(episode.states))
    events = EpisodeEvents(rows, n_env_steps)
    recorded = np.bincount(acts.env_step, acts.step_reward, minlength=n_env_steps)
    original = events.reward()
    reward = recorded if original is None else original
    total = float(reward.sum()) if episode.total_reward is None else episode.total_reward
    value = None if episode.decisions is None else episode.decisions.value
    keys = [] if record is None else list(record.spec.step_keys)
    observations: dict[str, Any] = {}
    if record is not None:
        observations = {str(key): observations_of(record, key, episode.normalizers) for key in keys}
    parts = events.shares()
    known = total if original is None else float(original.sum())
    unit = _reward_unit(episode.reward_wrappers, float(recorded.sum()), known)
    return {
        "name": episode.name,
        "policy": episode.policy,
        "seed": episode.seed,
        "episode_id": episode.episode_id,
        "return": float(total),
        "return_unit": unit if original is None and episode.total_reward is None else None,
        "n_env_steps": n_env_steps,
        "n_complete_env_steps": acts.n_complete,
        "end": acts.end,
        "kpis": {name: finite(kpi) for name, kpi in episode.kpis.items()},
        "running_kpis": {name: encoded(values) for name, values in _running_kpis(episode, n_env_steps).items()},
        "step_keys": [str(key) for key in acts.step_keys],
        "acts": {
            "n": len(acts.env_step),
            "env_step": encoded(acts.env_step),
            "step_key": encoded(acts.key_index),
            "agent": encoded(acts.agent),
            "reward": None if acts.reward is None else encoded(acts.reward),
            "unit": unit,
            "value": None if value is None else encoded(value),
        },
        "observations": observations,
        "heads": {} if record is None else {str(key): heads_of(record, key, episode.decisions) for key in keys},
        "env_steps": {
            "reward": encoded(reward),
            "unit": unit if original is None else None,
            "parts": {name: encoded(values) for name, values in parts.items()},
        },
        "events": {**events.content(), "is_recorded": original is not None},
        "pictures": pictures_of(episode, acts.env_step, n_env_steps, progress),
    }


def _reward_unit(wrappers: Sequence[str], recorded: float, original: float) -> str | None:
    """Return the unit of recorded rewards and of values, such as "after RewardClippingWrapper".

    Args:
        wrappers: Class names of the wrappers that are known to change rewards.
        recorded: Sum of the recorded rewards, after wrappers.
        original: Sum of the environment's rewards, or of the recorded ones if they are not known.

    Returns:
        None if the rewards are those of the environment.
    """
    if wrappers:
        return f"after {' and '.join(wrappers)}"
    return None if np.isclose(recorded, original, 1e-4, 1e-4) else "after wrappers that change rewards"


class _Acts:
    """Acts of an episode, as arrays [acts].

    Attributes:
        env_step: Environment step of each act.
        key_index: Place of its step key in `step_keys`.
        agent: Id of its agent.
        step_reward: Reward that the environment returned.
        reward: Reward of its actor; None if rewards are not attributed to actors.
        step_keys: All step keys.
        n_env_steps: Number of environment steps, which may be more than those with acts.
        n_complete: Number of complete ones, as in statistics; one less if the episode ends within a step.
        end: `terminated`, `truncated` or `unfinished`.
    """

    def __init__(self, env_step: Any, key_index: Any, agent: Any, step_reward: Any, step_keys: list[StepKey]) -> None:
        self.env_step = np.asarray(env_step, np.int64)
        self.key_index = np.asarray(key_index, np.int64)
        self.agent = np.asarray(agent, np.int64)
        self.step_reward = np.asarray(step_reward, np.float64)
        self.reward: Array | None = None
        self.step_keys = step_keys
        self.n_env_steps = self.n_complete = int(self.env_step.max()) + 1 if len(self.env_step) else 0
        self.end = "unfinished"

    def set_length(self, n_complete: int) -> None:
        """Remember how many environment steps were complete at the end."""
        self.n_env_steps = max(self.n_env_steps, n_complete)
        self.n_complete = n_complete

    def set_end(self, terminated: bool, truncated: bool) -> None:
        """Remember how the episode ended."""
        if terminated:
            self.end = "terminated"
        elif truncated:
            self.end = "truncated"


def _acts_of_spaces(record: SpacesTrajectoryRecord) -> _Acts:
    """Return the acts of a space record."""
    acts = _Acts(record.env_time, record.key_index, record.agent_id, record.reward, list(record.spec.step_keys))
    if record.actor_reward is not None:
        acts.reward = record.actor_reward
    acts.set_length(record.last_env_time)
    acts.set_end(record.terminated, record.truncated)
    return acts


def _acts_of_states(episode: Episode) -> _Acts:
    """Return the decisions of a state record."""
    steps = [] if episode.states is None else episode.states.steps
    keys = list(dict.fromkeys(step.actor_id.step_key for step in steps))
    acts = _Acts(
        [step.env_time for step in steps],
        [keys.index(step.actor_id.step_key) for step in steps],
        [step.actor_id.agent_id for step in steps],
        [step.reward for step in steps],
        keys,
    )
    if episode.states is not None and steps:
        acts.set_length(episode.states.n_env_steps)
        acts.set_end(steps[-1].terminated, steps[-1].truncated)
    return acts


def _running_kpis(episode: Episode, n_env_steps: int) -> dict[str, Array]:
    """Compute the KPIs after each environment step; nothing where they are not known or do not agree.

    They are NaN after steps whose state was not recorded, such as skipped ones. A calculator may
    need events that are not recorded, or refuse an episode that has not ended; then the numbers
    after the last step differ from those of the episode. A calculator that asks an environment
    knows at most the last numbers.
    """
    calculator = episode.kpi_calculator
    if calculator is None or calculator.asks_environment or episode.states is None or not episode.kpis:
        return {}
    states = episode.states
    log = states.event_log()
    after: dict[int, Any] = {}  # number of steps -> state of the simulation after them
    for step in states.steps:
        after.setdefault(step.env_time, step.maze_state)  # not that of a later sub-step
    after[len(log.step_event_logs)] = states.last_maze_state
    rows: list[dict[str, float]] = []
    try:
        if isinstance(calculator, RunningKpiCalculator):
            totals = calculator.new_totals()
            for place, step_log in enumerate(log.step_event_logs):
                calculator.add_step(totals, step_log)
                is_known = place + 1 in after
                rows.append(calculator.kpis_of(totals, after[place + 1]) if is_known else {})
        elif n_env_steps <= _MOST_KPI_STEPS:
            part = EpisodeEventLog()
            for place, step_log in enumerate(log.step_event_logs):
                part.step_event_logs.append(step_log)
                is_known = place + 1 in after
                rows.append(calculator.calculate_kpis(part, after[place + 1]) if is_known else {})
    except Exception:  # user code, which is not made for episodes that have not ended
        return {}
    if len(rows) != n_env_steps or not rows or not _agree(rows[-1], episode.kpis):
        return {}
    return {name: np.array([row.get(name, np.nan) for row in rows]) for name in episode.kpis}


def _agree(kpis: dict[str, float], others: dict[str, float]) -> bool:
    """True if two sets of KPIs are equal up to rounding."""
    if kpis.keys() != others.keys():
        return False
    return all(np.isclose(kpis[name], others[name], equal_nan=True) for name in kpis)
