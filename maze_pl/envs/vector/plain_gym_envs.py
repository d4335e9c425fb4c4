"""Direct stepping of gymnasium environments whose surrounding layers change nothing."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gymnasium import spaces

from maze_pl.core.episode import EpisodeSummary
from maze_pl.envs.contract import check_observation, check_step, name_of
from maze_pl.envs.gym_env import GymCoreEnv, GymMazeEnv
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.events import BaseEnvEvents
from maze_pl.events.display import number_array
from maze_pl.events.statistics import action_keys, detached


class PlainGymEnvs:
    """Gymnasium environments of a vector that are wrapped in nothing but statistics.

    Conversions and statistics take about as long as a step of a simple simulation. Without
    wrappers, events, KPIs and Dict spaces, the statistics follow from actions and rewards alone, so
    that a vector may step the gymnasium environments directly. Resets go through all layers; after
    a reset, the layers are not updated: their time, state and events stay as the reset left them.

    Args:
        envs: Environments for which `are_plain` holds, all of the same kind.

    Attributes:
        envs: The gymnasium environments.
        steps: Method `step` of each environment, once `begin` was called.
        observe: Converts their observations to named observations.
        rewards: For each environment, the rewards of its episode so far.
        taken: For each environment, the actions of its episode so far.
    """

    def __init__(self, envs: Sequence[LogStatsWrapper]) -> None:
        first: Any = envs[0].env
        ((key, space),) = first.action_spaces_dict.items()
        self.envs = [env.core_env.env for env in envs]  # type: ignore[attr-defined]
        self.steps: list[Callable[[Any], Any]] = [env.unwrapped.step for env in envs]  # raise before a reset
        self.observe = first.observation_conversion_dict[key].maze_to_space
        self._keys = action_keys(key, space)
        self.rewards: list[list[float]] = [[] for _ in envs]
        self.taken: list[list[Any]] = [[] for _ in envs]

    @staticmethod
    def are_plain(envs: Iterable[Any]) -> bool:
        """True if stepping the gymnasium environments directly gives the same results."""
        return all(
            type(env) is LogStatsWrapper
            and type(env.unwrapped) is GymMazeEnv
            and env.env.step == env.unwrapped.step  # disabled monitoring passes steps on directly
            and type(env.core_env) is GymCoreEnv
            and spaces.Dict not in (type(env.core_env.env.observation_space), type(env.core_env.env.action_space))
            and list(env.pubsub.topics) == [BaseEnvEvents]
            and not env.pubsub.subscribers
            for env in envs
        )

    def begin(self, n: int, taken: list[Any]) -> None:
        """Start an episode of environment n and collect its actions in the list `taken`."""
        self.steps[n] = self.envs[n].step
        self.rewards[n], self.taken[n] = [], taken

    def summary(self, n: int) -> EpisodeSummary:
        """Return the summary of environment n's finished episode, as `LogStatsWrapper` makes it."""
        taken, rewards = number_array([detached(value) for value in self.taken[n]]), self.rewards[n]
        return EpisodeSummary(dict.fromkeys(self._keys.values(), taken), len(rewards), float(sum(rewards)))

    def check(self, n: int, result: Any, exactly: bool = False) -> None:
        """Check the result of a step; bounds of the space only if `exactly`."""
        env = self.envs[n]
        check_step(result, env)
        what = f"the observation that step of {name_of(env)} returned"
        check_observation(result[0], env.observation_space, what, exactly)
