"""Options of an evaluation: number of episodes, sampling of actions, rendering."""

from dataclasses import dataclass

from maze_pl.core.checks import check_count, check_room_for_environments

MOST_EPISODES = 1_000_000


@dataclass(frozen=True)
class RolloutEvaluator:
    """Plays whole episodes in separate environments, with the same seeds every time.

    Episodes are played to their end: add a `TimeLimitWrapper` if episodes may never end. Each begins
    with wrappers in their first state and with the current wrapper statistics, so that it does not
    depend on earlier evaluations.

    Args:
        n_episodes: Number of episodes, over all ranks.
        deterministic: Whether the policy takes its most likely action instead of sampling.
        n_envs: Number of episodes that one worker of the data module's engine plays in parallel, as
            a group; 0 means 8. Results depend on this, but not on the number of workers; several
            workers are useful if there are several groups.
        render: Whether to write each episode as a gif to `renderings/<evaluator>/` of the run
            directory (of the current folder in `maze-pl validate`). The next evaluation replaces
            it, as the seeds are the same. A gymnasium environment must be made with
            render_mode='rgb_array' (`--data.env.dict_kwargs.render_mode rgb_array`), a simulation
            needs a renderer. Rendering takes much longer than playing.
    """

    n_episodes: int = 8
    deterministic: bool = True
    n_envs: int = 0
    render: bool = False

    def __post_init__(self) -> None:
        check_count("n_episodes", self.n_episodes, 1, " of an evaluator", MOST_EPISODES)
        check_count("n_envs", self.n_envs, 0, " of an evaluator")
        check_room_for_environments("n_envs", min(self.n_envs, self.n_episodes), " of an evaluator")

    @property
    def groups(self) -> list[range]:
        """Indices of the episodes of each group."""
        size = self.n_envs or 8
        return [range(first, min(first + size, self.n_episodes)) for first in range(0, self.n_episodes, size)]
