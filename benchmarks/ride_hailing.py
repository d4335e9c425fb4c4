"""Results on ride hailing: dispatching rules and trained policies on the same days.

    maze-pl fit --config ppo_ride_hailing --seed_everything 0 --run_dir outputs/ride_hailing/0
    python benchmarks/ride_hailing.py outputs/ride_hailing/* --days 100
    python benchmarks/ride_hailing.py --tune --days 16      # values of the options of the rules, on other days

Columns are means over the days: return (fares minus costs), share of passengers that are served, minutes until
the pick-up, income per vehicle hour, share of km without a passenger. Differences from the best rule are paired by
day, with a 95% interval (normal quantile; use at least 30 days).
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import maze_pl
from maze_pl.envs.ride_hailing import ride_hailing_factory
from maze_pl.envs.ride_hailing.dispatching_rule_policy import DispatchingRulePolicy
from maze_pl.runs.rollout import rollout

RULES = ("nearest", "longest_waiting", "batch")
KPIS = ("served_share", "mean_waiting_time", "income_per_vehicle_hour", "empty_share")
MAX_AGENTS = {"vehicle": 16}
FIRST_DAY = 0
FIRST_TUNING_DAY = 1_000_000
TUNED = {"value_of_time": 0.2, "distance_weight": 0.15}


def play(policy: Any, first: int, n_days: int) -> list[Any]:
    """Summaries of days, which are the same for all policies."""
    options: dict[str, Any] = {"episodes": n_days, "seed": first, "max_agents": MAX_AGENTS, "deterministic": True}
    return [episode.summary for episode in rollout(ride_hailing_factory, policy, **options)]


def rule(name: Any, **options: Any) -> DispatchingRulePolicy:
    """Policy of a rule."""
    return DispatchingRulePolicy(ride_hailing_factory().action_spaces_dict, name, **options)


def tune(n_days: int) -> None:
    """Print the mean return of each rule with each value of its options, the best one last."""
    results = []
    for name, value, weight in product(RULES, (0.0, 0.1, 0.2, 0.28), (0.03, 0.08, 0.15, 0.25)):
        policy = rule(name, value_of_time=value, reposition=True, distance_weight=weight)
        mean = np.mean([summary.reward for summary in play(policy, FIRST_TUNING_DAY, n_days)])
        results.append((mean, name, value, weight))
    for mean, name, value, weight in sorted(results):
        print(f"{mean:8.1f}   {name}, value_of_time {value}, distance_weight {weight}", flush=True)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="run directories")
    parser.add_argument("--days", type=int, default=100, help="number of days")
    parser.add_argument("--tune", action="store_true", help="try values of the options of the rules")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.tune:
        tune(arguments.days)
        return 0
    makers = {name: partial(rule, name, value_of_time=TUNED["value_of_time"]) for name in RULES}
    makers |= {f"{name}, repositioning": partial(rule, name, reposition=True, **TUNED) for name in RULES}
    makers |= {str(run): partial(lambda run: maze_pl.load(run).policy, run) for run in arguments.runs}
    returns: dict[str, np.ndarray] = {}
    for name, make in makers.items():
        start = time.process_time()
        summaries = play(make(), FIRST_DAY, arguments.days)
        returns[name] = np.array([summary.reward for summary in summaries])
        kpis = "  ".join(f"{np.mean([summary.kpis[kpi] for summary in summaries]):8.3f}" for kpi in KPIS)
        print(f"{name:32} {returns[name].mean():8.1f}  {kpis}   {time.process_time() - start:.0f} s", flush=True)
    rules = [name for name in makers if name.partition(",")[0] in RULES]
    best = max(rules, key=lambda name: returns[name].mean())
    for run in map(str, arguments.runs):
        differences = returns[run] - returns[best]
        half = 1.96 * differences.std(ddof=1) / len(differences) ** 0.5
        print(f"{run}: better than {best} by {differences.mean():.1f} ± {half:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
