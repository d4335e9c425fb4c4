"""Dispatching rules: schedules by hand, an independent reference, published gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.core.policy import PolicyBatch
from maze_pl.envs.job_shop import (
    JobShopInstance,
    StructuredJobShopArrayEnvironment,
    job_shop_factory,
    published_instance,
    structured_job_shop_factory,
)
from maze_pl.envs.job_shop.dispatching_rule_policy import DispatchingRulePolicy
from maze_pl.runs.rollout import rollout
from tests.envs.job_shop.reference import TWO_BY_TWO, Jobs, SlowSchedule, drawn, jobs_of, play

RULES = ["spt", "lpt", "mwkr", "mopnr", "fifo", "fdd_mwkr"]


def makespan(instance: Any, rule: Any, **options: Any) -> int:
    env = job_shop_factory([instance], **options)
    play(env, DispatchingRulePolicy(env.action_spaces_dict, rule))
    return env.get_maze_state().makespan


def test_schedules_of_two_jobs_by_hand() -> None:
    instance = JobShopInstance.of("pair", 2, TWO_BY_TWO)
    # job 1 first on machine 0 ends at 8, job 0 first at 9
    expected = {"spt": 8, "lpt": 9, "mwkr": 8, "mopnr": 8, "fifo": 8, "fdd_mwkr": 8}
    assert {rule: makespan(instance, rule) for rule in RULES} == expected


def slow_choice(slow: SlowSchedule, jobs: Jobs, rule: str, only_job: int | None = None) -> tuple[int, int]:
    """Job and machine, ranked from the definitions, of all jobs or of one."""

    def rank(option: tuple[int, int, int, int]) -> tuple[float, int, int]:
        job, _, start, end = option
        done = sum(entry[0] == job for entry in slow.placed)
        shortest = [min(operation.values()) for operation in jobs[job]]
        ready = max([entry[4] for entry in slow.placed if entry[0] == job], default=0)
        ranks: dict[str, float] = {
            "spt": end - start,
            "lpt": start - end,
            "mwkr": -sum(shortest[done:]),
            "mopnr": -len(shortest[done:]),
            "fifo": ready,
            "fdd_mwkr": sum(shortest[: done + 1]) / sum(shortest[done:]),
        }
        return ranks[rule], end, job

    options = [option for option in slow.options() if only_job in (None, option[0])]
    first = min(start for _, _, start, _ in options)
    best = min((option for option in options if option[2] == first), key=rank)
    return best[0], best[1]


@pytest.mark.parametrize("rule", RULES)
def test_rules_equal_a_slow_reference(rule: str) -> None:
    for instance in (published_instance("ft06"), drawn("random(5x3, times=1-9, alternatives=2)", 0)):
        jobs = jobs_of(instance)
        slow = SlowSchedule(jobs, instance.n_machines)
        while slow.options():
            slow.place(*slow_choice(slow, jobs, rule))
        assert makespan(instance, rule) == slow.makespan
        assert makespan(instance, rule, choices="all") == slow.makespan
        assert makespan(instance, rule, choices="non_delay") == slow.makespan


@pytest.mark.parametrize("rule", RULES)
def test_as_second_actor_a_rule_chooses_among_the_alternatives_of_the_chosen_job(rule: Any) -> None:
    instance = drawn("random(5x4, times=1-9, alternatives=3)", 1)
    jobs = jobs_of(instance)
    single = structured_job_shop_factory([instance])
    arrays = StructuredJobShopArrayEnvironment([instance])
    arrays.allocate(1)
    policy = DispatchingRulePolicy(single.action_spaces_dict, rule)
    random = np.random.default_rng(0)
    for episode in range(3):
        observation, _ = single.reset(seed=episode)
        arrays.reset(np.zeros(1, np.int64), np.array([episode]))
        slow = SlowSchedule(jobs, instance.n_machines)
        while slow.options():
            job = int(random.choice(np.flatnonzero(observation["job_mask"])))
            observation, *_ = single.step({"job": job})
            arrays.step({0: {"job": np.array([job])}}, slice(None))
            states = [single.get_simulation_state(), arrays.maze_state(0)]
            chosen = policy.act(PolicyBatch(1, {}, np.zeros(2), maze_state=states)).action["alternative"]
            alternative = int(chosen[0])
            assert alternative == chosen[1]
            assert observation["alternative_mask"][alternative]
            machine = int(states[0].option_machines[job, alternative])
            assert (job, machine) == slow_choice(slow, jobs, rule, job)
            slow.place(job, machine)
            observation, *_, info = single.step({"alternative": alternative})
            assert not info
            arrays.step({1: {"alternative": chosen[1:]}}, slice(None))


def test_as_second_actor_a_rule_plays_on_if_the_chosen_job_is_not_allowed() -> None:
    instance = JobShopInstance.of("long first", 2, [[[(0, 4)], [(1, 1)]], [[(1, 2)], [(0, 9)]]])
    env = structured_job_shop_factory([instance], choices="non_delay")
    env.reset(seed=0)
    env.step({"job": 0})
    env.step({"alternative": 0})
    env.step({"job": 0})  # its next operation starts at 4, that of job 1 at 0
    policy = DispatchingRulePolicy(env.action_spaces_dict)
    batch = PolicyBatch(1, {}, np.zeros(1), maze_state=[env.get_simulation_state()])
    *_, info = env.step({"alternative": int(policy.act(batch).action["alternative"][0])})
    assert info == {"error": "option_not_allowed"}
    assert env.get_maze_state().last == (1, 0)


def test_without_the_restriction_a_rule_ranks_everything_that_is_allowed() -> None:
    instance = JobShopInstance.of("waiting", 2, [[[(0, 4)], [(1, 1)]], [[(1, 9)]], [[(0, 2)]]])
    env = job_shop_factory([instance])
    env.reset(seed=0)
    env.step({"option": 2})
    state = env.get_maze_state()
    assert DispatchingRulePolicy(env.action_spaces_dict, "spt").choose(state) == (1, 0)
    assert DispatchingRulePolicy(env.action_spaces_dict, "spt", only_earliest=False).choose(state) == (0, 0)


def test_unknown_rules_and_batches_without_states_are_refused() -> None:
    env = job_shop_factory(["ft06"])
    with pytest.raises(ValueError, match="rule='edd' is unknown; known rules are spt"):
        DispatchingRulePolicy(env.action_spaces_dict, "edd")  # type: ignore[arg-type]
    policy = DispatchingRulePolicy(env.action_spaces_dict)
    with pytest.raises(ValueError, match="needs the states of the simulation"):
        policy.act(PolicyBatch(0, {}, np.zeros(1)))


def test_heads_of_another_size_are_refused() -> None:
    env, other = (job_shop_factory([f"random({n}x3)"]) for n in (4, 3))
    env.reset(seed=0)
    batch = PolicyBatch(0, {}, np.zeros(1), maze_state=[env.get_simulation_state()])
    with pytest.raises(ValueError, match="DispatchingRulePolicy gives actions of"):
        DispatchingRulePolicy(other.action_spaces_dict).act(batch)


def test_the_heuristic_of_both_forms_plays_the_same_episodes() -> None:
    text = "random(4x3, alternatives=2)"
    flat = rollout(lambda: job_shop_factory([text]), "heuristic", episodes=3)
    structured = rollout(lambda: structured_job_shop_factory([text]), "heuristic", episodes=3)
    assert [one.summary.reward for one in flat] == [one.summary.reward for one in structured]
