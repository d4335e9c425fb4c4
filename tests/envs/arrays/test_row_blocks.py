"""Rows of episodes against lists, and memory for the rows in use only."""

from __future__ import annotations

import numpy as np
import pytest

from maze_pl.envs.arrays.row_blocks import RowBlocks

N_ENVS = 5


class Table:
    """A column of numbers, each written to a row, next to the same numbers in lists."""

    def __init__(self) -> None:
        self.blocks = RowBlocks(N_ENVS)
        self.column = np.zeros(0, np.int64)
        self.running: list[list[int]] = [[] for _ in range(N_ENVS)]
        self.ended: list[list[int]] = []
        self.next = 0

    def write(self, envs: np.ndarray) -> None:
        rows = self.blocks.take(envs)
        assert len(set(rows.tolist())) == len(rows)
        self.column = np.concatenate([self.column, np.zeros(self.blocks.n_rows - len(self.column), np.int64)])
        numbers = np.arange(self.next, self.next + len(envs))
        self.next += len(envs)
        self.column[rows] = numbers
        for env, number in zip(envs.tolist(), numbers.tolist(), strict=True):
            self.running[env].append(number)

    def end(self, envs: np.ndarray) -> None:
        self.blocks.end_episodes(envs, len(self.ended))
        for env in envs.tolist():
            self.ended.append(self.running[env])
            self.running[env] = []

    def drop(self, envs: np.ndarray) -> None:
        self.blocks.drop_running(envs)
        for env in envs.tolist():
            self.running[env] = []

    def drain(self, rank: np.ndarray) -> None:
        rows, ranks = self.blocks.ended(rank)
        by_rank = [self.ended[place] for place in np.argsort(rank)]
        assert self.column[rows].tolist() == [number for numbers in by_rank for number in numbers]
        assert ranks.tolist() == [number for number, numbers in enumerate(by_rank) for _ in numbers]
        self.blocks.free_ended()
        self.ended = []

    def check(self) -> None:
        rows, envs = self.blocks.running()
        assert self.column[rows].tolist() == [number for numbers in self.running for number in numbers]
        assert envs.tolist() == [env for env, numbers in enumerate(self.running) for _ in numbers]
        assert self.blocks.counts.tolist() == [len(numbers) for numbers in self.running]


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_those_of_lists(seed: int) -> None:
    generator = np.random.default_rng(seed)
    table = Table()
    for _ in range(300):
        table.write(generator.integers(N_ENVS, size=generator.integers(0, 40)))
        some = np.flatnonzero(generator.random(N_ENVS) < 0.05)
        (table.drop if generator.random() < 0.2 else table.end)(some)
        if generator.random() < 0.1:
            table.drain(generator.permutation(len(table.ended)))
        table.check()


def test_rows_of_ended_episodes_are_used_again() -> None:
    table = Table()
    everyone = np.arange(N_ENVS)
    for step in range(2000):
        table.write(everyone)
        table.end(everyone[step % 100 == everyone])  # staggered episodes of 100 rows
        table.drain(np.arange(len(table.ended)))
    assert table.blocks.n_rows <= 2 * N_ENVS * (100 + 16)


def test_episodes_with_few_events_have_few_rows() -> None:
    blocks = RowBlocks(1000)
    everyone = np.arange(1000)
    blocks.take(everyone)
    assert blocks.n_rows == 1000
    blocks.take(everyone)
    assert blocks.n_rows == 3000
    blocks.end_episodes(everyone, 0)
    blocks.free_ended()
    for _ in range(3):
        blocks.take(everyone)
    assert blocks.n_rows == 3000, "free rows are used again"


def test_a_busy_environment_takes_rows_for_itself_only() -> None:
    blocks = RowBlocks(1000)
    rows = blocks.take(np.zeros(5000, np.int64))
    assert sorted(rows.tolist()) == list(range(5000)), "of consecutive blocks"
    assert blocks.n_rows <= 2 * 5016
