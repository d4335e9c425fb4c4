"""Auxiliary outputs of networks: losses that read them, by hand and traced, acting without them, and refusals."""

from __future__ import annotations

import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents import TorchActorCritic, TorchPolicy
from maze_pl.agents.torch_delta_state_critic import TorchDeltaStateCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import make_gym_maze_env
from maze_pl.modules import A2C, PPO, learning_batch
from maze_pl.modules.on_policy.minibatches import PolicySamples
from maze_pl.perception import (
    ConcatModelBuilder,
    CustomModelComposer,
    DenseBlock,
    ProbabilisticPolicyComposer,
    RecurrentBlock,
    SharedStateCriticComposer,
    TemplateModelComposer,
)
from tests.modules.kit import make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec")


class Predicting(nn.Module):
    """A hidden layer, the output, and a prediction of the observation."""

    def __init__(self, n_inputs: int, output: str, n_outputs: int, name: str = "prediction") -> None:
        super().__init__()
        self.output, self.name = output, name
        self.auxiliary_shapes = {name: (n_inputs,)}
        self.body = nn.Sequential(nn.Linear(n_inputs, 5), nn.Tanh())
        self.head, self.prediction = nn.Linear(5, n_outputs), nn.Linear(5, n_inputs)

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        latent = self.body(observation["observation"])
        return {self.output: self.head(latent), self.name: self.prediction(latent)}


def policy_net(obs_shapes: Any, action_logits_shapes: Any) -> nn.Module:
    return Predicting(obs_shapes["observation"][0], "action", action_logits_shapes["action"][0])


def value_net(obs_shapes: Any) -> nn.Module:
    return Predicting(obs_shapes["observation"][0], "value", 1, "other_prediction")


NETWORKS = CustomModelComposer(ProbabilisticPolicyComposer([policy_net]), SharedStateCriticComposer([value_net]))


class Auxiliary:
    """Adds the error of the predictions to a loss."""

    def policy_auxiliary_losses(
        self, step_key: StepKey, acts: PolicySamples, outputs: dict[str, Tensor]
    ) -> Tensor | None:
        return 0.7 * (outputs["prediction"] - acts.observation["observation"]).square().mean(-1)

    def critic_auxiliary_losses(
        self, step_key: StepKey, acts: PolicySamples, outputs: dict[str, Tensor]
    ) -> Tensor | None:
        return 0.3 * (outputs["other_prediction"] - acts.observation["observation"]).square().mean(-1)


class PredictingPPO(Auxiliary, PPO):
    """PPO with both losses."""


class PredictingA2C(Auxiliary, A2C):
    """A2C with both losses."""


def networks_of(kit: SimpleNamespace, composer: Any = NETWORKS) -> TorchActorCritic:
    torch.manual_seed(0)
    found: TorchActorCritic = composer.compose(kit.flat_spec)
    return found


def test_losses_of_auxiliary_outputs_are_added_and_reach_the_networks(kit: SimpleNamespace) -> None:
    networks = networks_of(kit)
    rollout = kit.make_flat_rollout(seed=0)
    batch = learning_batch(networks, rollout, 0.98, 1.0, normalize_advantage=False, with_log_prob=False)
    (minibatch,) = batch.minibatches(1)
    parameters = list(networks.parameters())
    observation = rollout.segments[0].observation["observation"].flatten(0, 1)
    plain, extended = A2C(actor_critic=networks).loss(minibatch), PredictingA2C(actor_critic=networks).loss(minibatch)
    by_hand = torch.zeros(())
    for network, weight in ((networks.policy.networks[0][0], 0.7), (networks.critic.network, 0.3)):
        hidden = torch.tanh(observation @ network.body[0].weight.T + network.body[0].bias)
        error = hidden @ network.prediction.weight.T + network.prediction.bias - observation
        by_hand = by_hand + weight * error.square().mean()
    torch.testing.assert_close(extended - plain, by_hand)
    found, of_plain, of_auxiliary = (
        torch.autograd.grad(loss, parameters, materialize_grads=True) for loss in (extended, plain, by_hand)
    )
    expected = [first + second for first, second in zip(of_plain, of_auxiliary, strict=True)]
    torch.testing.assert_close(list(found), expected)
    assert all(gradient.any() for gradient in found)


