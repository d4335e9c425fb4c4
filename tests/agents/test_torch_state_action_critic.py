from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.optim.swa_utils import AveragedModel

from maze_pl.agents import (
    TorchSharedStateActionCritic,
    TorchStateActionCritic,
    TorchStepStateActionCritic,
)
from maze_pl.agents.bounded_actions import fraction_of_bounds
from maze_pl.agents.critic_inputs import with_agents
from maze_pl.agents.torch_state_action_critic import TwinNetwork
from maze_pl.core import soft_update
from maze_pl.core.spec import Spec, StepSpec

VIEW = {"view": spaces.Box(-1, 1, (3,))}
MIXED = {"move": spaces.Box(-1, 1, (2,)), "tool": spaces.Discrete(3), "bits": spaces.MultiBinary(2)}
MIXED_SHAPES = {"bits": (4,), "tool": (3,)}


class Net(nn.Module):
    """Everything side by side, sorted by name, through one hidden layer; gives outputs of the given sizes."""

    def __init__(self, n_inputs, sizes, hidden=None):
        super().__init__()
        self.hidden = hidden or nn.Linear(n_inputs, 5)
        self.heads = nn.ModuleDict({name: nn.Linear(5, size) for name, size in sizes.items()})

    def forward(self, inputs):
        dtype = next(self.parameters()).dtype  # of which there must be some, as many networks expect
        hidden = torch.tanh(self.hidden(torch.cat([inputs[name].to(dtype) for name in sorted(inputs)], dim=-1)))
        return {name: head(hidden) for name, head in self.heads.items()}


class Remembering(Net):
    @property
    def state_shapes(self):
        return {"memory": (2,)}


def flat_spec(heads, seen=VIEW):
    return Spec({0: StepSpec(spaces.Dict(seen), spaces.Dict(heads))})


def pair(n_inputs, **sizes):
    return [Net(n_inputs, sizes), Net(n_inputs, sizes)]


@pytest.mark.parametrize("batched", [False, True])
def test_both_networks_are_evaluated_with_their_own_weights_and_learn_by_their_own_gradients(batched):
    nets = pair(3, q=2)
    twin, inputs = TwinNetwork(nets), {"x": torch.randn(7, 3)}
    twin.always_batched = batched
    both = twin(inputs)["q"]
    apart = [net(inputs)["q"] for net in nets]
    torch.testing.assert_close(both, torch.stack(apart))
    (both[0].sum() + 3 * both[1].square().sum()).backward()
    (apart[0].sum() + 3 * apart[1].square().sum()).backward()
    for name, stacked in twin.network.named_parameters():
        torch.testing.assert_close(stacked.grad, torch.stack([net.get_parameter(name).grad for net in nets]))
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(both[0], both[1])


def test_copies_are_equal_at_first_and_follow_slowly():
    nets = pair(3, q=2)
    twin, inputs = TwinNetwork(nets), {"x": torch.randn(7, 3)}
    torch.testing.assert_close(twin(inputs, target=True), twin(inputs), rtol=0, atol=0)
    before = {name: tensor.clone() for name, tensor in twin.target.named_buffers()}
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(torch.randn_like(parameter))
    twin.update_target(0.25)
    for name, parameter in twin.network.named_parameters():
        moved = before[name] + 0.25 * (parameter - before[name])
        torch.testing.assert_close(twin.target.get_buffer(name), moved)
    assert not twin(inputs, target=True)["q"].requires_grad
    assert {parameter.shape[0] for parameter in twin.parameters()} == {2}


