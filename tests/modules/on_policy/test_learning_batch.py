"""The learning batch of a rollout, the credit of its acts, and the minibatches that it is split into."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from maze_pl.agents import TorchActorCritic, TorchStepStateCritic
from maze_pl.core.batches import Rollout
from maze_pl.functional import gae
from maze_pl.modules import A2C, IMPALA, PPO, LearningBatch, learning_batch
from maze_pl.modules.on_policy.minibatches import count_minibatches


def prepare(actor_critic: Any, rollout: Rollout, normalize: bool = False) -> LearningBatch:
    return learning_batch(
        actor_critic, rollout, gamma=0.9, method=0.8, normalize_advantage=normalize, with_log_prob=True
    )


@pytest.mark.parametrize("kind", ["shared", "step"])
def test_flat_rollout_gets_the_advantages_of_gae(kit: SimpleNamespace, kind: str) -> None:
    actor_critic, rollout = kit.make_actor_critic(kind=kind), kit.make_flat_rollout()
    acts = prepare(actor_critic, rollout).acts[0]
    rows, final = rollout.rows, rollout.finals[0]
    with torch.no_grad():
        value = actor_critic.critic.value(0, rollout.segments[0].observation).double()
        next_value = torch.cat([value[1:], value[:1] * float("nan")])
        next_value[final.row, final.env] = actor_critic.critic.value(0, final.observation).double()
        log_prob, _ = actor_critic.policy.evaluate(0, rollout.segments[0].observation, rollout.segments[0].action)
    last = torch.zeros_like(rows.truncated)
    last[-1] = True
    expected = gae(rows.reward, value, next_value, rows.terminated, rows.truncated | last, 0.9, 0.8)
    torch.testing.assert_close(acts.advantage, expected.flatten().float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(acts.return_, (expected + value).flatten().float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(acts.old_value, value.flatten().float())
    torch.testing.assert_close(acts.old_log_prob, log_prob.flatten())


def test_critics_of_actors_learn_from_what_a_flat_environment_attributes(kit: SimpleNamespace) -> None:
    rollout, own = kit.make_flat_rollout(), kit.make_flat_rollout()
    rollout.segments[0].actor_reward = own.rows.reward = own.rows.reward + 1.0
    for kind, expected in (("step", own), ("shared", kit.make_flat_rollout())):
        actor_critic = kit.make_actor_critic(kind=kind)
        found = prepare(actor_critic, rollout).acts[0]
        torch.testing.assert_close(found.return_, prepare(actor_critic, expected).acts[0].return_)


@pytest.mark.parametrize("attributed", [False, True], ids=["team", "own"])
@pytest.mark.parametrize("kind", ["shared", "step"])
def test_general_path_agrees_with_the_flat_one(kit: SimpleNamespace, kind: str, attributed: bool) -> None:
    actor_critic, rollout = kit.make_actor_critic(kind=kind), kit.make_flat_rollout()
    if attributed:
        rollout.segments[0].actor_reward = torch.randn(rollout.rows.reward.shape).double()
    fast = prepare(actor_critic, rollout, normalize=True).minibatches(4)
    rollout.flat = False
    general = prepare(actor_critic, rollout, normalize=True).minibatches(4)
    for one, other in zip(fast, general, strict=True):
        *tensors, share, value_share = other[0].tensors()
        assert float(share) == float(value_share) == 1.0
        for left, right in zip(one[0].tensors(), tensors, strict=True):
            torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-6)
        assert torch.equal(one[0].observation["observation"], other[0].observation["observation"])
        assert (one[0].share, one[0].value_share) == (other[0].share, other[0].value_share) == (1.0, 1.0)


def test_minibatches_hold_every_act_once_and_are_shuffled(kit: SimpleNamespace) -> None:
    rollout = kit.make_flat_rollout()
    rollout.segments[0].observation["observation"] = torch.arange(120.0).view(10, 4, 3)
    batch = prepare(kit.make_actor_critic(), rollout)
    generator = torch.Generator().manual_seed(0)
    first, second = (batch.minibatches(5, generator) for _ in range(2))
    for minibatches in (first, second):
        assert [len(minibatch[0].weight) for minibatch in minibatches] == [8] * 5
        seen = torch.cat([minibatch[0].observation["observation"][:, 0] for minibatch in minibatches])
        assert torch.equal(seen.sort().values, torch.arange(0.0, 120.0, 3.0))
        for minibatch in minibatches:
            torch.testing.assert_close(minibatch[0].weight, torch.full((8,), 1 / 8))
    assert not torch.equal(first[0][0].advantage, second[0][0].advantage)
    again = batch.minibatches(5, torch.Generator().manual_seed(0))
    assert torch.equal(first[3][0].advantage, again[3][0].advantage)


def test_acts_of_a_row_stay_together_and_weights_count_acts_by_step_key(kit: SimpleNamespace) -> None:
    rollout = kit.make_team_rollout()
    n_rows = 24
    for key, n_slots in (("lead", 1), ("crew", 2)):
        row = torch.arange(n_rows, dtype=torch.float32).view(8, 3).repeat_interleave(n_slots, 1)
        rollout.segments[key].observation[f"{key}_view"][..., 0] = row
    batch = prepare(kit.make_actor_critic(kit.team_spec), rollout)
    minibatches = batch.minibatches(4, torch.Generator().manual_seed(1))
    n_crew = 0
    for minibatch in minibatches:
        rows = set(minibatch["lead"].observation["lead_view"][:, 0].tolist())
        assert len(rows) == 6
        crew = minibatch["crew"]
        assert set(crew.observation["crew_view"][:, 0].tolist()) <= rows
        n_crew += len(crew.weight)
        torch.testing.assert_close(crew.weight, torch.full_like(crew.weight, 1 / len(crew.weight)))
        # One value for each row, at its first act, which is the lead's.
        assert minibatch["lead"].value_share == pytest.approx(1.0)
        torch.testing.assert_close(minibatch["lead"].value_weight, torch.full((6,), 1 / 6))
        assert crew.value_share == 0.0
    assert n_crew == int(rollout.segments["crew"].active.sum())


def test_acts_without_successor_are_left_out_for_step_critics(kit: SimpleNamespace) -> None:
    rollout = kit.make_team_rollout()
    batch = prepare(kit.make_actor_critic(kit.team_spec, "step"), rollout)
    n_open, n_acts = batch.open_share["crew"]
    # The last act of each crew member, unless its episode terminated after it, has no successor observation.
    active, terminated = rollout.segments["crew"].active, rollout.rows.terminated.repeat_interleave(2, 1)
    expected = 0
    for column in range(6):
        last = active[:, column].nonzero().max()
        expected += int(not terminated[last:, column].any())
    assert (n_open, n_acts) == (expected, int(active.sum()))
    assert expected > 0
    assert len(batch.acts["crew"].weight) == n_acts - n_open
    assert batch.open_share["lead"] == (0, 24)
    weights = [minibatch["crew"].weight.sum().item() for minibatch in batch.minibatches(4)]
    assert weights == pytest.approx([1.0] * 4)


def test_step_key_that_never_acts_is_absent(kit: SimpleNamespace) -> None:
    rollout = kit.make_team_rollout(crew_acts=False)
    for kind in ("shared", "step"):
        batch = prepare(kit.make_actor_critic(kit.team_spec, kind), rollout, normalize=True)
        assert all(list(minibatch) == ["lead"] for minibatch in batch.minibatches(4))


@pytest.mark.parametrize("algorithm", [A2C, IMPALA, PPO])
def test_no_step_is_taken_on_rollouts_in_which_all_acts_are_open(kit: SimpleNamespace, algorithm: Any) -> None:
    def make(seed: int) -> Rollout:
        rollout: Rollout = kit.make_team_rollout(n_steps=1 if seed else 8, seed=6)
        if seed:
            rollout.rows.terminated.zero_()
            finals = rollout.finals
            finals["lead"] = replace(finals["crew"], observation={"lead_view": finals["crew"].observation["crew_view"]})
        return rollout

    weights, n_steps = [], []
    for length in (1, 2):
        options = {"batch_size": 3} if algorithm is PPO else {}
        module = algorithm(actor_critic=kit.make_actor_critic(kit.team_spec, "step"), **options)
        torch.manual_seed(0)
        n_steps.append(kit.fit(module, make=make, length=length).global_step)
        weights.append(torch.nn.utils.parameters_to_vector(module.parameters()).detach())
    assert n_steps[0] == n_steps[1] > 0
    assert torch.equal(*weights), "moved by momentum"


def test_minibatches_outnumber_neither_rows_nor_those_that_hold_valid_acts(kit: SimpleNamespace) -> None:
    batch = prepare(kit.make_actor_critic(), kit.make_flat_rollout(n_steps=2, n_envs=3))
    minibatches = batch.minibatches(40, torch.Generator().manual_seed(0))
    assert [len(part[0].weight) for part in minibatches] == [1] * 6
    rollout = kit.make_team_rollout()
    rollout.rows.terminated.zero_()
    lead = rollout.finals["lead"]
    rollout.finals["lead"] = replace(
        lead,
        **{name: getattr(lead, name)[:0] for name in ("row", "env", "slot", "agent_id")},
        observation={"lead_view": torch.zeros(0, 3)},
    )
    batch = prepare(kit.make_actor_critic(kit.team_spec, "step"), rollout)
    rows = torch.cat([row for row in (batch.row or {}).values()])
    minibatches = batch.minibatches(24)
    assert len(minibatches) == len(rows.unique()) < 24, "acts of the last rows are open"
    assert all(minibatches)


def test_the_device_is_waited_for_once_however_many_step_keys_there_are(
    kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = prepare(kit.make_actor_critic(kit.team_spec, kind="step"), kit.make_team_rollout())
    n_read: list[int] = []
    read = torch.Tensor.tolist

    def counted(tensor: torch.Tensor) -> Any:
        n_read.append(1)
        return read(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", counted)
    minibatches = batch.minibatches(3)
    assert len(batch.acts) == len(minibatches[0]) == 2
    assert len(n_read) == 1


def test_networks_are_evaluated_as_when_they_acted(kit: SimpleNamespace) -> None:
    actor_critic, rollout = kit.make_actor_critic(dropout=0.5), kit.make_flat_rollout()
    actor_critic.train()
    once, twice = (prepare(actor_critic, rollout).acts[0] for _ in range(2))
    assert torch.equal(once.old_value, twice.old_value)
    assert torch.equal(once.old_log_prob, twice.old_log_prob)
    assert actor_critic.training


def test_log_probabilities_of_the_collector_are_used(kit: SimpleNamespace) -> None:
    rollout = kit.make_flat_rollout()
    rollout.segments[0].log_prob = torch.full((10, 4), -0.5)
    assert prepare(kit.make_actor_critic(), rollout).acts[0].old_log_prob.unique().tolist() == [-0.5]


class Scaling(nn.Module):
    """A critic's network that changes its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, observation: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        (view,) = observation.values()
        return {"value": self.layer(view.mul_(0.5))}


