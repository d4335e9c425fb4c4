"""Warm start of networks besides policy and critic: target networks, predictors, copies."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.checkpoint_content import add_to_checkpoint
from maze_pl.core.spec import Spec
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import GymMazeEnv, make_gym_maze_env
from maze_pl.modules import A2C, BC, PPO, TD3
from maze_pl.perception import (
    AutomaticModelComposer,
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from maze_pl.runs.warm_start import warm_start


def policy_net(obs_shapes: Any, action_logits_shapes: Any) -> Any:
    return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, torch.nn.Tanh, [8])


def value_net(obs_shapes: Any) -> Any:
    return FlattenConcatStateValueNet(obs_shapes, torch.nn.Tanh, [8])


class WithTargets(PPO):
    """Has a target network of its critic, a predictor, a network in a list, and another name for the policy's."""

    width = 3

    def on_networks_ready(self) -> None:
        super().on_networks_ready()
        actor_critic: Any = self.networks
        self.target = copy.deepcopy(actor_critic.critic)
        self.targets = nn.ModuleList([copy.deepcopy(actor_critic.policy.networks[0])])
        self.predictor = nn.Linear(self.width, 1)
        self.norm = nn.LayerNorm(8)
        self.alias = actor_critic.policy.networks[0]
        self.temperature = nn.Parameter(torch.ones(()))


class Wider(WithTargets):
    width = 4


def save(module: Any, path: Path) -> None:
    """Write the checkpoint of a module."""
    checkpoint: dict[str, Any] = {"state_dict": module.state_dict()}
    config: Any = {"data": {"class_path": "maze_pl.datamodules.RolloutDataModule"}}
    add_to_checkpoint(checkpoint, spec=module.policy.spec.to_dict(), config=config)
    torch.save(checkpoint, path)


@pytest.fixture
def kit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> SimpleNamespace:
    data = RolloutDataModule(lambda: make_gym_maze_env("CartPole-v1"), n_envs=1)
    critic = SharedStateCriticComposer([value_net])
    networks = CustomModelComposer(ProbabilisticPolicyComposer([policy_net]), critic)

    def make(kind: Any) -> Any:
        return kind(networks=networks, spec=data.spec)

    def begin(there: Any, here: Any) -> Any:
        """Shift all weights of one, and begin the other with them."""
        for index, parameter in enumerate(there.parameters()):
            parameter.data += index + 1
        save(there, tmp_path / "last.ckpt")
        warm_start(tmp_path / "last.ckpt", here, data)
        return here

    return SimpleNamespace(make=make, begin=begin)


def equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


def test_copies_of_networks_are_copies_of_what_a_warm_start_brings(kit: SimpleNamespace) -> None:
    there, module = kit.make(PPO), kit.make(WithTargets)
    before = copy.deepcopy(module)
    kit.begin(there, module)
    assert equal(module.networks, there.networks) and not equal(module.networks, before.networks)
    assert equal(module.target, there.critic)
    assert equal(module.targets[0], there.policy.networks[0])
    assert equal(module.predictor, before.predictor) and equal(module.norm, before.norm)


