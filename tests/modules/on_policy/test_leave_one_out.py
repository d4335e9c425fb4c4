"""PPO with the mean of other episodes from the same start as baseline."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from maze_pl.core.batches import Rollout
from maze_pl.core.rows import Rows, Segment
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import CartPoleArrayEnv, GymMazeEnv, make_pettingzoo_env
from maze_pl.modules import PPO, learning_batch
from maze_pl.modules.on_policy.credit import Credit
from maze_pl.modules.on_policy.leave_one_out import with_leave_one_out_baseline
from maze_pl.modules.on_policy.minibatches import LearningBatch
from maze_pl.modules.on_policy.rollout_warnings import warn_if_few_episodes_end
from maze_pl.perception import AutomaticModelComposer
from tests.modules.recurrent_plays import Play, step_by_step

GAMMA = 0.5


def rollout_of(reward: Any, ends: Any, n_same_starts: int, n_slots: int = 1) -> tuple[Rollout, dict[Any, Credit]]:
    """A rollout [T, N] of one act per row and slot, and credit that counts everywhere."""
    rewards, terminated = torch.tensor(reward, dtype=torch.float64), torch.tensor(ends) > 0
    shape = rewards.shape
    zeros = torch.zeros(shape, dtype=torch.int64)
    rows = Rows(
        filled=torch.ones(shape, dtype=torch.bool),
        reward=rewards,
        terminated=terminated,
        truncated=torch.zeros_like(terminated),
        env_steps=zeros + 1,
        first_key=zeros,
        first_slot=zeros,
        next_key=zeros,
        next_slot=zeros,
    )
    of_slots = torch.ones(shape[0], shape[1] * n_slots, dtype=torch.float64)
    segment: Any = Segment({}, {}, of_slots > 0, zeros, zeros, of_slots, zeros, zeros)
    rollout = Rollout(rows, {0: segment}, {}, shape[0], n_slots == 1, n_same_starts=n_same_starts)
    return rollout, {0: Credit(of_slots * 9, of_slots * 7, of_slots, of_slots)}


def test_advantages_by_hand() -> None:
    # environments 0 and 1 play the same starts. Returns with gamma 1/2: 1 + 2/2 = 2, then 8; and 4, then 2 + 4/2 = 4.
    rollout, credit = rollout_of([[1, 4], [2, 2], [8, 4], [5, 5]], [[0, 1], [1, 0], [1, 1], [0, 0]], 2)
    found = with_leave_one_out_baseline(credit, rollout, GAMMA)[0]
    assert found.advantage.tolist() == [[-2.0, 2.0], [-2.0, -4.0], [4.0, -4.0], [0.0, 0.0]]
    assert found.weight.tolist() == [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 0.0]], "the last episodes do not end"
    assert torch.equal(found.return_, credit[0].return_)
    assert torch.equal(found.value_weight, credit[0].value_weight)


def test_episodes_without_another_one_from_their_start_do_not_count() -> None:
    rollout, credit = rollout_of([[1, 4, 3], [2, 2, 3]], [[0, 1, 1], [0, 0, 0]], 3)
    found = with_leave_one_out_baseline(credit, rollout, GAMMA)[0]
    assert found.weight.tolist() == [[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    assert found.advantage.tolist() == [[0.0, 1.0, -1.0], [0.0, 0.0, 0.0]]


def test_a_single_episode_from_each_start_is_refused() -> None:
    rollout, credit = rollout_of([[1.0, 2.0]], [[1, 1]], 1)
    with pytest.raises(ValueError, match="at least 2 episodes from each start, but n_same_starts=1"):
        with_leave_one_out_baseline(credit, rollout, GAMMA)


@pytest.mark.parametrize("n_slots", [1, 2])
def test_advantages_equal_those_of_a_slow_reference(n_slots: int) -> None:
    generator = np.random.default_rng(0)
    n_rows, n_envs, n = 40, 12, 4
    reward = generator.normal(size=(n_rows, n_envs))
    ends = generator.random((n_rows, n_envs)) < 0.15
    rollout, credit = rollout_of(reward, ends.astype(int), n, n_slots)
    found = with_leave_one_out_baseline(credit, rollout, 0.9)[0]
    episodes: dict[tuple[int, int], dict[int, tuple[float, list[int]]]] = {}
    for env in range(n_envs):
        number, total, rows = 0, 0.0, []
        for t in range(n_rows):
            total += 0.9 ** len(rows) * reward[t, env]
            rows.append(t)
            if ends[t, env]:
                episodes.setdefault((env // n, number), {})[env] = total, rows
                number, total, rows = number + 1, 0.0, []
    expected = np.zeros((n_rows, n_envs))
    counts = np.zeros((n_rows, n_envs))
    for members in episodes.values():
        for env, (total, rows) in members.items():
            others = [other for number, (other, _) in members.items() if number != env]
            if others:
                expected[rows, env] = total - np.mean(others)
                counts[rows, env] = 1.0
    assert 0.2 < counts.mean() < 1.0
    assert found.advantage.numpy() == pytest.approx(np.repeat(expected, n_slots, 1))
    assert found.weight.numpy() == pytest.approx(np.repeat(counts, n_slots, 1))


def test_acts_that_no_observation_follows_count_too(kit: SimpleNamespace) -> None:
    rollout = kit.make_team_rollout(seed=4)
    rows = rollout.rows
    rows.terminated.zero_()
    rows.truncated[3] = rows.truncated[7] = True  # without final observations of the crew, and in row 3 of the lead
    rollout.n_same_starts = 3
    options: dict[str, Any] = {"normalize_advantage": False, "with_log_prob": False}
    networks = kit.make_actor_critic(kit.team_spec, "step")
    plain = learning_batch(networks, rollout, 0.9, 0.8, **options)
    batch = learning_batch(networks, rollout, 0.9, 0.8, leave_one_out=True, **options)
    discounted = rows.reward * 0.9 ** (torch.arange(8.0, dtype=torch.float64) % 4)[:, None]
    returns = torch.stack([discounted[:4].sum(0), discounted[4:].sum(0)])  # [episode, env]
    for key, n_slots in (("lead", 1), ("crew", 2)):
        active = rollout.segments[key].active
        acts = batch.acts[key]
        assert acts.weight.tolist() == [1.0] * int(active.sum())
        expected = []
        for t, column in active.nonzero().tolist():
            of_start, env = returns[t // 4].tolist(), column // n_slots
            expected.append(of_start[env] - (sum(of_start) - of_start[env]) / 2)
        torch.testing.assert_close(acts.advantage, torch.tensor(expected))
        n_open, n_acts = plain.open_share[key]
        assert acts.value_weight.sum() == n_acts - n_open < n_acts, "the critic learns as without"
        assert batch.open_share[key] == (0, n_acts)


def rewarded(kit: SimpleNamespace) -> Rollout:
    """A rollout of a team whose members have individual rewards, which add up to 0, and change their places."""
    rollout = kit.make_team_rollout(n_steps=20, n_envs=6, seed=1)
    rollout.n_same_starts = 3
    generator = torch.Generator().manual_seed(2)
    for key, segment in rollout.segments.items():
        segment.actor_reward = torch.randn(segment.reward.shape, generator=generator, dtype=torch.float64)
        if key == "crew":
            segment.agent_id = segment.agent_id.view(20, 6, 2).clone()
            segment.agent_id[:, 4] = 1 - segment.agent_id[:, 4]
            segment.agent_id = segment.agent_id.view(20, 12)
    rollout.rows.reward.zero_()
    return rollout


def returns_of_actors(rollout: Rollout, gamma: float) -> dict[tuple[Any, ...], float]:
    """(step key, agent, environment, number of its episode) -> return, act by act; only of episodes that ended."""
    found: dict[tuple[Any, ...], float] = {}
    ends = rollout.rows.terminated.tolist()
    for key, segment in rollout.segments.items():
        n_slots = rollout.n_slots(key)
        for env in range(rollout.n_envs):
            number = elapsed = 0
            totals = {agent: 0.0 for agent in range(n_slots)}
            for t in range(len(ends)):
                for column in range(env * n_slots, (env + 1) * n_slots):
                    if segment.active[t, column]:
                        agent = int(segment.agent_id[t, column])
                        totals[agent] += gamma**elapsed * float(segment.actor_reward[t, column])
                elapsed += 1
                if ends[t][env]:
                    for agent, total in totals.items():
                        found[key, agent, env, number] = total
                    number, elapsed, totals = number + 1, 0, dict.fromkeys(totals, 0.0)
    return found


def test_actors_with_a_step_critic_learn_from_their_own_rewards(kit: SimpleNamespace) -> None:
    rollout = rewarded(kit)
    ends = rollout.rows.terminated.long()
    numbers = (ends.cumsum(0) - ends).tolist()
    returns = returns_of_actors(rollout, 0.9)
    networks = kit.make_actor_critic(kit.team_spec, "step")
    options: dict[str, Any] = {"normalize_advantage": False, "with_log_prob": False, "leave_one_out": True}
    batch = learning_batch(networks, rollout, 0.9, 0.8, **options)
    n_compared = 0
    for key, segment in rollout.segments.items():
        n_slots = rollout.n_slots(key)
        acts = batch.acts[key]
        views = acts.observation[f"{key}_view"].tolist()
        for t, column in segment.active.nonzero().tolist():
            view = segment.observation[f"{key}_view"][t, column].tolist()
            if view not in views:
                continue  # open for policy and critic
            place = views.index(view)
            env, agent = column // n_slots, int(segment.agent_id[t, column])
            group = range(env // 3 * 3, env // 3 * 3 + 3)
            of_start = {e: returns.get((key, agent, e, numbers[t][env])) for e in group}
            others = [other for e, other in of_start.items() if e != env and other is not None]
            counts = of_start[env] is not None and len(others) > 0
            assert acts.weight[place] == float(counts)
            if counts:
                n_compared += 1
                assert float(acts.advantage[place]) == pytest.approx(of_start[env] - np.mean(others), abs=1e-5)
        n_acts = int(segment.active.sum())
        assert batch.open_share[key] == (n_acts - int(acts.weight.sum()), n_acts)
    assert n_compared > 20
    shared = learning_batch(kit.make_actor_critic(kit.team_spec, "shared"), rollout, 0.9, 0.8, **options)
    assert not any(acts.advantage.any() for acts in shared.acts.values()), "a shared critic learns from the sum"


def test_ids_of_agents_may_be_as_large_as_they_like(kit: SimpleNamespace) -> None:
    advantages = []
    for shift in (0, 10**9):
        rollout = rewarded(kit)
        of_crew = rollout.segments["crew"]
        of_crew.agent_id = of_crew.agent_id + shift
        nothing = torch.zeros_like(of_crew.reward)
        credit = {"crew": Credit(nothing, nothing, nothing, nothing)}
        advantages.append(with_leave_one_out_baseline(credit, rollout, 0.9, by_actor=True)["crew"].advantage)
    assert bool(advantages[0].any()) and torch.equal(*advantages)


def test_players_of_a_game_learn_which_of_them_has_won() -> None:
    pl.seed_everything(0, verbose=False)
    make = partial(make_pettingzoo_env, "classic/tictactoe-v3")
    data = RolloutDataModule(make, n_envs=16, n_rollout_steps=5, n_same_starts=16, epoch_length=1, evaluators={})
    batches: list[LearningBatch] = []

    class Watched(PPO):
        def make_learning_batch(self, *arguments: Any, **options: Any) -> LearningBatch:
            batches.append(super().make_learning_batch(*arguments, **options))
            return batches[-1]

    networks = AutomaticModelComposer(critic="step")
    options: dict[str, Any] = {"batch_size": 16, "gamma": 1.0, "normalize_advantage": False}
    _fit(data, Watched(spec=data.spec, networks=networks, baseline="leave_one_out", **options), 1)
    acts = batches[0].acts["player"]
    assert float(acts.weight.mean()) > 0.8, "games end within five rounds"
    assert float((acts.advantage != 0.0).float().mean()) > 0.8


def test_episodes_that_do_not_end_in_time_are_warned_of() -> None:
    make = partial(GymMazeEnv, "CartPole-v1")
    data = RolloutDataModule(make, n_envs=4, n_rollout_steps=8, n_same_starts=2, epoch_length=2, evaluators={})
    module = PPO(spec=data.spec, baseline="leave_one_out", batch_size=8)
    message = (
        r"0 of 4 episodes ended within the 8 steps of a rollout, but baseline=leave_one_out learns from these only"
    )
    with pytest.warns(UserWarning, match=message) as caught:
        _fit(data, module, 1)
    assert sum("ended within" in str(warning.message) for warning in caught) == 1
    assert module.epoch_statistics["train"]["ActorCriticEvents/open_acts/substep_0"] == 1.0


@pytest.mark.parametrize(("ends", "warns"), [([[1, 0], [1, 1]], False), ([[0, 1], [0, 0]], True), ([[1], [0]], False)])
def test_half_of_the_episodes_must_end(ends: list[list[int]], warns: bool) -> None:
    rollout, _ = rollout_of(np.zeros_like(ends, dtype=float), ends, 1)
    if warns:  # one of three episodes
        with pytest.warns(UserWarning, match="1 of 3 episodes ended within the 2 steps"):
            assert warn_if_few_episodes_end(rollout)
    else:
        assert not warn_if_few_episodes_end(rollout)


@pytest.mark.parametrize("length", [1, 4])
def test_acts_that_are_left_out_divide_the_sequences_of_a_recurrent_policy(length: int) -> None:
    play = Play((3,), critic="sharing", seed=3)
    rollout = next(play.rollouts(12)).clone()
    rollout.n_same_starts = 3
    (expected,) = step_by_step(play, [rollout], length)
    options: dict[str, Any] = {"normalize_advantage": False, "with_log_prob": True, "sequence_length": length}
    batch = learning_batch(play.actor_critic, rollout, 0.9, 0.8, leave_one_out=True, **options)
    acts = batch.acts[0]
    assert 0 < acts.weight.sum() < acts.value_weight.sum() + acts.weight.sum()
    log_prob, _ = play.actor_critic.policy.evaluate(0, acts.observation, acts.action, acts.agent_id)
    value = play.actor_critic.critic.value(0, acts.critic_inputs, acts.agent_id)
    numbers = acts.observation["id"].flatten().tolist()
    for found, name, counts in (
        (log_prob, "log_prob", acts.weight + acts.value_weight > 0),
        (value, "value", acts.value_weight > 0),
    ):
        wanted = torch.stack([getattr(expected[0][number], name) for number in numbers])
        torch.testing.assert_close(found[counts], wanted[counts], rtol=1e-5, atol=1e-5)


def _fit(data: RolloutDataModule, module: PPO, n_epochs: int) -> None:
    trainer = pl.Trainer(
        max_epochs=n_epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, data)


@pytest.mark.slow
def test_it_learns_without_the_help_of_the_critic() -> None:
    pl.seed_everything(0, verbose=False)
    data = RolloutDataModule(
        partial(CartPoleArrayEnv, 60), n_envs=64, n_rollout_steps=64, n_same_starts=8, epoch_length=5, evaluators={}
    )
    module = PPO(
        spec=data.spec,
        baseline="leave_one_out",
        value_loss_coef=0.0,
        batch_size=1024,
        lr=3e-3,
        gamma=1.0,
        max_grad_norm=0.5,
    )
    returns = []

    class Returns(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            returns.append(float(trainer.callback_metrics["train/return"]))

    trainer = pl.Trainer(
        max_epochs=6,
        accelerator="cpu",
        devices=1,
        logger=False,
        callbacks=[Returns()],
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, data)
    assert returns[0] < 35.0
    assert returns[-1] > 50.0, returns


def test_options_that_do_not_fit_are_refused() -> None:
    make = partial(GymMazeEnv, "CartPole-v1")
    data = RolloutDataModule(make, n_envs=4, n_rollout_steps=8, n_same_starts=2, evaluators={})
    with pytest.raises(ValueError, match=r"baseline=critic .* n_same_starts=2 .* leave n_same_starts at 1"):
        _fit(data, PPO(spec=data.spec, batch_size=8), 1)
    plain = RolloutDataModule(make, n_envs=4, n_rollout_steps=8, evaluators={})
    with pytest.raises(ValueError, match="leave_one_out compares at least 2 episodes"):
        _fit(plain, PPO(spec=data.spec, batch_size=8, baseline="leave_one_out"), 1)
    with pytest.raises(ValueError, match="baseline='mean' must be 'critic' or 'leave_one_out'"):
        PPO(spec=data.spec, baseline="mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_envs=5 cannot be divided into groups of 2 environments"):
        RolloutDataModule(make, n_envs=5, n_same_starts=2, evaluators={})
    with pytest.raises(ValueError, match=r"shards of \[2\] environments cannot be divided into groups of 4"):
        RolloutDataModule(make, n_envs=4, n_shards=2, n_same_starts=4, evaluators={})
