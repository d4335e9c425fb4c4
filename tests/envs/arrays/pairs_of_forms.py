"""Plays an environment over arrays and environments of single episodes with the same seeds and actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.spec import Spec
from maze_pl.envs import StructuredEnv
from maze_pl.envs.arrays import ArrayEnv, ArrayStep
from maze_pl.envs.arrays.array_checks import slots_for_checks
from maze_pl.events import EpisodeEventLog
from maze_pl.events.topics import BaseEnvEvents

Fired = list[tuple[str, list[tuple[str, Any]]]]


class PairOfForms:
    """An array environment and as many environments of single episodes.

    Args:
        arrays: The array environment.
        make: Makes an environment of single episodes.
        n_envs: Number of environments.
        seed: Determines seeds, actions, the environments that act, and where episodes are cut short.
        cut_short: Probability that a completed environment step is an episode's last.
    """

    def __init__(
        self, arrays: ArrayEnv, make: Callable[[], StructuredEnv], n_envs: int, seed: int, cut_short: float = 0.1
    ) -> None:
        self.arrays, self.singles = arrays, [make() for _ in range(n_envs)]
        arrays.allocate(n_envs)
        spec = Spec.of(self.singles[0], slots_for_checks(self.singles[0]))
        assert Spec.of(arrays, slots_for_checks(arrays)).to_dict() == spec.to_dict()
        self.keys = spec.step_keys
        self.steps = spec.steps
        self.n_envs, self.cut_short = n_envs, cut_short
        self.random = np.random.default_rng(seed)
        self.events: list[Fired] = [[] for _ in range(n_envs)]  # of the running environment step
        self.logs = [EpisodeEventLog() for _ in range(n_envs)]
        self.observations: list[dict[str, Any]] = [{} for _ in range(n_envs)]
        self.n_ended = 0
        self.shown = self.reset(np.arange(n_envs))

    def reset(self, which: np.ndarray) -> ArrayStep:
        """Start episodes in both forms."""
        seeds = self.random.integers(2**31, size=len(which))
        self.shown = self.arrays.reset(which, seeds)
        for n, seed in zip(which.tolist(), seeds.tolist(), strict=True):
            self.observations[n], _ = self.singles[n].reset(seed=seed)
            self.events[n] = []
            self.logs[n].reset()
        self.note_events()
        for n in which.tolist():
            self.compare_next(n)
        return self.shown

    def note_events(self) -> None:
        """Sort the events of the array environment by environments."""
        for event in self.arrays.array_events.drain():
            for place, n in enumerate(event.which.tolist()):
                values = []
                for name, value in sorted(event.attributes.items()):
                    is_array = isinstance(value, np.ndarray) and value.ndim
                    values.append((name, plain(value[place] if is_array else value)))
                self.events[n].append((event.declaration.name, values))

    def play(self, n_acts: int) -> None:
        """Play, and compare everything after each act."""
        for act in range(n_acts):
            which = np.arange(self.n_envs)
            if act % 3 == 2:
                which = np.flatnonzero(self.random.random(self.n_envs) < 0.6)
            actions = {key: self.actions_of(key) for key in self.keys}
            acting = [self.singles[n].actor_id().step_key for n in which.tolist()]
            rows: Any = slice(None) if len(which) == self.n_envs else which
            self.shown = result = self.arrays.step(actions, rows)
            self.note_events()
            ended = []
            for n, key in zip(which.tolist(), acting, strict=True):
                single = {head: int(v[n]) if v.ndim == 1 else v[n] for head, v in actions[key].items()}
                if self.compare_act(n, result, single):
                    ended.append(n)
            if ended:
                self.n_ended += len(ended)
                self.compare_kpis(np.array(ended))
                self.reset(np.array(ended))

    def actions_of(self, key: Any) -> dict[str, np.ndarray]:
        """Random actions of all environments, which masks allow where this sub-step acts."""
        place = self.keys.index(key)
        actions = {}
        for head, space in self.steps[key].action_space.spaces.items():
            if not isinstance(space, spaces.Discrete):
                actions[head] = np.stack([space.sample() for _ in range(self.n_envs)])
                continue
            scores = self.random.random((self.n_envs, space.n))
            mask = self.steps[key].masks.get(head)
            for n in range(self.n_envs):
                if mask is not None and self.keys.index(self.singles[n].actor_id().step_key) == place:
                    scores[n, self.observations[n][mask] == 0] = -1.0
            actions[head] = scores.argmax(axis=1)
        return actions

    def compare_act(self, n: int, result: ArrayStep, action: dict[str, Any]) -> bool:
        """Perform the same act in a single environment; True if its episode is over."""
        single = self.singles[n]
        before = single.get_env_time()
        observation, reward, terminated, truncated, _ = single.step(action)
        self.observations[n] = observation
        completes = single.get_env_time() > before
        time = before + 1 if result.env_time is None else result.env_time[n]
        assert time == single.get_env_time()
        assert result.reward[n] == reward
        assert of(result.terminated, n) == terminated
        assert of(result.truncated, n) == truncated
        assert of(result.actor_done, n) == single.is_actor_done()
        rewards = single.get_actor_rewards() if completes else None
        if rewards is not None:
            assert result.actor_rewards[n, : len(rewards)].tolist() == rewards.tolist()
        if completes or terminated or truncated:
            self.compare_events(n)
        self.compare_next(n)
        return bool(terminated or truncated or (completes and self.random.random() < self.cut_short))

    def compare_events(self, n: int) -> None:
        """Compare the events of a completed environment step."""
        expected: Fired = []
        records = [record for record in self.singles[n].get_step_events() if record.topic is not BaseEnvEvents]
        for record in records:
            values = [(name, plain(value)) for name, value in sorted(record.attributes.items())]
            expected.append((record.event.__name__, values))
        assert sorted(self.events[n]) == sorted(expected)
        self.events[n] = []
        self.logs[n].receive(*records)
        self.logs[n].end_step()

    def compare_next(self, n: int) -> None:
        """Compare the next actor and its observation."""
        actor = self.singles[n].actor_id()
        assert self.keys[of(self.shown.next_key, n)] == actor.step_key
        assert of(self.shown.next_agent, n) == actor.agent_id
        shown = self.shown.observation[actor.step_key]
        assert set(shown) == set(self.observations[n])
        for name, value in self.observations[n].items():
            value = np.asarray(value)
            assert shown[name].dtype == value.dtype
            np.testing.assert_array_equal(shown[name][n], value, name)

    def compare_kpis(self, which: np.ndarray) -> None:
        """Compare the KPIs of episodes that have ended."""
        computed = self.arrays.kpis(which)
        for place, n in enumerate(which.tolist()):
            calculator = self.singles[n].get_kpi_calculator()
            expected = {}
            if calculator is not None:
                expected = calculator.calculate_kpis(self.logs[n], self.singles[n].get_maze_state())
            found = {name: values[place] for name, values in computed.items()}
            assert {name: value for name, value in found.items() if not np.isnan(value)} == expected
            assert set(self.arrays.kpi_names) == set(found)


def of(array: Any, n: int) -> Any:
    """Entry of an array that may be missing; 0 and False if it is."""
    return 0 if array is None else array[n].item()


def plain(value: Any) -> Any:
    """Numbers of a value, which may be an array or a tuple."""
    return np.asarray(value, np.float64).tolist()