def test_targets_follow_in_pieces_bit_for_bit(monkeypatch):
    pairs = [Net(40, {"q": 300}) for _ in range(2)]
    whole, cut = TwinNetwork(pairs), TwinNetwork(pairs)
    for index in range(4):
        for twin in (whole, cut):
            generator = torch.Generator().manual_seed(index)
            with torch.no_grad():
                for parameter in twin.parameters():
                    parameter.add_(torch.randn(parameter.shape, generator=generator))
                    if index == 2:  # as a trainer that moves the module, and a flat optimiser
                        parameter.data = parameter.data.clone()
        whole.update_target(0.3)
        with monkeypatch.context() as patch:
            patch.setattr(soft_update, "gains_from_pieces", lambda device: True)
            patch.setattr(soft_update, "piece_size", lambda sizes: 100)
            cut = copy.deepcopy(cut) if index == 3 else cut
            cut.update_target(0.3)
        assert len(cut._soft_update._pieces[0]) > 40
        for name, buffer in whole.target.named_buffers():
            assert torch.equal(buffer, cut.target.get_buffer(name))


def test_pieces_are_left_behind_by_copies_and_by_a_module_that_moves(monkeypatch):
    monkeypatch.setattr(soft_update, "gains_from_pieces", lambda device: True)
    twin = TwinNetwork(pair(3, q=2))
    size = len(pickle.dumps(twin))
    twin.update_target(0.3)
    assert twin._soft_update._whole
    assert len(pickle.dumps(twin)) == size
    assert not copy.deepcopy(twin)._soft_update._whole
    nn.Sequential(twin).to(torch.float64)
    assert twin._soft_update._whole == [] and twin._soft_update._pieces == ([], [])


class Branching(Net):
    """Looks at values, which torch.vmap does not allow."""

    def forward(self, inputs):
        outputs = super().forward(inputs)
        return outputs if outputs["q"].sum() > 1e9 else {name: 2.0 * output for name, output in outputs.items()}


@pytest.fixture
def told(monkeypatch):
    """Messages for the user."""
    messages = []
    monkeypatch.setattr("pytorch_lightning.utilities.rank_zero_info", messages.append)
    return messages


def test_networks_that_cannot_be_batched_are_evaluated_one_after_the_other_and_one_line_says_so(told):
    nets = [Branching(3, {"q": 2}) for _ in range(2)]
    twin, inputs = TwinNetwork(nets), {"x": torch.randn(7, 3)}
    twin.always_batched = True
    for _ in range(2):
        torch.testing.assert_close(twin(inputs)["q"], torch.stack([net(inputs)["q"] for net in nets]))
    (line,) = told
    assert "one after the other" in line and "torch.vmap does not evaluate them: vmap: " in line


class Random(Branching):
    """Draws numbers before it looks at values."""

    def forward(self, inputs):
        return super().forward({name: tensor + torch.rand_like(tensor) for name, tensor in inputs.items()})


def test_an_attempt_to_batch_draws_no_numbers(told):
    tried = TwinNetwork([Random(3, {"q": 2}) for _ in range(2)])
    tried.always_batched = True
    known = copy.deepcopy(tried)
    known._is_batchable = False  # as after an attempt
    values = []
    for twin in (tried, known):
        torch.manual_seed(0)
        values.append(twin({"x": torch.ones(7, 3)})["q"])
    assert torch.equal(*values)
    assert len(told) == 1 and not tried._is_batchable


class Full(Net):
    """Finds the memory of the device full at its first call."""

    n_calls = 0

    def forward(self, inputs):
        Full.n_calls += 1
        if Full.n_calls == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(inputs)


def test_a_lack_of_memory_is_an_error_and_says_nothing_about_the_network(told):
    twin, inputs = TwinNetwork([Full(3, {"q": 2}) for _ in range(2)]), {"x": torch.ones(7, 3)}
    twin.always_batched = True
    with pytest.raises(torch.OutOfMemoryError):
        twin(inputs)
    assert twin(inputs)["q"].shape == (2, 7, 2) and twin._is_batchable
    assert not told


def test_errors_of_networks_are_their_own_also_if_they_are_batched(told):
    twin = TwinNetwork(pair(3, q=2))
    twin.always_batched = True
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        twin({"x": torch.randn(7, 4)})
    assert not told
    twin({"x": torch.randn(7, 3)})
    assert twin._is_batchable


