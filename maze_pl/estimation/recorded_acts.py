"""Acts of recorded episodes, in order, with their observations by sub-step."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.datasets.act_faults import fault_of
from maze_pl.datasets.episode_loader import (
    Damaged,
    EpisodeLoader,
    has_states,
    require_same_spaces,
    sources_of,
    without_copies,
)
from maze_pl.datasets.trajectory_processors import TrajectoryProcessor
from maze_pl.estimation.weighted_episodes import Array
from maze_pl.records.columns import Columns, columns_of
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.records.same_episode import Parts

NOTHING = -1
"""Row of an act that is followed by no situation."""


@dataclass
class Situations:
    """Situations of one sub-step: those of the acts, followed by those in which truncated episodes ended.

    Attributes:
        observation: Name -> [n, ...].
        agent_id: [n] the actors.
        action: Head -> [n_acts, ...], actions of the first `n_acts` situations.
    """

    observation: dict[str, Array]
    agent_id: Array
    action: dict[str, Array]

    @property
    def n_acts(self) -> int:
        """Number of situations in which an act was recorded."""
        return len(next(iter(self.action.values())))


@dataclass
class RecordedActs:
    """Acts of all episodes, one episode after the other: A acts in E episodes.

    Attributes:
        spec: The sub-steps.
        lengths: [E] number of acts of each episode.
        reward: [A] reward after each act.
        time: [A] environment steps completed before the act, in its episode.
        key_index: [A] index of the act's step key.
        row: [A] row of the act among the situations of its sub-step.
        next_key_index: [A] index of the step key of the next situation of the episode.
        next_row: [A] row of the next situation; `NOTHING` after the last act of an episode that was
            terminated, or whose last situation was not recorded.
        next_time: [A] environment steps completed before the next situation.
        is_unknown: [A] whether the episode went on after the act, but was not recorded further.
        situations: Step key -> its situations.
        paid: [E] sum of the absolute values of the rewards that were attributed to acts, 0 for team rewards.
        space_folders: Folders of the files whose observations are those that were recorded, not converted
            states; None stands for records without a file.
    """

    spec: Spec
    lengths: Array
    reward: Array
    time: Array
    key_index: Array
    row: Array
    next_key_index: Array
    next_row: Array
    next_time: Array
    is_unknown: Array
    situations: dict[StepKey, Situations]
    paid: Array
    space_folders: tuple[Path | None, ...] = ()

    @property
    def n_episodes(self) -> int:
        """Number of episodes, E."""
        return len(self.lengths)

    @property
    def episode(self) -> Array:
        """[A] episode of each act."""
        return np.repeat(np.arange(self.n_episodes), self.lengths)

    @property
    def is_last(self) -> Array:
        """[A] whether the act is the last one of its episode."""
        is_last = np.zeros(len(self.reward), bool)
        is_last[np.cumsum(self.lengths) - 1] = True
        return is_last

    def padded(self, values: Array) -> Array:
        """[E, L] values [A], episode by episode, with zeros at the ends of shorter episodes."""
        table = np.zeros((self.n_episodes, int(self.lengths.max())))
        table[np.arange(table.shape[1]) < self.lengths[:, np.newaxis]] = values
        return table

    def discounts(self, gamma: float) -> Array:
        """[E, L] gamma to the power of the time of each act; 0 in padding."""
        return self.padded(gamma**self.time)


def read_acts(
    episodes: Sequence[Any], spec: Spec, make_env: Callable[[], Any] | None = None, trust: bool = False
) -> RecordedActs:
    """Read recorded episodes.

    Args:
        episodes: Files, folders with files at any depth, or records.
        spec: Specification that the episodes must match, with the masks.
        make_env: Makes the environment that converts recorded states.
        trust: Whether files may execute code while they are read; states need it.

    Raises:
        ValueError: There is nothing to read, something is damaged or does not match, a mask forbids a
            recorded action, or states are not trusted.
    """
    sources = without_copies(list(chain.from_iterable(map(sources_of, episodes))))
    unsafe = next(filter(has_states, sources), None)
    if unsafe is not None and not trust:
        raise ValueError(f"reading {unsafe} runs whatever code it holds; trust it only if you know who wrote it")
    keeper = _Keeper()
    identities: set[bytes] = set()
    records: list[SpacesTrajectoryRecord] = []
    space_folders: dict[Path | None, None] = {}  # in order, each once
    with closing(EpisodeLoader(keeper, trust, make_env, spec)) as loader, closing(Parts()) as parts:
        for source in sources:
            for loaded in loader.load(source):
                if isinstance(loaded, Damaged):
                    raise ValueError(loaded.message)
                record = keeper.records.pop()
                require_same_spaces(loaded.spec, spec, loaded.name, "the policy's")
                if fault := fault_of(spec, columns_of(record)):
                    raise ValueError(f"{loaded.place}: {fault}")
                identity = loaded.choices.identity()
                if identity not in identities:
                    identities.add(identity)
                    records.append(record)
                    if not loaded.is_converted:
                        space_folders[source.parent if isinstance(source, Path) else None] = None
                    parts.add(loaded.choices)
        left_out = set(parts.find())
    if not records:
        names = ", ".join(str(Path(one)) if isinstance(one, str | Path) else "a record" for one in episodes)
        raise ValueError(f"{names}: there are no recorded episodes")
    kept = [record for number, record in enumerate(records) if number not in left_out]
    acts = _joined(kept, spec)
    acts.space_folders = tuple(space_folders)
    return acts


class _Keeper(TrajectoryProcessor):
    """Keeps the records that it gets."""

    def __init__(self) -> None:
        self.records: list[SpacesTrajectoryRecord] = []

    def process(self, record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
        self.records.append(record)
        return {}


def _joined(records: Sequence[SpacesTrajectoryRecord], spec: Spec) -> RecordedActs:
    """Concatenate the acts of episodes."""
    keys = spec.step_keys
    lengths = np.array([len(record) for record in records])
    key_index = np.concatenate([record.key_index for record in records]).astype(np.int64)
    row = np.zeros(len(key_index), np.int64)
    for place in range(len(keys)):
        chosen = key_index == place
        row[chosen] = np.arange(np.count_nonzero(chosen))
    time = np.concatenate([record.env_time - record.env_time[0] for record in records])
    last = np.cumsum(lengths) - 1
    next_key_index = np.append(key_index[1:], 0)
    next_row = np.append(row[1:], NOTHING)
    next_time = np.append(time[1:], 0)
    next_row[last] = NOTHING
    is_unknown = np.zeros(len(row), bool)
    situations = {}
    for place, key in enumerate(keys):
        ends = [e for e, record in enumerate(records) if _ends_in(record, key)]
        situations[key] = _situations(records, key, [records[e] for e in ends], spec)
        next_row[last[ends]] = situations[key].n_acts + np.arange(len(ends))
        next_key_index[last[ends]] = place
    for place, record in zip(last, records, strict=True):
        next_time[place] = record.last_env_time - record.env_time[0]
        is_unknown[place] = not record.terminated and next_row[place] == NOTHING
    return RecordedActs(
        spec=spec,
        lengths=lengths,
        reward=np.concatenate([record.reward for record in records]),
        time=time,
        key_index=key_index,
        row=row,
        next_key_index=next_key_index,
        next_row=next_row,
        next_time=next_time,
        is_unknown=is_unknown,
        situations=situations,
        paid=np.array([_paid(record) for record in records]),
    )


def _paid(record: SpacesTrajectoryRecord) -> float:
    """Sum of the absolute values of attributed rewards; NaN stands for those of an incomplete step."""
    return 0.0 if record.actor_reward is None else float(np.nansum(np.abs(record.actor_reward)))


def _ends_in(record: SpacesTrajectoryRecord, key: StepKey) -> bool:
    """True if an episode was cut off before an act of a sub-step, and its situation is known."""
    return not record.terminated and record.last_actor is not None and record.last_actor.step_key == key


def _situations(
    records: Sequence[SpacesTrajectoryRecord], key: StepKey, ends: Sequence[SpacesTrajectoryRecord], spec: Spec
) -> Situations:
    """Collect the situations of a sub-step.

    Args:
        records: All episodes.
        key: The sub-step.
        ends: Episodes that were cut off before an act of the sub-step.
        spec: The sub-steps.
    """
    step = spec.steps[key]
    columns = [columns_of(record)[key] for record in records]
    observation = {}
    for name in step.observation_space.spaces:
        parts = [one["observation"][name] for one in columns]
        parts += [np.asarray(record.last_observation[name])[np.newaxis] for record in ends]
        observation[name] = np.concatenate(parts)
    action = {head: np.concatenate([one["action"][head] for one in columns]) for head in step.action_space.spaces}
    last_agents = [record.last_actor.agent_id for record in ends if record.last_actor is not None]
    agents = [one["agent_id"] for one in columns]
    return Situations(observation, np.concatenate([*agents, np.array(last_agents, np.int64)]), action)
