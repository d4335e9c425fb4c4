"""The player of populations, which plays episodes of perturbed policies, a part at a time."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import numpy as np
import torch

from maze_pl.collect.endless_episodes import MANY_ACTS
from maze_pl.collect.episodes import play_acts
from maze_pl.collect.rollout_worker import RolloutWorker
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.episode_batch import EpisodeBatch
from maze_pl.core.policy import Array
from maze_pl.core.population import NoiseTable, PolicyStack, perturbed_parameters, trainable_flags
from maze_pl.core.seeding import derive_seed
from maze_pl.envs.arrays import ArrayVectorEnv
from maze_pl.envs.vector.vector_env import VectorEnv

_TRAINING: Final = "train"  # no evaluator has this name
_TOGETHER: Final = "train, together"
_ACTS_OF_A_JOB: Final = 200
_MOST_NUMBERS: Final = 50_000_000  # parameters of all policies that play at the same time


class Played(NamedTuple):
    """An episode that a perturbed policy has played to its end.

    Attributes:
        reward: Sum of the rewards, as changed by wrappers.
        paid: Sum of the absolute values of the rewards that are attributed to acts, as changed by wrappers.
        env_steps: Environment time that it took.
        summaries: Its statistics.
        wrapper_statistics: Wrapper statistics after the episode, if any wrapper has them.
    """

    reward: float
    paid: float
    env_steps: int
    summaries: Sequence[EpisodeSummary]
    wrapper_statistics: dict[str, Any]


@dataclass
class PopulationWorker(RolloutWorker):
    """Plays the episodes of evaluators and the episodes of perturbed policies.

    Episodes of perturbed policies are numbered within an update: 2i and 2i + 1 belong to pair i,
    with its noise added and subtracted. All randomness in them, in the environment too, depends
    only on the seed, the update and the pair, and not on episodes played before, here or elsewhere.

    Args:
        noise: Noise that perturbs the policies.
        population: Makes environments in arrays, in which many policies play at the same time.
        deterministic: Whether the policies take their most likely actions.
    """

    noise: NoiseTable = None  # type: ignore[assignment]
    population: Callable[[], ArrayVectorEnv] | None = None
    deterministic: bool = True
    perturbed: Any = None  # a copy of the policy
    stack: PolicyStack | None = None  # of the copy
    center: Any = None  # [number of parameters] unperturbed parameters
    running: tuple[int, int] = (-1, 0)  # update and number of the episode
    episode: Iterator[Played | None] | None = None

    def play_perturbed(
        self,
        number: int,
        update: int,
        noise_stddev: float,
        wrapper_statistics: dict[str, Any],
        policy: Any = None,
        flags: tuple[bool, ...] | None = None,
    ) -> Played | None:
        """Play a part of an episode; it restarts unless it is the episode that was played last.

        Args:
            number: Number of the episode within the update.
            update: Number of the update.
            noise_stddev: Factor of the noise.
            wrapper_statistics: Wrapper statistics before this update.
            policy: The policy without noise; the player's policy if None.
            flags: For each parameter of the policy, whether it is perturbed; None for those that are
                trainable. The player's policy in another process does not notice which parameters
                a callback freezes.

        Returns:
            None until the episode is over.
        """
        if self.episode is None or self.running != (update, number):
            if update != self.running[0]:  # the policy has learned since
                self._copy(self.policy if policy is None else policy, flags)
            self.running = (update, number)
            sign = (-1) ** number
            self.episode = self._play(update, number // 2, sign * noise_stddev, wrapper_statistics)
        return next(self.episode)

    def play_together(
        self,
        numbers: Sequence[int],
        update: int,
        noise_stddev: float,
        policy: Any = None,
        flags: tuple[bool, ...] | None = None,
    ) -> tuple[Array, Array, EpisodeBatch]:
        """Play whole episodes at the same time, in environments in arrays; policies take their most likely actions.

        Args:
            numbers: Numbers of the episodes within the update.
            update: Number of the update.
            noise_stddev: Factor of the noise.
            policy: As for `play_perturbed`.
            flags: As for `play_perturbed`.

        Returns:
            [n] float64 sums of the rewards, [n] float64 sums of the absolute values of attributed rewards, both as
            changed by wrappers, and the statistics of the episodes in the order of `numbers`.
        """
        self._copy(self.policy if policy is None else policy, flags)
        self.running = (-1, 0)  # the next part of a single episode copies the policy again
        if _TOGETHER not in self.vectors:
            assert self.population is not None
            self.vectors[_TOGETHER] = self.population()
        vector = self.vectors[_TOGETHER]
        n_at_once = min(vector.n_envs, max(2, _MOST_NUMBERS // len(self.center)))
        rewards, paid, batches = [], [], []
        for first in range(0, len(numbers), n_at_once):
            group = self._play_group(vector, numbers[first : first + n_at_once], update, noise_stddev)
            rewards.append(group[0])
            paid.append(group[1])
            batches.append(group[2])
        return np.concatenate(rewards), np.concatenate(paid), EpisodeBatch.concatenated(batches)

    def _play_group(
        self, vector: VectorEnv, numbers: Sequence[int], update: int, noise_stddev: float
    ) -> tuple[Array, Array, EpisodeBatch]:
        """Play as many episodes as there are environments, or fewer."""
        if self.stack is None:
            self.stack = self.perturbed.stacked()
        moved = [self._moved(update, number // 2, (-1) ** number * noise_stddev) for number in numbers]
        self.stack.load(torch.stack(moved))
        episodes = [update * 2**32 + number // 2 for number in numbers]
        reward = np.zeros(len(numbers))
        paid = np.zeros(len(numbers))
        vector.reset_wrappers()
        acts = play_acts(vector, self.stack, episodes, deterministic=True, check_masks=True)
        for n_acts, (envs, extras) in enumerate(acts):
            if n_acts == MANY_ACTS:
                self.endless.tell("training", len(envs))
            reward[envs] += vector.staging.reward[envs]
            if extras.actor_rewards is not None:
                paid[extras.actor_rewards.envs] += extras.actor_rewards.sizes()
            ended = vector.staging.terminated[envs] | vector.staging.truncated[envs]
            if ended.any():
                self.stack.keep(envs[~ended])
        summaries = cast(EpisodeBatch, vector.drain_summaries())
        return reward, paid, summaries.chosen(np.argsort(summaries.env_index))

    def _moved(self, update: int, pair: int, scale: float) -> torch.Tensor:
        """Add the noise of a pair, times `scale`, to the parameters of the centre."""
        size = len(self.center)
        noise = self.noise.piece(self.noise.offset(size, update, pair), size)
        moved: torch.Tensor = self.center.add(noise.to(self.center), alpha=scale)
        return moved

    def _copy(self, policy: Any, flags: tuple[bool, ...] | None) -> None:
        """Copy a policy, whose parameters are the centre of the perturbed ones."""
        if self.perturbed is None:
            self.perturbed = copy.deepcopy(policy).eval()
        self.perturbed.load_state_dict(policy.state_dict())
        flags = trainable_flags(policy) if flags is None else flags
        if flags != trainable_flags(self.perturbed):
            self.stack = None  # it has the parameters that were perturbed before
            for parameter, flag in zip(self.perturbed.parameters(), flags, strict=True):
                parameter.requires_grad_(flag)
        parameters = perturbed_parameters(self.perturbed)
        self.center = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])

    def _perturb(self, update: int, pair: int, scale: float) -> None:
        """Perturb the copy of the policy by the noise of a pair, times `scale`."""
        moved = self._moved(update, pair, scale)
        parameters = perturbed_parameters(self.perturbed)
        parts = torch.split(moved, [parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.detach().copy_(part.view_as(parameter))

    def _play(
        self, update: int, pair: int, scale: float, wrapper_statistics: dict[str, Any]
    ) -> Iterator[Played | None]:
        """Play an episode; yield None after each part, and the finished episode at the end."""
        self._perturb(update, pair, scale)
        if _TRAINING not in self.vectors:
            self.vectors[_TRAINING] = self.training[0]()
        vector = self.vectors[_TRAINING]
        vector.reset_wrappers()
        vector.load_shared_states(wrapper_statistics)
        reward = 0.0
        paid = 0.0
        env_steps = 0
        acts = play_acts(
            vector,
            self.perturbed,
            [update * 2**32 + pair],
            deterministic=self.deterministic,
            generator=torch.Generator().manual_seed(derive_seed(self.seed, "policy", update, pair)),
            check_masks=True,
        )
        for n_acts, (_, extras) in enumerate(acts, 1):
            reward += float(vector.staging.reward[0])
            if extras.actor_rewards is not None:
                paid += float(extras.actor_rewards.sizes().sum())
            env_steps += int(vector.staging.env_steps[0])
            if n_acts == MANY_ACTS + 1:
                self.endless.tell("training", 1)
            if n_acts % _ACTS_OF_A_JOB == 0:
                yield None
        statistics = vector.shared_states()[0] if wrapper_statistics else {}
        yield Played(reward, paid, env_steps, vector.drain_summaries(), statistics)
