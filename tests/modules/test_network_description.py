"""Checkpoints tell which networks their weights are for: activations and distributions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.agents import TorchActorCritic
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import SquashedGaussianProbabilityDistribution
from maze_pl.modules import PPO, SAC
from maze_pl.modules.network_description import describe_networks, require_same_networks
from maze_pl.perception import AutomaticModelComposer
from tests.modules.kit import FLAT_SPEC

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

SQUASHED = [{"action_space": "gymnasium.spaces.Box", "distribution": SquashedGaussianProbabilityDistribution}]
BOX_SPEC = Spec({0: StepSpec(FLAT_SPEC.steps[0].observation_space, spaces.Dict({"move": spaces.Box(-2.0, 2.0, (1,))}))})


def composer(**options: Any) -> AutomaticModelComposer:
    return AutomaticModelComposer(**options)


def saved(module: Any) -> dict[str, Any]:
    """maze_pl's entry of the module's checkpoint, as far as it describes networks."""
    return {"networks": describe_networks(module.networks)}


def require(networks: TorchActorCritic, entry: Any) -> None:
    """Compare networks with the entry of a checkpoint whose weights have their names and shapes."""
    require_same_networks(networks, entry, networks.state_dict(prefix="actor_critic."))


def test_activations_and_distributions_are_described_in_their_order() -> None:
    assert describe_networks(PPO(networks=composer(non_lin=nn.ReLU), spec=FLAT_SPEC).networks) == {
        "activations of the policy, sub-step 0": "ReLU, ReLU",
        "distribution of action head 'action', sub-step 0": "CategoricalProbabilityDistribution",
        "activations of the critic": "ReLU, ReLU",
    }


def test_layers_that_do_not_change_the_function_are_not_described(kit: SimpleNamespace) -> None:
    with_dropout = kit.make_actor_critic(dropout=0.5)
    assert describe_networks(with_dropout)["activations of the policy, sub-step 0"] == "Tanh"
    require(with_dropout, {"networks": describe_networks(kit.make_actor_critic())})


def make(**options: Any) -> PPO:
    return PPO(networks=composer(**options), spec=FLAT_SPEC, batch_size=20)


@pytest.mark.parametrize("options", [{"non_lin": nn.ReLU}, {"non_lin": "torch.nn.ReLU"}])
def test_weights_are_not_loaded_into_networks_with_other_activations(
    kit: SimpleNamespace, tmp_path: Path, options: Any
) -> None:
    module, path = make(**options), tmp_path / "one.ckpt"
    kit.fit(module, length=1).save_checkpoint(path)
    found = r"activations of the policy, sub-step 0: ReLU, ReLU, here Tanh, Tanh; .*\(path, networks=\.\.\.\)"
    with pytest.raises(ValueError, match=found):
        PPO.load_from_checkpoint(path, weights_only=True)
    loaded = PPO.load_from_checkpoint(path, networks=composer(**options), weights_only=True)
    assert torch.equal(next(loaded.parameters()), next(module.parameters()))
    kit.fit(make(**options), epochs=2, length=1, ckpt_path=path)
    with pytest.raises(ValueError, match="the checkpoint is of other networks"):
        kit.fit(make(), epochs=2, length=1, ckpt_path=path)


class Noted(nn.ReLU):
    """A layer with state that is not a tensor."""

    def get_extra_state(self) -> dict[str, str]:
        return {"note": "of the layer"}

    def set_extra_state(self, state: dict[str, str]) -> None:
        assert state == self.get_extra_state()


def test_layers_may_have_state_that_is_not_a_tensor(kit: SimpleNamespace, tmp_path: Path) -> None:
    module, path = make(non_lin=Noted), tmp_path / "one.ckpt"
    kit.fit(module, length=1).save_checkpoint(path)
    loaded = PPO.load_from_checkpoint(path, networks=composer(non_lin=Noted), weights_only=True)
    assert torch.equal(next(loaded.parameters()), next(module.parameters()))
    saved_entry: Any = {"networks": describe_networks(make(non_lin=Noted, hidden_units=[3]).networks)}
    saved_entry["networks"]["activations of the critic"] = "Tanh"
    with pytest.raises(ValueError, match="activations of the critic: Tanh, here none"):
        require(module.networks, saved_entry)


def test_weights_are_not_loaded_for_actions_of_another_distribution() -> None:
    entry: Any = saved(PPO(networks=composer(distribution_mapper_config=SQUASHED), spec=BOX_SPEC))
    found = r"distribution of action head 'move', sub-step 0: SquashedGaussian\w+, here DiagonalGaussian"
    with pytest.raises(ValueError, match=found):
        require(PPO(networks=composer(), spec=BOX_SPEC).networks, entry)
    require(PPO(networks=composer(distribution_mapper_config=SQUASHED), spec=BOX_SPEC).networks, entry)


def test_checkpoints_of_earlier_versions_and_other_parts_are_not_compared() -> None:
    networks = SAC(networks=composer(), spec=BOX_SPEC).networks
    require(networks, {})
    require(networks, {"networks": {"activations of a part that is gone": "Tanh"}})


def test_weights_of_other_shapes_and_algorithms_are_reported_as_such(kit: SimpleNamespace, tmp_path: Path) -> None:
    kit.fit(make(), length=1).save_checkpoint(tmp_path / "one.ckpt")
    wider = AutomaticModelComposer(hidden_units=[8], non_lin=nn.ReLU)
    with pytest.raises(RuntimeError, match=r"size mismatch|Missing key"):
        PPO.load_from_checkpoint(tmp_path / "one.ckpt", networks=wider, weights_only=True)
    with pytest.raises(RuntimeError, match="Missing key"):
        SAC.load_from_checkpoint(tmp_path / "one.ckpt", networks=composer(non_lin=nn.ReLU), weights_only=True)


@pytest.mark.parametrize("options", [{"hidden_units": [5]}, {"hidden_units": [4, 4, 4]}])
def test_weights_of_networks_of_other_shapes_come_with_the_remedy(options: Any) -> None:
    weights = make(hidden_units=[4, 4]).state_dict()
    remedy = r"of other networks than this PPO has: give those of their run, as in PPO.load_from_checkpoint\(path, net"
    with pytest.raises(RuntimeError, match=rf"{remedy}(.|\n)*Error\(s\) in loading state_dict"):
        make(**options).load_state_dict(weights)


def test_other_faults_of_weights_are_those_of_torch() -> None:
    module = make()
    with pytest.raises(RuntimeError, match=r"^Error\(s\) in loading state_dict"):
        module.load_state_dict({**module.state_dict(), "further": torch.zeros(1)})
