"""How a policy is evaluated: how many episodes, and whether it takes its most likely actions."""

from dataclasses import dataclass


def require_count(name: str, value: int, least: int, whose: str = "") -> None:
    """Refuse a number of things that is no integer, or too small.

    Raises:
        TypeError: It is no integer.
        ValueError: It is too small.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}{whose} must be an integer, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name}={value}{whose} must be at least {least}")


@dataclass(frozen=True)
class RolloutEvaluator:
    """Plays whole episodes in environments of their own, with the same seeds every time.

    Episodes are played to their end: put a `TimeLimitWrapper` around environments whose episodes may never end.

    Args:
        n_episodes: Number of episodes, over all ranks.
        deterministic: Whether the policy takes its most likely action instead of sampling.
        n_envs: Number of environments that play at the same time; 0 means one for each episode, at most 8.
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
