"""The simulation: a schedule is built one operation after the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from maze_pl.envs.core_env import CoreEnv, RewardAggregatorInterface, take_over
from maze_pl.envs.job_shop.events import ScheduleEvents
from maze_pl.envs.job_shop.instance import JobShopInstance
from maze_pl.envs.job_shop.instance_source import InstanceSource, draw_one
from maze_pl.envs.job_shop.kpi_calculator import JobShopKpiCalculator
from maze_pl.envs.job_shop.lower_bound_reward_aggregator import LowerBoundRewardAggregator
from maze_pl.envs.job_shop.objects import JobShopMazeAction, JobShopMazeState
from maze_pl.envs.job_shop.published import instance_sources
from maze_pl.envs.job_shop.renderer import JobShopRenderer
from maze_pl.envs.job_shop.simulation import Choices, JobShopSimulation

Instances = Sequence[str | Path | JobShopInstance | InstanceSource]


class JobShopCoreEnvironment(CoreEnv):
    """The job shop and the flexible job shop, with the makespan as objective.

    Each step schedules the next operation of one job on one of its alternative machines, as early
    as possible after everything that is already on this machine; see `JobShopSimulation`. An
    episode has one step per operation. An option that is not allowed is replaced by the allowed one
    that completes first (`invalid_choice`), so that every policy ends with a complete schedule.

    Args:
        instances: Names of published instances (`ta01`, spans such as `ta01-ta10`), random ones
            (`random(15x15)`), or files; one is drawn for each episode, with equal probabilities.
        max_jobs: Maximum number of jobs; the largest number of `instances` if None.
        max_alternatives: Maximum number of alternatives of an operation; the largest number of
            `instances` if None.
        choices: Options that may be chosen: "active", "non_delay" or "all".
        reward_aggregator: Computes rewards; `LowerBoundRewardAggregator()` if None.

    Raises:
        ValueError: An instance is unknown, malformed or too large, or an option is out of range.
    """

    def __init__(
        self,
        instances: Instances,
        max_jobs: int | None = None,
        max_alternatives: int | None = None,
        choices: Choices = "active",
        reward_aggregator: RewardAggregatorInterface | None = None,
    ) -> None:
        super().__init__()
        if choices not in get_args(Choices):
            raise ValueError(f"{choices=} must be one of {', '.join(get_args(Choices))}")
        self.sources = instance_sources(instances)
        most_jobs = max(source.max_jobs for source in self.sources)
        most_alternatives = max(source.max_alternatives for source in self.sources)
        self.max_jobs = _limit("max_jobs", max_jobs, most_jobs)
        self.max_alternatives = _limit("max_alternatives", max_alternatives, most_alternatives)
        self.simulation = JobShopSimulation(self.max_jobs, self.max_alternatives, choices)
        self.reward_aggregator = reward_aggregator or LowerBoundRewardAggregator()
        self.pubsub.register_subscriber(self.reward_aggregator)
        self._events = self.pubsub.create_event_topic(ScheduleEvents)
        self._generator = np.random.default_rng()
        self._stepped_at = -1
        self.reset()  # so that there is a state

    def reset(self) -> JobShopMazeState:
        """Start an empty schedule of an instance."""
        if self.context.env_time:  # without a `MazeEnv`, which would have begun the episode
            self.context.reset_episode()
        self.pubsub.clear()
        self._stepped_at = -1
        instance, _ = draw_one(self.sources, self._generator)
        self.simulation.reset(instance)
        return self.get_maze_state()

    def step(self, maze_action: JobShopMazeAction) -> tuple[JobShopMazeState, float, bool, bool, dict[str, Any]]:
        """Schedule an operation.

        Returns:
            State, reward, terminated (everything is scheduled), truncated (always False), and info,
            which names an option that was not allowed.

        Raises:
            ValueError: The schedule is complete; start another episode.
        """
        simulation = self.simulation
        if simulation.is_complete:
            raise ValueError(f"the schedule of {simulation.instance.name} is complete; call reset first")
        if self.context.env_time == self._stepped_at:  # without a `MazeEnv`, which would keep time
            self.pubsub.clear()
            self.context.env_time += 1
        self._stepped_at = self.context.env_time
        job, alternative = maze_action.job, maze_action.alternative
        info: dict[str, Any] = {}
        if not self._is_allowed(job, alternative):
            self._events.invalid_choice(job=job, alternative=alternative)
            info = {"error": "option_not_allowed"}
            job, alternative = self._first_to_complete()
        operation = int(simulation.next_operation[job])
        machine = int(simulation.option_machines[job, alternative])
        bound = simulation.bound
        ready = int(simulation.machine_ready[machine])
        machine, start, duration = simulation.schedule(job, alternative)
        self._events.operation_scheduled(
            job=job,
            operation=operation,
            machine=machine,
            start=start,
            duration=duration,
            idle_time=start - ready,
            bound_increase=simulation.bound - bound,
        )
        is_complete = simulation.is_complete
        if is_complete:
            self._events.schedule_completed(makespan=simulation.makespan)
        maze_state = self.get_maze_state()
        return maze_state, self.reward_aggregator.summarize_reward(maze_state), is_complete, False, info

    def _is_allowed(self, job: int, alternative: int) -> bool:
        """True for an option that may be chosen."""
        is_inside = 0 <= job < self.max_jobs and 0 <= alternative < self.max_alternatives
        return is_inside and bool(self.simulation.allowed[job, alternative])

    def _first_to_complete(self) -> tuple[int, int]:
        """Job and alternative of the allowed option that completes first, the first one in a tie."""
        simulation = self.simulation
        completions = np.where(simulation.allowed, simulation.completions, np.iinfo(np.int64).max)
        job, alternative = divmod(int(completions.argmin()), self.max_alternatives)
        return job, alternative

    def get_maze_state(self) -> JobShopMazeState:
        """Return a copy of the schedule and its options."""
        simulation = self.simulation
        return JobShopMazeState(
            instance=simulation.instance,
            next_operation=simulation.next_operation.copy(),
            job_ready=simulation.job_ready.copy(),
            machine_ready=simulation.machine_ready.copy(),
            remaining_work=simulation.remaining_work.copy(),
            remaining_operations=simulation.remaining_operations.copy(),
            successor_durations=simulation.successor_durations.copy(),
            successor_machines=simulation.successor_machines.copy(),
            machine_load=simulation.machine_load.copy(),
            option_machines=simulation.option_machines.copy(),
            option_durations=simulation.option_durations.copy(),
            exists=simulation.exists.copy(),
            starts=simulation.starts.copy(),
            completions=simulation.completions.copy(),
            allowed=simulation.allowed.copy(),
            operation_starts=simulation.operation_starts.copy(),
            operation_machines=simulation.operation_machines.copy(),
            bound=simulation.bound,
            n_scheduled=simulation.n_scheduled,
            last=simulation.last,
            total_remaining_work=simulation.total_remaining_work,
            n_unfinished=simulation.n_unfinished,
            earliest_start=simulation.earliest_start,
            earliest_completion=simulation.earliest_completion,
        )

    def seed(self, seed: int) -> None:
        """Seed the generator that instances are drawn with."""
        self._generator = np.random.default_rng(seed)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def clone_from(self, env: Any) -> None:
        """Take over the state of another simulation; see `CoreEnv.clone_from`."""
        take_over(self, env)

    def get_renderer(self) -> JobShopRenderer:
        """Return the renderer of the Gantt chart."""
        return JobShopRenderer()

    def get_kpi_calculator(self) -> JobShopKpiCalculator:
        """Return the calculator of the makespan and its gaps."""
        return JobShopKpiCalculator()


def _limit(name: str, limit: int | None, most: int) -> int:
    """Return a maximum size, or the largest size of the instances if it is not given."""
    if limit is None:
        return most
    if limit < most:
        raise ValueError(f"{name}={limit} is less than the {most} of the largest instance; give at least {most}")
    return limit
