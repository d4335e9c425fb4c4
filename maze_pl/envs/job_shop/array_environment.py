"""The flat job shop over arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from maze_pl.envs.arrays.array_form_env import ArrayFormEnv
from maze_pl.envs.arrays.array_step import ArrayStep, EnvIndex
from maze_pl.envs.job_shop.array_observation import schedule_observation, state_of
from maze_pl.envs.job_shop.array_simulation import ArrayJobShopSimulation, ScheduleResult
from maze_pl.envs.job_shop.core_environment import Instances, JobShopCoreEnvironment
from maze_pl.envs.job_shop.environment import job_shop_factory
from maze_pl.envs.job_shop.events import ScheduleEvents
from maze_pl.envs.job_shop.instance import JobShopInstance
from maze_pl.envs.job_shop.instance_source import draw_one, sizes_of
from maze_pl.envs.job_shop.kpi_calculator import KPI_NAMES, schedule_kpis
from maze_pl.envs.job_shop.lower_bound_reward_aggregator import LowerBoundRewardAggregator
from maze_pl.envs.job_shop.objects import JobShopMazeState
from maze_pl.envs.job_shop.renderer import JobShopRenderer
from maze_pl.envs.job_shop.schedule_reward_aggregator import ScheduleRewardAggregator
from maze_pl.envs.job_shop.simulation import Choices
from maze_pl.envs.structured_env import Array


class JobShopArrayEnvironment(ArrayFormEnv):
    """The flat job shop over arrays, each episode equal to one of `JobShopEnvironment`.

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
        single = job_shop_factory(instances, max_jobs, max_alternatives, choices)  # makes all checks
        super().__init__(single)
        self._flat_space = single.observation_spaces_dict[0]
        core_env: JobShopCoreEnvironment = single.core_env  # type: ignore[assignment]
        self.sources = core_env.sources
        self.sizes = sizes_of(self.sources, core_env.max_jobs, core_env.max_alternatives)
        self.choices = choices
        aggregator = reward_aggregator or LowerBoundRewardAggregator()
        if not isinstance(aggregator, ScheduleRewardAggregator):
            remedy = "derive it from ScheduleRewardAggregator and define its costs"
            fault = f"{type(aggregator).__name__} has no array form"
            raise TypeError(f"{fault}; {remedy}, or use the sequential environment")
        self.reward_aggregator = aggregator
        self._topic: Any = self.create_event_topic(ScheduleEvents)

    @property
    def kpi_names(self) -> tuple[str, ...]:
        """Names of the KPIs."""
        return KPI_NAMES

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self.simulation = ArrayJobShopSimulation(n_envs, self.sizes, self.choices)
        self._source = np.zeros(n_envs, np.int64)
        # made when `maze_state` needs them
        self._instances: list[JobShopInstance | None] = [None] * n_envs
        self._observation: dict[str, Array] = {}
        for name, space in self._flat_space.items():
            self._observation[name] = np.zeros((n_envs, *(space.shape or ())), np.float32)

    def reset(self, which: Array, seeds: Array) -> ArrayStep:
        """Start empty schedules."""
        self._start(which, seeds)
        return ArrayStep({0: self._observation})

    def _start(self, which: Array, seeds: Array) -> None:
        """Draw instances and observe them; an episode needs random numbers for its instance only.

        Instances are drawn one after the other, as a source may use the generator of an episode in any way.
        """
        instances = []
        for env, seed in zip(which.tolist(), seeds.tolist(), strict=True):
            instance, self._source[env] = draw_one(self.sources, np.random.default_rng(seed))
            instances.append(instance)
            self._instances[env] = None
        self.simulation.reset(which, instances)
        self._observe(which)

    def step(self, actions: Mapping[Any, Mapping[str, Array]], which: EnvIndex) -> ArrayStep:
        """Schedule an operation of each environment."""
        numbers = self.numbers_of(which)
        job, alternative = np.divmod(actions[0]["option"][numbers].astype(np.int64), self.sizes.alternatives)
        reward, terminated = self._schedule(numbers, job, alternative)
        return ArrayStep({0: self._observation}, reward, terminated)

    def _schedule(self, which: Array, job: Array, alternative: Array) -> tuple[Array, Array]:
        """Schedule operations; returns rewards [N] and whether schedules are complete [N]."""
        simulation = self.simulation
        result = simulation.schedule(which, job, alternative)
        makespan = np.where(result.is_complete, simulation.bound[which], 0)
        self._fire(which, job, alternative, result, makespan)
        start_bound = simulation.instances.start_bound[which]
        reward = np.zeros(self.n_envs)
        terminated = np.zeros(self.n_envs, np.bool_)
        reward[which] = self.reward_aggregator.rewards(result.idle_time, result.bound_increase, makespan, start_bound)
        terminated[which] = result.is_complete
        self._observe(which)
        return reward, terminated

    def _fire(self, which: Array, job: Array, alternative: Array, result: ScheduleResult, makespan: Array) -> None:
        """Fire the events of operations that were scheduled."""
        wrong = ~result.is_valid
        self._topic.invalid_choice(which[wrong], job=job[wrong], alternative=alternative[wrong])
        self._topic.operation_scheduled(
            which,
            job=result.job,
            operation=result.operation,
            machine=result.machine,
            start=result.start,
            duration=result.duration,
            idle_time=result.idle_time,
            bound_increase=result.bound_increase,
        )
        self._topic.schedule_completed(which[result.is_complete], makespan=makespan[result.is_complete])

    def _observe(self, which: Array) -> None:
        """Compute the observations of some environments."""
        if len(which) == 0:
            return
        computed = schedule_observation(self.simulation, which)
        if len(which) == self.n_envs:
            self._observation = computed
            return
        for name, array in computed.items():
            self._observation[name][which] = array

    def kpis(self, which: Array) -> Mapping[str, Array]:
        """Return the KPIs; the gap is NaN for random instances, and all are NaN for incomplete schedules."""
        simulation = self.simulation
        instances = simulation.instances
        makespan = simulation.machine_ready[which].max(axis=1).astype(np.float64)
        machine_time = np.maximum(instances.n_machines[which] * makespan, 1)
        start_bound = np.maximum(instances.start_bound[which], 1)
        best_known = instances.best_known[which]
        values = schedule_kpis(makespan, start_bound, best_known, simulation.scheduled_work[which], machine_time)
        is_complete = simulation.n_unfinished[which] == 0
        return {name: np.where(is_complete, value, np.nan) for name, value in values.items()}

    def get_renderer(self) -> JobShopRenderer:
        """Return the renderer of the Gantt chart."""
        return JobShopRenderer()

    def maze_state(self, env: int) -> JobShopMazeState:
        """Return the state of one environment; all states of an episode have the same instance."""
        instance = self._instances[env]
        if instance is None:
            source = self.sources[int(self._source[env])]
            instance = source.instance_in(self.simulation.instances, env)
            self._instances[env] = instance
        return state_of(self.simulation, env, instance)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`; see `ArrayEnv.load_state_dict`."""
        super().load_state_dict(state)
        self._instances = [None] * self.n_envs

    def _arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield the arrays of the state, by name."""
        yield from super()._arrays()
        yield from self.simulation.arrays()
        for name, array in self._observation.items():
            yield f"observation_{name}", array
