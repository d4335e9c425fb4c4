"""Conversion between recorded episodes and Minari's data sets of demonstrations for Gymnasium."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from maze_pl.core.actor_id import ActorID
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs.gym_env import GymActionConversion, GymObservationConversion
from maze_pl.records.record_files import SpacesTrajectoryRecord


def minari_records(data_id: str) -> Iterator[SpacesTrajectoryRecord]:
    """Yield the episodes of a data set, with the observation and action names of `GymMazeEnv`.

    Args:
        data_id: Name of a Minari data set on this machine.

    Raises:
        ImportError: The package minari is missing.
        ValueError: There is no such data set.
        TypeError: Its spaces are not supported.
    """
    try:
        data: Any = _minari().load_dataset(data_id)
    except FileNotFoundError as error:
        raise ValueError(f"Minari has no data set {data_id!r} here; `minari download {data_id}` may get it") from error
    sees, acts = GymObservationConversion(data.observation_space), GymActionConversion(data.action_space)
    spec = Spec({0: StepSpec(sees.space(), acts.space())})
    for episode in data.iterate_episodes():
        length, is_terminated = len(episode.rewards), bool(episode.terminations[-1])
        zeros, rewards = np.zeros(length, np.int64), np.asarray(episode.rewards, np.float64)
        seen, done = (
            {name: np.asarray(part, one.space()[name].dtype) for name, part in one.divided(values).items()}
            for one, values in ((sees, episode.observations), (acts, episode.actions))
        )
        parts: list[Any] = [zeros, zeros, np.arange(length), rewards, zeros != 0]
        parts += [{0: {name: part[:length] for name, part in seen.items()}}, {0: done}]
        parts += [is_terminated, not is_terminated, length, None if is_terminated else ActorID(0, 0)]
        parts += [{} if is_terminated else {name: part[length] for name, part in seen.items()}]
        yield SpacesTrajectoryRecord(f"{data_id}/{episode.id}", spec, *parts)


def to_minari(records: Iterable[SpacesTrajectoryRecord], dataset_id: str, **description: Any) -> Any:
    """Make a Minari data set of recorded episodes; `minari_records` converts it back.

    Observations and actions get the unnamed form of Gymnasium's environments. Minari expects an
    observation after the last step. Records of terminated episodes do not have it, so the last
    observation is repeated there.

    Args:
        records: The episodes, of a flat environment.
        dataset_id: Name of the data set, such as `lunar_lander/heuristic-v0`.
        description: Further arguments of `minari.create_dataset_from_buffers`, such as `env` or
            `algorithm_name`.

    Returns:
        The `minari.MinariDataset`.

    Raises:
        ImportError: The package minari is missing.
        ValueError: There are no episodes, they have several sub-steps or agents, or do not fit
            together.
    """
    minari = _minari()
    from minari.data_collector.episode_buffer import EpisodeBuffer

    spec, buffers = None, list[Any]()
    for record in records:
        spec = spec or record.spec
        if not spec.is_flat or record.spec != spec:
            reason = "the same spaces in all episodes" if spec.is_flat else "one agent that acts once in each step"
            raise ValueError(f"episode {record.episode_id} cannot be in a data set of Minari, which has {reason}")
        (tree,), (done,), last = record.observation.values(), record.action.values(), record.last_observation
        seen = {name: np.concatenate([array, last.get(name, array[-1])[None]]) for name, array in tree.items()}
        named = _unnamed(seen, "observation"), _unnamed(done, "action")
        is_last = np.arange(len(record)) == len(record) - 1
        ends = list(is_last & record.terminated), list(is_last & record.truncated)
        buffers.append(EpisodeBuffer(len(buffers), None, None, *named, list(record.reward), *ends, {}))
    if spec is None:
        raise ValueError(f"there is no episode for {dataset_id}")
    (step,) = spec.steps.values()
    description["observation_space"] = _unnamed(step.observation_space, "observation")
    description["action_space"] = _unnamed(step.action_space, "action")
    description = {"data_format": "arrow", "jpeg_encoding": False, **description}
    return minari.create_dataset_from_buffers(dataset_id, buffers, **description)


def _unnamed(tree: Mapping[str, Any], name: str) -> Any:
    return tree[name] if list(tree) == [name] else tree


def _minari() -> Any:
    try:
        import minari
    except ImportError as error:
        hint = 'pip install "maze-pl[minari]"'
        raise ImportError(f"data sets of Minari need a package that is missing: {hint}") from error
    return minari
