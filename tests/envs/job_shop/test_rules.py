"""Dispatching rules: schedules by hand, an independent reference, published gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.core.policy import PolicyBatch
from maze_pl.envs.job_shop import JobShopInstance, job_shop_factory, published_instance, structured_job_shop_factory
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


def slow_choice(slow: SlowSchedule, jobs: Jobs, rule: str) -> tuple[int, int]:
    """Job and machine, ranked from the definitions."""

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

    options = slow.options()
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


def test_the_heuristic_of_both_forms_plays_the_same_episodes() -> None:
    text = "random(4x3, alternatives=2)"
    flat = rollout(lambda: job_shop_factory([text]), "heuristic", episodes=3)
    structured = rollout(lambda: structured_job_shop_factory([text]), "heuristic", episodes=3)
    assert [one.summary.reward for one in flat] == [one.summary.reward for one in structured]