@pytest.mark.slow
def test_tracing_changes_nothing_and_predictions_improve(kit: SimpleNamespace) -> None:
    found = []
    for capture in ("auto", "off"):
        networks = networks_of(kit)
        before = copy.deepcopy(networks)
        module = PredictingPPO(actor_critic=networks, batch_size=10, lr=1e-2, max_grad_norm=0.5, capture=capture)  # type: ignore[arg-type]
        torch.manual_seed(1)
        kit.fit(module, epochs=3)
        assert module.capture_refusal is None
        found.append(nn.utils.parameters_to_vector(networks.parameters()).detach())
        observation = torch.randn(50, 3, generator=torch.Generator().manual_seed(2))
        errors = [
            (item.policy.compute_policy_output(0, {"observation": observation}).auxiliary["prediction"] - observation)
            .square()
            .mean()
            for item in (before, networks)
        ]
        assert errors[1] < 0.8 * errors[0]
        assert module.epoch_statistics["train"] is not None
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)


def test_the_policy_is_left_alone_during_critic_burn_in(kit: SimpleNamespace) -> None:
    networks = networks_of(kit)
    before = copy.deepcopy(networks)
    kit.fit(PredictingA2C(actor_critic=networks, critic_burn_in_epochs=1))
    for old, new in zip(before.policy.parameters(), networks.policy.parameters(), strict=True):
        assert torch.equal(old, new)
    assert before.critic is not None and networks.critic is not None
    for old, new in zip(before.critic.parameters(), networks.critic.parameters(), strict=True):
        assert not torch.equal(old, new)


class Weighted(A2C):
    """Records the weights that are applied to auxiliary losses."""

    def policy_auxiliary_losses(
        self, step_key: StepKey, acts: PolicySamples, outputs: dict[str, Tensor]
    ) -> Tensor | None:
        assert outputs["prediction"].shape == (len(acts.weight), 2)
        return torch.ones_like(acts.weight) + 0.0 * outputs["prediction"].sum(-1)


def test_a_template_declares_auxiliary_outputs_and_padding_of_sequences_does_not_count() -> None:
    config = {
        "feature": {"block_type": DenseBlock, "block_params": {"hidden_units": [8]}},
        "recurrence": {"block_type": RecurrentBlock, "block_params": {"hidden_size": 4}},
    }
    builder = ConcatModelBuilder(config, {"observation": "feature"}, ["latent"], auxiliary_outputs={"prediction": 2})
    composer = TemplateModelComposer(builder, ProbabilisticPolicyComposer(), SharedStateCriticComposer())
    options = {"epoch_length": 1, "evaluators": {"eval": RolloutEvaluator(n_episodes=1)}, "seed": 0}
    data = RolloutDataModule(partial(make_gym_maze_env, "CartPole-v1"), n_envs=2, n_rollout_steps=13, **options)
    learner = Weighted(networks=composer, spec=data.spec, sequence_length=5)
    make_trainer().fit(learner, data)
    statistics = learner.epoch_statistics["train"].items()
    (mean,) = [value for name, value in statistics if "policy_auxiliary_loss" in name]
    assert mean == pytest.approx(1.0)
    network = learner.policy.networks[0][0]
    assert network.auxiliary_shapes == {"prediction": (2,)}
    batch = PolicyBatch(0, {"observation": np.zeros((3, 4), np.float32)}, np.zeros(3, np.int64))
    step = learner.policy.act(batch)
    assert set(step.action) == {"action"} and set(step.policy_state) == {"latent.hidden", "latent.cell"}
    with pytest.raises(ValueError, match="prediction=0 must be at least 1"):
        ConcatModelBuilder(config, {"observation": "feature"}, auxiliary_outputs={"prediction": 0})
    with pytest.raises(ValueError, match=r"auxiliary_outputs \['action'\] have names of action heads"):
        clashing = ConcatModelBuilder(config, {"observation": "feature"}, auxiliary_outputs={"action": 2})
        clashing.policy_network({"observation": (4,)}, {"action": (2,)})


