"""Seeds of episodes in vector environments."""

from collections.abc import Sequence
from dataclasses import dataclass

from maze_pl.core.seeding import derive_seed


@dataclass(frozen=True)
class EpisodeSeeding:
    """Seed of each episode of each environment.

    Attributes:
        seed: The run's seed.
        seed_by_env: Whether episodes of the same index differ between environments.
        n_same_starts: Number of consecutive environments whose episodes of the same index have the same seed.
        episode_seeds: Seeds of the episodes by their index, in place of those that follow from `seed`.
    """

    seed: int = 0
    seed_by_env: bool = True
    n_same_starts: int = 1
    episode_seeds: Sequence[int] | None = None

    def seed_of(self, env_index: int, episode: int) -> int:
        """Return the seed of an episode.

        Args:
            env_index: Index of the environment across all ranks and workers.
            episode: Index of the episode.
        """
        if self.episode_seeds is not None:
            return self.episode_seeds[episode]
        return derive_seed(self.seed, "env", env_index // self.n_same_starts if self.seed_by_env else 0, episode)
