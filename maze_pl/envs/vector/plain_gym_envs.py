"""Direct stepping of gymnasium environments whose surrounding layers change nothing."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gymnasium import spaces

from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.histogram import number_array
from maze_pl.envs.contract import check_observation, check_step, name_of
from maze_pl.envs.gym_core_env import GymCoreEnv
from maze_pl.envs.gym_env import GymMazeEnv
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.envs.wrappers.maze_env_monitoring_wrapper import MazeEnvMonitoringWrapper
from maze_pl.events import BaseEnvEvents
from maze_pl.events.attribute_values import detached
from maze_pl.events.episode_statistics import action_keys
from maze_pl.events.folding import DISTRIBUTION, MOST_KEPT_STEPS

_Folded = dict[str, Any]
"""Number of folded steps, sum of their rewards, and distribution of their actions; empty if there are none."""


class PlainGymEnvs:
    """Gymnasium environments of a vector that are wrapped in nothing but statistics.

    Conversions and statistics take about as long as a step of a simple simulation. Without
    wrappers, events, KPIs and Dict or Tuple spaces, the statistics follow from actions and rewards alone, so
    that a vector may step the gymnasium environments directly. Resets go through all layers; after
    a reset, the layers are not updated: their time, state and events stay as the reset left them.

    Args:
        envs: Environments for which `are_plain` holds, all of the same kind.

    Attributes:
        envs: The gymnasium environments.
        steps: Method `step` of each environment, once `begin` was called.
        observe: Converts their observations to named observations.
        rewards: For each environment, the rewards of its episode that are not folded.
        taken: For each environment, the actions of its episode since `trim` was called.
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
        self._n_folded = [0] * len(envs)  # actions at the front of `taken` that are folded
        self._folded: list[_Folded] = [{} for _ in envs]

    @staticmethod
    def are_plain(envs: Iterable[Any]) -> bool:
        """True if stepping the gymnasium environments directly gives the same results."""
        return all(
            type(env) is LogStatsWrapper
            and type(env.unwrapped) is GymMazeEnv
            and all(_is_switched_off(wrapper) for wrapper in wrappers_of(env.env))
            and type(env.core_env) is GymCoreEnv
            and not isinstance(env.core_env.env.observation_space, spaces.Dict | spaces.Tuple)
            and not isinstance(env.core_env.env.action_space, spaces.Dict | spaces.Tuple)
            and list(env.pubsub.topics) == [BaseEnvEvents]
            and not env.pubsub.subscribers
            for env in envs
        )

    def begin(self, n: int, actions: list[Any]) -> None:
        """Start an episode of environment n and collect its actions in a list."""
        self.steps[n] = self.envs[n].step
        self.rewards[n], self.taken[n] = [], actions
        self._n_folded[n], self._folded[n] = 0, {}

    def summary(self, n: int) -> EpisodeSummary:
        """Return the summary of environment n's finished episode, as `LogStatsWrapper` makes it."""
        actions: Any
        if self._folded[n] or len(self.rewards[n]) > MOST_KEPT_STEPS:
            self._fold_blocks(n)
            if self.rewards[n]:
                self._fold(n, len(self.rewards[n]))
            folded = self._folded[n]
            n_steps, reward = folded["n_steps"], folded["reward"]
            actions = DISTRIBUTION.result(folded["actions"])
        else:
            n_steps, reward = len(self.rewards[n]), sum(self.rewards[n])
            actions = number_array([detached(value) for value in self.taken[n]])
        return EpisodeSummary(dict.fromkeys(self._keys.values(), actions), n_steps, float(reward))

    def episode_state(self, n: int) -> dict[str, Any]:
        """Return the statistics of environment n's running episode, of bounded size."""
        self._fold_blocks(n)
        pending = self.taken[n][self._n_folded[n] :]
        return {"rewards": self.rewards[n], "taken": pending, "folded": self._folded[n]}

    def load_episode_state(self, n: int, state: dict[str, Any]) -> None:
        """Restore the result of `episode_state`."""
        self.rewards[n], self.taken[n] = state["rewards"], state["taken"]
        self._n_folded[n], self._folded[n] = 0, state["folded"]

    def trim(self, n: int) -> int:
        """Drop actions that are folded, and return the number of those that remain in `taken`."""
        self.taken[n] = self.taken[n][self._n_folded[n] :]
        self._n_folded[n] = 0
        return len(self.taken[n])

    def _fold_blocks(self, n: int) -> None:
        """Fold the values of as many steps as `EpisodeStatistics` folds while it receives them."""
        while len(self.rewards[n]) > MOST_KEPT_STEPS:
            self._fold(n, MOST_KEPT_STEPS + 1)

    def _fold(self, n: int, n_steps: int) -> None:
        """Fold the values of the next steps."""
        folded, rewards = self._folded[n], self.rewards[n]
        first = self._n_folded[n]
        actions = [detached(value) for value in self.taken[n][first : first + n_steps]]
        self._folded[n] = {
            "n_steps": folded.get("n_steps", 0) + n_steps,
            "reward": sum(rewards[:n_steps], folded.get("reward", 0)),
            "actions": DISTRIBUTION.add(folded.get("actions"), actions),
        }
        del rewards[:n_steps]
        self._n_folded[n] += n_steps

    def check(self, n: int, result: Any, exactly: bool = False) -> None:
        """Check the result of a step; bounds of the space only if `exactly`."""
        env = self.envs[n]
        check_step(result, env)
        what = f"the observation that step of {name_of(env)} returned"
        check_observation(result[0], env.observation_space, what, exactly)


def _is_switched_off(wrapper: Wrapper) -> bool:
    """True for monitoring that is switched off."""
    return type(wrapper) is MazeEnvMonitoringWrapper and wrapper.logs_nothing