def test_acting_is_that_without_auxiliary_outputs(kit: SimpleNamespace) -> None:
    feature = {"feature": {"block_type": DenseBlock, "block_params": {"hidden_units": [8]}}}
    actions = []
    for outputs in ({}, {"prediction": 2}):
        builder = ConcatModelBuilder(feature, {"observation": "feature"}, auxiliary_outputs=outputs)
        policy = networks_of(kit, TemplateModelComposer(builder, ProbabilisticPolicyComposer())).policy.eval()
        observation = {"observation": torch.linspace(-1, 1, 60).view(20, 3).numpy()}
        batch = PolicyBatch(0, observation, np.zeros(20, np.int64))
        step = policy.act(batch, generator=torch.Generator().manual_seed(0))
        with_log_prob = policy.act(batch, with_log_prob=True, deterministic=True)
        assert set(step.action) == set(with_log_prob.action) == {"action"}
        actions.append(step.action["action"])
    assert np.array_equal(*actions)


def test_declarations_that_do_not_hold_are_refused(kit: SimpleNamespace) -> None:
    def declared(shapes: dict[str, tuple[int, ...]]) -> Any:
        def make(obs_shapes: Any, action_logits_shapes: Any) -> nn.Module:
            network = Predicting(3, "action", 2)
            network.auxiliary_shapes = shapes
            return network

        return make

    for shapes, message in (
        ({}, r"forward returned the keys \['action', 'prediction'\], expected \['action'\]"),
        ({"prediction": (3,), "more": (1,)}, r"expected \['action', 'more', 'prediction'\]"),
        ({"prediction": (4,)}, r"output 'prediction' for a batch of 2 has shape \(2, 3\), expected \(2, 4\)"),
        ({"prediction": (3,), "action": (2,)}, r"auxiliary_shapes names \['action'\], .* rename them"),
    ):
        composer = CustomModelComposer(ProbabilisticPolicyComposer([declared(shapes)]))
        with pytest.raises(ValueError, match=message):
            composer.compose(kit.flat_spec)
    step = kit.flat_spec.steps[0]
    spec = Spec({0: StepSpec(step.observation_space, step.action_space, 2, 2)})
    with pytest.raises(ValueError, match=r"networks of sub-step 0 have different auxiliary outputs: .* and "):
        several = [Predicting(3, "action", 2), Predicting(3, "action", 2, "another")]
        TorchPolicy([several], spec, substeps_with_separate_agent_nets=[0])


def test_a_delta_critic_adds_values_and_returns_outputs_of_its_own_sub_step() -> None:
    observed = spaces.Dict({"observation": spaces.Box(-1, 1, (3,))})
    act = spaces.Dict({"action": spaces.Discrete(2)})
    spec = Spec({0: StepSpec(observed, act), 1: StepSpec(observed, act)})
    first, second = Predicting(3, "value", 1), Predicting(3, "value", 1)
    critic = TorchDeltaStateCritic([first, second], spec)
    here, earlier = torch.randn(4, 3), torch.randn(4, 3)
    output = critic.output(1, {"observation": here, "0/observation": earlier})
    expected = first({"observation": earlier})["value"] + second({"observation": here})["value"]
    torch.testing.assert_close(output.value, expected.squeeze(-1))
    torch.testing.assert_close(critic.value(1, {"observation": here, "0/observation": earlier}), output.value)
    assert torch.equal(output.auxiliary["prediction"], second({"observation": here})["prediction"])
