"""How a policy is evaluated: how many episodes, and whether it takes its most likely actions."""

from dataclasses import dataclass

from maze_pl.core.counts import require_count as require_count


@dataclass(frozen=True)
class RolloutEvaluator:
    """Plays whole episodes in environments of their own, with the same seeds every time.

    Episodes are played to their end: put a `TimeLimitWrapper` around environments whose episodes may never end.

    Args:
        n_episodes: Number of episodes, over all ranks.
        deterministic: Whether the policy takes its most likely action instead of sampling.
        n_envs: Number of episodes that are played at the same time, as a group, by one worker of the data module's
            engine; 0 means 8. Nothing else decides which numbers come out, so more workers change nothing; several of
            them help if there are several groups.
        render: Whether each episode becomes a gif in `renderings/<evaluator>/` of the run directory (of the current one
            in `maze-pl validate`), which the next evaluation replaces: the seeds are the same. A gymnasium environment
            must be made with render_mode='rgb_array' (`--data.env.dict_kwargs.render_mode rgb_array`), a simulation
            needs a renderer. It takes much longer than playing.
    """

    n_episodes: int = 8
    deterministic: bool = True
    n_envs: int = 0
    render: bool = False

    def __post_init__(self) -> None:
        require_count("n_episodes", self.n_episodes, 1, " of an evaluator")
        require_count("n_envs", self.n_envs, 0, " of an evaluator")

    @property
    def groups(self) -> list[range]:
        """Indices of the episodes of each group."""
        size = self.n_envs or 8
        return [range(first, min(first + size, self.n_episodes)) for first in range(0, self.n_episodes, size)]
