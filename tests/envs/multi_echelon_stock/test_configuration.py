"""The shipped files of the chain of stocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import maze_pl
from maze_pl.__main__ import main
from maze_pl.config import search_path
from maze_pl.config.factories import Factory
from maze_pl.envs.multi_echelon_stock.base_stock_policy import BaseStockPolicy
from maze_pl.envs.multi_echelon_stock.dynamic_programming import optimal_stock
from maze_pl.envs.multi_echelon_stock.reorder_policy import ReorderPolicy

TINY = [
    *("--data.n_envs", "2", "--data.n_rollout_steps", "50", "--model.batch_size", "50", "--data.epoch_length", "1"),
    *("--trainer.max_epochs", "1", "--data.evaluators", "{eval: {n_episodes: 2}}", "--run_dir", "here"),
]


def shipped(folder: str, name: str) -> Any:
    return yaml.safe_load((search_path.shipped_folder() / folder / f"{name}.yaml").read_text(encoding="utf-8"))


def shipped_env(name: str) -> Any:
    node = shipped("env", name)
    return Factory(node["class_path"], node["init_args"])()


@pytest.mark.parametrize(("name", "n_echelons"), [("multi_echelon_stock", 4), ("multi_echelon_stock_small", 2)])
def test_group_files_describe_the_documented_chains_and_experiments_train_on_them(name: str, n_echelons: int) -> None:
    env = shipped_env(name)
    assert env.core_env.chain.n_echelons == n_echelons
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    experiment = yaml.safe_load((search_path.shipped_folder() / f"ppo_{name}.yaml").read_text(encoding="utf-8"))
    assert experiment["data"]["init_args"]["env"]["init_args"] == shipped("env", name)["init_args"]


@pytest.mark.slow
def test_documented_costs_of_the_small_chain() -> None:
    chain = shipped_env("multi_echelon_stock_small").core_env.chain
    optimum = optimal_stock(chain)
    assert len(optimum.policy) == 535
    assert optimum.cost == pytest.approx(5.777, abs=5e-4)
    received = np.zeros((535, 2, 0), np.int64)
    rules: list[Any] = [
        (BaseStockPolicy({}, **shipped("policy", "stock_small_base_stock")["init_args"]), 7.285),
        (ReorderPolicy({}, **shipped("policy", "stock_small_reorder")["init_args"]), 6.521),
    ]
    for rule, cost in rules:
        orders, _ = rule.quantities(chain, optimum.states, received)
        assert optimum.cost_of(orders) == pytest.approx(cost, abs=5e-4)


@pytest.mark.slow
def test_the_structured_form_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--data.env.structured", "true"]
    assert main(["fit", "--config", "ppo_multi_echelon_stock", *options, *TINY]) == 0
    assert maze_pl.load_env("here").agent_counts_dict == {0: 4}
