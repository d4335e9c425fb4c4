from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from maze_pl.agents import PolicyOutput, TorchPolicy
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.perception import FlattenConcatPolicyNet

MIXED = Spec(
    {
        0: StepSpec(
            spaces.Dict({"observation": spaces.Box(-1.0, 1.0, (4,)), "mask": spaces.MultiBinary(3)}),
            spaces.Dict({"pick": spaces.Discrete(3, start=1), "steer": spaces.Box(-1.0, 1.0, (2,))}),
            masks={"pick": "mask"},
        )
    }
)
TEAM = Spec(
    {
        "move": StepSpec(
            spaces.Dict({"observation": spaces.Box(-1.0, 1.0, (2,))}),
            spaces.Dict({"action": spaces.Discrete(3)}),
            n_agents=3,
            n_slots=3,
        )
    }
)


def mixed_policy() -> TorchPolicy:
    torch.manual_seed(0)
    network = FlattenConcatPolicyNet({"observation": (4,), "mask": (3,)}, {"pick": (3,), "steer": (4,)}, nn.Tanh, [8])
    with torch.no_grad():
        network.heads[0].weight.mul_(100)
    return TorchPolicy([network], MIXED)


def mixed_batch(n=64):
    rng = np.random.default_rng(0)
    mask = np.tile(np.array([1, 0, 1], dtype=np.int8), (n, 1))
    observation = {"observation": rng.standard_normal((n, 4), dtype=np.float32), "mask": mask}
    return PolicyBatch(0, observation, np.zeros(n, dtype=np.int64))


def tensors(arrays):
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


class AgentNet(nn.Module):
    """Prefers the action with its own number."""

    def __init__(self, agent):
        super().__init__()
        self.bias = nn.Parameter(5.0 * nn.functional.one_hot(torch.tensor(agent), 3).float())

    def forward(self, in_dict):
        return {"action": in_dict["observation"].sum(-1, keepdim=True) * 0.01 + self.bias}


def team_policy() -> TorchPolicy:
    return TorchPolicy({"move": [AgentNet(i) for i in range(3)]}, TEAM, None, ["move"])


def test_act_takes_and_gives_arrays_that_lie_in_the_action_space():
    step = mixed_policy().act(mixed_batch(), generator=torch.Generator().manual_seed(0))
    assert step.log_prob is None
    assert step.action["pick"].dtype == np.int64
    assert step.action["steer"].shape == (64, 2)
    for pick, steer in zip(step.action["pick"], step.action["steer"], strict=True):
        assert MIXED.steps[0].action_space["pick"].contains(pick)
        assert np.isfinite(steer).all()


def test_masks_come_from_the_observation_they_are_declared_for():
    policy, batch = mixed_policy(), mixed_batch(500)
    assert set(policy.act(batch).action["pick"]) == {1, 3}
    assert set(policy.act(batch, deterministic=True).action["pick"]) <= {1, 3}
    batch.observation["mask"][:] = [0, 1, 0]
    step = policy.act(batch, with_log_prob=True)
    assert set(step.action["pick"]) == {2}
    _, entropy = policy.evaluate(0, tensors(batch.observation), tensors(step.action))
    heads = policy.distribution(0, tensors(batch.observation)).distributions
    torch.testing.assert_close(entropy, heads["steer"].entropy())


def test_log_prob_of_act_is_what_evaluate_gives():
    policy, batch = mixed_policy(), mixed_batch()
    step = policy.act(batch, with_log_prob=True)
    log_prob, entropy = policy.evaluate(0, tensors(batch.observation), tensors(step.action))
    np.testing.assert_allclose(step.log_prob, log_prob.detach().numpy(), rtol=1e-5)
    torch.testing.assert_close(entropy, policy.distribution(0, tensors(batch.observation)).entropy())


def test_deterministic_actions_are_the_mode_and_draw_nothing():
    policy, batch = mixed_policy(), mixed_batch()
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    action = policy.act(batch, deterministic=True, generator=generator).action
    assert torch.equal(before, generator.get_state())
    mode = policy.distribution(0, tensors(batch.observation)).deterministic_sample()
    np.testing.assert_array_equal(action["pick"], mode["pick"].numpy())
    np.testing.assert_array_equal(action["steer"], mode["steer"].detach().numpy())


def test_the_same_generator_state_gives_the_same_actions():
    policy, batch = mixed_policy(), mixed_batch()
    first, second, other = (policy.act(batch, generator=torch.Generator().manual_seed(s)).action for s in (1, 1, 2))
    np.testing.assert_array_equal(first["steer"], second["steer"])
    assert not np.array_equal(first["steer"], other["steer"])


