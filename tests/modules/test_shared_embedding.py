"""Networks that policy and critic share: one step down the gradient of both losses, and what a run keeps of them."""

from __future__ import annotations

import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from maze_pl.agents import TorchActorCritic
from maze_pl.modules import A2C, PPO
from maze_pl.modules.on_policy.learning_batch import learning_batch
from maze_pl.perception import (
    ConcatModelBuilder,
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatSharedStateValueNet,
    ProbabilisticPolicyComposer,
    StateCriticComposer,
    StepStateCriticComposer,
    TemplateModelComposer,
)
from tests.modules.gradients import Gradients

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec")

HIDDEN = {
    "block_type": "maze_pl.perception.DenseBlock",
    "block_params": {"hidden_units": [6], "non_lin": "torch.nn.Tanh"},
}


def template(keys: list[str] | None) -> TemplateModelComposer:
    """Two layers of which the first, both or none is shared."""
    config = {
        "feature": {**HIDDEN, "block_params": {"hidden_units": [8], "non_lin": "torch.nn.Tanh"}},
        "hidden": HIDDEN,
    }
    builder = ConcatModelBuilder(config, {"observation": "feature"}, keys)
    return TemplateModelComposer(builder, ProbabilisticPolicyComposer(), StateCriticComposer())


COMPOSERS: dict[str, Any] = {
    "fully": template(["latent"]),
    "partly": template(["observation_DenseBlock"]),
    "apart": template(None),
    "flatten_concat": CustomModelComposer(
        ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[8, 6])]),
        StepStateCriticComposer([FlattenConcatSharedStateValueNet]),
    ),
}
N_SHARED = {"fully": 4, "partly": 2, "apart": 0, "flatten_concat": 4}
names = pytest.mark.parametrize("name", COMPOSERS)


def make(name: str, kit: SimpleNamespace) -> TorchActorCritic:
    torch.manual_seed(0)
    networks: TorchActorCritic = COMPOSERS[name].compose(kit.flat_spec)
    return networks


def of(module: nn.Module | None) -> dict[int, Tensor]:
    assert module is not None
    return {id(parameter): parameter for parameter in module.parameters()}


def linear_layers(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


def gradients_by_hand(networks: TorchActorCritic, kit: SimpleNamespace) -> tuple[Any, Any]:
    """By parameter, the gradients of the policy's and of the critic's loss, each network written out."""
    batch = learning_batch(
        networks, kit.make_flat_rollout(seed=0), 0.98, 1.0, normalize_advantage=False, with_log_prob=False
    )
    acts = batch.acts[0]

    def output(module: nn.Module) -> Tensor:
        *hidden, head = linear_layers(module)
        x = acts.observation["observation"]
        for layer in hidden:
            x = torch.tanh(x @ layer.weight.T + layer.bias)
        return x @ head.weight.T + head.bias

    log_probs = output(networks.policy).log_softmax(-1)
    taken = log_probs.gather(-1, acts.action["action"].unsqueeze(-1)).squeeze(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    policy_loss = -(taken * acts.advantage).mean() - 2.5e-4 * entropy.mean()
    assert networks.critic is not None
    critic_loss = 0.5 * (output(networks.critic).squeeze(-1) - acts.return_).square().mean()
    parameters = list(networks.parameters())
    return tuple(torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (policy_loss, critic_loss))


@pytest.mark.parametrize("capture", ["auto", "off"])
@names
def test_a_step_follows_the_sum_of_both_losses(kit: SimpleNamespace, name: str, capture: Any) -> None:
    networks = make(name, kit)
    of_policy, of_critic = gradients_by_hand(copy.deepcopy(networks), kit)
    parameters = list(networks.parameters())
    shared = [p for p in parameters if id(p) in of(networks.policy) and id(p) in of(networks.critic)]
    assert len(shared) == N_SHARED[name]
    module = A2C(actor_critic=networks, capture=capture)
    gradients = Gradients()
    kit.fit(module, length=1, callbacks=[gradients])
    assert module.capture_refusal is None
    assert len(parameters) == 2 * 2 + 2 + 2 + (4 - N_SHARED[name])
    for parameter, first, second in zip(parameters, of_policy, of_critic, strict=True):
        expected = sum(gradient for gradient in (first, second) if gradient is not None)
        torch.testing.assert_close(gradients.of[id(parameter)], expected, rtol=1e-4, atol=1e-6)
        if any(parameter is item for item in shared):
            assert first is not None and bool(first.any()) and bool(second.any()), "both losses reach what is shared"
    assert sum(p.numel() for p in parameters) == gradients.size


@names
def test_each_parameter_is_in_one_group_of_the_optimiser(kit: SimpleNamespace, name: str) -> None:
    networks = make(name, kit)
    module = A2C(actor_critic=networks)
    groups = {group["name"]: group["params"] for group in module.configure_optimizers().param_groups}
    assert list(groups) == ["policy", "critic"]
    everything = [id(parameter) for group in groups.values() for parameter in group]
    assert len(everything) == len(set(everything)) == len(list(networks.parameters()))
    assert {id(parameter) for parameter in groups["policy"]} == of(networks.policy).keys()


@names
def test_the_burn_in_of_the_critic_leaves_what_is_shared_alone(kit: SimpleNamespace, name: str) -> None:
    networks = make(name, kit)
    before = copy.deepcopy(networks)
    gradients = Gradients()
    kit.fit(A2C(actor_critic=networks, critic_burn_in_epochs=1), callbacks=[gradients])
    for old, new in zip(before.policy.parameters(), networks.policy.parameters(), strict=True):
        assert torch.equal(old, new)
    own = of(networks.critic).keys() - of(networks.policy).keys()
    assert {key for key, gradient in gradients.of.items() if gradient.any()} == own
    assert not torch.equal(
        nn.utils.parameters_to_vector(before.parameters()), nn.utils.parameters_to_vector(networks.parameters())
    )


@names
def test_ppo_learns_the_same_with_and_without_capture(kit: SimpleNamespace, name: str) -> None:
    found = []
    for capture in ("auto", "off"):
        networks = make(name, kit)
        module = PPO(actor_critic=networks, batch_size=10, lr=1e-2, max_grad_norm=0.5, capture=capture)  # type: ignore[arg-type]
        torch.manual_seed(1)
        kit.fit(module, epochs=2)
        assert module.capture_refusal is None
        found.append(nn.utils.parameters_to_vector(networks.parameters()).detach())
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)


@names
def test_weights_are_still_shared_after_they_were_saved_loaded_and_copied(kit: SimpleNamespace, name: str) -> None:
    networks = make(name, kit)
    with torch.no_grad():
        for parameter in networks.parameters():
            parameter.normal_()
    other = make(name, kit)
    other.load_state_dict(networks.state_dict())
    for copied in (other, copy.deepcopy(networks)):
        assert len(of(copied.policy).keys() & of(copied.critic).keys()) == N_SHARED[name]
        for old, new in zip(networks.parameters(), copied.parameters(), strict=True):
            assert torch.equal(old, new)
