"""Trains agents for the applied problems, plays rules and solvers beside them, and writes docs/problems.md.

    python benchmarks/problems.py                          # all problems: make problems
    python benchmarks/problems.py job_shop --seeds 0 1 2   # one problem
    python benchmarks/problems.py --page                   # the page only, from the results that are there

A run lies in outputs/problems/PROBLEM/SEED, the values that rules and agents reach in the test instances in
docs/results/problems/PROBLEM.json. What is there is not computed again. The section on flat and
structured decisions comes from the results of benchmarks/structure.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import job_shop
import multi_echelon_stock
import numpy as np
import ride_hailing
import structure
import torch
import vehicle_routing
import yaml

import maze_pl
from maze_pl.config.factories import Factory
from maze_pl.envs.job_shop import (
    LowerBoundRewardAggregator,
    RandomInstances,
    instance_sources,
    job_shop_factory,
    solve_with_cp_sat,
    structured_job_shop_factory,
)
from maze_pl.envs.job_shop.dispatching_rule_policy import DispatchingRulePolicy
from maze_pl.envs.multi_echelon_stock.dynamic_programming import optimal_stock
from maze_pl.envs.vehicle_routing import DistanceRewardAggregator, vehicle_routing_factory
from maze_pl.envs.wrappers import RewardScalingWrapper, TimeLimitWrapper
from maze_pl.runs.rollout import rollout

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # configurations name classes of the examples
RUNS, RESULTS, PAGE = (
    ROOT / "outputs" / "problems",
    ROOT / "docs" / "results" / "problems",
    ROOT / "docs" / "problems.md",
)
PACKAGES = ("maze-pl", "torch", "pytorch-lightning", "numpy")
Values = list[float]


@dataclass(frozen=True)
class Searched:
    """Episodes that are played with a search before each decision.

    Attributes:
        make: Makes an environment with the rewards of the training, which the critic of an agent has learned.
        value: Value of an episode, from its summary.
        methods: Values of `--search`.
        n_episodes: Number of episodes.
        text: Description of the episodes.
        options: Further options of `rollout`.
    """

    make: Callable[[], Any]
    value: Callable[[Any], float]
    methods: tuple[str, ...]
    n_episodes: int
    text: str
    options: dict[str, Any] = field(default_factory=dict)

    def play(self, agent: Any, method: str | None) -> tuple[Values, float]:
        """Return the values of the episodes, and the seconds of processor time that they took."""
        began = time.process_time()
        options = {"episodes": self.n_episodes, "seed": 2_000_000, "deterministic": True, **self.options}
        played = rollout(self.make, agent, search=method, max_steps=10_000, record=(), **options)
        return [self.value(episode.summary) for episode in played], time.process_time() - began


@dataclass(frozen=True)
class Problem:
    """A problem, the rules that play it, and how agents are trained and judged.

    Attributes:
        title: Heading of its section.
        metric: Description of the values.
        command: Options of `maze-pl fit`.
        rules: Name -> function that returns the value of each test instance.
        agents: Name -> function that returns the same for the policy of a run.
        sign: -1 if higher values are better, else 1.
        page: Page with the details.
        text: Description of the instances.
        beyond: Rows of `rules` that are no rules: solvers.
        searched: Episodes in which searches are tried.
    """

    title: str
    metric: str
    command: Sequence[str]
    rules: dict[str, Callable[[], Values]]
    agents: dict[str, Callable[[Any], Values]]
    page: str
    text: str
    sign: int = 1
    beyond: tuple[str, ...] = ()
    searched: Searched | None = None


# ---------------------------------------------------------------------------------------------------------- job shop


def taillard_gaps(makespan: Callable[[Any], float]) -> Values:
    """Gaps to the best known makespans of ta01 to ta20, in percent."""
    instances = [source.draw(np.random.default_rng(0)) for source in instance_sources(["ta01-ta20"])]
    return [100 * (makespan(instance) / float(instance.best_known or 0) - 1) for instance in instances]


def searched_job_shop() -> Any:
    """Make an environment of the job shop with the rewards of the training."""
    rewards = LowerBoundRewardAggregator(relative=True)
    return job_shop_factory(["random(10x10)"], max_jobs=job_shop.MAX_JOBS, reward_aggregator=rewards)


def job_shop_problem() -> Problem:
    """Classic job shop."""
    rules: dict[str, Callable[[], Values]] = {}
    for rule in job_shop.RULES:
        rules[rule.upper().replace("_", "/")] = partial(taillard_gaps, partial(job_shop.by_rule, rule=rule))
    rules["CP-SAT, 10 s"] = partial(taillard_gaps, lambda instance: solve_with_cp_sat(instance, 10.0).makespan)

    def played(policy: Any, n_samples: int) -> Values:
        return taillard_gaps(lambda instance: job_shop.by_policy(instance, policy, n_samples))

    return Problem(
        title="Job shop",
        metric="makespan above the best known one, %",
        command=["--config", "ppo_job_shop"],
        rules=rules,
        agents={"greedy": partial(played, n_samples=0), "best of 128": partial(played, n_samples=128)},
        beyond=("CP-SAT, 10 s",),
        page="job_shop.md",
        text="Taillard's instances ta01 to ta20 (15 and 20 jobs on 15 machines). Agents have seen random ones only.",
        searched=Searched(
            searched_job_shop,
            lambda summary: float(summary.kpis["bound_gap_percent"]),
            ("best_of:8", "best_of:32", "best_of:128", "beam:8", "beam:32", "lookahead:policy", "puct:16"),
            16,
            "16 random instances of 10 jobs on 10 machines: makespan above the bound of the empty schedule, %",
        ),
    )


FLEXIBLE = "random(10x5, alternatives=3)"
N_FLEXIBLE = 100


def flexible_instances() -> list[Any]:
    """Test instances of the flexible job shop."""
    source = RandomInstances.parse(FLEXIBLE)
    return [source.draw(np.random.default_rng(1_000_000 + number)) for number in range(N_FLEXIBLE)]


def above_bound(makespan: Callable[[Any], float]) -> Values:
    """Makespans above the bound of the empty schedule, in percent."""
    return [100 * (makespan(instance) / instance.start_bound - 1) for instance in flexible_instances()]


def flexible_makespan(instance: Any, policy: Any, factory: Callable[..., Any]) -> float:
    """Makespan of one episode."""
    make = partial(factory, [instance])
    (episode,) = rollout(make, policy, episodes=1, seed=0, max_steps=10_000, deterministic=True)
    return float(episode.summary.kpis["makespan"])


def flexible_problem() -> Problem:
    """Flexible job shop."""
    rules: dict[str, Callable[[], Values]] = {}
    for rule in job_shop.RULES:
        policy = partial(DispatchingRulePolicy, rule=rule)
        play = partial(flexible_makespan, policy=policy, factory=job_shop_factory)
        rules[rule.upper().replace("_", "/")] = partial(above_bound, play)
    rules["CP-SAT, 2 s"] = partial(above_bound, lambda instance: solve_with_cp_sat(instance, 2.0).makespan)

    def played(policy: Any) -> Values:
        return above_bound(partial(flexible_makespan, policy=policy, factory=structured_job_shop_factory))

    options = ["--data.env", "env/flexible_job_shop", "--model.networks", "model/flexible_job_shop"]
    return Problem(
        title="Flexible job shop",
        metric="makespan above the bound of the empty schedule, %",
        command=["--config", "ppo_job_shop", *options, "--trainer.max_epochs", "5"],
        rules=rules,
        agents={"greedy": played},
        beyond=("CP-SAT, 2 s",),
        page="job_shop.md",
        text=f"{N_FLEXIBLE} random instances of 10 jobs on 5 machines with up to 3 alternatives per operation. "
        "The first actor chooses the job, the second one the machine.",
    )


# --------------------------------------------------------------------------------------------------- vehicle routing

N_ROUTED, N_SOLVED = 1000, 160


def searched_routing() -> Any:
    """Make an environment of vehicle routing with the rewards of the training."""
    rewards = DistanceRewardAggregator(relative=True)
    return vehicle_routing_factory(["random(50)"], reward_aggregator=rewards, advised=True)


def routing_problem() -> Problem:
    """Capacitated vehicle routing."""
    description = "random(50)"

    def excess(distances: Callable[[], np.ndarray]) -> Values:
        solver = np.array(results_of("vehicle_routing")["pyvrp"])
        return [float(value) for value in 100 * (distances()[:N_SOLVED] / solver - 1)]

    def by_rule(play: Callable[[Any], float]) -> np.ndarray:
        return np.array([play(vehicle_routing.instance_of(description, number)) for number in range(N_SOLVED)])

    plans: dict[str, Callable[[Any], Any]] = {
        "sweep": vehicle_routing.sweep_routes,
        "savings": vehicle_routing.savings_routes,
        "savings of nine shapes, 2-opt": vehicle_routing.improved_savings_routes,
    }
    rules: dict[str, Callable[[], Values]] = {
        "nearest neighbour": partial(excess, partial(by_rule, vehicle_routing.by_nearest_neighbour)),
    }
    for name, plan in plans.items():
        rules[name] = partial(excess, partial(by_rule, lambda instance, plan=plan: plan(instance).distance))

    def played(policy: Any, n_samples: int, temperature: float = 1.0) -> Values:
        return excess(partial(vehicle_routing.by_policy, policy, description, N_SOLVED, n_samples, temperature))

    return Problem(
        title="Vehicle routing",
        metric="distance above that of PyVRP (5 s per instance), %",
        command=["--config", "ppo_vehicle_routing"],
        rules=rules,
        agents={
            "greedy": partial(played, n_samples=0),
            "best of 128 at temperature 1.5": partial(played, n_samples=128, temperature=1.5),
        },
        page="vehicle_routing.md",
        searched=Searched(
            searched_routing,
            lambda summary: float(summary.kpis["distance"]),
            ("best_of:8", "best_of:32", "best_of:128", "beam:8", "beam:32", "puct:16"),
            16,
            "16 random instances of 50 customers, searched at temperature 1.5: distance",
            {"temperature": 1.5},
        ),
        text=f"{N_SOLVED} random instances of 50 customers.",
    )


# ------------------------------------------------------------------------------------------------------------- stock


def small_stock_problem() -> Problem:
    """Two echelons, small enough for the exact optimum."""
    chain = multi_echelon_stock.chain_of("small")

    def above_optimum(policy: Any) -> Values:
        optimum = optimal_stock(chain)
        return [100 * (multi_echelon_stock.exact_cost(chain, optimum, policy) / optimum.cost - 1)]

    def of_rule(file: str) -> Values:
        return above_optimum(multi_echelon_stock.rule_of(chain, file))

    return Problem(
        title="Stock, two echelons",
        metric="cost above the optimum, %, computed exactly",
        command=["--config", "ppo_multi_echelon_stock_small"],
        rules={name: partial(of_rule, file) for name, file in multi_echelon_stock.RULES["small"].items()},
        agents={"greedy": above_optimum},
        page="multi_echelon_stock.md",
        searched=Searched(
            Factory(**structure.shipped("multi_echelon_stock_small")),
            lambda summary: float(summary.kpis["cost_per_period"]),
            ("lookahead:policy:64:horizon=10:max_actions=4", "puct:16", "puct:64"),
            16,
            "16 episodes of 100 periods: cost of a period",
        ),
        text="Lost sales and fixed order costs; the optimum comes from dynamic programming over 535 states.",
    )


def large_stock_problem() -> Problem:
    """Four echelons with drifting demand."""
    chain = multi_echelon_stock.chain_of("large")

    def cost(policy: Any, wrappers: Sequence[Callable[..., Any]]) -> Values:
        costs = multi_echelon_stock.simulated_costs(chain, policy, 1000, 5_000_000, wrappers)
        return [float(value) for value in costs]

    def of_rule(file: str) -> Values:
        return cost(multi_echelon_stock.rule_of(chain, file), wrappers=())

    return Problem(
        title="Stock, four echelons",
        metric="cost of a period",
        command=["--config", "ppo_multi_echelon_stock"],
        rules={name: partial(of_rule, file) for name, file in multi_echelon_stock.RULES["large"].items()},
        agents={"greedy": partial(cost, wrappers=multi_echelon_stock.wrappers_of("large"))},
        page="multi_echelon_stock.md",
        text="Drifting demand, 1,000 episodes of 100 periods. The levels of all rules were optimised on other seeds.",
    )


# ------------------------------------------------------------------------------------------------------ ride hailing

N_DAYS = 100


def ride_hailing_problem() -> Problem:
    """Vehicles that come and go."""

    def returns(policy: Any) -> Values:
        return [summary.reward for summary in ride_hailing.play(policy, ride_hailing.FIRST_DAY, N_DAYS)]

    def of_rule(name: str, **options: Any) -> Values:
        return returns(ride_hailing.rule(name, **options))

    rules: dict[str, Callable[[], Values]] = {}
    for name in ride_hailing.RULES:
        shown = name.replace("_", " ")
        rules[shown] = partial(of_rule, name, value_of_time=ride_hailing.TUNED["value_of_time"])
        rules[f"{shown}, repositioning"] = partial(of_rule, name, reposition=True, **ride_hailing.TUNED)
    return Problem(
        title="Ride hailing",
        metric="return of a day (higher is better)",
        command=["--config", "ppo_ride_hailing"],
        rules=rules,
        agents={"greedy": returns},
        sign=-1,
        page="ride_hailing.md",
        searched=Searched(
            ride_hailing.ride_hailing_factory,
            lambda summary: float(summary.reward),
            ("lookahead:policy:32:horizon=10:max_actions=4", "puct:16"),
            8,
            "8 days: return of a day (higher is better)",
            {"max_agents": ride_hailing.MAX_AGENTS, "wrappers": [partial(RewardScalingWrapper, scale=0.1)]},
        ),
        text=f"{N_DAYS} days with 16 shifts of vehicles, which are agents that come and go.",
    )


# --------------------------------------------------------------------------------------------------------- cutting-2D


N_ORDERS = 200
N_CUT, FIRST_CUT = 100, 5000
"""Number of episodes, and the seed of the first one."""


def cutting_problem() -> Problem:
    """Cutting-2D with mixed orders."""
    folder = Path("examples", "cutting_2d_mixed", "configs")
    file = str(folder / "ppo_cutting_2d_mixed_pointer.yaml")
    config = yaml.safe_load((ROOT / folder / "ppo_cutting_2d_mixed.yaml").read_text(encoding="utf-8"))
    training = config["data"]["init_args"]
    settings = structure.PROBLEMS["cutting_2d"]["structured"]
    wrapper = partial(TimeLimitWrapper, max_episode_steps=N_ORDERS)

    def raw_pieces(policy: Any, deterministic: bool) -> Values:
        make = Factory(settings["class_path"], settings["init_args"])
        options: dict[str, Any] = {"episodes": N_CUT, "seed": FIRST_CUT, "max_steps": 10_000}
        played = rollout(make, policy, wrappers=[wrapper], deterministic=deterministic, **options)
        return [-episode.summary.reward for episode in played]

    return Problem(
        title="Cutting-2D, mixed orders",
        metric="raw pieces for 200 orders",
        command=["--config", file],
        rules={"smallest piece that fits": partial(raw_pieces, "heuristic", True)},
        agents={"sampled": partial(raw_pieces, deterministic=False)},
        page="results.md#cutting-2d",
        searched=Searched(
            Factory.of(training["env"]),
            lambda summary: N_ORDERS * float(summary.kpis["raw_piece_usage_per_step"]),
            (
                "lookahead:policy:8:horizon=20:max_actions=4:min_ratio=0.1",
                "lookahead:policy:16:horizon=20:max_actions=4:min_ratio=0.1",
            ),
            N_CUT,
            f"the {N_CUT} episodes of the table above: raw pieces for 200 orders",
            {"wrappers": [Factory.of(node) for node in training["wrappers"]], "seed": FIRST_CUT},
        ),
        text=f"{N_CUT} episodes; raw pieces of 10 x 8, orders of up to 6 x 5, whose area is about 26.8 raw pieces.",
    )


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "cutting_2d": cutting_problem,
    "job_shop": job_shop_problem,
    "flexible_job_shop": flexible_problem,
    "vehicle_routing": routing_problem,
    "multi_echelon_stock_small": small_stock_problem,
    "multi_echelon_stock": large_stock_problem,
    "ride_hailing": ride_hailing_problem,
}


# ----------------------------------------------------------------------------------------------------------- computing


def rounded(content: Any) -> Any:
    """The same content with numbers of six digits."""
    if isinstance(content, dict):
        return {name: rounded(value) for name, value in content.items()}
    if isinstance(content, list):
        return [rounded(value) for value in content]
    return float(f"{content:.6g}") if isinstance(content, float) else content


def results_of(name: str) -> dict[str, Any]:
    """All results of a problem that are there."""
    file = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def keep(name: str, key: str, content: Any) -> None:
    """Keep a result of a problem; the file is written by way of a temporary one."""
    results = {**results_of(name), key: rounded(content)}
    lines = [f"{json.dumps(key)}: {json.dumps(results[key])}" for key in sorted(results)]
    file = RESULTS / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    part.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    os.replace(part, file)


def train(name: str, problem: Problem, seed: int) -> Path:
    """Train an agent unless it is there; returns its run directory."""
    run_dir = RUNS / name / str(seed)
    if f"training {seed}" in results_of(name) and run_dir.exists():
        return run_dir
    command = ["-m", "maze_pl", "fit", *problem.command, "--seed_everything", str(seed), "--run_dir", str(run_dir)]
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stderr}")
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    policy = maze_pl.load(run_dir / "checkpoints" / "best.ckpt").policy
    n_parameters = sum(parameter.numel() for parameter in policy.parameters())
    keep(name, f"training {seed}", {"seconds": seconds, "parameters": n_parameters})
    return run_dir


def compute(name: str, seeds: list[int]) -> None:
    """Play all rules, and train and play the agents of all seeds, unless their values are there."""
    problem = PROBLEMS[name]()
    if name == "vehicle_routing" and "pyvrp" not in results_of(name):
        keep(name, "pyvrp", [vehicle_routing.by_pyvrp(("random(50)", number, 5.0)) for number in range(N_SOLVED)])
    for rule, play in problem.rules.items():
        if rule not in results_of(name):
            keep(name, rule, play())
            print(f"{name}: {rule} {np.mean(results_of(name)[rule]):.3f}", flush=True)
    for seed in seeds:
        for agent, judge in problem.agents.items():
            key = f"{agent} {seed}"
            if key not in results_of(name):
                policy = maze_pl.load(train(name, problem, seed) / "checkpoints" / "best.ckpt").policy
                keep(name, key, judge(policy))
                print(f"{name}: {key} {np.mean(results_of(name)[key]):.3f}", flush=True)


def search(name: str, seed: int) -> None:
    """Play with all searches, unless their values are there."""
    problem = PROBLEMS[name]()
    for method in (None, *(problem.searched.methods if problem.searched else ())):
        key = f"search {method} {seed}"
        if problem.searched is not None and key not in results_of(name):
            agent = maze_pl.load(train(name, problem, seed) / "checkpoints" / "best.ckpt")
            values, seconds = problem.searched.play(agent, method)
            keep(name, key, {"values": values, "seconds": seconds})
            print(f"{name}: {key} {np.mean(values):.3f}, {seconds:.0f} s", flush=True)


# ------------------------------------------------------------------------------------------------------------ the page


def paired(differences: np.ndarray) -> str:
    """Mean of paired differences with a 95% bootstrap interval over instances."""
    if len(differences) == 1:
        return f"{differences[0]:.2f}"
    draws = np.random.default_rng(0).integers(len(differences), size=(10_000, len(differences)))
    low, high = np.quantile(differences[draws].mean(axis=1), [0.025, 0.975])
    return f"{differences.mean():.2f} [{low:.2f}, {high:.2f}]"


def over_seeds(means: list[float]) -> str:
    """Mean over seeds, with its 95% interval (Student's t) where there are several."""
    return structure.interval(means) + (" (one seed)" if len(means) == 1 else "")


def section(name: str, seeds: list[int]) -> list[str]:
    """Section of a problem; empty if there are no results."""
    problem, results = PROBLEMS[name](), results_of(name)
    rules = {rule: np.array(results[rule]) for rule in problem.rules if rule in results}
    if not rules:
        return []
    ordered = sorted(rules, key=lambda rule: problem.sign * rules[rule].mean())
    best = next(rule for rule in ordered if rule not in problem.beyond)
    columns = f"| policy | {problem.metric} | better than {best} by | seeds | minutes | parameters |"
    heading = (PAGE.parent / problem.page.partition("#")[0]).read_text(encoding="utf-8").splitlines()[0]
    details = f"Details: [{heading.removeprefix('# ')}]({problem.page})."
    lines = [f"## {problem.title}", "", f"{problem.text} {details}", ""]
    lines += [columns, "|---|--:|--:|:--|--:|--:|"]
    for rule in ordered:
        better = "" if rule == best else paired(problem.sign * (rules[best] - rules[rule]))
        lines.append(f"| {rule} | {rules[rule].mean():.2f} | {better} | | | |")
    for agent in problem.agents:
        found = {seed: np.array(results[f"{agent} {seed}"]) for seed in seeds if f"{agent} {seed}" in results}
        if found:
            means = [float(values.mean()) for values in found.values()]
            better = paired(problem.sign * (rules[best] - np.mean(list(found.values()), axis=0)))
            training = [results[f"training {seed}"] for seed in found]
            minutes = np.mean([one["seconds"] for one in training]) / 60
            size = training[0]["parameters"]
            each = ", ".join(f"{mean:.2f}" for mean in means)
            row = [f"agent, {agent}", over_seeds(means), better, each, f"{minutes:.0f}", f"{size:,}"]
            lines.append(f"| {' | '.join(row)} |")
    command = " ".join(problem.command)
    lines += ["", f"    maze-pl fit {command} --seed_everything SEED", f"    python benchmarks/problems.py {name}", ""]
    return lines


def search_table(name: str, seeds: list[int]) -> list[str]:
    """Table of searches on a problem, with the agent of the first seed that has results; empty if none has."""
    problem, results = PROBLEMS[name](), results_of(name)
    searched = problem.searched
    having = [seed for seed in seeds if f"search None {seed}" in results]
    if searched is None or not having:
        return []
    seed = having[0]
    plain = results[f"search None {seed}"]
    lines = [
        f"{problem.title}, agent of seed {seed}, {searched.text}:",
        "",
        "| search | mean | better by | seconds per episode |",
        "|---|--:|--:|--:|",
    ]
    for method in (None, *searched.methods):
        found = results.get(f"search {method} {seed}")
        if found is not None:
            gain = problem.sign * (np.array(plain["values"]) - np.array(found["values"]))
            better = "" if method is None else paired(gain)
            seconds = found["seconds"] / len(found["values"])
            shown = "none" if method is None else f"`{method}`"
            lines.append(f"| {shown} | {np.mean(found['values']):.2f} | {better} | {seconds:.2f} |")
    return [*lines, ""]


HEAD = """# Results on applied problems

Written by `make problems`. Agents are compared with the best rules that are known to us, and with solvers where \
there are any, in the same test instances, which no agent has seen. Rows of agents are means over training seeds, \
with 95% intervals over the seeds (Student's t); differences from the best rule are paired by instance, with 95% \
bootstrap intervals over the instances. Minutes are processor time of one core for training one agent.

Machine: {machine}. {versions}; {date}.
"""

STRUCTURE = """## Flat and structured decisions

The same simulations with the same budget of decisions, played in two forms: one actor that chooses among all \
combinations, or several actors that choose one after the other. Dense networks have two layers of 64 units per \
policy; pointer networks are those of the shipped templates. MaskablePPO is that of sb3-contrib, with the same \
options. Values are means of 100 test episodes with the most likely actions, over the seeds, with 95% intervals \
(Student's t); minutes are processor time for training. Lower is better, except for the return of ride hailing.
"""


STRUCTURE_NOTES = """\
- **Combinations, dense networks.** Structure pays where a decision is a combination: cutting-2D (400 \
cuts), the flexible job shop (30 pairs of job
  and alternative) and vehicle routing (63 pairs of vehicle and next stop). A flat network learns each \
combination by itself; of two actors, the
  second one sees what the first one has chosen, and has few choices.
- **Pointer networks** score each option from its own numbers, so that all options share what is learned. \
With them, both forms are about as good,
  and better than any dense network.
- **Stock.** Each echelon has a separate head in the flat form, too, so that there are no combinations to \
learn, and the flat actor sees the whole
  chain. The differences may be due to chance, and structure takes three times as long.
- **Ride hailing.** A vehicle that is an agent is credited with its own income.
"""

SEARCH = """## Search at decision time

Agents with a [search](search_at_decision_time.md) before each decision, most likely actions, \
against the same agents without one. Differences are paired by episode, with 95% bootstrap intervals over episodes; \
seconds are processor time of one core.
"""


SEARCH_NOTES = """\
Where nothing is random, as in job shop and vehicle routing, the best of many samples wins, and more samples win \
more. Where the future is random, a few simulations say more about chance than about actions: of four means over 8 or \
16 futures, the largest one is often that of a lucky action. A lookahead therefore leaves the policy's most likely \
action only for one that is better by two standard errors; taking the largest mean instead lost 143 in ride hailing, \
0.31 in the stock and 0.25 raw pieces in cutting-2D. In ride hailing, ten acts are less than an environment step of \
all vehicles, and the critic of a vehicle values only what that vehicle earns. Monte-Carlo tree search trusts the \
policy until its simulations say otherwise. With these numbers of simulations, both are about as good as the policy. \
In cutting-2D, no search has needed fewer raw pieces than the policy; a lookahead over 20 acts needs as many.
"""


def machine() -> str:
    """Description of this machine."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text(encoding="utf-8").splitlines() if cpu.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores"


def page(seeds: list[int]) -> str:
    """The whole page."""
    versions = ", ".join(f"{package} {metadata.version(package)}" for package in PACKAGES)
    text = [HEAD.format(machine=machine(), versions=versions, date=date.today().isoformat())]
    for name in PROBLEMS:
        text += section(name, seeds)
    missing = [PROBLEMS[name]() for name in PROBLEMS if not results_of(name)]
    if missing:
        links = ", ".join(f"[{problem.title.lower()}]({problem.page})" for problem in missing)
        text += [f"Results of the other problems have been computed one by one, see their pages: {links}.", ""]
    tables = [line for name in PROBLEMS for line in search_table(name, seeds)]
    if tables:
        text += [SEARCH, *tables, SEARCH_NOTES, "    python benchmarks/problems.py PROBLEM --search", ""]
    comparison = structure.table(structure.RESULTS)
    text += [STRUCTURE, comparison, "", STRUCTURE_NOTES, "    python benchmarks/structure.py"]
    return "\n".join(text) + "\n"


def main() -> int:
    """Compute what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=[], help=f"some of {', '.join(PROBLEMS)}; all by default")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--search", action="store_true", help="play with searches, too, with the agents of the first seed"
    )
    parser.add_argument("--page", action="store_true", help="write the page from the results that are there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    unknown = set(arguments.problems) - set(PROBLEMS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not among {', '.join(PROBLEMS)}")
    if not arguments.page:
        for name in arguments.problems or PROBLEMS:
            compute(name, arguments.seeds)
            if arguments.search:
                search(name, arguments.seeds[0])
    part = PAGE.with_name(PAGE.name + ".part")
    part.write_text(page(arguments.seeds), encoding="utf-8")
    os.replace(part, PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
