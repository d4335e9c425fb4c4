"""Conversion between recorded episodes and Minari's data sets of demonstrations for Gymnasium."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from maze_pl.core.actor_id import ActorID
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs.gym_action_conversion import GymActionConversion
from maze_pl.envs.gym_observation_conversion import GymObservationConversion
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
        remedy = f"`minari download {data_id}` may get it"
        raise ValueError(f"Minari has no data set {data_id!r} here; {remedy}") from error
    observation_conversion = GymObservationConversion(data.observation_space)
    action_conversion = GymActionConversion(data.action_space)
    spec = Spec({0: StepSpec(observation_conversion.space(), action_conversion.space())})
    for episode in data.iterate_episodes():
        length = len(episode.rewards)
        is_terminated = bool(episode.terminations[-1])
        observation = _arrays(observation_conversion, episode.observations)  # [length + 1, ...]
        last_actor = None
        last_observation = {}
        if not is_terminated:
            last_actor = ActorID(0, 0)
            last_observation = {name: array[length] for name, array in observation.items()}
        yield SpacesTrajectoryRecord(
            f"{data_id}/{episode.id}",
            spec,
            key_index=np.zeros(length, np.int64),
            agent_id=np.zeros(length, np.int64),
            env_time=np.arange(length),
            reward=np.asarray(episode.rewards, np.float64),
            actor_done=np.zeros(length, np.bool_),
            observation={0: {name: array[:length] for name, array in observation.items()}},
            action={0: _arrays(action_conversion, episode.actions)},
            terminated=is_terminated,
            truncated=not is_terminated,
            last_env_time=length,
            last_actor=last_actor,
            last_observation=last_observation,
        )


def _arrays(conversion: GymObservationConversion | GymActionConversion, values: Any) -> dict[str, Any]:
    """Convert Minari's values of an episode to arrays by name."""
    space = conversion.space()
    parts = conversion.divided(values)
    return {name: np.asarray(part, space[name].dtype) for name, part in parts.items()}


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
        ValueError: There are no episodes, they do not fit together, or one has something for which
            Minari has no place: several sub-steps or agents, acts of several environment steps,
            rewards of single actors, an actor that is done before the end, or a truncation without
            a last observation.
    """
    minari = _minari()
    from minari.data_collector.episode_buffer import EpisodeBuffer

    spec = None
    buffers: list[Any] = []
    for record in records:
        if spec is None:
            spec = record.spec
        if (needed := _needed(record, spec)) is not None:
            refused = f"episode {record.episode_id} cannot be in a data set of Minari"
            raise ValueError(f"{refused}, which has {needed}")
        (recorded,) = record.observation.values()
        (action,) = record.action.values()
        observation = {}
        for name, array in recorded.items():
            last = record.last_observation.get(name, array[-1])
            observation[name] = np.concatenate([array, last[None]])
        is_last = np.arange(len(record)) == len(record) - 1
        buffer = EpisodeBuffer(
            len(buffers),
            None,
            None,
            _unnamed(observation, "observation"),
            _unnamed(action, "action"),
            list(record.reward),
            list(is_last & record.terminated),
            list(is_last & record.truncated),
            {},
        )
        buffers.append(buffer)
    if spec is None:
        raise ValueError(f"there is no episode for {dataset_id}")
    (step,) = spec.steps.values()
    description["observation_space"] = _unnamed(step.observation_space, "observation")
    description["action_space"] = _unnamed(step.action_space, "action")
    description = {"data_format": "arrow", "jpeg_encoding": False, **description}
    return minari.create_dataset_from_buffers(dataset_id, buffers, **description)


def _needed(record: SpacesTrajectoryRecord, spec: Spec) -> str | None:
    """Return a property of Minari's data sets that an episode does not have; None if it has all of them."""
    if not spec.is_flat:
        return "one agent that acts once in each step"
    if record.spec != spec:
        return "the same spaces in all episodes"
    end = record.last_env_time
    if record.terminated and end == record.env_time[-1]:  # the episode ended within this step
        end += 1
    if (np.diff(np.append(record.env_time, end)) != 1).any():
        return "acts of one environment step each"
    if record.actor_reward is not None and not np.array_equal(record.actor_reward, record.reward):
        return "rewards of the environment, not those attributed to an actor"
    if record.actor_done[:-1].any() or (record.actor_done[-1] and not record.terminated):
        return "agents that act until the end of the episode"
    (observation,) = record.observation.values()
    if not record.terminated and not record.last_observation.keys() >= observation.keys():
        return "an observation after the last act of a truncated episode"
    return None


def _unnamed(tree: Mapping[str, Any], name: str) -> Any:
    return tree[name] if list(tree) == [name] else tree


def _minari() -> Any:
    try:
        import minari
    except ImportError as error:
        hint = 'pip install "maze-pl[minari]"'
        raise ImportError(f"data sets of Minari need a package that is missing: {hint}") from error
    return minari
