"""Learning from sequences of acts gives the numbers of stepping through them one by one with torch's own cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from maze_pl.agents import TorchActorCritic, TorchPolicy, TorchSharedStateCritic
from maze_pl.agents.torch_delta_state_critic import TorchDeltaStateCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spec import Spec
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import make_gym_maze_env
from maze_pl.modules import A2C, PPO, LearningBatch, learning_batch
from maze_pl.modules.on_policy import minibatches as minibatches_module
from maze_pl.modules.on_policy.minibatches import PolicySamples
from maze_pl.perception import (
    ConcatModelBuilder,
    DeltaStateCriticComposer,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    RecurrentBlock,
    SharedStateCriticComposer,
    TemplateModelComposer,
)
from tests.modules.kit import make_trainer
from tests.modules.recurrent_plays import (
    N_HIDDEN,
    PLAYS,
    Heads,
    Memory,
    Plain,
    Play,
    Stepped,
    networks_that_remember,
    step_by_step,
)
from tests.structured import agreement

# ------------------------------------------------------------------------------------------------------ what is played


every_play = pytest.mark.parametrize("name", PLAYS)


# -------------------------------------------------------------------------------------------------- the slow reference


def prepare(play: Play, rollout: Rollout, length: int) -> LearningBatch:
    return learning_batch(
        play.actor_critic, rollout, 0.9, 0.8, normalize_advantage=True, with_log_prob=True, sequence_length=length
    )


@every_play
@pytest.mark.parametrize("length", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_sequences_give_the_numbers_of_stepping_one_by_one(name: str, length: int) -> None:
    play = PLAYS[name]
    source = play.rollouts(12)
    rollouts = [next(source).clone() for _ in range(2)]
    reference = step_by_step(play, rollouts, length)
    learner = A2C(actor_critic=play.actor_critic, entropy_coef=0.1)
    parameters = list(play.actor_critic.parameters())
    for rollout, expected in zip(rollouts, reference, strict=True):
        batch = prepare(play, rollout, length)
        for minibatches in (batch.minibatches(1), batch.minibatches(4, torch.Generator().manual_seed(0))):
            loss = sum(learner.loss(minibatch) for minibatch in minibatches)
            by_hand = sum(
                loss_by_hand(play, key, acts, expected[key]) for part in minibatches for key, acts in part.items()
            )
            torch.testing.assert_close(loss, by_hand, rtol=1e-5, atol=1e-5)
            found, wanted = (
                torch.autograd.grad(total, parameters, retain_graph=True, materialize_grads=True)
                for total in (loss, by_hand)
            )
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
            assert all(gradient.abs().max() > 1e-6 for gradient in found)


def loss_by_hand(play: Play, key: StepKey, acts: PolicySamples, expected: Mapping[float, Stepped]) -> Tensor:
    """Loss of a minibatch from single steps; compares all that it is made of on the way."""
    log_prob, entropies = play.actor_critic.policy.evaluate(key, acts.observation, acts.action, acts.agent_id)
    value = play.actor_critic.critic.value(key, acts.critic_inputs, acts.agent_id)
    total = torch.zeros((), dtype=torch.float64)
    numbers, counts, judged = acts.observation["id"].flatten(), acts.weight > 0, acts.value_weight > 0
    for found, name, part in (
        (log_prob, "log_prob", counts),
        (acts.old_log_prob, "log_prob", counts),
        (entropies, "entropy", counts),
        (value, "value", judged),
        (acts.old_value, "value", judged),
    ):
        wanted = [getattr(expected[number], name) for number in numbers[part].tolist()]
        torch.testing.assert_close(found[part], torch.stack(wanted or [total])[: len(wanted)], rtol=1e-5, atol=1e-5)
    for number, advantage in zip(numbers[counts].tolist(), acts.advantage[counts], strict=True):
        total = total - (expected[number].log_prob * advantage + 0.1 * expected[number].entropy) / counts.sum()
    for number, return_ in zip(numbers[judged].tolist(), acts.return_[judged], strict=True):
        total = total + 0.5 * acts.value_weight[judged][0] * (expected[number].value - return_) ** 2
    return total


# ------------------------------------------------------------------------------------------------------- sequences


def test_sequences_are_cut_where_rollouts_and_episodes_begin_and_by_length() -> None:
    play = PLAYS["flat"]
    rollout = next(play.rollouts(12)).clone()
    segment = rollout.segments[0]
    segment.is_first.zero_()
    segment.is_first[5, 0] = segment.is_first[11, 1] = True
    numbers = torch.arange(36.0, dtype=torch.float64).view(12, 3)
    segment.observation["id"] = numbers[..., None]
    segment.policy_state = {name: numbers[..., None, None].expand(12, 3, 1, N_HIDDEN).clone() for name in ("h", "c")}
    (minibatch,) = prepare(play, rollout, 4).minibatches(1)
    acts = minibatch[0]
    expected = [[0, 1, 2, 3], [4, 4, 4, 4], [5, 6, 7, 8], [9, 10, 11, 11]]  # rows of the first environment
    expected += [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 10], [11, 11, 11, 11]]
    expected += [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    environment = [0] * 4 + [1] * 4 + [2] * 3
    wanted = torch.tensor(expected).T * 3 + torch.tensor(environment)  # [L, S]
    found = acts.observation["id"].view(4, 11)
    assert torch.equal(found, wanted.double())
    repeated = torch.cat([torch.zeros(1, 11, dtype=torch.bool), wanted[1:] == wanted[:-1]])
    torch.testing.assert_close(acts.weight.view(4, 11), (~repeated).double() / 36)
    assert torch.equal(acts.weight, acts.value_weight)
    for name in ("h", "c"):
        assert torch.equal(acts.observation[name][:, 0, 0], wanted[0].double())


@every_play
def test_every_act_is_in_one_minibatch_whose_weights_count_what_is_in_it(name: str) -> None:
    play = PLAYS[name]
    rollout = next(play.rollouts(30)).clone()
    batch = prepare(play, rollout, 3)
    assert not batch.even
    for generator in (None, torch.Generator().manual_seed(0)):
        minibatches = batch.minibatches(4, generator)
        for key, segment in rollout.segments.items():
            parts = [part[key] for part in minibatches if key in part]
            seen = torch.cat([part.observation["id"].flatten()[part.weight > 0] for part in parts])
            n_open, n_acts = batch.open_share[key]
            assert len(seen) == len(seen.unique()) == n_acts - n_open == int(segment.active.sum()) - n_open
            sizes = []
            for part in parts:
                assert part.weight.sum().item() == pytest.approx(1.0)
                n_sequences = (
                    len(part.observation[part.policy_state_names[0]]) if part.policy_state_names else len(part.weight)
                )
                sizes.append(n_sequences)
                assert len(part.weight) % n_sequences == 0 and len(part.weight) <= 3 * n_sequences
            assert max(sizes) - min(sizes) <= 1, "dealt unevenly"
    by_step = play.actor_critic.critic.kind == "step"
    assert any(n_open for n_open, _ in batch.open_share.values()) == by_step, "open acts are to be among them"


@every_play
def test_no_minibatch_is_empty_if_there_are_fewer_sequences(name: str) -> None:
    play = PLAYS[name]
    batch = prepare(play, next(play.rollouts(3)), 50)
    n_sequences = [int(sequence.max()) + 1 for sequence in (batch.row or {}).values() if len(sequence)]
    minibatches = batch.minibatches(40, torch.Generator().manual_seed(0))
    assert max(n_sequences) <= len(minibatches) <= sum(n_sequences) < 40
    assert all(minibatches)
    for key, acts in batch.acts.items():
        parts = [float((part[key].weight > 0).sum()) for part in minibatches if key in part]
        assert sum(parts) == float((acts.weight > 0).sum())
        assert all(parts)


def test_an_update_on_few_sequences_takes_no_step_without_acts(kit: SimpleNamespace) -> None:
    play = PLAYS["flat, gru, critic shares"]
    options: dict[str, Any] = {"batch_size": 1, "n_optimization_epochs": 2, "sequence_length": 50}
    learner = PPO(actor_critic=play.actor_critic, **options)
    rollout = next(play.rollouts(6)).clone()
    n_sequences = int(prepare(play, rollout, 50).row[0].max()) + 1
    trainer = kit.fit(learner, make=lambda seed: rollout, length=1)
    assert trainer.global_step == 2 * n_sequences < 2 * 18
    assert "ActorCriticEvents/approx_kl/substep_0" in learner.epoch_statistics["train"]


def test_ranks_have_equally_many_minibatches_of_which_none_is_empty_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    play = PLAYS["several step keys and agents"]
    batches = [prepare(play, next(play.rollouts(n_steps)), 50) for n_steps in (3, 9)]
    sums: list[Tensor] = []

    def note(summands: Tensor) -> Tensor:
        sums.append(summands.clone())
        return summands

    def minibatches_of_ranks() -> list[list[dict[StepKey, PolicySamples]]]:
        return [batch.minibatches(60, torch.Generator().manual_seed(0)) for batch in batches]

    monkeypatch.setattr(minibatches_module, "world_size", lambda: 2)
    monkeypatch.setattr(minibatches_module, "sum_over_ranks", note)
    minibatches_of_ranks()
    total = sums[0] + sums[1]
    monkeypatch.setattr(minibatches_module, "sum_over_ranks", lambda _: total.clone())
    first, second = minibatches_of_ranks()
    assert len(first) == len(second) < 60
    assert not all(first) and all(one or other for one, other in zip(first, second, strict=True))
    for key in batches[0].acts:
        for one, other in zip(first, second, strict=True):
            weight = sum(float(part[key].weight.sum()) for part in (one, other) if key in part)
            assert weight == pytest.approx(2.0) or weight == 0.0
        for batch, parts in zip(batches, (first, second), strict=True):
            n_acts = sum(int((part[key].weight > 0).sum()) for part in parts if key in part)
            assert n_acts == int((batch.acts[key].weight > 0).sum())


# ---------------------------------------------------------------------------------------------- acting and refusals


def test_acting_needs_a_policy_state_that_is_the_same_in_each_call() -> None:
    play = PLAYS["several step keys and agents"]
    learner = A2C(actor_critic=play.actor_critic).eval()
    observation = {"id": np.array([3.0]), "allowed": np.array([1, 1, 1], np.int8)}
    with pytest.raises(ValueError, match=r"sub-step 1 is recurrent: pass policy_state=\{\}, the same dict"):
        learner.act(observation, 1)
    policy_state: dict[Any, Any] = {}
    state, policy = None, play.actor_critic.policy
    for number in (3.0, 8.0, 1.0):
        observation["id"] = np.array([number])
        learner.act(observation, 1, agent_id=2, policy_state=policy_state)
        batch = PolicyBatch(1, {name: array[None] for name, array in observation.items()}, np.array([2]), state)
        state = policy.act(batch, deterministic=True).policy_state
        for name, array in state.items():
            np.testing.assert_array_equal(policy_state[1, 2][name], array)
    before = {name: array.copy() for name, array in policy_state[1, 2].items()}
    learner.act(observation, 1, agent_id=0, policy_state=policy_state)
    learner.act(observation, 0, policy_state=policy_state)
    assert set(policy_state) == {(1, 2), (1, 0), (0, 0)}
    assert all(np.array_equal(policy_state[1, 2][name], array) for name, array in before.items())


def test_what_a_critic_does_not_share_is_a_state_of_its_own() -> None:
    sizes = {"choice": 3, "level": 2}
    own_state = {"h": (1, N_HIDDEN), "c": (1, N_HIDDEN)}
    for play, own in ((PLAYS["flat"], Memory("lstm")), (PLAYS["flat, gru, critic shares"], Memory("lstm"))):
        critic = TorchSharedStateCritic([Heads(own, {"value": 1})], play.spec)
        assert TorchActorCritic(play.actor_critic.policy, critic).critic_state_shapes == {0: own_state}
    for name in ("flat, gru, critic shares", "several step keys and agents", "transformers", "flat"):
        assert PLAYS[name].actor_critic.critic_state_shapes == {}, "it has the policy's state, or none"
    play = PLAYS["separate networks"]
    memories = [Memory("lstm") for _ in range(3)]
    policy = TorchPolicy(
        [[Heads(memory, sizes) for memory in memories]], play.spec, substeps_with_separate_agent_nets=[0]
    )
    critic = TorchSharedStateCritic([Heads(memories[0], {"value": 1})], play.spec)
    shapes = TorchActorCritic(policy, critic).critic_state_shapes
    assert shapes == {0: own_state}, "other agents have other networks"


def test_critics_that_cannot_share_are_refused() -> None:
    spec = PLAYS["one sub-step has no memory"].spec
    with pytest.raises(ValueError, match=r"several sub-steps cannot be recurrent, but .* \[.*\]: use a step critic"):
        TorchSharedStateCritic([Heads(Memory("gru"), {"value": 1})], spec)
    single = Spec({key: replace(step, n_agents=1, n_slots=1) for key, step in spec.steps.items()})
    with pytest.raises(ValueError, match=r"delta critic cannot be recurrent, as its networks \[1\] are"):
        TorchDeltaStateCritic([Plain({"value": 1}), Heads(Memory("gru"), {"value": 1})], single)


def test_separate_networks_carry_the_same() -> None:
    sizes, spec = {"choice": 3, "level": 2}, PLAYS["separate networks"].spec
    networks = [Heads(Memory(cell), sizes) for cell in ("lstm", "gru", "lstm")]
    with pytest.raises(ValueError, match="networks of sub-step 0 have different policy states"):
        TorchPolicy([networks], spec, substeps_with_separate_agent_nets=[0])


@pytest.mark.parametrize("algorithm", [A2C, PPO])
def test_a_sequence_length_below_one_is_refused(algorithm: Any) -> None:
    with pytest.raises(ValueError, match="sequence_length=0 must be at least 1"):
        algorithm(actor_critic=PLAYS["flat"].actor_critic, sequence_length=0)


# -------------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize(("algorithm", "cell"), [("ppo", "gru"), ("a2c", "lstm")])
def test_the_same_seed_gives_the_same_run(algorithm: str, cell: str) -> None:
    weights = []
    for _ in range(2):
        pl.seed_everything(3, verbose=False)
        evaluators = {"eval": RolloutEvaluator(n_episodes=2, n_envs=2)}
        make = partial(make_gym_maze_env, "CartPole-v1")
        data = RolloutDataModule(make, n_envs=3, n_rollout_steps=20, epoch_length=3, evaluators=evaluators, seed=3)
        options = {"networks": networks_that_remember(cell), "spec": data.spec, "sequence_length": 5, "lr": 1e-2}
        learner = PPO(**options, batch_size=15) if algorithm == "ppo" else A2C(**options)
        before = torch.cat([parameter.detach().flatten().clone() for parameter in learner.parameters()])
        trainer = make_trainer()
        trainer.fit(learner, data)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in learner.parameters()]))
        assert (weights[-1] != before).all()
        assert trainer.callback_metrics["eval/return"] > 0
    assert torch.equal(*weights)


@pytest.mark.parametrize("critic", [DeltaStateCriticComposer, SharedStateCriticComposer])
def test_critics_without_memory_judge_several_policies_with_one(critic: Any) -> None:
    pl.seed_everything(0, verbose=False)
    options = {"epoch_length": 2, "evaluators": {"eval": RolloutEvaluator(n_episodes=1)}, "seed": 0}
    data = RolloutDataModule(agreement.make_env, n_envs=2, n_rollout_steps=12, **options)
    names = {name for step in data.spec.steps.values() for name in step.observation_space.spaces}
    memory = {"block_type": RecurrentBlock, "block_params": {"hidden_size": 4}}
    builder = ConcatModelBuilder({"raw": None, "recurrence": memory}, dict.fromkeys(sorted(names), "raw"))
    value_net = partial(FlattenConcatStateValueNet, non_lin=nn.Tanh, hidden_units=[8])
    networks = TemplateModelComposer(builder, ProbabilisticPolicyComposer(), critic([value_net]))
    learner = PPO(networks=networks, spec=data.spec, batch_size=8, sequence_length=5)
    before = torch.cat([parameter.detach().flatten().clone() for parameter in learner.policy.parameters()])
    make_trainer().fit(learner, data)
    after = torch.cat([parameter.detach().flatten() for parameter in learner.policy.parameters()])
    assert learner.env_steps == 2 * 2 * 12
    assert after.isfinite().all() and (after != before).float().mean() > 0.9