def test_a_critic_that_changes_observations_in_place_is_refused(kit: SimpleNamespace) -> None:
    critic = TorchStepStateCritic([Scaling(), Scaling()], kit.team_spec)
    actor_critic = TorchActorCritic(kit.make_actor_critic(kit.team_spec).policy, critic)
    with pytest.raises(ValueError, match=r"the critic changes the observation '\w+_view' of sub-step '\w+' in place"):
        prepare(actor_critic, kit.make_team_rollout())


def test_missing_critic_is_refused(kit: SimpleNamespace) -> None:
    actor_critic = kit.make_actor_critic()
    actor_critic.critic = None
    with pytest.raises(ValueError, match="needs a state critic"):
        prepare(actor_critic, kit.make_flat_rollout())


def test_batch_size_must_divide_the_rollout() -> None:
    assert count_minibatches(100, 800) == 8
    with pytest.raises(ValueError, match=r"batch_size=48 does not divide n_envs \* n_rollout_steps = 800; use a fac"):
        count_minibatches(48, 800)
    with pytest.raises(ValueError, match=r"such as 40 or 50: --model\.batch_size 50$"):
        count_minibatches(48, 800)
    with pytest.raises(ValueError, match=r"use a factor such as 800: --model\.batch_size 800$"):
        count_minibatches(1000, 800)