def test_temperature_sharpens_and_flattens():
    policy, batch = mixed_policy(), mixed_batch(2000)
    mode = policy.act(batch, deterministic=True).action["pick"]
    agree = [np.mean(policy.act(batch, temperature=t).action["pick"] == mode) for t in (1e-4, 1.0, 1e4)]
    assert agree[0] == 1.0
    assert agree[0] > agree[1] > agree[2] > 0.4


def test_act_reads_arrays_without_copying_and_accepts_read_only_ones():
    policy, batch = mixed_policy(), mixed_batch()
    seen = {}
    policy.networks[0][0].register_forward_pre_hook(lambda module, inputs: seen.update(inputs[0]))
    policy.act(batch)
    assert seen["observation"].data_ptr() == batch.observation["observation"].ctypes.data
    for array in batch.observation.values():
        array.flags.writeable = False
    assert policy.act(batch).action["steer"].shape == (64, 2)


def with_odd_strides(array: np.ndarray) -> np.ndarray:
    """The same numbers as a field of records whose size is not a multiple of that of a number."""
    records = np.zeros(array.shape, [("number", array.dtype), ("flag", np.bool_)])
    records["number"] = array
    return records["number"]


@pytest.mark.parametrize(
    "layout",
    [with_odd_strides, lambda array: array.astype(">f4"), lambda array: array[::-1].copy()[::-1]],
    ids=["odd strides", "big-endian", "negative strides"],
)
@pytest.mark.parametrize("is_writeable", [False, True])
def test_act_takes_arrays_that_tensors_cannot_share(layout, is_writeable) -> None:
    batch = mixed_batch(3)
    expected = mixed_policy().act(batch, deterministic=True, with_log_prob=True)
    array = layout(batch.observation["observation"])
    array.flags.writeable = is_writeable
    batch.observation["observation"] = array
    found = mixed_policy().act(batch, deterministic=True, with_log_prob=True)
    np.testing.assert_array_equal(found.log_prob, expected.log_prob)


def test_act_records_no_gradients_and_leaves_the_mode_alone():
    policy = mixed_policy().train()
    step = policy.act(mixed_batch())
    assert policy.training
    assert all(parameter.grad is None for parameter in policy.parameters())
    assert not torch.from_numpy(step.action["steer"]).requires_grad


def test_gradients_of_evaluate_reach_every_parameter():
    policy, batch = mixed_policy(), mixed_batch()
    action = tensors(policy.act(batch).action)
    log_prob, entropy = policy.evaluate(0, tensors(batch.observation), action)
    (log_prob.mean() + entropy.mean()).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in policy.parameters())


def test_observations_take_the_floating_point_type_of_the_network():
    policy, batch = mixed_policy(), mixed_batch()
    expected = policy.act(batch, deterministic=True).action["steer"]
    wide = {name: array.astype(np.float64) for name, array in batch.observation.items()}
    given = policy.act(PolicyBatch(0, wide, batch.agent_id), deterministic=True).action["steer"]
    np.testing.assert_allclose(given, expected)
    assert policy.double().act(batch, deterministic=True).action["steer"].dtype == np.float64


def test_compute_policy_output_has_logits_and_distribution():
    policy, batch = mixed_policy(), mixed_batch(5)
    output = policy.compute_policy_output(0, tensors(batch.observation))
    assert isinstance(output, PolicyOutput)
    assert {head: tuple(x.shape) for head, x in output.action_logits.items()} == {"pick": (5, 3), "steer": (5, 4)}
    torch.testing.assert_close(output.entropy, output.distribution.entropy())


def test_leading_dimensions_may_be_time_and_batch():
    policy, batch = mixed_policy(), mixed_batch(6)
    action = tensors(policy.act(batch).action)
    flat = policy.evaluate(0, tensors(batch.observation), action)
    folded = policy.evaluate(
        0,
        {name: x.reshape(3, 2, *x.shape[1:]) for name, x in tensors(batch.observation).items()},
        {head: x.reshape(3, 2, *x.shape[1:]) for head, x in action.items()},
    )
    for one, other in zip(flat, folded, strict=True):
        torch.testing.assert_close(one.reshape(3, 2), other)


