"""Environments in tensors are array environments like any others."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.envs import ArrayVectorEnv, CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.checker import check_env
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.cutting_2d.tensor_environment import StructuredCutting2DTensorEnvironment
from maze_pl.envs.tensors import CartPoleTensorEnv, Outcome
from tests.envs.tensors.tensor_envs import DEMAND, ENVS


def test_the_dynamics_of_cartpole_equal_those_in_arrays() -> None:
    generator = np.random.default_rng(0)
    arrays, tensors = CartPoleArrayEnv(), CartPoleTensorEnv()
    for env in (arrays, tensors):
        env.allocate(500)
        env.reset(np.arange(500), np.arange(500))
    start = generator.normal(0.0, [1.5, 1.0, 0.15, 1.0], (500, 4))
    for column, name in enumerate(("position", "velocity", "angle", "angular_velocity")):
        getattr(arrays, name)[:] = start[:, column]
    tensors.state.copy_(torch.from_numpy(start))
    for _ in range(5):
        action = {0: {"action": generator.integers(2, size=500)}}
        expected, found = arrays.step(action, slice(None)), tensors.step(action, slice(None))
        assert np.array_equal(found.terminated.numpy(), expected.terminated)
        assert found.observation[0]["observation"].numpy() == pytest.approx(
            expected.observation[0]["observation"], rel=1e-6, abs=1e-6
        )
        assert np.array_equal(found.reward.numpy(), expected.reward)
    assert 0 < int(found.terminated.sum()) < 500


@pytest.mark.parametrize("name", ENVS)
def test_environments_that_do_not_act_stay_as_they_are(name: str) -> None:
    env = ENVS[name]()
    env.allocate(5)
    env.reset(np.arange(5), np.arange(5))
    before = {key: tensor.clone() for key, tensor in env.tensors().items()}
    key = next(iter(env.action_spaces_dict))
    zeros = {head: np.zeros(5, np.int64) for head in env.action_spaces_dict[key].spaces}
    result = env.step({key: zeros}, np.array([1, 4]))
    for label, tensor in env.tensors().items():
        if tensor.shape[:1] == (5,):
            assert torch.equal(tensor[[0, 2, 3]], before[label][[0, 2, 3]]), label
    if result.next_key is not None:
        assert result.next_key.tolist() == [0, 1, 0, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVS)
def test_the_doctor_finds_nothing(name: str) -> None:
    report = check_env(lambda: ArrayMazeEnv(ENVS[name]()))
    assert report.ok, str(report)


def test_episodes_are_truncated_after_the_limit_unless_they_terminate_then() -> None:
    vector = ArrayVectorEnv(partial(CartPoleTensorEnv, 9), 64, seed=1)
    vector.reset()
    lengths = np.zeros(64, np.int64)
    generator = np.random.default_rng(0)
    n_truncated = 0
    for _ in range(200):
        vector.staging.action[0]["action"][:] = generator.random(64) < 0.8
        vector.step()
        lengths += 1
        assert np.array_equal(vector.staging.truncated, (lengths == 9) & ~vector.staging.terminated)
        n_truncated += int(vector.staging.truncated.sum())
        lengths[vector.staging.truncated | vector.staging.terminated] = 0
    assert n_truncated > 100
    with pytest.raises(ValueError, match="max_episode_steps=0 must be at least 1"):
        CartPoleTensorEnv(0)


class Levels(CartPoleTensorEnv):
    """Poles that count their acts in tensors in containers.

    Attributes:
        n_agents: Number of agents that it declares.
    """

    def __init__(self, n_agents: int = 1) -> None:
        super().__init__()
        self.n_agents = n_agents

    @property
    def agent_counts_dict(self) -> dict[Any, int]:
        return {0: self.n_agents}

    def make_tensors(self, n_envs: int) -> None:
        super().make_tensors(n_envs)
        self.levels = {"a": torch.zeros(n_envs), "others": [torch.zeros(n_envs, 2), "text", (torch.zeros(n_envs),)]}

    def act(self, step_key: Any, action: Any) -> Outcome:
        for tensor in (self.levels["a"], self.levels["others"][0], self.levels["others"][2][0]):
            assert isinstance(tensor, torch.Tensor)
            tensor.add_(1.0)
        return super().act(step_key, action)


LEVELS = ["levels.a", "levels.others.0", "levels.others.2.0"]


def test_tensors_in_lists_tuples_and_dicts_are_part_of_the_state() -> None:
    env, other = Levels(), Levels()
    for one in (env, other):
        one.allocate(3)
        one.reset(np.arange(3), np.arange(3))
    assert list(env.tensors()) == ["n_steps", "state", *LEVELS]
    env.step({0: {"action": np.ones(3, np.int64)}}, np.array([1]))
    for name in LEVELS:
        assert env.tensors()[name].reshape(3, -1)[:, 0].tolist() == [0.0, 1.0, 0.0], "only the second one has acted"
    assert env.maze_state(1)["levels.a"] == 1.0
    other.load_state_dict(env.state_dict())
    for name, tensor in env.tensors().items():
        assert torch.equal(other.tensors()[name], tensor)


class Due(CartPoleTensorEnv):
    """Poles whose episodes end a number of steps after `n_steps` at their start."""

    def make_tensors(self, n_envs: int) -> None:
        super().make_tensors(n_envs)
        self.due = torch.zeros(n_envs, dtype=torch.int64, device=self.device)

    def begin(self, which: torch.Tensor, seeds: torch.Tensor) -> None:
        super().begin(which, seeds)
        self.due.copy_(torch.where(which, self.n_steps + 3, self.due))

    def act(self, step_key: Any, action: Any) -> Outcome:
        super().act(step_key, action)
        return Outcome(torch.ones(self.n_envs), self.n_steps + 1 >= self.due)


def test_an_episode_begins_with_no_steps() -> None:
    env = Due()
    env.allocate(2)
    env.reset(np.arange(2), np.arange(2))
    for _ in range(3):
        ends = []
        for _ in range(3):
            ends.append(env.step({0: {"action": np.ones(2, np.int64)}}, slice(None)).terminated.tolist())
        assert ends == [[False] * 2, [False] * 2, [True] * 2]
        env.reset(np.arange(2), np.arange(2))


class Scaled(CartPoleTensorEnv):
    """Poles with a scale that the constructor makes.

    Attributes:
        is_expanded: Whether a tensor of the state is made by `expand`.
    """

    def __init__(self, is_expanded: bool = False) -> None:
        super().__init__()
        self.scale = torch.ones(2).expand(3, 2)
        self.is_expanded = is_expanded

    def make_tensors(self, n_envs: int) -> None:
        super().make_tensors(n_envs)
        self.scale = self.scale.to(self.device)
        level = torch.zeros((), device=self.device).expand(n_envs)
        self.levels = [level if self.is_expanded else level.clone()]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_tensors_of_the_constructor_stay_options_when_they_are_moved_to_the_device(device: str) -> None:
    env = Scaled()
    env.device = torch.device(device)
    env.note_given_arrays()
    env.allocate(3)
    assert env.options() == ["scale"]
    assert set(env.state_dict()) == {"state", "n_steps", "levels.0", "_next_key"}


def test_tensors_whose_entries_share_memory_are_refused() -> None:
    env = Scaled(is_expanded=True)
    env.note_given_arrays()
    message = r"entries of the tensor 'levels.0' of Scaled share memory, .*: add .clone\(\) in make_tensors"
    with pytest.raises(EnvContractError, match=message):
        env.allocate(3)


@pytest.mark.parametrize("n_agents", [2, -1])
def test_several_agents_are_refused(n_agents: int) -> None:
    message = f"agent_counts_dict of Levels has {n_agents} agents for sub-step 0; an environment in tensors has one"
    with pytest.raises(EnvContractError, match=message):
        Levels(n_agents).allocate(3)


def test_an_end_before_the_last_sub_step_is_refused() -> None:
    class Early(StructuredCutting2DTensorEnvironment):
        def act(self, step_key: Any, action: Any) -> Outcome:
            reward = super().act(step_key, action).reward
            return Outcome(reward, torch.tensor([True, False, True]))

    env = Early(8, (4, 3), DEMAND)
    env.allocate(3)
    env.first_env_index = 10
    env.reset(np.arange(3), np.arange(3))
    actions = {
        key: {head: np.zeros(3, np.int64) for head in space.spaces} for key, space in env.action_spaces_dict.items()
    }
    result = env.step(actions, np.array([1]))
    assert result.terminated.tolist() == [False] * 3
    assert env.step(actions, np.array([1])).terminated.tolist() == [False] * 3, "flags of other environments are unread"
    with pytest.raises(
        EnvContractError, match="sub-step 0 of Early ended the episode of environment 12; only the last"
    ):
        env.step(actions, np.array([1, 2]))


@pytest.mark.parametrize("name", ENVS)
def test_a_loaded_state_continues_exactly(name: str) -> None:
    def play(vector: ArrayVectorEnv, generator: np.random.Generator) -> list[Any]:
        seen = []
        for _ in range(20):
            for tree in vector.staging.action.values():
                for rows in tree.values():
                    rows[...] = generator.integers(2, size=rows.shape)
            vector.step()
            seen.append((vector.staging.reward.copy(), vector.staging.terminated.copy()))
        return seen

    first, second = (ArrayVectorEnv(ENVS[name], 8, seed=1) for _ in range(2))
    first.reset()
    play(first, np.random.default_rng(0))
    second.load_state_dict(first.state_dict())
    pairs = zip(play(first, np.random.default_rng(1)), play(second, np.random.default_rng(1)), strict=True)
    assert all(np.array_equal(one, other) for pair in pairs for one, other in zip(*pair, strict=True))
