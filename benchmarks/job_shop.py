"""Results on published job shops: dispatching rules, CP-SAT, and trained policies, greedy and best of many samples.

    maze-pl fit --config ppo_job_shop --seed_everything 0 --run_dir outputs/job_shop/0      # and so on for other seeds
    python benchmarks/job_shop.py outputs/job_shop/* --instances ta01-ta20 --samples 128 --cp_sat 10

The first numbers are mean gaps to the best known makespans in percent. Differences are those of the mean over the runs
from the best rule, for each instance, with a 95% interval over instances (Student's t for the numbers of instances in
`T_95`, the normal quantile for others).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import maze_pl
from maze_pl.core.policy import PolicyBatch
from maze_pl.envs.job_shop import JobShopInstance, instance_sources, job_shop_factory, solve_with_cp_sat
from maze_pl.envs.job_shop.dispatching_rule_policy import DispatchingRulePolicy

RULES = ("spt", "lpt", "mwkr", "mopnr", "fifo", "fdd_mwkr")
T_95 = {10: 2.262, 20: 2.093, 5: 2.776, 40: 2.023}  # number of instances -> quantile
MAX_JOBS = 30


def by_rule(instance: JobShopInstance, rule: Any) -> int:
    """Makespan of a dispatching rule."""
    env = job_shop_factory([instance])
    policy = DispatchingRulePolicy(env.action_spaces_dict, rule)
    env.reset(seed=0)
    terminated = False
    while not terminated:
        job, _ = policy.choose(env.get_maze_state())
        *_, terminated, _, _ = env.step({"option": job})
    return int(env.get_maze_state().makespan)


def by_policy(instance: JobShopInstance, policy: Any, n_samples: int) -> int:
    """Best makespan of sampled episodes, which are played together, or of the greedy one if there are no samples."""
    envs = [job_shop_factory([instance], max_jobs=MAX_JOBS) for _ in range(max(n_samples, 1))]
    seen = [env.reset(seed=0)[0] for env in envs]
    generator = torch.Generator().manual_seed(0)
    for _ in range(instance.total_operations):
        observation = {name: np.stack([one[name] for one in seen]) for name in seen[0]}
        batch = PolicyBatch(0, observation, np.zeros(len(envs), np.int64))
        chosen = policy.act(batch, deterministic=not n_samples, generator=generator).action["option"]
        seen = [env.step({"option": int(option)})[0] for env, option in zip(envs, chosen, strict=True)]
    return min(int(env.get_maze_state().makespan) for env in envs)


def rows(arguments: argparse.Namespace) -> Iterator[tuple[str, Callable[[JobShopInstance], int]]]:
    """Name of each row, and the function that gives a makespan."""
    for rule in RULES:
        yield rule, lambda instance, rule=rule: by_rule(instance, rule)
    if arguments.cp_sat:
        limit = arguments.cp_sat
        yield f"CP-SAT, {limit:g} s", lambda instance: solve_with_cp_sat(instance, limit).makespan
    for run in arguments.runs:
        policy = maze_pl.load(run).policy
        yield f"{run}, greedy", lambda instance, policy=policy: by_policy(instance, policy, 0)
        if arguments.samples:
            n = arguments.samples
            yield f"{run}, best of {n}", lambda instance, policy=policy, n=n: by_policy(instance, policy, n)


def difference(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Mean of the paired differences `theirs - ours`, with its interval."""
    differences = theirs - ours
    half = T_95.get(len(differences), 1.96) * differences.std(ddof=1) / len(differences) ** 0.5
    return f"{differences.mean():.2f} ± {half:.2f}"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="run directories")
    parser.add_argument("--instances", nargs="+", default=["ta01-ta20"], help="names or spans")
    parser.add_argument("--samples", type=int, default=0, help="episodes of which the best one counts")
    parser.add_argument("--cp_sat", type=float, default=0.0, help="seconds per instance; 0 leaves it out")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    instances = [source.draw(np.random.default_rng(0)) for source in instance_sources(arguments.instances)]
    best = np.array([instance.best_known for instance in instances])
    gaps: dict[str, np.ndarray] = {}
    for name, makespan in rows(arguments):
        start = time.process_time()
        gaps[name] = 100 * (np.array([makespan(instance) for instance in instances]) / best - 1)
        seconds = (time.process_time() - start) / len(instances)
        print(f"{name:40} {gaps[name].mean():6.2f}   {seconds:.2f} s per instance", flush=True)
    best_rule = min(RULES, key=lambda rule: gaps[rule].mean())
    for suffix in ("greedy", f"best of {arguments.samples}"):
        of_runs = [values for name, values in gaps.items() if name.endswith(suffix)]
        if of_runs:
            mean = np.mean(of_runs, axis=0)
            print(
                f"{suffix}: mean gap {mean.mean():.2f}; better than {best_rule} by {difference(mean, gaps[best_rule])}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