def test_the_state_is_plain_stacked_tensors_which_another_one_can_load(tmp_path):
    twin, other = TwinNetwork(pair(3, q=2)), TwinNetwork(pair(3, q=2))
    shapes = {name: tuple(tensor.shape) for name, tensor in twin.state_dict().items()}
    own = {"hidden.weight": (2, 5, 3), "hidden.bias": (2, 5), "heads.q.weight": (2, 2, 5), "heads.q.bias": (2, 2)}
    assert shapes == {f"{part}.{name}": shape for part in ("network", "target") for name, shape in own.items()}
    torch.save(twin.state_dict(), tmp_path / "twin.pt")
    other.load_state_dict(torch.load(tmp_path / "twin.pt", weights_only=True))
    inputs = {"x": torch.randn(7, 3)}
    for target in (False, True):
        torch.testing.assert_close(other(inputs, target), twin(inputs, target), rtol=0, atol=0)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda twin: pickle.loads(pickle.dumps(twin))])
def test_copies_of_the_whole_have_tensors_of_their_own(clone):
    twin, inputs = TwinNetwork(pair(3, q=2)), {"x": torch.randn(7, 3)}
    other, before = clone(twin), twin(inputs)["q"]
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.update_target(1.0)
    assert not other(inputs)["q"].any() and not other(inputs, target=True)["q"].any()
    torch.testing.assert_close(twin(inputs)["q"], before)
    double = twin.double()({"x": inputs["x"].double()}, target=True)["q"]
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), before)


def test_a_module_used_twice_and_buffers_stay_what_they_are():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.second, self.third = self.first, nn.Linear(3, 3)
            self.third.weight = self.first.weight
            self.norm = nn.BatchNorm1d(3)

        def forward(self, inputs):
            return {"q": self.norm(self.third(self.second(self.first(inputs["x"]))))}

    nets = [Tied(), Tied()]
    twin, inputs = TwinNetwork(nets), {"x": torch.randn(7, 3)}
    torch.testing.assert_close(twin(inputs)["q"], torch.stack([net(inputs)["q"] for net in nets]))
    means = torch.stack([net.norm.running_mean for net in nets])
    torch.testing.assert_close(twin.network.get_buffer("norm.running_mean"), means)
    twin.update_target(0.5)
    torch.testing.assert_close(twin.target.get_buffer("norm.running_mean"), 0.5 * means)
    assert twin.network.get_buffer("norm.num_batches_tracked").tolist() == [1, 1]
    assert len(list(twin.parameters())) == 5  # a weight and two biases, and those of the normalisation


@pytest.mark.parametrize(
    ("networks", "message"),
    [
        ([Net(3, {"q": 2})], "two networks that differ in their weights only"),
        ([Net(3, {"q": 2}), Net(4, {"q": 2})], "two networks that differ in their weights only"),
        ([Net(3, {"q": 2})] * 2, "two networks that differ in their weights only"),
        ([Remembering(3, {"q": 2}), Remembering(3, {"q": 2})], r"is recurrent \(policy state \['memory'\]\)"),
    ],
)
def test_networks_that_are_no_twins_or_remember_are_refused(networks, message):
    with pytest.raises(ValueError, match=message):
        TwinNetwork(networks)


@pytest.mark.parametrize("kind", [TorchSharedStateActionCritic, TorchStepStateActionCritic])
def test_discrete_heads_are_outputs_and_continuous_ones_are_inputs(kind: type[TorchStateActionCritic]):
    spec = flat_spec(MIXED)
    ((key, critic_inputs),) = kind.critic_inputs(spec).items()
    assert critic_inputs.q_shapes == MIXED_SHAPES and list(critic_inputs.action_space) == ["move"]
    nets = pair(5, bits=4, tool=3)
    critic = kind({key: nets}, spec)
    observation, action = {"view": torch.randn(7, 3)}, {"move": torch.randn(7, 2), "tool": torch.ones(7)}
    q = critic.q_values(0, observation, action)
    assert {name: tuple(both.shape) for name, both in q.items()} == {"bits": (2, 7, 4), "tool": (2, 7, 3)}
    torch.testing.assert_close(q["tool"][1], nets[1]({**observation, "move": action["move"]})["tool"])


