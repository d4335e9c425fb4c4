"""Actions of running episodes: equal to those of a slow reference, in few pieces, and rarely copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.collect.tensors import running_actions
from maze_pl.collect.tensors.running_actions import RunningActions
from maze_pl.core.spec import Spec, StepSpec

OBSERVATION = spaces.Dict(x=spaces.Box(0, 1))
SPEC = Spec({0: StepSpec(OBSERVATION, spaces.Dict(choice=spaces.Discrete(90), force=spaces.Box(-1, 1, (2,))))})


def rollout(generator: np.random.Generator, n_rows: int, n_envs: int) -> dict[Any, dict[str, torch.Tensor]]:
    choice = torch.from_numpy(generator.integers(0, 90, (n_rows, n_envs)).astype(np.int8))
    force = torch.from_numpy(generator.normal(size=(n_rows, n_envs, 2)).astype(np.float32))
    return {0: {"choice": choice, "force": force}}


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.9])
@pytest.mark.parametrize(("n_rows", "n_envs"), [(1, 5), (4, 3), (9, 1)])
def test_ended_episodes_have_their_actions(n_rows: int, n_envs: int, share: float) -> None:
    generator = np.random.default_rng(n_rows)
    actions = RunningActions(SPEC, n_envs)
    running: list[list[Any]] = [[] for _ in range(n_envs)]  # of each environment, its choices and forces
    n_ended = 0
    for number in range(60):
        if number == 30:  # interrupted
            saved, actions = actions.state(), RunningActions(SPEC, n_envs)
            actions.load(*saved)
        of_rollout = rollout(generator, n_rows, n_envs)
        ended = generator.random((n_rows, n_envs)) < share
        ended[:, 0] &= number > 50  # the episode of the first environment is long
        env, row = np.nonzero(ended.T)
        found, lengths = actions.add(of_rollout, n_rows, env, row)
        choices, forces, counts = [], [], []
        for n in range(n_envs):
            for t in range(n_rows):
                running[n].append((of_rollout[0]["choice"][t, n], of_rollout[0]["force"][t, n]))
                if ended[t, n]:
                    choices += [int(choice) for choice, _ in running[n]]
                    forces += [force.tolist() for _, force in running[n]]
                    counts.append(len(running[n]))
                    running[n] = []
        assert lengths.tolist() == counts
        if counts:
            assert found[0]["choice"].dtype == np.int64
            assert found[0]["choice"].tolist() == choices
            assert found[0]["force"].tolist() == forces
            n_ended += len(counts)
    assert n_ended > 0 or share < 0.1
    values, counts_of_running = actions.state()
    assert counts_of_running.tolist() == list(map(len, running))
    expected = [int(choice) for acts in running for choice, _ in acts]
    assert not expected or values[0]["choice"].tolist() == expected


def test_the_actions_of_long_episodes_are_rarely_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = []
    joined = running_actions._joined

    def counted(pieces: Any) -> Any:
        piece = joined(pieces)
        copied.append(piece.size)
        return piece

    monkeypatch.setattr(running_actions, "_joined", counted)
    actions = RunningActions(SPEC, 4)
    none = np.zeros(0, np.int64)
    for _ in range(512):
        actions.add(rollout(np.random.default_rng(0), 1, 4), 1, none, none)
        assert len(actions._pieces) <= 10
    assert sum(copied) <= 512 * 4 * 9, "each one once for each doubling"


def test_episodes_that_ended_leave_no_memory_behind() -> None:
    actions = RunningActions(SPEC, 100)
    generator = np.random.default_rng(0)
    for _ in range(300):  # the first environment goes on
        actions.add(rollout(generator, 2, 100), 2, np.arange(1, 100), np.ones(99, np.int64))
    assert sum(piece.size for piece in actions._pieces) <= 4 * 2 * 300 + 2 * 2 * 100
