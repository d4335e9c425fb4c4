"""The worker of populations, which plays episodes of perturbed policies, a part at a time."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch

from maze_pl.collect.episodes import play_acts
from maze_pl.collect.rollout_worker import RolloutWorker
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.population import NoiseTable, perturbed_parameters
from maze_pl.core.seeding import derive_seed

_TRAINING: Final = "train"  # no evaluator has this name
_ACTS_OF_A_JOB: Final = 200


class Played(NamedTuple):
    """An episode that a perturbed policy has played to its end.

    Attributes:
        reward: Sum of the rewards, as changed by wrappers.
        env_steps: Environment time that it took.
        summaries: Its statistics.
        wrapper_statistics: Wrapper statistics after the episode, if any wrapper has them.
    """

    reward: float
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
        deterministic: Whether the policies take their most likely actions.
    """

    noise: NoiseTable = None  # type: ignore[assignment]
    deterministic: bool = True
    perturbed: Any = None  # a copy of the policy
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
    ) -> Played | None:
        """Play a part of an episode; it restarts unless it is the episode that was played last.

        Args:
            number: Number of the episode within the update.
            update: Number of the update.
            noise_stddev: Factor of the noise.
            wrapper_statistics: Wrapper statistics before this update.
            policy: The policy without noise; the worker's policy if None.

        Returns:
            None until the episode is over.
        """
        if self.episode is None or self.running != (update, number):
            if update != self.running[0]:  # the policy has learned since
                self._copy(self.policy if policy is None else policy)
            self.running = (update, number)
            sign = (-1) ** number
            self.episode = self._play(update, number // 2, sign * noise_stddev, wrapper_statistics)
        return next(self.episode)

    def _copy(self, policy: Any) -> None:
        """Copy a policy, whose parameters are the centre of the perturbed ones."""
        if self.perturbed is None:
            self.perturbed = copy.deepcopy(policy).eval()
        self.perturbed.load_state_dict(policy.state_dict())
        parameters = perturbed_parameters(self.perturbed)
        self.center = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])

    def _perturb(self, update: int, pair: int, scale: float) -> None:
        """Add the noise of a pair, times `scale`, to the parameters of the centre."""
        size = len(self.center)
        noise = self.noise.piece(self.noise.offset(size, update, pair), size)
        moved = self.center.add(noise.to(self.center), alpha=scale)
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
        vector.load_shared_states(wrapper_statistics)
        reward = 0.0
        env_steps = 0
        acts = play_acts(
            vector,
            self.perturbed,
            [update * 2**32 + pair],
            deterministic=self.deterministic,
            generator=torch.Generator().manual_seed(derive_seed(self.seed, "policy", update, pair)),
        )
        for n_acts, _ in enumerate(acts, 1):
            reward += float(vector.staging.reward[0])
            env_steps += int(vector.staging.env_steps[0])
            if n_acts % _ACTS_OF_A_JOB == 0:
                yield None
        statistics = vector.shared_states()[0] if wrapper_statistics else {}
        yield Played(reward, env_steps, vector.drain_summaries(), statistics)
