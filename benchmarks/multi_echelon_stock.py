"""Costs in chains of stocks: optimised rules, the exact optimum, and trained policies.

    maze-pl fit --config ppo_multi_echelon_stock_small --seed_everything 0 --run_dir outputs/small/0    # and so on
    python benchmarks/multi_echelon_stock.py small outputs/small/*
    python benchmarks/multi_echelon_stock.py large outputs/large/* --episodes 1000
    python benchmarks/multi_echelon_stock.py large --optimise       # writes levels, which configs/policy ships

Costs of the small chain are exact, from its Markov chain. Those of the large one are means over episodes with common
seeds, and differences have a 95% interval over episodes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

import maze_pl
from maze_pl.config.factories import Factory
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spaces import environment_actions
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.multi_echelon_stock import StockArrayEnvironment, StockChain, stock_factory
from maze_pl.envs.multi_echelon_stock.action_conversion import units_of
from maze_pl.envs.multi_echelon_stock.base_stock_policy import BaseStockPolicy
from maze_pl.envs.multi_echelon_stock.dynamic_programming import StockOptimum, optimal_stock
from maze_pl.envs.multi_echelon_stock.observation_conversion import chain_observation
from maze_pl.envs.multi_echelon_stock.optimised_levels import optimise_base_stock, optimise_reorder
from maze_pl.envs.multi_echelon_stock.ordering_policy import OrderingPolicy
from maze_pl.envs.multi_echelon_stock.reorder_policy import ReorderPolicy

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
ENVIRONMENTS = {"small": "multi_echelon_stock_small", "large": "multi_echelon_stock"}
RULES = {
    "small": {"base stock": "stock_small_base_stock", "(s, S)": "stock_small_reorder"},
    "large": {
        "base stock": "stock_base_stock",
        "(s, S)": "stock_reorder",
        "base stock that follows demand": "stock_following_base_stock",
    },
}


def chain_of(size: str) -> StockChain:
    """Make the chain of a shipped environment."""
    node = yaml.safe_load((CONFIGS / "env" / f"{ENVIRONMENTS[size]}.yaml").read_text(encoding="utf-8"))
    maker = Factory(node["class_path"], node["init_args"])
    chain: StockChain = maker().core_env.chain
    return chain


def rule_of(chain: StockChain, name: str) -> OrderingPolicy:
    """Make a shipped rule."""
    node = yaml.safe_load((CONFIGS / "policy" / f"{name}.yaml").read_text(encoding="utf-8"))
    kind: Any = ReorderPolicy if node["class_path"].endswith("ReorderPolicy") else BaseStockPolicy
    rule: OrderingPolicy = kind(stock_factory(chain).action_spaces_dict, **node["init_args"])
    return rule


def exact_cost(chain: StockChain, optimum: StockOptimum, policy: Any) -> float:
    """Mean cost of a period in the long run, from the policy's decision in each state."""
    states = optimum.states
    n = len(optimum.policy)
    received = np.zeros((n, chain.n_echelons, chain.history), np.int64)
    if isinstance(policy, OrderingPolicy):
        return optimum.cost_of(policy.quantities(chain, states, received)[0])
    observation = chain_observation(chain, states.stock, states.owed, states.transit, received, np.zeros(n, np.int64))
    step = policy.act(PolicyBatch(0, observation, np.zeros(n, np.int64)), deterministic=True)
    return optimum.cost_of(units_of(np.asarray(step.action["order"]), chain.largest_action, chain))


def wrappers_of(size: str) -> list[Factory]:
    """Wrappers with which the shipped configuration trains."""
    file = CONFIGS / f"ppo_{ENVIRONMENTS[size]}.yaml"
    node = yaml.safe_load(file.read_text(encoding="utf-8"))
    return [Factory.of(wrapper) for wrapper in node["data"]["init_args"]["wrappers"]]


def simulated_costs(
    chain: StockChain, policy: Any, n_episodes: int, seed: int, wrappers: Sequence[Callable[..., Any]] = ()
) -> np.ndarray:
    """Mean cost of a period in each episode, [n_episodes]."""
    env = make_wrapped_arrays(partial(StockArrayEnvironment, chain), wrappers)
    env.allocate(n_episodes)
    result = env.reset(np.arange(n_episodes), seed + np.arange(n_episodes))
    is_rule = isinstance(policy, OrderingPolicy)
    for _ in range(chain.periods):
        states = [env.maze_state(n) for n in range(n_episodes)] if is_rule else None
        batch = PolicyBatch(0, dict(result.observation[0]), np.zeros(n_episodes, np.int64), maze_state=states)
        chosen = policy.act(batch, deterministic=True).action
        heads = env.action_spaces_dict[0].spaces
        action = {head: environment_actions(space, np.asarray(chosen[head])) for head, space in heads.items()}
        result = env.step({0: action}, slice(None))
        env.array_events.drain()
    return np.asarray(env.kpis(np.arange(n_episodes))["cost_per_period"])


def optimise(chain: StockChain, size: str) -> None:
    """Optimise the levels of all rules and print them."""

    def show(n_tried: int, cost: float) -> None:
        print(f"  {n_tried} rules tried, cost {cost:.3f}", file=sys.stderr, flush=True)

    print("base stock", optimise_base_stock(chain, progress=show))
    print("(s, S)", optimise_reorder(chain, progress=show))
    if size == "large":
        print("base stock that follows demand", optimise_base_stock(chain, with_gains=True, progress=show))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=list(ENVIRONMENTS), help="the shipped chain")
    parser.add_argument("runs", nargs="*", type=Path, help="run directories")
    parser.add_argument("--episodes", type=int, default=1000, help="episodes of the large chain")
    parser.add_argument("--seed", type=int, default=5_000_000, help="first seed of these episodes")
    parser.add_argument("--optimise", action="store_true", help="optimise the rules' levels and print them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    chain = chain_of(arguments.size)
    if arguments.optimise:
        optimise(chain, arguments.size)
        return 0
    policies: dict[str, Any] = {name: rule_of(chain, file) for name, file in RULES[arguments.size].items()}
    for run in arguments.runs:
        policies[str(run)] = maze_pl.load(run).policy
    if arguments.size == "small":
        optimum = optimal_stock(chain)
        print(f"{'optimum':40} {optimum.cost:8.4f}")
        for name, policy in policies.items():
            cost = exact_cost(chain, optimum, policy)
            print(f"{name:40} {cost:8.4f}   {100 * (cost / optimum.cost - 1):.2f}% above the optimum", flush=True)
        return 0
    costs: dict[str, np.ndarray] = {}
    for name, policy in policies.items():
        wrappers = () if isinstance(policy, OrderingPolicy) else wrappers_of(arguments.size)
        costs[name] = simulated_costs(chain, policy, arguments.episodes, arguments.seed, wrappers)
        saved = costs["base stock"] - costs[name]
        half = 1.96 * saved.std(ddof=1) / len(saved) ** 0.5
        print(f"{name:40} {costs[name].mean():8.3f}   {saved.mean():.3f} ± {half:.3f} less than base stock", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
