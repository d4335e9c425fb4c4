"""The actor of data modules with environments: made where an engine has it work, it holds environments from then on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from maze_pl.collect.collector import Collector
from maze_pl.collect.episodes import play_episodes
from maze_pl.collect.storage import from_tensors, to_tensors
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.policy import evaluation_mode
from maze_pl.core.rollout import Rollout
from maze_pl.core.seeding import derive_seed
from maze_pl.envs.vector.vector_env import VectorEnv


@dataclass
class EnvironmentActor:
    """Collects rollouts from a shard of the environments, and plays the episodes of evaluators.

    Environments for training are made with the first collection, those of an evaluator with its first episodes. An
    actor that takes the place of one that was lost starts with episodes that were not played before.

    Args:
        seed: The run's seed.
        evaluation: Evaluator -> what makes its environments, and whether the policy takes its most likely actions.
        policy: Chooses the actions.
        number: Number of the actor, and of its shard.
        restarts: How often it was made anew.
        training: Makes the environments of each shard.
        n_rollout_steps: Environment steps of each environment in a rollout.
        first_episode: Index of the first episode of each environment for training.
    """

    seed: int
    evaluation: Mapping[str, tuple[Callable[[], VectorEnv], bool]]
    policy: Any
    number: int
    restarts: int
    training: Sequence[Callable[[], VectorEnv]] = ()
    n_rollout_steps: int = 0
    first_episode: int = 0
    collector: Collector | None = None
    shared: dict[str, Any] = field(default_factory=dict)
    vectors: dict[str, VectorEnv] = field(default_factory=dict)

    def _prepared(self, shared: dict[str, Any]) -> Collector:
        if self.collector is None:
            vector = self.training[self.number]()
            seed = derive_seed(self.seed, "policy", vector.first_env_index + self.restarts * 2**32)
            self.collector = Collector(vector, self.n_rollout_steps, torch.Generator().manual_seed(seed))
        self.shared = shared
        self.collector.vector.load_shared_states(shared)
        return self.collector

    def collect(
        self, shared: dict[str, Any], policy: Any = None, with_log_prob: bool = False
    ) -> tuple[Rollout, list[dict[str, Any]]]:
        """Collect a rollout of the shard.

        Args:
            shared: What wrappers have learned.
            policy: Chooses the actions; the actor's own one if None.
            with_log_prob: Also write down with which log-probabilities the policy acted, computed at the end, for all
                acts at once; only a `TorchPolicy` can.

        Returns:
            The rollout, and for each environment what its wrappers have learned, if any of them learns.
        """
        collector, acting = self._prepared(shared), self.policy if policy is None else policy
        if not collector.started:
            collector.start([self.first_episode + self.restarts * 2**32] * collector.n_envs)
        with evaluation_mode(acting):
            rollout = collector.collect(acting)
            if with_log_prob:
                acting.note_log_probs(rollout)
        return rollout, collector.vector.shared_states() if shared else []

    def state_dict(self) -> dict[str, Any] | None:
        """State of the shard, as tensors and primitives; None before the first collection."""
        return None if self.collector is None else self.collector.state_dict() | {"shared": to_tensors(self.shared)}

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Continue where `state_dict` was taken.

        Returns:
            Numbers, within the shard, of the environments that did not come out where they were.
        """
        return self._prepared(from_tensors(state["shared"])).load_state_dict(state)

    def play(self, name: str, episodes: range, learned: dict[str, Any], policy: Any = None) -> list[EpisodeSummary]:
        """Play a group of episodes of an evaluator, whose results are the same wherever and whenever it is played.

        Args:
            name: The evaluator.
            episodes: Indices of the episodes, no more than there are environments.
            learned: What wrappers have learned.
            policy: As for `collect`.
        """
        make, deterministic = self.evaluation[name]
        if name not in self.vectors:
            self.vectors[name] = make()
        self.vectors[name].load_shared_states(learned, freeze=True)
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "evaluation", name, episodes[0]))
        acting = self.policy if policy is None else policy
        options: Any = {"deterministic": deterministic, "generator": generator}
        with evaluation_mode(acting):
            return play_episodes(self.vectors[name], acting, episodes, **options)

    def close(self) -> None:
        """End the environments."""
        for vector in (*self.vectors.values(), *([self.collector.vector] if self.collector else [])):
            vector.close()
