"""Networks that RLlib trains by sub-steps, and the distributions that it makes of their outputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces

from maze_pl.agents import StateCritic, TorchStepStateCritic
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.perception.models.automatic_model_composer import AutomaticModelComposer
from maze_pl.rllib import RLlibDQN, RLlibPPO, rllib_module
from maze_pl.rllib.action_layout import ActionLayout
from maze_pl.rllib.step_networks import copy_of, load_weights, parts_by_step, require_trainable

SEES = spaces.Dict({"x": spaces.Box(-1.0, 1.0, (3,)), "allowed": spaces.MultiBinary(4)})
HEADS = spaces.Dict(
    {
        "choice": spaces.Discrete(4),
        "push": spaces.Box(-1.0, 1.0, (2,)),
        "pair": spaces.MultiDiscrete([2, 3]),
        "bits": spaces.MultiBinary(2),
    }
)
FLAT = Spec({0: StepSpec(SEES, HEADS, masks={"choice": "allowed"})})
ONE_CHOICE = spaces.Dict({"choice": spaces.Discrete(4)})
TWO_STEPS = Spec({0: StepSpec(SEES, ONE_CHOICE), 1: StepSpec(SEES, ONE_CHOICE)})


def observations(n: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    allowed = torch.rand(n, 4, generator=generator) < 0.6
    allowed[:, 1] = True
    return {"x": torch.randn(n, 3, generator=generator), "allowed": allowed.to(torch.int8)}


def test_packed_logits_and_masks_give_the_distribution_of_the_policy() -> None:
    policy = AutomaticModelComposer().compose(FLAT, StateCritic, []).policy
    layout = ActionLayout.of(policy, 0)
    seen = observations(6)
    packed = layout.pack(policy.action_logits(0, seen), seen)
    assert packed.shape == (6, layout.size) == (6, 4 + 4 + 5 + 2 + 4)
    expected, found = policy.distribution(0, seen), layout.distribution(packed)
    with torch.no_grad():
        action = policy.distribution(0, seen).sample(torch.Generator().manual_seed(3))
    assert torch.equal(found.log_prob(action), expected.log_prob(action))
    assert torch.equal(found.entropy(), expected.entropy())
    as_sampled = {head: value.float() for head, value in layout.to_rllib(action).items()}
    assert torch.equal(found.log_prob(layout.from_rllib(as_sampled)), expected.log_prob(action))


def test_actions_of_one_head_are_its_values() -> None:
    spec = Spec({0: StepSpec(SEES, ONE_CHOICE)})
    layout = ActionLayout.of(AutomaticModelComposer().compose(spec, StateCritic, []).policy, 0)
    values = torch.tensor([1, 3])
    assert layout.to_rllib({"choice": values}) is values
    assert torch.equal(layout.from_rllib(values.int())["choice"], values)


def test_weights_are_those_that_were_trained() -> None:
    networks = RLlibPPO(spec=FLAT).networks
    other = copy_of(networks)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    load_weights(networks, {key: part.state_dict() for key, part in parts_by_step(other).items()})
    for name, tensor in networks.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_weights_that_are_not_finite_are_refused() -> None:
    networks = RLlibPPO(spec=FLAT).networks
    weights: dict[Any, Any] = {key: part.state_dict() for key, part in parts_by_step(copy_of(networks)).items()}
    name = next(iter(weights[0]))
    weights[0][name] = torch.full_like(weights[0][name], torch.nan)
    with pytest.raises(ValueError, match="became NaN or infinite: lower lr"):
        load_weights(networks, weights)


def test_automatic_networks_of_several_sub_steps_have_a_step_critic() -> None:
    assert isinstance(RLlibPPO(spec=TWO_STEPS).critic, TorchStepStateCritic)


def test_a_critic_of_all_sub_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="a shared critic serves all of them: use a StepStateCriticComposer"):
        require_trainable(AutomaticModelComposer().compose(TWO_STEPS, StateCritic, []))


def test_shared_parameters_of_sub_steps_are_refused() -> None:
    networks = RLlibPPO(spec=TWO_STEPS).networks
    first, second = (networks.policy.networks[index][0] for index in range(2))
    parameters = dict(second.named_parameters())
    name, shared = next((name, one) for name, one in first.named_parameters() if one.shape == parameters[name].shape)
    owner, _, attribute = name.rpartition(".")
    setattr(second.get_submodule(owner), attribute, shared)
    with pytest.raises(ValueError, match="sub-steps 0 and 1 share parameters"):
        require_trainable(networks)


def test_recurrent_networks_are_refused() -> None:
    networks = RLlibPPO(spec=FLAT).networks
    networks.policy.networks[0][0].state_shapes = {"memory": (3,)}
    with pytest.raises(ValueError, match="networks with a recurrent state cannot be trained with RLlib"):
        require_trainable(networks)


def test_several_ranks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rllib_module, "world_size", lambda: 2)
    with pytest.raises(ValueError, match="RLlib has its own processes, but the trainer has 2"):
        RLlibPPO(spec=FLAT).setup("fit")


@pytest.mark.parametrize(
    "heads",
    [
        spaces.Dict({"push": spaces.Box(-1.0, 1.0, (2,))}),
        spaces.Dict({"pair": spaces.MultiDiscrete([2, 3])}),
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)}),
        spaces.Dict({"late": spaces.Discrete(2, start=1)}),
    ],
)
def test_dqn_refuses_other_actions_than_one_choice(heads: spaces.Dict) -> None:
    with pytest.raises((ValueError, TypeError), match=r"one Discrete action from 0 on|needs a Discrete"):
        RLlibDQN(spec=Spec({0: StepSpec(SEES, heads)}))


def test_dqn_refuses_networks_that_are_no_values() -> None:
    networks = AutomaticModelComposer().compose(Spec({0: StepSpec(SEES, ONE_CHOICE)}), object, [])
    with pytest.raises(ValueError, match="has a CategoricalProbabilityDistribution, but DQN needs values"):
        RLlibDQN(actor_critic=networks)


def test_a_policy_of_values_is_refused_where_rllib_learns_from_probabilities() -> None:
    composer = AutomaticModelComposer(critic="step")
    networks = composer.compose(Spec({0: StepSpec(SEES, ONE_CHOICE)}), StateCritic, RLlibDQN.head_distributions)
    with pytest.raises(ValueError, match=r"'choice' .*EpsilonGreedy.*from which RLlibPPO cannot learn"):
        RLlibPPO(actor_critic=networks)