def test_without_discrete_heads_there_is_one_value():
    spec = flat_spec({"move": spaces.Box(-1, 1, (2,))})
    critic = TorchStepStateActionCritic([pair(5, q_value=1)], spec)
    q = critic.q_values(0, {"view": torch.randn(7, 3)}, {"move": torch.randn(7, 2)}, target=True)
    assert q["q_value"].shape == (2, 7, 1)
    assert critic.parts == [critic.twins[0].network]
    assert {name.split(".")[2] for name, _ in critic.named_parameters()} == {"network"}


TWO = Spec(
    {
        "first": StepSpec(spaces.Dict(VIEW), spaces.Dict({"choice": spaces.Discrete(3)})),
        "second": StepSpec(
            spaces.Dict({**VIEW, "heard": spaces.MultiBinary(3)}),
            spaces.Dict({"choice": spaces.Discrete(2), "force": spaces.Box(-1, 1, (1,))}),
        ),
    }
)


def test_a_shared_pair_sees_zeros_for_what_is_absent_and_which_sub_step_it_is():
    critic_inputs = TorchSharedStateActionCritic.critic_inputs(TWO)["all"]
    assert sorted(critic_inputs.observation_space) == ["heard", "step_key", "view"] and list(
        critic_inputs.action_space
    ) == ["force"]
    assert critic_inputs.q_shapes == {"first/choice": (3,), "second/choice": (2,)}
    nets = [Net(9, {"first/choice": 3, "second/choice": 2}) for _ in range(2)]
    critic = TorchSharedStateActionCritic([nets], TWO)
    view, heard = torch.randn(4, 3), torch.ones(4, 3, dtype=torch.int8)
    q = critic.q_values("first", {"view": view}, {"choice": torch.zeros(4)})
    force, zeros = torch.randn(4, 1), torch.zeros(4, 3)
    seen = {"view": view, "heard": zeros, "force": zeros[:, :1], "step_key": torch.tensor([[1.0, 0.0]]).expand(4, 2)}
    assert q.keys() == {"choice"}
    torch.testing.assert_close(q["choice"][0], nets[0](seen)["first/choice"])
    q = critic.q_values("second", {"view": view, "heard": heard}, {"choice": torch.zeros(4), "force": force})
    seen |= {"heard": heard, "force": force, "step_key": torch.tensor([[0.0, 1.0]]).expand(4, 2)}
    torch.testing.assert_close(q["choice"][1], nets[1](seen)["second/choice"])


def test_each_sub_step_has_a_pair_of_its_own_otherwise():
    nets = {"first": pair(3, choice=3), "second": pair(7, choice=2)}
    critic = TorchStepStateActionCritic(nets, TWO)
    view = torch.randn(4, 3)
    q = critic.q_values("first", {"view": view}, {"choice": torch.zeros(4)})["choice"]
    torch.testing.assert_close(q[1], nets["first"][1]({"view": view})["choice"])
    assert len(critic.parts) == 2
    with pytest.raises(ValueError, match="got 1 networks for the 2 sub-steps"):
        TorchStepStateActionCritic([pair(3, choice=3)], TWO)


