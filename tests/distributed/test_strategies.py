"""Lightning's strategies, from training to the loaded agent, by the command line."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import maze_pl
from tests.exact.comparison import comparable, differences, without_times
from tests.faults.runs import TWO_RANKS, Run, Server

STRATEGIES = {
    "one_process": [],
    "ddp": TWO_RANKS,
    "ddp_spawn": [*TWO_RANKS, "--trainer.strategy", "ddp_spawn"],
    "ddp_fork": [*TWO_RANKS, "--trainer.strategy", "ddp_fork"],
    "ddp_notebook": [*TWO_RANKS, "--trainer.strategy", "ddp_notebook"],
}
FORKS = ("ddp_fork", "ddp_notebook")
OTHERS = ("ddp_spawn", *FORKS)

pytestmark = pytest.mark.slow


def marked(*names: str) -> list[Any]:
    """Names of strategies, those that fork marked as long."""
    return [pytest.param(name, marks=pytest.mark.long) if name in FORKS else name for name in names]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def result(run: Run) -> str:
    assert run.end() == 0, run.output[-5000:]
    return run.output


@pytest.fixture(scope="module")
def trained(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the folder of a run of two epochs, and one more after a resume, under a strategy."""

    @functools.cache
    def train(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        result(server.fit(folder, *STRATEGIES[name], "--trainer.max_epochs", "2"))
        result(server.resume(folder, "--trainer.max_epochs", "3"))
        return folder

    return train


@pytest.mark.parametrize(
    "name", ["one_process", "ddp", *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)]
)
def test_an_agent_is_trained_resumed_validated_and_loaded(
    server: Server, trained: Callable[[str], Path], name: str
) -> None:
    run_dir = trained(name) / "run"
    checkpoint = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    n_ranks = 1 if name == "one_process" else 2
    assert checkpoint["epoch"] == 2
    assert checkpoint["maze_pl"]["env_steps"] == 3 * 3 * 4 * 32 * n_ranks
    agent = maze_pl.load(run_dir / "checkpoints" / "last.ckpt")
    assert differences(dict(agent.state_dict()), dict(checkpoint["state_dict"])) == []
    assert agent.env_steps == checkpoint["maze_pl"]["env_steps"]
    output = result(Run(server, trained(name), ["validate", "run", "--trust"]))
    assert "eval BaseEnvEvents" in output


@pytest.mark.parametrize("name", marked(*OTHERS))
def test_all_ways_of_starting_two_ranks_train_the_same(trained: Callable[[str], Path], name: str) -> None:
    def state(strategy: str) -> Any:
        return without_times(comparable(trained(strategy) / "run" / "checkpoints" / "last.ckpt"))

    assert differences(state("ddp"), state(name)) == []
