"""A worker of rollouts continues exactly where another one has stopped that it takes the place of."""

from __future__ import annotations

import pickle
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from maze_pl.collect.engines.ray_engine import _Served
from maze_pl.collect.rollout_worker import RolloutWorker
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.vector import SequentialVectorEnv
from tests.datamodules.counter import Counter
from tests.datamodules.drift import Drift


class CountsActs(Counter):
    """Acts with the number of its acts so far."""

    n_acts = 0

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        self.n_acts += 1
        return PolicyStep({"action": np.full((len(batch.agent_id), 1), self.n_acts, np.float32)})


def make_worker(policy: Any, number: int, restarts: int) -> RolloutWorker:
    make = partial(make_wrapped, lambda: GymMazeEnv(Drift()), [])
    training = [partial(SequentialVectorEnv, [make] * 2, seed=3)]
    return RolloutWorker(3, {}, policy, number, restarts, training=training, n_rollout_steps=4)


def actions(worker: RolloutWorker, n_rollouts: int) -> list[float]:
    played = []
    for _ in range(n_rollouts):
        rollout, _ = worker.collect_with_copy({}, CountsActs())
        played += rollout.segments[0].action["action"][:, 0, 0].tolist()
    return played


def test_a_copy_of_another_policy_moves_with_its_state() -> None:
    expected = actions(make_worker(Counter(), 0, 0), 4)
    assert expected == list(range(1, 17))
    there, here = make_worker(Counter(), 0, 0), make_worker(Counter(), 0, 0)
    first = actions(there, 2)
    host: Any = SimpleNamespace(players={5: there})
    state = pickle.loads(_Served.release(host, 5))  # as a worker of Ray gives it away
    assert here.load_state_dict(state) == []
    assert first + actions(here, 2) == expected
    assert not host.players


def test_checkpoints_hold_no_copy_of_another_policy() -> None:
    worker = make_worker(Counter(), 0, 0)
    actions(worker, 1)
    state, moving = worker.state_dict(), worker.moving_state()
    assert state is not None and moving is not None
    assert moving.keys() - state.keys() == {"other_policy"}