@pytest.mark.parametrize("head", ["pick", "steer"])
def test_evaluation_can_be_recorded_as_one_graph(head):
    """Learners run a traced update; nothing in the evaluation may depend on the values of tensors."""
    policy, batch = mixed_policy(), mixed_batch(8)
    action = tensors(policy.act(batch).action)
    observation = tensors(batch.observation)
    graph = make_fx(lambda x, a: policy.evaluate(0, {**observation, "observation": x}, {**action, head: a}))(
        observation["observation"], action[head]
    )
    for one, other in zip(
        graph(-observation["observation"], action[head]),
        policy.evaluate(0, {**observation, "observation": -observation["observation"]}, action),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_each_agent_uses_its_own_network():
    policy = team_policy()
    agent_id = np.array([2, 0, 1, 0, 2, 2])
    batch = PolicyBatch("move", {"observation": np.zeros((6, 2), np.float32)}, agent_id)
    np.testing.assert_array_equal(policy.act(batch, deterministic=True).action["action"], agent_id)


def test_separate_networks_stay_in_the_graph_and_see_their_rows_only():
    policy = team_policy()
    agent_id = torch.tensor([0, 0, 1])
    observation = {"observation": torch.zeros(3, 2)}
    log_prob, _ = policy.evaluate("move", observation, {"action": torch.tensor([0, 1, 1])}, agent_id)
    log_prob.sum().backward()
    first, second, third = (network.bias.grad for network in policy.networks[0])
    p = torch.softmax(torch.tensor([5.0, 0.0, 0.0]), 0)
    torch.testing.assert_close(first, torch.tensor([1.0, 1.0, 0.0]) - 2 * p)
    torch.testing.assert_close(second, torch.tensor([0.0, 1.0, 0.0]) - p[[1, 0, 2]])
    torch.testing.assert_close(third, torch.zeros(3))


def test_separate_networks_accept_time_and_batch_dimensions():
    policy = team_policy()
    agent_id = torch.tensor([[0, 1], [2, 0]])
    logits = policy.action_logits("move", {"observation": torch.zeros(2, 2, 2)}, agent_id)["action"]
    assert torch.equal(logits.argmax(-1), agent_id)


def test_rows_of_padding_get_a_uniform_distribution():
    policy = team_policy()
    entropy = policy.distribution("move", {"observation": torch.ones(2, 2)}, torch.tensor([-1, 0])).entropy()
    assert entropy[0].item() == pytest.approx(math.log(3))


def test_unknown_agents_and_missing_ids_are_refused():
    policy = team_policy()
    batch = PolicyBatch("move", {"observation": np.zeros((1, 2), np.float32)}, np.array([3]))
    for ask in (policy.act, policy.probabilities):
        with pytest.raises(ValueError, match=r"agent ids \[3\] of sub-step 'move': it has 3 agents"):
            ask(batch)
    with pytest.raises(ValueError, match="agent_id is needed"):
        policy.evaluate("move", {"observation": torch.zeros(1, 2)}, {"action": torch.zeros(1)})


def test_unknown_sub_steps_are_refused():
    with pytest.raises(ValueError, match=r"unknown sub-step 1; sub-steps: \[0\]"):
        mixed_policy().action_logits(1, {})


def test_agent_counts_that_change_cannot_have_separate_networks():
    step = TEAM.steps["move"]
    spec = Spec({"move": StepSpec(step.observation_space, step.action_space, n_agents=-1, n_slots=4)})
    with pytest.raises(ValueError, match="the number of agents of sub-step 'move' changes"):
        TorchPolicy([[AgentNet(0)]], spec, None, ["move"])
    assert len(TorchPolicy([AgentNet(0)], spec).networks[0]) == 1


def test_networks_that_do_not_fit_steps_or_agents_are_refused():
    with pytest.raises(ValueError, match="got 2 networks for the 1 sub-steps"):
        TorchPolicy([AgentNet(0), AgentNet(1)], TEAM)
    with pytest.raises(ValueError, match="separate agent networks: expected 3, got 1"):
        TorchPolicy([AgentNet(0)], TEAM, None, ["move"])
    with pytest.raises(ValueError, match="a network shared by its agents: expected 1, got 2"):
        TorchPolicy([[AgentNet(0), AgentNet(1)]], TEAM)


def test_masks_of_continuous_heads_are_refused():
    step = MIXED.steps[0]
    spec = Spec({0: StepSpec(step.observation_space, step.action_space, masks={"steer": "mask"})})
    with pytest.raises(ValueError, match="cannot be masked"):
        TorchPolicy([nn.Identity()], spec)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_copies_are_complete_and_independent(duplicate):
    policy, batch = mixed_policy(), mixed_batch()
    other = duplicate(policy)
    expected = policy.act(batch, deterministic=True).action["steer"]
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()
    np.testing.assert_array_equal(other.act(batch, deterministic=True).action["steer"], expected)


def test_weights_travel_by_state_dict():
    policy, other, batch = mixed_policy(), mixed_policy(), mixed_batch()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_()
    other.load_state_dict(policy.state_dict())
    np.testing.assert_array_equal(
        other.act(batch, deterministic=True).action["steer"], policy.act(batch, deterministic=True).action["steer"]
    )
    assert len(policy.state_dict()) == len(list(policy.parameters()))


def test_acting_on_one_observation_gives_what_an_environment_takes() -> None:
    spec = Spec(
        {
            0: StepSpec(
                spaces.Dict({"x": spaces.Box(-1, 1, (2,), np.float32)}),
                spaces.Dict({"choice": spaces.Discrete(3), "force": spaces.Box(-0.1, 0.1, (2,), np.float32)}),
            )
        }
    )
    torch.manual_seed(0)
    network = FlattenConcatPolicyNet({"x": (2,)}, {"choice": (3,), "force": (4,)}, torch.nn.Tanh, [4])
    policy = TorchPolicy([network], spec)
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        action = policy.act_on({"x": [0.5, 0.5]}, deterministic=False, generator=generator)
        assert type(action["choice"]) is int
        assert np.abs(action["force"]).max() <= np.float32(0.1), "clipped to its box"
        assert spec.steps[0].action_space.contains(action)
    with pytest.raises(ValueError, match=r"also observes \['x'\]"):
        policy.act_on({"y": [0.0]})


class Faulty(nn.Module):
    """Returns NaN for one row of each batch."""

    def __init__(self, n_logits=3):
        super().__init__()
        self.layer = nn.Linear(2, n_logits)

    def forward(self, in_dict):
        logits = self.layer(in_dict["observation"])
        return {"action": torch.where(in_dict["observation"][:, :1] > 0.5, math.nan, logits)}


class InPlace(Faulty):
    """Scales its observations in place."""

    def forward(self, in_dict):
        in_dict["observation"].mul_(0.5)
        return super().forward(in_dict)


def single_spec(action):
    observation = spaces.Dict({"observation": spaces.Box(-1.0, 1.0, (2,))})
    return Spec({"move": StepSpec(observation, spaces.Dict({"action": action}))})


def single_batch(*firsts):
    observation = {"observation": np.array([[first, 0.0] for first in firsts], dtype=np.float32)}
    return PolicyBatch("move", observation, np.zeros(len(firsts), dtype=np.int64))


@pytest.mark.parametrize("options", [{}, {"deterministic": True}, {"with_log_prob": True}])
@pytest.mark.parametrize("action", [spaces.Discrete(3), spaces.Box(-1.0, 1.0, (1,)), spaces.MultiBinary(3)])
def test_outputs_that_are_not_a_number_are_refused(action, options):
    n_logits = 2 if isinstance(action, spaces.Box) else 3
    policy = TorchPolicy([Faulty(n_logits)], single_spec(action)).eval()
    policy.act(single_batch(0.0, 0.1), **options)
    message = (
        r"network, Faulty, returned NaN for action head 'action' of sub-step 'move', though its weights are finite"
    )
    with pytest.raises(ValueError, match=message):
        policy.act(single_batch(0.0, 1.0), **options)


@pytest.mark.parametrize("is_training", [False, True])  # evaluated by NumPy, and by torch
def test_weights_that_are_not_a_number_are_named(is_training):
    policy = mixed_policy().train(is_training)
    policy.act(mixed_batch())
    with torch.no_grad():
        policy.networks[0][0].heads[1].bias[0] = math.nan
    batch = mixed_batch()
    batch.observation["observation"] = batch.observation["observation"][:, ::-1]  # no view of torch
    with pytest.raises(ValueError, match=r"NaN for action head 'steer' .* its weights '.*bias' are NaN or infinite"):
        policy.act(batch)


def test_an_empty_batch_has_no_wrong_outputs():
    assert len(mixed_policy().act(mixed_batch(0)).action["steer"]) == 0


def test_a_network_that_changes_observations_in_place_is_refused():
    policy = TorchPolicy([InPlace()], single_spec(spaces.Discrete(3)))
    with pytest.raises(ValueError, match=r"network, InPlace, changes the observation 'observation' of sub-step 'move'"):
        policy.act(single_batch(0.0, 1.0))
