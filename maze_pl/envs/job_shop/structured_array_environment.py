"""The structured job shop over arrays: one actor chooses the job, a second one the alternative."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.envs.arrays.array_step import ArrayStep, EnvIndex
from maze_pl.envs.job_shop.array_environment import JobShopArrayEnvironment
from maze_pl.envs.job_shop.core_environment import Instances
from maze_pl.envs.job_shop.objects import JobShopMazeState
from maze_pl.envs.job_shop.schedule_reward_aggregator import ScheduleRewardAggregator
from maze_pl.envs.job_shop.simulation import Choices
from maze_pl.envs.job_shop.structured_environment import structured_job_shop_factory
from maze_pl.envs.job_shop.sub_step_observations import jobs_observation
from maze_pl.envs.structured_env import Array


class StructuredJobShopArrayEnvironment(JobShopArrayEnvironment):
    """The structured job shop over arrays, each episode equal to one of `StructuredJobShopEnvironment`.

    Args:
        instances: Names of published instances (`ta01`, spans such as `ta01-ta10`), random ones
            (`random(15x15)`), or files; one is drawn for each episode, with equal probabilities.
        max_jobs: Maximum number of jobs; the largest number of `instances` if None.
        max_alternatives: Maximum number of alternatives of an operation; the largest number of
            `instances` if None.
        choices: Options that may be chosen: "active", "non_delay" or "all", see
            `JobShopSimulation`.
        reward_aggregator: Computes rewards; `LowerBoundRewardAggregator()` if None.

    Raises:
        ValueError: An instance is unknown, malformed or too large, an option is out of range, or a
            source of instances does not declare their sizes.
        TypeError: The aggregator has no array form.
    """

    def __init__(
        self,
        instances: Instances,
        max_jobs: int | None = None,
        max_alternatives: int | None = None,
        choices: Choices = "active",
        reward_aggregator: ScheduleRewardAggregator | None = None,
    ) -> None:
        super().__init__(instances, max_jobs, max_alternatives, choices, reward_aggregator)
        self._single = structured_job_shop_factory(instances, max_jobs, max_alternatives, choices)

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self._next_key = np.zeros(n_envs, np.int64)
        self._job = np.zeros(n_envs, np.int64)  # chosen in sub-step 0
        self._env_time = np.zeros(n_envs, np.int64)
        of_jobs = self.observation_spaces_dict[0].spaces
        of_alternatives = self.observation_spaces_dict[1].spaces
        self._jobs = np.zeros((n_envs, *(of_jobs["jobs"].shape or ())), np.float32)
        self._job_mask = np.zeros((n_envs, self.sizes.jobs), np.float32)
        self._job_exists = np.zeros((n_envs, self.sizes.jobs), np.float32)
        self._alternatives = np.zeros((n_envs, *(of_alternatives["alternatives"].shape or ())), np.float32)
        self._alternative_mask = np.zeros((n_envs, self.sizes.alternatives), np.float32)

    def reset(self, which: Array, seeds: Array) -> ArrayStep:
        """Start empty schedules with the choice of a job."""
        self._start(which, seeds)
        self._next_key[which] = 0
        self._env_time[which] = 0
        return ArrayStep(self._observations(), env_time=self._env_time, next_key=self._next_key)

    def step(self, actions: Mapping[Any, Mapping[str, Array]], which: EnvIndex) -> ArrayStep:
        """Choose a job (sub-step 0) or one of its alternatives (sub-step 1)."""
        numbers = self.numbers_of(which)
        is_second = self._next_key[numbers] == 1
        first = numbers[~is_second]
        second = numbers[is_second]
        result = ArrayStep({}, np.zeros(self.n_envs), env_time=self._env_time, next_key=self._next_key)
        if len(first):
            self._job[first] = actions[0]["job"][first]
            self._show_alternatives(first)
            self._next_key[first] = 1
        if len(second):
            alternative = actions[1]["alternative"][second].astype(np.int64)
            option = self._job[second] * self.sizes.alternatives + alternative
            result.reward, result.terminated = self._schedule(second, *np.divmod(option, self.sizes.alternatives))
            result.actor_rewards = np.repeat(result.reward[:, np.newaxis] / 2, 2, axis=1)
            self._env_time[second] += 1
            self._next_key[second] = 0
        result.observation = self._observations()
        return result

    def maze_state(self, env: int) -> JobShopMazeState:
        """Return the state of one environment, in sub-step 1 with options of the chosen job only."""
        state = super().maze_state(env)
        return state.of_job(int(self._job[env])) if self._next_key[env] == 1 else state

    def _observe(self, which: Array) -> None:
        """Compute the observations of some environments, and show each job with its best option."""
        super()._observe(which)
        rows = self.simulation.rows_of(which)
        flat = {name: array[rows] for name, array in self._observation.items()}
        computed = jobs_observation(flat, self.sizes.jobs, self.sizes.alternatives)
        self._jobs[rows] = computed["jobs"]
        self._job_mask[rows] = computed["job_mask"]
        self._job_exists[rows] = computed["exists"]

    def _show_alternatives(self, which: Array) -> None:
        """Show the alternatives of the chosen jobs; zeros for a job that does not exist."""
        job = self._job[which]
        is_job = (job >= 0) & (job < self.sizes.jobs)
        job = np.where(is_job, job, 0)
        for flat_name, shown in {"options": self._alternatives, "option_mask": self._alternative_mask}.items():
            array = self._observation[flat_name]
            by_job = array.reshape(self.n_envs, self.sizes.jobs, self.sizes.alternatives, *array.shape[2:])
            chosen = by_job[which, job]
            chosen[~is_job] = 0.0
            shown[which] = chosen

    def _observations(self) -> dict[Any, dict[str, Array]]:
        """Observations of both sub-steps."""
        summary = self._observation["summary"]
        return {
            0: {"jobs": self._jobs, "job_mask": self._job_mask, "exists": self._job_exists, "summary": summary},
            1: {
                "alternatives": self._alternatives,
                "alternative_mask": self._alternative_mask,
                "summary": summary,
            },
        }
