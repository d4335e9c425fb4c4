"""Critics that do not share the policy state: compared with critics that do, along streams and rollouts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from maze_pl.agents import TorchActorCritic, TorchPolicy
from maze_pl.core.batches import Rollout
from maze_pl.datamodules import ActorDataModule, RolloutDataModule, RolloutEvaluator
from maze_pl.envs import make_gym_maze_env
from maze_pl.modules import A2C, IMPALA, PPO, LearningBatch, learning_batch
from maze_pl.modules.on_policy import critic_states
from maze_pl.modules.on_policy.critic_states import CriticStates, _cleared
from maze_pl.perception import (
    ConcatModelBuilder,
    DenseBlock,
    ProbabilisticPolicyComposer,
    RecurrentBlock,
    SharedStateCriticComposer,
    TemplateModelComposer,
    TransformerMemoryBlock,
)
from tests.modules.kit import make_trainer
from tests.modules.recurrent_plays import PLAYS, Plain, Play
from tests.operations import operations_of

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")
SHARING = [name for name, play in PLAYS.items() if play.critic == "sharing"]
ONE_IS_FAST = [pytest.param(name, marks=[pytest.mark.slow] if index else []) for index, name in enumerate(SHARING)]


def with_own_memory(play: Play) -> TorchActorCritic:
    """The same policy, with a copy of the critic, which shares nothing with it."""
    return TorchActorCritic(play.actor_critic.policy, copy.deepcopy(play.actor_critic.critic))


def rollouts_of(play: Play, n: int = 3) -> Iterator[Rollout]:
    source = play.rollouts(12)
    return (next(source).clone() for _ in range(n))


def prepare(networks: TorchActorCritic, rollout: Rollout, states: CriticStates | None = None) -> LearningBatch:
    return learning_batch(
        networks,
        rollout,
        0.9,
        0.8,
        normalize_advantage=False,
        with_log_prob=False,
        sequence_length=4,
        critic_states=states,
    )


def assert_close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, check_dtype=False)


@pytest.mark.parametrize("name", SHARING)
def test_states_are_those_of_a_policy_with_the_same_weights_at_all_acts_and_ends(name: str) -> None:
    play = PLAYS[name]
    networks = with_own_memory(play)
    states = CriticStates()
    n_finals = 0
    for index, rollout in enumerate(rollouts_of(play, 4)):
        if index == 2:  # as after a checkpoint
            saved, states = states.state_dict(), CriticStates()
            states.load_state_dict(saved)
        with torch.no_grad():
            found = states.advance(networks, rollout)
        for key, segment in rollout.segments.items():
            if not segment.policy_state:
                assert key not in found
                continue
            final = rollout.finals[key]
            assert found[key].acts.keys() == segment.policy_state.keys()
            for part, tensor in segment.policy_state.items():
                assert_close(found[key].acts[part][segment.active], tensor[segment.active])
                assert_close(found[key].finals[part], final.policy_state[part])
                n_finals += int(final.policy_state[part].any())
    assert n_finals > 2


@pytest.mark.parametrize("name", ONE_IS_FAST)
def test_values_losses_and_gradients_are_those_of_a_critic_that_shares_the_memory(name: str) -> None:
    play = PLAYS[name]
    networks = with_own_memory(play)
    states = CriticStates()
    n_shared = 0
    for rollout in rollouts_of(play, 2):
        shared, own = prepare(play.actor_critic, rollout), prepare(networks, rollout, states)
        for key, acts in shared.acts.items():
            for field in ("old_value", "advantage", "return_", "weight", "value_weight"):
                assert_close(getattr(own.acts[key], field), getattr(acts, field))
        generators = (torch.Generator().manual_seed(0) for _ in range(2))
        for first, second in zip(
            shared.minibatches(3, next(generators)), own.minibatches(3, next(generators)), strict=True
        ):
            losses = []
            for actor_critic, minibatch in ((play.actor_critic, first), (networks, second)):
                losses.append(A2C(actor_critic=actor_critic).loss(minibatch))
            assert_close(losses[1], losses[0])
            gradients = []
            for actor_critic, loss in zip((play.actor_critic, networks), losses, strict=True):
                parameters = [*actor_critic.policy.parameters(), *actor_critic.critic.parameters()]
                found = torch.autograd.grad(loss, parameters, materialize_grads=True)
                gradients.append(dict(zip(names_of(actor_critic), found, strict=True)))
            of_policy = dict(play.actor_critic.policy.named_parameters())
            of_critic = dict(play.actor_critic.critic.named_parameters())
            for critic_name, parameter in of_critic.items():
                same = [other for other, item in of_policy.items() if item is parameter]
                total = gradients[1]["critic." + critic_name]
                if same:
                    n_shared += 1
                    total = total + gradients[1]["policy." + same[0]]
                assert_close(total, gradients[0]["critic." + critic_name])
    assert n_shared > 0


def names_of(networks: TorchActorCritic) -> list[str]:
    of_policy = ["policy." + name for name, _ in networks.policy.named_parameters()]
    return of_policy + ["critic." + name for name, _ in networks.critic.named_parameters()]


def without_policy_state(rollout: Rollout) -> Rollout:
    segments = {key: replace(segment, policy_state={}) for key, segment in rollout.segments.items()}
    finals = {key: replace(final, policy_state={}) for key, final in rollout.finals.items()}
    return replace(rollout, segments=segments, finals=finals)


@pytest.mark.parametrize("name", ["flat, gru, critic shares", pytest.param("transformers", marks=pytest.mark.slow)])
def test_a_critic_remembers_for_a_policy_that_does_not(name: str) -> None:
    play = PLAYS[name]
    sizes = {"choice": 3, "level": 2}
    policy = TorchPolicy([Plain(sizes) for _ in play.n_agents], play.spec).double()
    networks = TorchActorCritic(policy, copy.deepcopy(play.actor_critic.critic))
    states = CriticStates()
    for rollout in rollouts_of(play, 2):
        shared, own = prepare(play.actor_critic, rollout), prepare(networks, without_policy_state(rollout), states)
        (first,), (second,) = shared.minibatches(1), own.minibatches(1)
        for key, acts in first.items():
            assert not second[key].policy_state_names and second[key].critic_state
            values = [
                actor_critic.critic.value(key, part[key].critic_inputs)
                for actor_critic, part in ((play.actor_critic, first), (networks, second))
            ]
            assert_close(*values)
            assert_close(second[key].return_, acts.return_)
        loss = A2C(actor_critic=networks).loss(second)
        assert all(gradient.any() for gradient in torch.autograd.grad(loss, list(networks.critic.parameters())))


def test_environments_that_are_several_times_in_a_batch_go_on_from_one_to_the_next() -> None:
    play = PLAYS["flat, gru, critic shares"]
    networks = with_own_memory(play)
    first, second, third = rollouts_of(play, 3)
    with torch.no_grad():
        one_by_one = CriticStates()
        expected = [one_by_one.advance(networks, rollout)[0] for rollout in (first, second, third)]
        states = CriticStates()
        states.advance(networks, first)
        joined = Rollout.concatenated([second, third])
        joined.env_index = torch.arange(3).repeat(2)
        found = states.advance(networks, joined)[0]
    for name, tensor in found.acts.items():
        assert_close(tensor, torch.cat([expected[1].acts[name], expected[2].acts[name]], 1))
        assert_close(found.finals[name], torch.cat([expected[1].finals[name], expected[2].finals[name]]))
    assert states.state_dict().keys() == one_by_one.state_dict().keys()
    assert_close(states.state_dict(), one_by_one.state_dict())


def test_an_episode_that_was_lost_leaves_nothing_behind() -> None:
    play = PLAYS["flat, gru, critic shares"]
    networks = with_own_memory(play)
    first, second = rollouts_of(play, 2)
    second.segments[0].is_first[0] = False
    states = CriticStates()
    with torch.no_grad():
        states.advance(networks, first)
        second.starting = torch.tensor([True, False, False])
        found = states.advance(networks, second)[0].acts["h"][0]
    assert not found[0].any() and found[1:].any()


def networks(recurrence: Any, shared: list[str] | None) -> TemplateModelComposer:
    config = {"feature": {"block_type": DenseBlock, "block_params": {"hidden_units": [8]}}, "recurrence": recurrence}
    builder = ConcatModelBuilder(config, {"observation": "feature"}, shared)
    return TemplateModelComposer(builder, ProbabilisticPolicyComposer(), SharedStateCriticComposer())


LSTM = {"block_type": RecurrentBlock, "block_params": {"hidden_size": 6}}
TRANSFORMER = {"block_type": TransformerMemoryBlock, "block_params": {"hidden_size": 8, "memory_length": 4}}


@pytest.mark.parametrize("recurrence", [LSTM, pytest.param(TRANSFORMER, marks=pytest.mark.slow)])
def test_tracing_changes_nothing(recurrence: Any) -> None:
    weights: list[Tensor] = []
    for capture in ("auto", "off"):
        pl.seed_everything(3, verbose=False)
        options = {"epoch_length": 2, "evaluators": {"eval": RolloutEvaluator(n_episodes=1)}, "seed": 3}
        make = partial(make_gym_maze_env, "CartPole-v1")
        data = RolloutDataModule(make, n_envs=3, n_rollout_steps=20, **options)
        composer = networks(recurrence, ["observation_DenseBlock"])
        learner = PPO(networks=composer, spec=data.spec, sequence_length=5, lr=1e-2, batch_size=15, capture=capture)  # type: ignore[arg-type]
        assert learner.networks.critic_state_shapes.keys() == {0}
        before = nn.utils.parameters_to_vector(learner.critic.parameters()).detach()
        make_trainer().fit(learner, data)
        weights.append(nn.utils.parameters_to_vector(learner.parameters()).detach())
        assert (nn.utils.parameters_to_vector(learner.critic.parameters()) != before).float().mean() > 0.9
    torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_actors_name_their_environments_and_impala_learns() -> None:
    pl.seed_everything(3, verbose=False)
    make = partial(make_gym_maze_env, "CartPole-v1")
    evaluators = {"eval": RolloutEvaluator(n_episodes=1)}
    options = {"num_actors": 3, "actors_batch_size": 4, "n_rollout_steps": 10, "epoch_length": 2}
    data = ActorDataModule(make, **options, evaluators=evaluators, seed=3)  # type: ignore[arg-type]
    seen = []

    class Noting(IMPALA):
        def training_step(self, rollout: Rollout, batch_idx: int) -> None:
            seen.append(rollout.env_index.tolist())
            super().training_step(rollout, batch_idx)

    learner = Noting(networks=networks(LSTM, None), spec=data.spec, sequence_length=5)
    make_trainer().fit(learner, data)
    assert seen == [[0, 1, 2, 0], [1, 2, 0, 1]]
    state = learner.rank_state()["critic_states"]["latest"][0]
    assert state["latent.hidden"].shape == (3, 1, 1, 6)


def test_a_slot_holds_nothing_once_its_agent_is_done() -> None:
    play = PLAYS["transformers"]
    networks_of_play = with_own_memory(play)
    states = CriticStates()
    n_done = 0
    for rollout in rollouts_of(play, 12):
        with torch.no_grad():
            states.advance(networks_of_play, rollout)
        ends = rollout.rows.terminated | rollout.rows.truncated
        for key, segment in rollout.segments.items():
            latest = states.state_dict()["latest"][key]["out.length"].flatten()
            for column, length in enumerate(latest.tolist()):
                acts = segment.active[:, column].nonzero().flatten().tolist()
                env = column // rollout.n_slots(key)
                if acts and segment.actor_done[acts[-1], column] and not ends[acts[-1] :, env].any():
                    n_done += 1
                    assert length == 0.0
    assert n_done > 0


def test_acts_are_not_looked_for_in_rollouts_in_which_all_exist() -> None:
    play = PLAYS["flat, gru, critic shares"]
    networks_of_play = with_own_memory(play)
    states, others = CriticStates(), CriticStates()
    for rollout in rollouts_of(play, 3):
        assert rollout.flat
        unknown = replace(rollout, flat=False)
        with torch.no_grad():
            operations = operations_of(partial(states.advance, networks_of_play, rollout))
            assert "aten.nonzero.default" in operations_of(partial(others.advance, networks_of_play, unknown))
        assert "aten.nonzero.default" not in operations
        saved, expected = states.state_dict()["latest"][0], others.state_dict()["latest"][0]
        assert all(torch.equal(saved[name], tensor) for name, tensor in expected.items())


def test_states_of_an_accelerator_are_cleared_without_looking_at_the_mask() -> None:
    state = {"h": torch.ones(3, 2, device="meta")}
    cleared = _cleared(state, torch.tensor([True, False, True]).to("meta"))
    assert cleared["h"] is not state["h"] and cleared["h"].shape == (3, 2)


def test_environments_that_are_there_once_are_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(env_index: Tensor) -> list[Tensor]:
        calls.append(len(env_index))
        return [torch.arange(len(env_index))]

    monkeypatch.setattr(critic_states, "_consecutive_parts", counted)
    play = PLAYS["flat, gru, critic shares"]
    networks_of_play = with_own_memory(play)
    (rollout,) = rollouts_of(play, 1)
    assert rollout.env_index is None
    with torch.no_grad():
        plain = CriticStates().advance(networks_of_play, rollout)[0]
        assert not calls
        rollout.env_index = torch.arange(rollout.n_envs)
        numbered = CriticStates().advance(networks_of_play, rollout)[0]
    assert calls == [rollout.n_envs]
    for name, tensor in plain.acts.items():
        assert torch.equal(tensor, numbered.acts[name])