def test_networks_that_start_anew_are_named(kit: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        kit.begin(kit.make(PPO), kit.make(WithTargets))
    text = caplog.text
    assert "no network predictor, which is not a copy of another one: it starts from scratch" in text
    assert "no network target: it is copied" in text and "no network targets.0.0: it is copied" in text
    assert "alias" not in text and "temperature" not in text


def test_networks_of_the_same_algorithm_are_those_of_the_other_run(kit: SimpleNamespace) -> None:
    there = kit.make(WithTargets)
    module = kit.begin(there, kit.make(WithTargets))
    for name in ("networks", "target", "targets", "predictor", "norm"):
        assert equal(getattr(module, name), getattr(there, name)), name
    assert not equal(module.target, module.critic), "it follows slowly, and had its own weights"
    assert float(module.temperature.detach()) == 1.0, "what is no network starts anew"


def test_exploration_is_that_of_the_new_run(kit: SimpleNamespace) -> None:
    there, here = kit.make(A2C), kit.make(A2C)
    here.policy.set_exploration(0.3)
    kit.begin(there, here)
    assert float(here.policy.exploration) == pytest.approx(0.3)
    there.policy.set_exploration(0.9)
    kit.begin(there, here)
    assert float(here.policy.exploration) == pytest.approx(0.3)
    assert equal(here.policy.networks, there.policy.networks)


def test_networks_of_other_shapes_are_refused(kit: SimpleNamespace) -> None:
    with pytest.raises(ConfigurationError, match=r"do not fit: predictor.weight is \(1, 3\) there and \(1, 4\) here"):
        kit.begin(kit.make(WithTargets), kit.make(Wider))


class Plant(gymnasium.Env[dict[str, Any], dict[str, Any]]):
    """Observations and actions of any names and spaces."""

    def __init__(self, observations: dict[str, spaces.Space[Any]], actions: dict[str, spaces.Space[Any]]) -> None:
        self.observation_space = spaces.Dict(observations)
        self.action_space = spaces.Dict(actions)


ONE = spaces.Box(0.0, 1.0, (1,), np.float32)
WIDE = spaces.Box(-5.0, 9.0, (1,), np.float32)
TWO = spaces.Discrete(2)
OBSERVED = {"price": ONE, "solar": ONE}
HEADS = {"power": TWO, "start": TWO}


def data_of(observed: dict[str, Any], heads: dict[str, Any], mask: str | None = None) -> RolloutDataModule:
    masks = None if mask is None else {"power": mask}
    return RolloutDataModule(lambda: GymMazeEnv(Plant(observed, heads)), n_envs=1, action_masks=masks)


def warm_started(there: Any, here: Any, path: Path, data: RolloutDataModule) -> Any:
    """Begin a module with the weights of another one."""
    save(there, path)
    warm_start(path, here, data)
    return here


def made(kind: Any, data: RolloutDataModule, **options: Any) -> Any:
    return kind(networks=AutomaticModelComposer([8], **options), spec=data.spec)


@pytest.mark.parametrize(
    ("observed", "heads", "difference"),
    [
        (
            OBSERVED,
            {"gen": TWO, "power": TWO},
            "action 1 of sub-step 0 is 'power' (discrete) there and 'gen' (discrete)",
        ),
        (OBSERVED, {"power": TWO}, "action 2 of sub-step 0 is 'start' (discrete) there and missing here"),
        (OBSERVED, HEADS | {"stop": TWO}, "action 3 of sub-step 0 is missing there and 'stop' (discrete) here"),
        (OBSERVED, HEADS | {"power": spaces.MultiBinary(2)}, "action 1 of sub-step 0 is 'power' (discrete) there and"),
        ({"a_solar": ONE, "price": ONE}, HEADS, "observation 1 of sub-step 0 is 'price' there and 'a_solar' here"),
        ({"price": ONE}, HEADS, "observation 2 of sub-step 0 is 'solar' there and missing here"),
        (OBSERVED | {"wind": ONE}, HEADS, "observation 3 of sub-step 0 is missing there and 'wind' here"),
    ],
)
def test_weights_for_other_observations_or_actions_are_refused_although_shapes_may_be_equal(
    tmp_path: Path, observed: dict[str, Any], heads: dict[str, Any], difference: str
) -> None:
    there, data = made(PPO, data_of(OBSERVED, HEADS)), data_of(observed, heads)
    with pytest.raises(ConfigurationError, match=r"last.ckpt was trained with other spaces: ") as caught:
        warm_started(there, made(PPO, data), tmp_path / "last.ckpt", data)
    assert difference in str(caught.value)


def flat(kind: Any, data: RolloutDataModule) -> Any:
    critic = SharedStateCriticComposer([value_net])
    return kind(networks=CustomModelComposer(ProbabilisticPolicyComposer([policy_net]), critic), spec=data.spec)


def box(*shape: int) -> spaces.Box:
    return spaces.Box(-1.0, 2.0, shape, np.float32)


MASK = spaces.MultiBinary(2)
POWER = {"power": TWO}
SIZES = "input 1 of sub-step 0 is 'a' of shape {} there and 'a' of shape {} here"
CATEGORIES = "input 1 of sub-step 0 is 'a' of 2 categories there and 'a' of 4 categories here"


@pytest.mark.parametrize(
    ("make", "observed", "mask", "observed_here", "difference"),
    [
        (flat, {"a": box(2), "b": box(4)}, None, {"a": box(4), "b": box(2)}, SIZES.format([2], [4])),
        (made, {"a": box(2), "b": box(4)}, None, {"a": box(4), "b": box(2)}, SIZES.format([2], [4])),
        (made, {"a": box(2, 3), "b": ONE}, None, {"a": box(3, 2), "b": ONE}, SIZES.format([2, 3], [3, 2])),
        (flat, {"a": box(2), "b": box(2)}, None, {"a": box(4)}, SIZES.format([2], [4])),
        (made, {"a": box(2), "b": box(2)}, None, {"a": box(4)}, SIZES.format([2], [4])),
        (made, {"a": TWO, "b": spaces.Discrete(4)}, None, {"a": spaces.Discrete(4), "b": TWO}, CATEGORIES),
        (flat, {"level": box(2), "mask": MASK}, "mask", {"level": box(2), "zone": box(2)}, "input 2 of sub-step 0 is"),
        (flat, {"a_mask": MASK, "z": box(2)}, "a_mask", {"mask": MASK, "z": box(2)}, "is 'z' of shape [2] there and"),
    ],
)
def test_weights_of_a_vector_are_refused_if_its_parts_have_other_places(
    tmp_path: Path,
    make: Any,
    observed: dict[str, Any],
    mask: str | None,
    observed_here: dict[str, Any],
    difference: str,
) -> None:
    there, data = make(PPO, data_of(observed, POWER, mask)), data_of(observed_here, POWER)
    here = make(PPO, data)
    before = copy.deepcopy(here)
    with pytest.raises(ConfigurationError, match=r"last.ckpt was trained with other spaces: ") as caught:
        warm_started(there, here, tmp_path / "last.ckpt", data)
    assert difference in str(caught.value)
    assert equal(here, before)


def test_masks_that_networks_do_not_read_may_differ(tmp_path: Path) -> None:
    there = made(PPO, data_of({"a_mask": MASK, "level": box(2)}, POWER, "a_mask"))
    data = data_of({"level": box(2), "mask": MASK}, POWER, "mask")
    assert equal(warm_started(there, made(PPO, data), tmp_path / "last.ckpt", data).networks, there.networks)


def with_steps(spec: Spec, *keys: str) -> Spec:
    """The only sub-step of a spec under other keys."""
    (step,) = spec.steps.values()
    return Spec(dict.fromkeys(keys, step))


def test_networks_of_sub_steps_in_another_order_are_refused(tmp_path: Path) -> None:
    spec = data_of(OBSERVED, HEADS).spec

    def trader(*keys: str) -> Any:
        """A data module with these sub-steps."""
        return SimpleNamespace(spec=with_steps(spec, *keys), warm_start=lambda _: None)

    there = made(PPO, trader("buyer", "seller"))
    data = trader("seller", "buyer")
    with pytest.raises(ConfigurationError, match=r"spaces: sub-step 1 is 'buyer' there and 'seller' here; use its"):
        warm_started(there, made(PPO, data), tmp_path / "last.ckpt", data)
    single = trader("trader")
    there = made(PPO, trader("buyer"))
    assert equal(warm_started(there, made(PPO, single), tmp_path / "last.ckpt", single).policy, there.policy)


def test_bounds_and_observations_that_networks_do_not_read_may_differ(tmp_path: Path) -> None:
    there = made(PPO, data_of(OBSERVED, HEADS))
    for observed in ({"price": WIDE, "solar": ONE}, OBSERVED | {"at": ONE}):
        data = data_of(observed, HEADS)
        kinds = {"at": "omitted"} if "at" in observed else None
        module = warm_started(there, made(PPO, data, kinds=kinds), tmp_path / "last.ckpt", data)
        assert equal(module.networks, there.networks)


def test_weights_of_networks_that_the_run_does_not_have_are_refused(kit: SimpleNamespace) -> None:
    there, here = kit.make(PPO), kit.make(PPO)
    there.networks.policy.networks[0].append(nn.Linear(1, 1))
    with pytest.raises(ConfigurationError, match=r"policy.networks.0.1.weight is \(1, 1\) there and missing here"):
        kit.begin(there, here)


def test_a_clone_begins_with_the_policy_of_a_run_that_has_a_critic(tmp_path: Path) -> None:
    data = data_of(OBSERVED, HEADS)
    there = made(PPO, data)
    clone = warm_started(there, made(BC, data), tmp_path / "last.ckpt", data)
    assert equal(clone.policy, there.policy) and not equal(clone.policy, made(BC, data).policy)


def test_a_deterministic_policy_begins_without_the_standard_deviations_of_a_run(tmp_path: Path) -> None:
    data = RolloutDataModule(lambda: make_gym_maze_env("Pendulum-v1"), n_envs=1)
    options = {
        "action_head": "action",
        "distribution": "maze_pl.distributions.DiagonalGaussianProbabilityDistribution",
        "exploration": {"type": "state_independent"},
    }
    there = made(BC, data, distribution_mapper_config=[options])
    module = warm_started(there, made(TD3, data), tmp_path / "last.ckpt", data)
    assert len(there.policy.explorations) == 1
    assert equal(module.policy.networks, there.policy.networks)


def test_a_critic_of_an_earlier_version_goes_on_reading_actions_as_they_are(tmp_path: Path) -> None:
    data = RolloutDataModule(lambda: make_gym_maze_env("Pendulum-v1"), n_envs=1)
    there, here = (TD3(networks=AutomaticModelComposer(), spec=data.spec) for _ in range(2))
    save(there, tmp_path / "now.ckpt")
    checkpoint = torch.load(tmp_path / "now.ckpt", weights_only=True)
    checkpoint["state_dict"].pop("actor_critic.critic._reads_scaled_actions")
    torch.save(checkpoint, tmp_path / "earlier.ckpt")
    observation, action = {"observation": torch.randn(4, 3)}, {"action": torch.rand(4, 1) * 4 - 2}
    half = {"action": action["action"] / 2}  # the bounds are -2 and 2
    warm_start(tmp_path / "earlier.ckpt", here, data)
    of_here = here.critic.action_value(0, observation, half)
    torch.testing.assert_close(of_here, there.critic.action_value(0, observation, action))
    warm_start(tmp_path / "now.ckpt", here, data)
    of_here = here.critic.action_value(0, observation, action)
    torch.testing.assert_close(of_here, there.critic.action_value(0, observation, action))
