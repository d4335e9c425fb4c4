"""Target networks start as copies, learn nothing by themselves, and follow their networks."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.core import soft_update as core_soft_update
from maze_pl.core.batches import ReplayBatch, TransitionBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import DeterministicProbabilityDistribution, EpsilonGreedyProbabilityDistribution
from maze_pl.modules import DQN, SAC, TD3, AlgorithmModule, soft_update, target_copy
from maze_pl.modules.target_networks import copies_in_targets, warn_of_rounding
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatStateActionValueNet,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
)
from maze_pl.schedules import Linear
from tests.modules import sac_reference

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")


def test_a_target_is_a_separate_copy_that_requires_no_gradient() -> None:
    network = nn.Linear(3, 2)
    target = target_copy(network)
    assert torch.equal(target.weight, network.weight)
    assert not any(parameter.requires_grad for parameter in target.parameters())
    assert all(parameter.requires_grad for parameter in network.parameters())
    network.weight.data.zero_()
    assert not torch.equal(target.weight, network.weight)


def test_a_copy_of_a_policy_acts_with_weights_of_its_own(kit: SimpleNamespace) -> None:
    policy = kit.make_actor_critic().policy
    target = target_copy(policy)
    observation, agent_id = {"observation": torch.ones(4, 3)}, torch.zeros(4, dtype=torch.int64)
    before = target.action_logits(0, observation, agent_id)["action"]
    for parameter in policy.parameters():
        parameter.data.add_(1.0)
    assert torch.equal(target.action_logits(0, observation, agent_id)["action"], before)
    assert not torch.equal(policy.action_logits(0, observation, agent_id)["action"], before)


@pytest.mark.parametrize("tau", [0.0, 0.1, 1.0])
def test_a_target_moves_by_a_fraction_of_the_way(tau: float) -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    target = target_copy(network)
    network(torch.randn(5, 3))  # changes the statistics
    for parameter in network.parameters():
        parameter.data.normal_()
    names = dict(target.state_dict())
    before = {name: tensor.clone() for name, tensor in names.items()}
    soft_update(target, network, tau)
    for name, tensor in network.state_dict().items():
        expected = before[name] + tau * (tensor - before[name]) if tensor.is_floating_point() else before[name]
        assert torch.allclose(target.state_dict()[name], expected), name


def test_targets_follow_in_pieces_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Linear(40, 300)
    whole, cut = target_copy(network), target_copy(network)
    with torch.no_grad():
        network.weight.normal_()
    soft_update(whole, network, 0.3)
    monkeypatch.setattr(core_soft_update, "gains_from_pieces", lambda device: True)
    monkeypatch.setattr(core_soft_update, "piece_size", lambda sizes: 100)
    soft_update(cut, network, 0.3)
    assert torch.equal(whole.weight, cut.weight)
    pieces = vars(cut)["_soft_update_of_target"]._pieces
    assert len(pieces[0]) == len(pieces[1]) > 40
    soft_update(cut, network, 0.3)
    assert vars(cut)["_soft_update_of_target"]._pieces is pieces, "they are cut once"
    assert not vars(copy.deepcopy(cut))["_soft_update_of_target"]._pieces[0]


@pytest.mark.parametrize(("kind", "fails"), [("DQN", False), ("TD3", False), ("DQN", True)])
def test_a_run_leaves_no_tensors_of_its_device_behind(
    kit: SimpleNamespace, kind: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_soft_update, "gains_from_pieces", lambda device: True)
    algorithm = {"DQN": DQN, "TD3": TD3}[kind]
    options: dict[str, Any] = {"policy_delay": 1} if kind == "TD3" else {"target_update_interval": 1}
    module = make(algorithm, capture="off", **options)
    target = module.target_policy if kind == "TD3" else module.target
    updates: list[Any] = []

    class Noting(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *arguments: Any) -> None:
            updates.append(vars(target)["_soft_update_of_target"])
            if fails:
                raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped") if fails else nullcontext():
        kit.fit(module, partial(batch, algorithm), 1, callbacks=[Noting()])
    assert updates and updates[0]._whole
    assert "_soft_update_of_target" not in vars(target)
    steps = module._gradient_steps
    assert steps.plans is None and not steps._gradients


def test_copies_of_layers_are_found_wherever_the_module_is_copied() -> None:
    class Learner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
            self.target = target_copy(self.network)
            self.target_of_norm = target_copy(self.network[1])
            self.slower = target_copy(self.target)

    learner = Learner()
    assert len(learner.state_dict()) == 3 * 7 + 5 and len(list(learner.target.modules())) == 3
    for one in (learner, copy.deepcopy(learner)):
        found = copies_in_targets(one, [one.network[1]])
        expected = [one.target[1], one.target_of_norm, one.slower[1]]
        assert list(map(id, found)) == list(map(id, expected))
        assert copies_in_targets(one, [nn.BatchNorm1d(2)]) == []


# ----------------------------------------------------------------------------------------------- frozen statistics


class Normalised(nn.Module):
    """A policy with statistics of an encoder that was trained before."""

    def __init__(self, obs_shapes: Any, action_logits_shapes: Any) -> None:
        super().__init__()
        ((self.output, (n_outputs,)),) = action_logits_shapes.items()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh())
        self.body[1].running_mean.fill_(0.3)
        self.body[1].running_var.fill_(4.0)
        self.head = nn.Linear(8, n_outputs)

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        return {self.output: self.head(self.body(observation["view"]))}


HEADS: dict[type, Any] = {DQN: spaces.Discrete(2), TD3: spaces.Box(-1.0, 1.0, (1,))}
DISTRIBUTIONS = {DQN: EpsilonGreedyProbabilityDistribution, TD3: DeterministicProbabilityDistribution}


def make(kind: type[AlgorithmModule], **options: Any) -> Any:
    torch.manual_seed(0)
    critic = partial(FlattenConcatStateActionValueNet, hidden_units=[4])
    config = [{"action_space": spaces.Space, "distribution": DISTRIBUTIONS[kind]}]
    composer = CustomModelComposer(
        ProbabilisticPolicyComposer([Normalised]),
        SharedStateActionCriticComposer([critic]) if kind is TD3 else None,
        config,
    )
    spec = Spec({0: StepSpec(spaces.Dict({"view": spaces.Box(-1, 1, (3,))}), spaces.Dict({"act": HEADS[kind]}))})
    return kind(networks=composer, spec=spec, frozen=["policy.networks.*.body.*"], **options)


def batch(kind: type, seed: int) -> ReplayBatch:
    generator = torch.Generator().manual_seed(seed)
    before, after = torch.randn(2, 2, 6, 3, generator=generator)
    action = torch.randint(2, (2, 6), generator=generator)
    if kind is TD3:
        action = action.unsqueeze(-1).float()
    zeros = torch.zeros(2, 6, dtype=torch.int64)
    acts = TransitionBatch({"view": before}, {"act": action}, zeros, {"view": after}, zeros + 1.0, zeros + 0.9)
    return ReplayBatch({0: acts}, 2, None)


@pytest.mark.parametrize("kind", [DQN, TD3])
@pytest.mark.parametrize("capture", ["off", pytest.param("auto", marks=pytest.mark.slow)])
def test_copies_of_frozen_layers_keep_their_statistics(kit: SimpleNamespace, kind: Any, capture: str) -> None:
    module = make(
        kind, capture=capture, tau=0.5, **({"policy_delay": 1} if kind is TD3 else {"target_update_interval": 1})
    )
    kit.fit(module, partial(batch, kind), 2)
    assert module.capture_refusal is None
    networks = [module.policy, module.target_policy if kind is TD3 else module.target.policy]
    for policy in networks:
        norm = policy.networks[0][0].body[1]
        assert not norm.training and policy.networks[0][0].head.training
        assert bool((norm.running_mean == 0.3).all()) and bool((norm.running_var == 4.0).all())
    if kind is DQN:  # the target is what the copy gives in evaluation mode
        acts = next(iter(batch(DQN, 9).updates()))[0]
        following, reward, discount = acts.outcome
        values = [copy.deepcopy(one.networks[0][0]).eval()(following)["act"] for one in networks]
        target = reward + discount * values[1].gather(-1, values[0].argmax(-1, keepdim=True)).squeeze(-1)
        torch.testing.assert_close(module.next_value(0, following, acts.agent_id) * discount + reward, target)


# ------------------------------------------------------------------------------------------------------- precision


@pytest.mark.parametrize(
    ("dtype", "tau", "warns"),
    [
        (torch.bfloat16, 0.005, True),
        (torch.bfloat16, 0.03, True),
        (torch.bfloat16, 0.05, False),
        (torch.bfloat16, 1.0, False),
        (torch.bfloat16, 0.0, False),
        (torch.float16, 0.001, True),
        (torch.float16, 0.01, False),
        (torch.float32, 1e-4, False),
    ],
)
def test_a_warning_says_when_rounding_keeps_targets_from_following(
    dtype: torch.dtype, tau: float, warns: bool, recwarn: pytest.WarningsRecorder
) -> None:
    target = nn.Linear(2000, 1, bias=False, dtype=dtype)
    network = nn.Linear(2000, 1, bias=False, dtype=dtype)
    target.weight.data.copy_(torch.linspace(1.0, 2.0, 2000))
    network.weight.data.copy_(target.weight * 1.1)
    before = target.weight.data.clone()
    soft_update(target, network, tau)
    stood_still = bool((target.weight == before).any())
    assert stood_still == (warns or tau == 0.0), "it warns if weights that differ by a tenth stand still"
    warn_of_rounding(nn.ModuleList([target, nn.Linear(2, 2)]), tau)
    messages = [str(found.message) for found in recwarn.list]
    assert len(messages) == warns
    if warns:
        assert f"with tau={tau:g}, target networks whose weights are {str(dtype)[6:]} hardly follow" in messages[0]


@pytest.mark.parametrize("tau", [0.005, Linear(0.005, 0.5)])
@pytest.mark.parametrize("kind", [DQN, TD3, SAC])
def test_algorithms_warn_once_if_their_targets_cannot_follow(
    kit: SimpleNamespace, kind: Any, tau: Any, recwarn: pytest.WarningsRecorder
) -> None:
    for precision, expected in (("bf16-true", 1), ("32-true", 0)):
        is_sac = kind is SAC
        module = sac_reference.make("multi_discrete", tau=tau) if is_sac else make(kind, tau=tau, capture="off")
        recwarn.clear()
        batches = partial(sac_reference.replay_batch, "multi_discrete") if is_sac else partial(batch, kind)
        kit.fit(module, batches, 1, precision=precision)
        messages = [str(found.message) for found in recwarn.list if "hardly follow" in str(found.message)]
        assert len(messages) == expected