def test_a_shared_pair_is_refused_where_names_mean_different_things():
    def two(second_view, second_heads, first_heads):
        steps = [(VIEW, first_heads), (second_view, second_heads)]
        return Spec({i: StepSpec(spaces.Dict(seen), spaces.Dict(heads)) for i, (seen, heads) in enumerate(steps)})

    box = {"force": spaces.Box(-1, 1, (2,))}
    with pytest.raises(ValueError, match=r"observation 'view' has shape \(4,\).*use a step critic"):
        TorchSharedStateActionCritic.critic_inputs(two({"view": spaces.Box(-1, 1, (4,))}, box, box))
    with pytest.raises(ValueError, match=r"action head 'force' has shape \(1,\).*use a step critic"):
        TorchSharedStateActionCritic.critic_inputs(two(VIEW, {"force": spaces.Box(-1, 1, (1,))}, box))
    with pytest.raises(ValueError, match=r"\['force'\] of some sub-steps have names of observations"):
        TorchSharedStateActionCritic.critic_inputs(two(box, {"pick": spaces.Discrete(2)}, box))
    with pytest.raises(ValueError, match=r"\['view'\] of sub-step 0 have names of observations"):
        TorchStepStateActionCritic.critic_inputs(flat_spec({"view": spaces.Box(-1, 1, (2,))}))


def test_the_value_of_an_action_is_the_sum_of_the_entries_that_it_selects():
    spec = flat_spec(MIXED)
    critic = TorchSharedStateActionCritic([pair(5, **{name: size for name, (size,) in MIXED_SHAPES.items()})], spec)
    observation = {"view": torch.randn(4, 3)}
    action = {
        "move": torch.randn(4, 2),
        "tool": torch.tensor([0, 2, 1, 2]),
        "bits": torch.tensor([[0, 1], [1, 1], [0, 0], [1, 0]]),
    }
    for target in (False, True):
        q = critic.q_values(0, observation, action, target)
        value = critic.action_value(0, observation, action, target)
        assert value.shape == (2, 4)
        for i in range(4):
            first, second = action["bits"][i].tolist()
            expected = q["tool"][:, i, action["tool"][i]] + q["bits"][:, i, first] + q["bits"][:, i, 2 + second]
            assert torch.allclose(value[:, i], expected)
        critic.update_targets(0.5)


def test_the_value_of_a_continuous_action_is_the_only_output():
    critic = TorchSharedStateActionCritic([pair(5, q_value=1)], flat_spec({"move": MIXED["move"]}))
    observation, action = {"view": torch.randn(4, 3)}, {"move": torch.randn(4, 2)}
    expected = critic.q_values(0, observation, action)["q_value"].squeeze(-1)
    assert torch.equal(critic.action_value(0, observation, action), expected)


def valve_critic(low, high):
    torch.manual_seed(3)
    return TorchSharedStateActionCritic([pair(5, q_value=1)], flat_spec({"move": spaces.Box(low, high, (2,))}))


@pytest.mark.parametrize("target", [False, True])
def test_values_and_their_gradients_do_not_depend_on_the_units_of_actions(target):
    observation, fraction = {"view": torch.randn(4, 3)}, torch.rand(4, 2) * 2 - 1
    usual, other = valve_critic(-1, 1), valve_critic(0, 1000)
    plain = fraction.clone().requires_grad_()
    large = (500 + 500 * fraction).requires_grad_()
    expected = usual.action_value(0, observation, {"move": plain}, target)
    value = other.action_value(0, observation, {"move": large}, target)
    torch.testing.assert_close(value, expected)
    expected.sum().backward()
    value.sum().backward()
    torch.testing.assert_close(500 * large.grad, plain.grad)


def test_components_without_bounds_are_read_as_they_are():
    low, high = np.array([-np.inf, 0.0], np.float32), np.array([np.inf, 8.0], np.float32)
    box = spaces.Box(low, high)
    nets = pair(5, q_value=1)
    critic = TorchStepStateActionCritic([nets], flat_spec({"move": box}))
    observation = {"view": torch.randn(3, 3)}
    move = torch.tensor([[7.0, 8.0], [-30.0, 2.0], [0.5, 4.0]])
    read = torch.tensor([[7.0, 1.0], [-30.0, -0.5], [0.5, 0.0]])
    q = critic.q_values(0, observation, {"move": move})["q_value"]
    torch.testing.assert_close(q[0], nets[0]({**observation, "move": read})["q_value"])


