"""Policies in arrays among environments in tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.agents import TorchPolicy
from maze_pl.collect.actor_slots import ActorSlots
from maze_pl.collect.collector import Collector
from maze_pl.collect.tensors.host_policy import HostPolicy, why_on_host
from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.policy import Policy, PolicyBatch, PolicyStep
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs import ArrayVectorEnv
from maze_pl.envs.tensors import Outcome, TensorEnv
from maze_pl.modules import PPO
from tests.devices import DEVICES

N_ENVS, N_STEPS = 3, 10
CPU = torch.device("cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_actions_are_those_of_the_policy_on_the_device(device: str) -> None:
    space = spaces.Dict({"move": spaces.Discrete(4), "force": spaces.Box(-1, 1, (2,), np.float32)})
    spec = Spec({"go": StepSpec(spaces.Dict(allowed=spaces.Box(0, 1, (4,), np.int8)), space)})
    random = RandomPolicy({"go": space}, {"go": {"move": "allowed"}})
    policy = HostPolicy(random, spec, ActorSlots(spec, 50), torch.ones(50, dtype=torch.bool, device=device))
    allowed = torch.zeros(50, 4, dtype=torch.int8, device=device)
    allowed[:, 1] = allowed[:, 3] = 1
    actions = []
    for seed in (0, 0, 1):
        generator = torch.Generator(device).manual_seed(seed)
        actions.append(policy.distribution("go", {"allowed": allowed}).sample(generator))
    assert {head: action.shape for head, action in actions[0].items()} == {"move": (50,), "force": (50, 2)}
    assert all(action.device.type == device for action in actions[0].values())
    assert set(actions[0]["move"].tolist()) == {1, 3}
    assert all(torch.equal(actions[0][head], actions[1][head]) for head in actions[0])
    assert not torch.equal(actions[0]["force"], actions[2]["force"])


class Walk(TensorEnv):
    """Two sub-steps; episodes end after a number of steps that depends on the environment, or are truncated.

    Observations are of wider types than those of their spaces.
    """

    n_acts = 6
    """Acts after which the episodes of the second environment end."""

    def __init__(self) -> None:
        super().__init__(max_episode_steps=4)

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        place = {"place": spaces.Box(-1e3, 1e3, (1,), np.float32), "count": spaces.Box(0, 99, (), np.int32)}
        return {"turn": spaces.Dict(place), "step": spaces.Dict(place)}

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {key: spaces.Dict({"way": spaces.Discrete(100)}) for key in ("turn", "step")}

    def make_tensors(self, n_envs: int) -> None:
        self.place = torch.zeros(n_envs, dtype=torch.float64, device=self.device)
        self.count = torch.zeros(n_envs, dtype=torch.int64, device=self.device)
        self.number = torch.arange(n_envs, device=self.device)

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        self.place.masked_fill_(which, 0.0)
        self.count.masked_fill_(which, 0)

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        return {"place": self.place[:, None], "count": self.count}

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        self.place.add_(action["way"] / 3)
        self.count.add_(1)
        return Outcome(self.place, (self.count >= self.n_acts) & (self.number == 1) if step_key == "step" else None)


class FlatWalk(Walk):
    """A walk with the last sub-step only."""

    n_acts = 3

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {"step": super().observation_spaces_dict["step"]}

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {"step": super().action_spaces_dict["step"]}


class Counting:
    """Chooses the number of its acts in the episode, which it keeps as policy state and as noise."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        n = len(batch.agent_id)
        state = np.zeros(n, np.float32) if batch.policy_state is None else batch.policy_state["n"]
        noise = np.zeros((n, 2)) if not batch.noise_state else batch.noise_state["n"]
        assert batch.noise_state is not None
        assert (state == noise[:, 1]).all()
        action = {"way": state.astype(np.int64)}
        return PolicyStep(action, policy_state={"n": state + 1}, noise_state={"n": noise + 1})


