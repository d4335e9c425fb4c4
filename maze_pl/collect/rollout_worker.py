"""The player of data modules with environments; it holds them in the process that runs it."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from maze_pl.collect.collector import Collector
from maze_pl.collect.endless_episodes import TIME_LIMIT, EndlessEpisodes, addition_for
from maze_pl.collect.episodes import play_episodes
from maze_pl.collect.state_tensors import from_tensors, to_tensors
from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.batches import Rollout
from maze_pl.core.checkpoint_content import WRAPPER_STATISTICS
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.policy import evaluation_mode
from maze_pl.core.seeding import derive_seed
from maze_pl.envs.vector.vector_env import VectorEnv


@dataclass
class RolloutWorker:
    """Collects rollouts from a shard of the environments, and plays the episodes of evaluators.

    Training environments are made on the first collection, an evaluator's environments on its first
    episodes. A player that replaces a lost one starts with episodes that were not played before.

    Args:
        seed: The run's seed.
        evaluation: Evaluator -> function that makes its environments, and whether the policy takes
            its most likely actions.
        policy: Chooses the actions.
        number: Number of the player, and of its shard.
        restarts: Number of times the player was recreated.
        training: Functions that make the environments of each shard, a `VectorEnv` or a `TensorVector`.
        n_rollout_steps: Environment steps per environment in a rollout.
        first_episode: Index of the first episode of each training environment.
        n_same_starts: Number of consecutive training environments that play each start.
    """

    seed: int
    evaluation: Mapping[str, tuple[Callable[[], VectorEnv], bool]]
    policy: Any
    number: int
    restarts: int
    training: Sequence[Callable[[], Any]] = ()
    n_rollout_steps: int = 0
    first_episode: int = 0
    n_same_starts: int = 1
    collector: Collector | TensorCollector | None = None
    wrapper_statistics: dict[str, Any] = field(default_factory=dict)
    vectors: dict[str, VectorEnv] = field(default_factory=dict)
    other_policy: Any = None  # the copy that `collect_with_copy` acts with
    endless: EndlessEpisodes = field(default_factory=partial(EndlessEpisodes, TIME_LIMIT))

    def _prepared(self, wrapper_statistics: dict[str, Any]) -> Collector | TensorCollector:
        """Return the collector with the given wrapper statistics; make it first if needed."""
        if self.collector is None:
            vector = self.training[self.number]()
            path: list[int | str] = ["policy", vector.first_env_index + self.restarts * 2**32]
            if self.first_episode:  # not the random numbers of the episodes before
                path += ["from", self.first_episode]
            seed = derive_seed(self.seed, *path)
            if isinstance(vector, TensorVector):
                on_device = torch.Generator(vector.device).manual_seed(seed)
                self.collector = TensorCollector(vector, self.n_rollout_steps, on_device)
            else:
                generator = torch.Generator().manual_seed(seed)
                self.collector = Collector(vector, self.n_rollout_steps, generator, self.n_same_starts)
        self.wrapper_statistics = wrapper_statistics
        self.collector.vector.load_shared_states(wrapper_statistics)
        return self.collector

    def collect(
        self,
        wrapper_statistics: dict[str, Any],
        policy: Any = None,
        with_log_prob: bool = False,
    ) -> tuple[Rollout, list[dict[str, Any]]]:
        """Collect a rollout of the shard.

        Args:
            wrapper_statistics: Wrapper statistics.
            policy: Chooses the actions; the player's policy if None.
            with_log_prob: Also store the log-probabilities of the actions, computed at the end for
                all acts at once; needs a `TorchPolicy`.

        Returns:
            The rollout, and the wrapper statistics of each environment, if any wrapper has them.
        """
        collector = self._prepared(wrapper_statistics)
        acting = self.policy if policy is None else policy
        if not collector.started:
            collector.start([self.first_episode + self.restarts * 2**32] * collector.n_envs)
        with evaluation_mode(acting):
            rollout = collector.collect(acting)
            if with_log_prob:
                acting.note_log_probs(rollout)
        return rollout, collector.vector.shared_states() if wrapper_statistics else []

    def collect_with_copy(
        self, wrapper_statistics: dict[str, Any], policy: Any
    ) -> tuple[Rollout, list[dict[str, Any]]]:
        """Collect a rollout of the shard with a copy of another policy than the one in training.

        The copy is made on the first call and acts in all of them. What the policy keeps, such as
        random numbers, then changes in the same way on all engines.

        Args:
            wrapper_statistics: Wrapper statistics.
            policy: The policy, as it is before its first act; the same in each call.

        Returns:
            As for `collect`.
        """
        if self.other_policy is None:
            self.other_policy = copy.deepcopy(policy)
        return self.collect(wrapper_statistics, self.other_policy)

    def write_pending(self) -> list[str]:
        """Write all records and logs of what was played; see `VectorEnv.write_pending`."""
        vectors: list[Any] = list(self.vectors.values())
        if self.collector is not None:
            vectors.append(self.collector.vector)
        folders = []
        for vector in vectors:
            if isinstance(vector, VectorEnv):  # environments on a device have no records
                folders += vector.write_pending()
        return folders

    def state_dict(self) -> dict[str, Any] | None:
        """State of the shard, as tensors and primitives; None before the first collection."""
        if self.collector is None:
            return None
        return self.collector.state_dict() | {WRAPPER_STATISTICS: to_tensors(self.wrapper_statistics)}

    def moving_state(self) -> dict[str, Any] | None:
        """State for a worker that continues at once in another process; see `state_dict`.

        It also holds the policy of `collect_with_copy`, which may be of any class: checkpoints cannot.
        """
        state = self.state_dict()
        return None if state is None else state | {"other_policy": self.other_policy}

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Continue where `state_dict` or `moving_state` was taken.

        Returns:
            Indices, within the shard, of the environments that did not reach their saved
            observation.
        """
        state = dict(state)
        self.other_policy = state.pop("other_policy", None)
        return self._prepared(from_tensors(state[WRAPPER_STATISTICS])).load_state_dict(state)

    def play(
        self,
        name: str,
        episodes: range,
        wrapper_statistics: dict[str, Any],
        policy: Any = None,
    ) -> Sequence[EpisodeSummary]:
        """Play a group of an evaluator's episodes; results depend neither on the player nor on earlier episodes.

        Args:
            name: Name of the evaluator.
            episodes: Indices of the episodes, no more than there are environments.
            wrapper_statistics: Wrapper statistics, which the episodes do not change.
            policy: As for `collect`.
        """
        make, deterministic = self.evaluation[name]
        if name not in self.vectors:
            self.vectors[name] = make()
        vector = self.vectors[name]
        vector.reset_wrappers()
        vector.load_shared_states(wrapper_statistics, freeze=True)
        seed = derive_seed(self.seed, "evaluation", name, episodes[0])
        generator = torch.Generator().manual_seed(seed)
        acting = self.policy if policy is None else policy
        tell = partial(self.endless.tell, f"evaluation {name!r}", addition=addition_for(name))
        with evaluation_mode(acting):
            return play_episodes(
                vector,
                acting,
                episodes,
                deterministic=deterministic,
                generator=generator,
                on_many_acts=tell,
            )

    def close(self) -> None:
        """Close the environments."""
        for vector in self.vectors.values():
            vector.close()
        if isinstance(self.collector, TensorCollector):
            self.collector.close()
        elif self.collector is not None:
            self.collector.vector.close()
