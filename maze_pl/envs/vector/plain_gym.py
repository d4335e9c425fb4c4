"""Gymnasium's environments without the layers around them, where what these would do is known."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gymnasium import spaces
from gymnasium.error import ResetNeeded

from maze_pl.core.episode import EpisodeSummary
from maze_pl.envs.contract import check_observation, check_step, explain_step, name_of
from maze_pl.envs.gym_env import GymCoreEnv, GymMazeEnv
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.events.episode_statistics import action_keys, detached, flat_summary
from maze_pl.events.topics import BaseEnvEvents


class PlainGymEnvs:
    """The gymnasium environments in a vector in which nothing but statistics is around them.

    Conversions and statistics take about as long as a step of a simple simulation. Where no wrapper, event or KPI is
    involved, the statistics follow from actions and rewards alone, so that a vector may step gymnasium's environments
    themselves. Resets go through all layers, which afterwards know nothing of how the episode goes on: their time,
    state and events stay as the reset left them.

    Args:
        envs: Environments for which `are_plain` holds, all of one kind.

    Attributes:
        steps: `step` of each gymnasium environment.
        observe: Turns what they return into our observations.
        has_one_observation: Whether that only gives it the name `observation`.
        rewards: For each environment, the rewards of its episode so far.
        taken: For each environment, the actions of its episode so far, as `actions` returned them.
    """

    def __init__(self, envs: Sequence[LogStatsWrapper]) -> None:
        first: Any = envs[0].env
        (key,) = first.action_spaces_dict
        self._envs = [env.core_env.env for env in envs]  # type: ignore[attr-defined]
        self.steps: list[Callable[[Any], Any]] = [self._refuse] * len(self._envs)
        self.observe = first.observation_conversion_dict[key].maze_to_space
        self._convert = first.action_conversion_dict[key].space_to_maze
        self._keys = action_keys(key, first.action_spaces_dict[key])
        self.has_one_observation = not isinstance(self._envs[0].observation_space, spaces.Dict)
        self._has_one_head = not isinstance(self._envs[0].action_space, spaces.Dict)
        self.rewards: list[list[float]] = [[] for _ in envs]
        self.taken: list[list[Any]] = [[] for _ in envs]

    @staticmethod
    def are_plain(envs: Iterable[Any]) -> bool:
        """Whether stepping the gymnasium environments themselves makes no difference."""
        return all(
            type(env) is LogStatsWrapper
            and type(env.unwrapped) is GymMazeEnv
            and env.env.step == env.unwrapped.step  # monitoring that is switched off lets steps pass by
            and type(env.core_env) is GymCoreEnv
            and env.pubsub.topics == (BaseEnvEvents,)
            and not env.pubsub.subscribers
            for env in envs
        )

    def _refuse(self, action: Any) -> Any:
        raise ResetNeeded(f"step of {name_of(self._envs[0])} was called before reset; start an episode first")

    def begin(self, n: int) -> None:
        """Environment n starts an episode."""
        self.steps[n] = self._envs[n].step
        self.rewards[n], self.taken[n] = [], []

    def actions(self, given: dict[str, Any], staged: dict[str, Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Actions of all environments, as they expect them and as they are kept.

        Args:
            given: Head -> [N, ...] list or array that is used for nothing else.
            staged: Head -> [N, ...] what they were made from.
        """
        if self._has_one_head:
            (values,) = given.values()
            if isinstance(values, list):
                (numbers,) = staged.values()
                return list(numbers), values  # NumPy's integers, as in gymnasium's vectors, which are checked faster
            return values, values.copy()  # theirs to change
        rows = [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)]
        kept = zip(*(values if isinstance(values, list) else values.copy() for values in given.values()), strict=True)
        return [self._convert(row, None) for row in rows], list(kept)

    def summary(self, n: int) -> EpisodeSummary:
        """What `LogStatsWrapper` would say of the episode of environment n, which has just ended."""
        columns = [self.taken[n]] if self._has_one_head else zip(*self.taken[n], strict=True)
        values = [column if type(column[0]) is int else [detached(value) for value in column] for column in columns]
        return flat_summary(self._keys, dict(zip(self._keys, values, strict=True)), self.rewards[n])

    def check(self, n: int, result: Any) -> None:
        """Look closely at what `step` returned."""
        env = self._envs[n]
        check_step(result, env)
        check_observation(result[0], env.observation_space, f"the observation that step of {name_of(env)} returned")

    def explain(self, n: int, error: Exception, result: Any) -> None:
        """Raise the contract's message if what environment n returned caused the exception."""
        explain_step(error, result, self._envs[n])
        if result is not ... and error.__traceback__ is not None and error.__traceback__.tb_next is None:
            self.check(n, result)