def test_a_critic_of_an_earlier_version_reads_actions_as_they_are_also_after_it_is_saved_again():
    new, old, later = valve_critic(0, 1000), valve_critic(0, 1000), valve_critic(0, 1000)
    state = {name: tensor for name, tensor in new.state_dict().items() if name != "_reads_scaled_actions"}
    assert len(state) == len(new.state_dict()) - 1
    old.load_state_dict(state)
    later.load_state_dict(old.state_dict())
    observation, action = {"view": torch.randn(4, 3)}, {"move": torch.rand(4, 2)}
    inputs = {**observation, **action}
    for critic in (old, later):
        torch.testing.assert_close(critic.q_values(0, observation, action)["q_value"], new.twins[0](inputs)["q_value"])
    later.load_state_dict(new.state_dict())
    assert torch.equal(later.action_value(0, observation, action), new.action_value(0, observation, action))
    assert not torch.allclose(new.action_value(0, observation, action), old.action_value(0, observation, action))


def test_a_critic_without_any_loaded_tensors_reads_fractions():
    both, other = nn.Module(), valve_critic(0, 1000)
    both.policy, both.critic = nn.Linear(1, 1), valve_critic(0, 1000)
    keys = both.load_state_dict(nn.ModuleDict({"policy": nn.Linear(1, 1)}).state_dict(), strict=False)
    assert "critic._reads_scaled_actions" in keys.missing_keys
    observation, action = {"view": torch.randn(4, 3)}, {"move": torch.rand(4, 2) * 1000}
    values = both.critic.action_value(0, observation, action)
    assert torch.equal(values, other.action_value(0, observation, action))


def test_tensors_of_a_critic_can_be_averaged():
    averaged = AveragedModel(valve_critic(0, 1000), use_buffers=True)
    for _ in range(3):
        averaged.update_parameters(valve_critic(0, 1000))
    assert averaged.module.state_dict()["_reads_scaled_actions"] == 1


def test_integers_are_scaled_as_floats():
    space = spaces.Box(0, 4, (2,), np.int64)
    fractions = fraction_of_bounds(torch.tensor([[0, 4], [1, 2]]), space)
    torch.testing.assert_close(fractions, torch.tensor([[-1.0, 1.0], [-0.5, 0.0]]))


TEAM = Spec({0: StepSpec(spaces.Dict(VIEW), spaces.Dict({"tool": spaces.Discrete(3)}), n_agents=2, n_slots=2)})


@pytest.mark.parametrize("kind", [TorchStepStateActionCritic, TorchSharedStateActionCritic])
def test_critics_of_agents_with_separate_policies_know_which_agent_acts(kind):
    critic = kind([pair(5, tool=3)], TEAM, [0])
    view = {"view": torch.zeros(2, 3)}
    q = critic.q_values(0, view, {}, agent_id=torch.tensor([1, 0]))["tool"]
    for row, one_hot in enumerate(([0.0, 1.0], [1.0, 0.0])):
        expected = critic.twins[0]({"agent": torch.tensor([one_hot]), "view": torch.zeros(1, 3)})["tool"]
        torch.testing.assert_close(q[:, row : row + 1], expected)
    with pytest.raises(ValueError, match="separate policy networks: pass agent_id"):
        critic.q_values(0, view, {})


def test_the_name_of_the_agent_is_reserved_where_critics_get_it():
    observed = spaces.Dict({**VIEW, "agent": spaces.Discrete(2)})
    spec = Spec({0: replace(TEAM.steps[0], observation_space=observed)})
    assert with_agents(spec, []) == spec
    with pytest.raises(ValueError, match="the observation 'agent' of sub-step 0 is reserved"):
        with_agents(spec, [0])
