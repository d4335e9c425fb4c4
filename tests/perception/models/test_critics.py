"""Composers of critics, mostly of actions, with networks that users name and with those of a template."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.agents import TorchSharedStateActionCritic, TorchSharedStateCritic, TorchStepStateActionCritic
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import SquashedGaussianProbabilityDistribution
from maze_pl.perception import (
    ConcatModelBuilder,
    CustomModelComposer,
    DenseBlock,
    FlattenConcatPolicyNet,
    FlattenConcatStateActionValueNet,
    FlattenConcatStateValueNet,
    InferenceBlock,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
    SharedStateCriticComposer,
    StepStateActionCriticComposer,
    TemplateModelComposer,
)

SEEN = spaces.Dict({"image": spaces.Box(0, 1, (2, 3)), "view": spaces.Box(-1, 1, (4,))})
MIXED = spaces.Dict({"aim": spaces.Box(-1, 1, (2, 2)), "tool": spaces.Discrete(3), "turn": spaces.Box(-1, 1, (1,))})
SPEC = Spec({0: StepSpec(SEEN, MIXED)})
STEPS = Spec(
    {"a": StepSpec(SEEN, MIXED), "b": StepSpec(spaces.Dict(view=SEEN["view"]), spaces.Dict(turn=MIXED["turn"]))}
)
NET = partial(FlattenConcatStateActionValueNet, hidden_units=[8])
SQUASHED = [{"action_space": spaces.Box, "distribution": SquashedGaussianProbabilityDistribution}]


def inputs(step, n=5):
    observation = {name: torch.randn(n, *space.shape) for name, space in step.observation_space.items()}
    return observation, {name: torch.randn(n, *space.shape) for name, space in step.action_space.items()}


def test_networks_get_shapes_of_observations_continuous_heads_and_outputs():
    given = []

    class Net(FlattenConcatStateActionValueNet):
        def __init__(self, **shapes):
            given.append(shapes)
            super().__init__(**shapes, hidden_units=[8])

    critic = SharedStateActionCriticComposer([Net]).compose(SPEC)
    shapes = {
        "obs_shapes": {"image": (2, 3), "view": (4,)},
        "action_shapes": {"aim": (2, 2), "turn": (1,)},
        "q_shapes": {"tool": (3,)},
    }
    assert given == [shapes, shapes]  # two networks, which start with weights of their own
    assert isinstance(critic, TorchSharedStateActionCritic)
    weight = critic.twins[0].network.get_parameter("heads.0.weight")
    assert not torch.equal(weight[0], weight[1])
    assert critic.q_values(0, *inputs(SPEC.steps[0]))["tool"].shape == (2, 5, 3)


def test_each_sub_step_has_its_pair_or_all_have_one():
    stepwise = StepStateActionCriticComposer([NET]).compose(STEPS)
    assert isinstance(stepwise, TorchStepStateActionCritic) and len(stepwise.twins) == 2
    shared = SharedStateActionCriticComposer([NET]).compose(STEPS)
    assert len(shared.twins) == 1
    for critic in (stepwise, shared):
        assert critic.q_values("a", *inputs(STEPS.steps["a"]))["tool"].shape == (2, 5, 3)
        assert critic.q_values("b", *inputs(STEPS.steps["b"]))["q_value"].shape == (2, 5, 1)


@pytest.mark.parametrize("spec", [SPEC, STEPS])
def test_the_one_network_of_a_shared_critic_may_have_any_key(spec):
    net = partial(FlattenConcatStateValueNet, hidden_units=[8])
    for networks in ([net], {"all": net}, {0: net}, {"a": net}):
        assert isinstance(SharedStateCriticComposer(networks).compose(spec), TorchSharedStateCritic)
    for networks in ([net, net], {"a": net, "b": net}):
        with pytest.raises(ValueError, match="one network for all sub-steps, got 2"):
            SharedStateCriticComposer(networks).compose(spec)


def test_what_a_network_cannot_do_is_found_out_at_once():
    with pytest.raises(ValueError, match="state-action network of sub-step 'all': one network instance cannot serve"):
        SharedStateActionCriticComposer([NET(obs_shapes={"view": (4,)}, action_shapes={}, q_shapes={})]).compose(SPEC)
    with pytest.raises(ValueError, match=r"forward returned the keys \['action'\], expected \['tool'\]"):
        wrong = lambda obs_shapes, action_shapes, q_shapes: FlattenConcatPolicyNet(obs_shapes, {"action": (2,)})  # noqa: E731
        SharedStateActionCriticComposer([wrong]).compose(SPEC)
    with pytest.raises(ValueError, match="networks are needed"):
        StepStateActionCriticComposer().compose(SPEC)


def template(mapping=None, critic=None, **options):
    dense = {"block_type": DenseBlock, "block_params": {"hidden_units": [8], "non_lin": nn.ReLU}}
    flat = {"block_type": "maze_pl.perception.FlattenDenseBlock"}
    flat["block_params"] = {"hidden_units": [8], "non_lin": nn.ReLU, "num_flatten_dims": 2}
    mapping = {"view": "feature", "image": "image", **(mapping or {})}
    builder = ConcatModelBuilder({"feature": dense, "image": flat, "hidden": dense}, mapping, **options)
    return TemplateModelComposer(
        builder, ProbabilisticPolicyComposer(), critic or SharedStateActionCriticComposer(), SQUASHED
    )


def test_a_template_joins_continuous_heads_with_what_its_blocks_give():
    critic = template().compose(SPEC).critic
    network = critic.twins[0].network
    assert isinstance(network, InferenceBlock)
    names = ["image_FlattenDenseBlock", "view_DenseBlock", "aim_FlattenBlock", "concat", "hidden", "tool"]
    assert network.block_names == names
    assert network.perception_blocks["concat"].in_keys == [*names[:3], "turn"]
    observation, action = inputs(SPEC.steps[0])
    q = critic.q_values(0, observation, action)["tool"]
    changed = critic.q_values(0, observation, {**action, "aim": action["aim"] + 1.0})["tool"]
    assert q.shape == (2, 5, 3) and not torch.equal(q, changed)


def test_a_template_may_have_blocks_for_continuous_heads():
    network = template({"turn": "feature"}).compose(SPEC).critic.twins[0].network
    assert "turn_DenseBlock" in network.block_names
    with pytest.raises(ValueError, match=r"names \['tool'\]"):
        template({"tool": "feature"}).compose(SPEC)


@pytest.mark.parametrize("composer", [SharedStateActionCriticComposer, StepStateActionCriticComposer])
def test_a_template_makes_critics_of_several_sub_steps(composer):
    critic = template(critic=composer()).compose(STEPS).critic
    assert critic.q_values("b", *inputs(STEPS.steps["b"]))["q_value"].shape == (2, 5, 1)


def test_a_critic_of_actions_shares_nothing_with_the_policy():
    with pytest.raises(ValueError, match="set shared_embedding_keys: null"):
        template(shared_embedding_keys=["latent"])


def test_a_template_with_networks_of_the_users_own_for_the_critic():
    critic = template(critic=SharedStateActionCriticComposer([NET])).compose(SPEC).critic
    assert isinstance(critic.twins[0].network, FlattenConcatStateActionValueNet)
    custom = CustomModelComposer(ProbabilisticPolicyComposer([FlattenConcatPolicyNet]), None, SQUASHED)
    assert custom.compose(SPEC).critic is None