def test_a_single_minibatch_is_the_whole_rollout_with_equal_weights(kit: SimpleNamespace) -> None:
    batch = prepare(kit.make_actor_critic(), kit.make_flat_rollout(n_steps=10, n_envs=4))
    (whole,) = batch.minibatches(1)
    assert torch.equal(whole[0].advantage, batch.acts[0].advantage)
    torch.testing.assert_close(whole[0].weight, torch.full((40,), 1 / 40))
    torch.testing.assert_close(whole[0].value_weight, torch.full((40,), 1 / 40))


@pytest.mark.parametrize("rounding", [0.0, 1e-9])
def test_a_shared_critic_of_a_game_is_warned_of_as_its_rewards_cancel_out(
    kit: SimpleNamespace, rounding: float
) -> None:
    def game(seed: int) -> Rollout:
        rollout = kit.make_team_rollout(seed=seed)
        segments = rollout.segments.items()
        paid = {key: replace(part, actor_reward=torch.ones_like(part.reward)) for key, part in segments}
        reward = rollout.rows.reward * 0.0 + rounding
        return replace(rollout, rows=replace(rollout.rows, reward=reward), segments=paid)

    def module(kind: str) -> PPO:
        networks = kit.make_actor_critic(kit.team_spec, kind)
        return PPO(actor_critic=networks, batch_size=12, n_optimization_epochs=1)

    with pytest.warns(UserWarning, match="add up to 0, and a shared critic learns from their sum: use a step critic"):
        kit.fit(module("shared"), make=game)
    kit.fit(module("step"), make=game)  # would fail at a warning