class Keeping:
    """Repeats in an episode the number of its call at the first act of it."""

    def __init__(self) -> None:
        self.n_calls = 0
        self.kept: dict[Any, np.ndarray] = {}

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        assert batch.is_first is not None
        self.n_calls += 1
        before = self.kept.get(batch.step_key, np.zeros(len(batch.agent_id), np.int64))
        self.kept[batch.step_key] = np.where(batch.is_first, self.n_calls, before)
        return PolicyStep({"way": self.kept[batch.step_key].copy()})


class ByTypes:
    """Chooses by the types of the observations, and their rounding."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        found = {name: array.dtype for name, array in batch.observation.items()}
        assert found == {"place": np.float32, "count": np.int32}
        return PolicyStep({"way": (batch.observation["place"][:, 0] * 10).astype(np.int64) % 7 + 1})


def collectors(make: Callable[[], TensorEnv] = Walk) -> tuple[TensorCollector, Collector]:
    """Collectors of the form in tensors and of that in arrays."""
    spec = Spec.of(make())
    tensors = TensorVector(make(), N_ENVS, spec, CPU)
    return (
        TensorCollector(tensors, N_STEPS, torch.Generator().manual_seed(1)),
        Collector(ArrayVectorEnv(make, N_ENVS, spec=spec), N_STEPS, torch.Generator().manual_seed(1)),
    )


@pytest.mark.parametrize("make", [Counting, Keeping, ByTypes])
@pytest.mark.parametrize("make_env", [Walk, FlatWalk])
def test_policies_get_what_they_get_from_arrays(make_env: Any, make: Any) -> None:
    found, expected = collectors(make_env)
    policies: list[Policy] = [make(), make()]
    for _ in range(2):
        rollouts = [collector.collect(policy) for collector, policy in zip((found, expected), policies, strict=True)]
        for key, segment in rollouts[0].segments.items():
            other = rollouts[1].segments[key]
            assert torch.equal(segment.action["way"], other.action["way"])
            assert torch.equal(segment.is_first, other.is_first)
            assert torch.equal(segment.observation["place"], other.observation["place"])
        assert rollouts[0].rows.terminated.any()
        assert rollouts[0].rows.truncated.any()


def test_policy_states_are_saved() -> None:
    collector, _ = collectors()
    collector.collect(Counting())
    state = collector.state_dict()
    expected = collector.collect(Counting()).segments["step"].action["way"].clone()
    assert expected[0].tolist() == [2, 1, 2], "episodes go on"
    other, _ = collectors()
    other.load_state_dict(state)
    assert torch.equal(other.collect(Counting()).segments["step"].action["way"], expected)


class Recurrent(Counting):
    """A policy that has distributions, but needs its states to act."""

    acts_on_device = False

    def distribution(self, *_: Any) -> Any:
        raise AssertionError("it would act without its states")


class OverridingPolicy(TorchPolicy):
    """Chooses other actions than those that its distributions would give."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"way": np.full(len(batch.agent_id), 5)})


class TwiceOverridingPolicy(OverridingPolicy):
    """Has distributions that give its actions, too."""

    acts_on_device = True


def test_policies_that_override_act_are_not_bypassed() -> None:
    collector, _ = collectors()
    spec = Spec.of(Walk())
    policy = PPO(spec=spec).policy
    assert why_on_host(policy) is None
    policy.__class__ = OverridingPolicy
    assert why_on_host(policy) == "OverridingPolicy overrides act, which distributions on a device would bypass"
    rollout = collector.collect(policy)
    assert [segment.action["way"].unique().tolist() for segment in rollout.segments.values()] == [[5], [5]]
    policy.__class__ = TwiceOverridingPolicy
    assert why_on_host(policy) is None, "it says so itself"
    assert why_on_host(Counting()) == "Counting chooses its actions there, as it has no attribute acts_on_device"


def test_policies_with_distributions_and_states_act_on_the_host() -> None:
    collector, _ = collectors()
    rollout = collector.collect(Recurrent())
    assert rollout.segments["turn"].action["way"][:4, 0].tolist() == [0, 1, 2, 3]
