"""The reservoirs of the documentation: both forms have equal numbers, and its tables are complete."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.envs import ArrayStep
from maze_pl.envs.arrays import RandomStreams
from maze_pl.envs.tensors.tensor_streams import uniform
from tests.documentation import forget_modules, write_files

PAGE = (Path(__file__).parents[3] / "docs" / "array_environments.md").read_text(encoding="utf-8")
N, N_DAYS = 5, 130


@pytest.fixture
def forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """The array form and the tensor form."""
    monkeypatch.syspath_prepend(str(tmp_path))
    write_files(PAGE, tmp_path)
    yield (
        import_module("my_package.reservoir").ReservoirArrayEnv(),
        import_module("my_package.reservoir_tensors").ReservoirTensorEnv(),
    )
    forget_modules(tmp_path)
    sys.modules.pop("my_package", None)


class HashedRain:
    """Draws Poisson numbers by inversion from the random numbers of the tensor form.

    Args:
        array_env: The array form, whose days are counted.
    """

    def __init__(self, array_env: Any) -> None:
        self.array_env = array_env
        self.seeds = np.zeros(N, np.int64)

    def seed(self, seeds: np.ndarray, which: np.ndarray) -> None:
        """Note the seeds of episodes."""
        self.seeds[which] = seeds

    def poisson(self, mean: float, which: np.ndarray) -> np.ndarray:
        """Draw a number for each environment, one after the other."""
        drawn = []
        for n in which.tolist():
            chance = float(uniform(torch.tensor([self.seeds[n]]), 1, int(self.array_env.day[n])))
            rain, probability, total = 0, np.exp(-mean), np.exp(-mean)
            while chance > total:
                rain += 1
                probability *= mean / rain
                total += probability
            drawn.append(rain)
        return np.array(drawn)


def test_the_reservoir_in_tensors_equals_that_in_arrays(forms: tuple[Any, Any]) -> None:
    arrays, tensors = forms
    for env in forms:
        env.allocate(N)
    arrays.random = HashedRain(arrays)
    generator = np.random.default_rng(3)
    which = np.arange(N)
    seeds = generator.integers(2**40, size=N)
    results: list[ArrayStep] = [env.reset(which, seeds) for env in forms]
    released, n_ended = np.zeros(N), 0
    rewards = set()
    for _ in range(N_DAYS):
        levels = [np.asarray(result.observation[0]["observation"]) for result in results]
        np.testing.assert_array_equal(levels[0], levels[1])
        actions = {0: {"action": generator.integers(4, size=N)}}
        results = [env.step(actions, slice(None)) for env in forms]
        one, other = results
        np.testing.assert_array_equal(np.asarray(other.reward), one.reward)
        np.testing.assert_array_equal(np.asarray(other.terminated), one.terminated)
        np.testing.assert_array_equal(np.asarray(other.truncated), one.truncated & ~one.terminated)
        rewards |= set(one.reward.tolist())
        released += np.minimum(actions[0]["action"], levels[0][:, 0])
        ended = np.flatnonzero(one.terminated | one.truncated)
        if len(ended):
            kpis = tensors.kpis(ended)["released_per_day"]
            np.testing.assert_allclose(kpis, released[ended] / arrays.day[ended], rtol=1e-6)
            n_ended += len(ended)
            released[ended] = 0.0
            results = [env.reset(ended, seeds[ended] + n_ended) for env in forms]
    assert n_ended > N
    assert len(rewards) > 3


def _first_column(heading: str) -> set[str]:
    """Names in the first column of a table, without arguments."""
    table = PAGE[PAGE.index(heading) :].split("\n\n")[0]
    names: set[str] = set()
    for line in table.splitlines()[2:]:
        names |= set(re.findall(r"`(\w+)", line.split("|")[1]))
    return names


def test_tables_of_the_page_are_complete() -> None:
    assert _first_column("| field | content |") == {field.name for field in fields(ArrayStep)}
    methods = {name for name, value in vars(RandomStreams).items() if callable(value) and not name.startswith("_")}
    assert _first_column("| method | draws |") == methods
