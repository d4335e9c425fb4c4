"""The job shop over arrays, number for number against environments of single episodes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.envs import ArrayVectorEnv, SequentialVectorEnv, WeightedRewardAggregator
from maze_pl.envs.checker.same_as import compare_envs
from maze_pl.envs.job_shop import (
    IdleTimeRewardAggregator,
    InstanceSource,
    JobShopArrayEnvironment,
    JobShopInstance,
    LowerBoundRewardAggregator,
    MakespanRewardAggregator,
    RandomInstances,
    ScheduleRewardAggregator,
    StructuredJobShopArrayEnvironment,
)
from tests.envs.arrays.pairs_of_forms import PairOfForms
from tests.envs.job_shop.reference import FACTORIES, INSTANT, TWO_BY_TWO

ARRAYS: dict[str, Any] = {"flat": JobShopArrayEnvironment, "structured": StructuredJobShopArrayEnvironment}
UNEVEN = JobShopInstance.of("uneven", 4, [[[(0, 3), (2, 5)], [(1, 2)], [(3, 1), (0, 1), (1, 9)]], [[(1, 0)]]])
PAIR = JobShopInstance.of("pair", 2, TWO_BY_TWO, lower_bound=8, best_known=8)
INSTANCES: dict[str, list[Any]] = {
    "classic": ["random(4x3)"],
    "sizes": ["random(2-5x1-4, times=1-9)"],
    "flexible": ["random(3x3, times=1-9, alternatives=3)"],
    "mixed": [PAIR, UNEVEN, "ft06", "random(2-4x2-3, times=1-9, alternatives=2)"],
}
REWARDS: list[Any] = [
    LowerBoundRewardAggregator(relative=True),
    MakespanRewardAggregator(),
    MakespanRewardAggregator(relative=True),
    IdleTimeRewardAggregator(),
    IdleTimeRewardAggregator(relative=True),
]
every_form = pytest.mark.parametrize("form", list(ARRAYS))


class CarelessPair(PairOfForms):
    """Ignores masks in half of the acts."""

    def actions_of(self, key: Any) -> dict[str, np.ndarray]:
        """Actions, some of which are not allowed."""
        actions = super().actions_of(key)
        for head, values in actions.items():
            is_careless = self.random.random(self.n_envs) < 0.5
            values[is_careless] = self.random.integers(self.steps[key].action_space[head].n, size=is_careless.sum())
        return actions


def pair_of(form: str, instances: Any, n_envs: int, seed: int, pair: Any = PairOfForms, **options: Any) -> PairOfForms:
    def make(kind: Any) -> Any:
        return kind(instances, **copy.deepcopy(options))

    return pair(make(ARRAYS[form]), lambda: make(FACTORIES[form]), n_envs, seed, cut_short=0.03)


@every_form
@pytest.mark.parametrize("choices", ["active", "non_delay", "all"])
@pytest.mark.parametrize("instances", INSTANCES.values(), ids=INSTANCES)
def test_arrays_equal_single_episodes(form: str, choices: str, instances: Any) -> None:
    pair = pair_of(form, instances, 4, seed=5, choices=choices)
    pair.play(60)
    assert pair.n_ended


@every_form
def test_larger_arrays_than_instances_equal_single_episodes(form: str) -> None:
    pair_of(form, INSTANCES["sizes"], 3, seed=2, max_jobs=8, max_alternatives=3).play(60)


@every_form
@pytest.mark.parametrize("instances", INSTANCES.values(), ids=INSTANCES)
def test_choices_that_are_not_allowed_are_replaced_as_in_single_episodes(form: str, instances: Any) -> None:
    pair_of(form, instances, 4, seed=7, pair=CarelessPair, max_jobs=7).play(50)


CASES = st.fixed_dictionaries(
    {
        "form": st.sampled_from(list(ARRAYS)),
        "n_jobs": st.tuples(st.integers(1, 4), st.integers(0, 3)),
        "n_machines": st.tuples(st.integers(1, 4), st.integers(0, 3)),
        "longest": st.sampled_from([1, 3, 99, 8 * 10**8]),
        "alternatives": st.integers(1, 3),
        "choices": st.sampled_from(["active", "non_delay", "all"]),
        "pair": st.sampled_from([PairOfForms, CarelessPair]),
        "aggregator": st.sampled_from(REWARDS),
        "seed": st.integers(0, 2**32),
    }
)


def check_generated(case: dict[str, Any], n_acts: int) -> None:
    jobs = (case["n_jobs"][0], sum(case["n_jobs"]))
    machines = (case["n_machines"][0], sum(case["n_machines"]))
    source = RandomInstances(jobs, machines, (1, case["longest"]), min(case["alternatives"], machines[0]))
    options = {"choices": case["choices"], "reward_aggregator": case["aggregator"]}
    pair_of(case["form"], [source], 3, case["seed"], pair=case["pair"], **options).play(n_acts)


@settings(max_examples=10, deadline=None)
@given(CASES)
def test_generated_instances_equal_single_episodes(case: dict[str, Any]) -> None:
    check_generated(case, 40)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(CASES)
def test_500_generated_instances_equal_single_episodes(case: dict[str, Any]) -> None:
    check_generated(case, 80)


@every_form
@pytest.mark.parametrize("aggregator", REWARDS)
def test_rewards_are_equal_in_arrays(form: str, aggregator: Any) -> None:
    pair_of(form, INSTANCES["mixed"], 3, seed=4, reward_aggregator=aggregator).play(60)


def test_work_without_duration_is_equal_in_arrays() -> None:
    idle = JobShopInstance.of("idle", 2, [[[(0, 0)], [(1, 0), (0, 0)]], [[(1, 0)]]])
    for form in ARRAYS:
        for instances in ([idle], [INSTANT, idle]):
            pair_of(form, instances, 2, seed=0, reward_aggregator=LowerBoundRewardAggregator(True)).play(20)


@every_form
def test_vector_environments_of_both_forms_have_equal_statistics(form: str) -> None:
    instances = INSTANCES["mixed"]

    def arrays() -> ArrayVectorEnv:
        return ArrayVectorEnv(lambda: ARRAYS[form](instances), 3)

    def singles() -> SequentialVectorEnv:
        return SequentialVectorEnv([lambda: FACTORIES[form](instances)] * 3)

    comparison = compare_envs(arrays, singles, n_steps=300)
    assert comparison.difference is None
    assert comparison.n_episodes


@every_form
def test_saved_arrays_continue_as_they_were(form: str) -> None:
    for name in ("sizes", "mixed"):
        pair = pair_of(form, INSTANCES[name], 3, seed=1)
        pair.play(11)
        copied = ARRAYS[form](INSTANCES[name])
        copied.allocate(3)
        copied.load_state_dict(copy.deepcopy(pair.arrays.state_dict()))
        pair.arrays = copied
        pair.play(40)


@pytest.mark.parametrize("instances", INSTANCES.values(), ids=INSTANCES)
def test_the_state_of_one_environment_is_that_of_the_simulation(instances: Any) -> None:
    pair = pair_of("flat", instances, 6, seed=3)
    for _ in range(25):
        pair.play(1)
        for n in range(6):
            compare_states(pair.arrays.maze_state(n), pair.singles[n].get_maze_state())


def compare_states(ours: Any, theirs: Any) -> None:
    for name in type(theirs).__slots__:
        if name != "instance":
            np.testing.assert_equal(getattr(ours, name), getattr(theirs, name), name)
    for name, value in vars(theirs.instance).items():
        np.testing.assert_equal(getattr(ours.instance, name), value, name)


class _Half(ScheduleRewardAggregator):
    """Penalises waiting and growth, by half each."""

    def costs(self, idle_time: Any, bound_increase: Any, makespan: Any) -> Any:
        return 0.5 * idle_time + 0.5 * bound_increase


@every_form
def test_rewards_of_users_serve_both_forms(form: str) -> None:
    pair_of(form, INSTANCES["sizes"], 3, seed=6, reward_aggregator=_Half(relative=True)).play(40)


class _Chain(InstanceSource):
    """Draws one job on one machine after the other."""

    max_jobs = 1
    max_alternatives = 1

    def draw(self, generator: np.random.Generator) -> JobShopInstance:
        times = generator.integers(1, 9, 3).tolist()
        return JobShopInstance.of("chain", 3, [[[(machine, time)] for machine, time in enumerate(times)]])


class _SizedChain(_Chain):
    max_operations = 3
    max_machines = 3


class _SmallChain(_Chain):
    max_operations = 3
    max_machines = 2


@every_form
def test_sources_of_users_declare_their_sizes(form: str) -> None:
    pair_of(form, [_SizedChain(), "random(3x2)"], 3, seed=6).play(40)
    with pytest.raises(ValueError, match="_Chain does not declare max_operations and max_machines"):
        ARRAYS[form]([_Chain()])
    wrong = ARRAYS[form]([_SmallChain()])
    wrong.allocate(1)
    with pytest.raises(ValueError, match="chain has 3 machines, more than the largest, 2"):
        wrong.reset(np.arange(1), np.arange(1))


def test_a_complete_schedule_is_not_continued() -> None:
    env = JobShopArrayEnvironment([JobShopInstance.of("one", 1, [[[(0, 1)]]]), "random(2x2)"])
    env.allocate(1)
    env.reset(np.zeros(1, np.int64), np.array([1]))
    action = {0: {"option": np.zeros(1, np.int64)}}
    while not env.step(action, slice(None)).terminated[0]:
        pass
    with pytest.raises(ValueError, match=r"the schedules of environments \[0\] are complete; call reset first"):
        env.step(action, slice(None))


@every_form
def test_wrong_options_are_refused_as_in_single_episodes(form: str) -> None:
    for make in (ARRAYS[form], FACTORIES[form]):
        with pytest.raises(ValueError, match="max_jobs=3 is less than the 4 of the largest instance"):
            make(["random(4x3)"], max_jobs=3)
        with pytest.raises(ValueError, match="choices='some' must be one of active, non_delay, all"):
            make(["random(4x3)"], choices="some")
        with pytest.raises(ValueError, match="'ft99' is neither a file nor a published instance"):
            make(["ft99"])
    weighted: Any = WeightedRewardAggregator({"idle": IdleTimeRewardAggregator()}, {"idle": 0.5})
    with pytest.raises(TypeError, match="WeightedRewardAggregator has no array form; derive it from Schedule"):
        ARRAYS[form](["random(4x3)"], reward_aggregator=weighted)
