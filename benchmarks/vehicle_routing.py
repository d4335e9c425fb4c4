"""Results on vehicle routing: rules, PyVRP and trained policies on the same random instances.

    maze-pl fit --config ppo_vehicle_routing --seed_everything 0 --run_dir outputs/routing/0      # and so on
    python benchmarks/vehicle_routing.py outputs/routing/* --instances 1000 --samples 128 --pyvrp 5 --solved 160

PyVRP takes its time limit for each instance, and may solve some of them only (`--solved`), which are those that
the best of several samples is computed for. `--pyvrp_file` writes its distances to a file, or reads them if it is
there; `--workers` solves several instances at the same time. Instances are those of `random(N)` with the seeds
100,000 and up. Each row prints the mean distance, and the excess over PyVRP: the mean over instances of
100 (distance / PyVRP's - 1), with a 95% bootstrap interval over instances. Differences from the savings
are paired.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

import maze_pl
from maze_pl.core.policy import PolicyBatch
from maze_pl.envs.vehicle_routing import (
    RandomInstances,
    RoutingInstance,
    VehicleRoutingArrayEnvironment,
    improved_savings_routes,
    savings_routes,
    solve_with_pyvrp,
    sweep_routes,
    vehicle_routing_factory,
)
from maze_pl.envs.vehicle_routing.nearest_neighbour_policy import NearestNeighbourPolicy
from maze_pl.envs.vehicle_routing.observation_conversion import N_ADVISED_FEATURES, N_FEATURES

FIRST_SEED = 100_000
RESAMPLES = 10_000
GREEDY_AT_ONCE = 250


def instance_of(description: str, number: int) -> RoutingInstance:
    """Instance of a number."""
    return RandomInstances.parse(description).draw(np.random.default_rng(FIRST_SEED + number))


def by_nearest_neighbour(instance: RoutingInstance) -> float:
    """Distance of the nearest neighbour."""
    env = vehicle_routing_factory([instance])
    policy = NearestNeighbourPolicy(env.action_spaces_dict)
    env.reset(seed=0)
    terminated = False
    while not terminated:
        _, node = policy.choose(env.get_maze_state())
        *_, terminated, _, _ = env.step({"option": node})
    return float(env.get_maze_state().length)


def by_advice(instance: RoutingInstance) -> float:
    """Distance wherever the planned routes lead."""
    env = vehicle_routing_factory([instance], advised=True)
    observation, _ = env.reset(seed=0)
    terminated = False
    while not terminated:
        is_planned = observation["options"][:, N_FEATURES]  # the first number of the advice
        option = int((observation["option_mask"] * (1 + is_planned)).argmax())
        observation, _, terminated, _, _ = env.step({"option": option})
    return float(env.get_maze_state().length)


def by_pyvrp(task: tuple[str, int, float]) -> float:
    """Distance of PyVRP on the instance of a number."""
    description, number, limit = task
    return solve_with_pyvrp(instance_of(description, number), limit).distance


def solver_distances(arguments: argparse.Namespace, description: str) -> np.ndarray:
    """Distances of PyVRP, from the file if there is one."""
    if arguments.pyvrp_file is not None and arguments.pyvrp_file.exists():
        return np.loadtxt(arguments.pyvrp_file)[: arguments.solved or arguments.instances]
    tasks = [(description, number, arguments.pyvrp) for number in range(arguments.solved or arguments.instances)]
    with ProcessPoolExecutor(arguments.workers) as pool:
        distances = np.array(list(pool.map(by_pyvrp, tasks)))
    if arguments.pyvrp_file is not None:
        header = f"PyVRP, {arguments.pyvrp:g} s, {description}, seeds from {FIRST_SEED}"
        np.savetxt(arguments.pyvrp_file, distances, "%.9f", header=header)
    return distances


def is_advised(policy: Any) -> bool:
    """True if a policy observes planned routes."""
    options = policy.spec.steps[0].observation_space["options"]
    return bool(options.shape[1] == N_ADVISED_FEATURES)


def play(
    policy: Any, description: str, seeds: np.ndarray, generator: torch.Generator | None, temperature: float = 1.0
) -> np.ndarray:
    """Distances of episodes that are played together; greedy without a generator."""
    env = VehicleRoutingArrayEnvironment([description], advised=is_advised(policy))
    env.allocate(len(seeds))
    result = env.reset(np.arange(len(seeds)), seeds)
    running = np.arange(len(seeds))
    action = np.zeros(len(seeds), np.int64)
    while len(running):
        observation = {name: values[running] for name, values in result.observation[0].items()}
        batch = PolicyBatch(0, observation, np.zeros(len(running), np.int64))
        options = {"temperature": temperature, "generator": generator}
        action[running] = policy.act(batch, deterministic=generator is None, **options).action["option"]
        result = env.step({0: {"option": action}}, running)
        running = running[~result.terminated[running]]
    return env.kpis(np.arange(len(seeds)))["distance"]


def by_policy(policy: Any, description: str, n_instances: int, n_samples: int, temperature: float = 1.0) -> np.ndarray:
    """Distances of greedy episodes, or of the best of several samples of each instance."""
    seeds = FIRST_SEED + np.arange(n_instances)
    if not n_samples:
        parts = np.array_split(seeds, max(n_instances // GREEDY_AT_ONCE, 1))
        return np.concatenate([play(policy, description, part, None) for part in parts])
    generator = torch.Generator().manual_seed(0)
    sampled = (play(policy, description, np.full(n_samples, seed), generator, temperature) for seed in seeds)
    return np.array([distances.min() for distances in sampled])


def interval(values: np.ndarray) -> str:
    """Mean with its 95% bootstrap interval."""
    draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
    return f"{values.mean():6.2f} [{low:.2f}, {high:.2f}]"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="run directories")
    parser.add_argument("--customers", type=int, default=50, help="customers of each instance")
    parser.add_argument("--instances", type=int, default=100, help="number of instances")
    parser.add_argument("--samples", type=int, default=0, help="episodes of which the best one counts")
    parser.add_argument("--solved", type=int, default=0, help="instances that PyVRP solves; 0 for all")
    parser.add_argument("--temperature", type=float, default=1.0, help="of the samples; above 1, they differ more")
    parser.add_argument("--pyvrp", type=float, default=5.0, help="seconds per instance")
    parser.add_argument("--pyvrp_file", type=Path, help="file of PyVRP's distances, written if it is missing")
    parser.add_argument("--workers", type=int, default=1, help="instances that PyVRP solves at the same time")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    n = arguments.instances
    description = f"random({arguments.customers})"
    instances = [instance_of(description, number) for number in range(n)]
    solver = solver_distances(arguments, description)

    def row(name: str, distances: np.ndarray, start: float) -> np.ndarray:
        seconds = (time.process_time() - start) / len(distances)
        excess = 100 * (distances[: len(solver)] / solver - 1)
        print(f"{name:40} {distances.mean():7.3f}  {interval(excess)}   {seconds:.3f} s per instance", flush=True)
        return distances

    print(f"{'PyVRP':40} {solver.mean():7.3f}  {len(solver)} instances")
    by_rule = {}
    for name, rule in {
        "nearest neighbour": by_nearest_neighbour,
        "sweep": lambda instance: sweep_routes(instance).distance,
        "savings": lambda instance: savings_routes(instance).distance,
        "savings of nine shapes, 2-opt": lambda instance: improved_savings_routes(instance).distance,
        "wherever the advice leads": by_advice,
    }.items():
        start = time.process_time()
        by_rule[name] = row(name, np.array([rule(instance) for instance in instances]), start)
    for run in arguments.runs:
        policy = maze_pl.load(run).policy
        for n_samples in dict.fromkeys((0, arguments.samples)):
            start = time.process_time()
            n_played = len(solver) if n_samples else n
            label = f"best of {n_samples}" if n_samples else "greedy"
            distances = row(
                f"{run}, {label}", by_policy(policy, description, n_played, n_samples, arguments.temperature), start
            )
            for name in ("savings", "savings of nine shapes, 2-opt"):
                gain = 100 * (by_rule[name][:n_played] / distances - 1)
                print(f"{'':8}{name}: longer by {interval(gain)}%", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
