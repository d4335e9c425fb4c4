from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.agents import DummyCartPolePolicy
from maze_pl.collect.engines import ProcessEngine
from maze_pl.core.batches import ReplayBatch
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.datasets import InMemoryDataset
from maze_pl.datasets.dead_end_clipping_trajectory_processor import DeadEndClippingTrajectoryProcessor
from maze_pl.datasets.identity_with_next_observation_trajectory_processor import (
    IdentityWithNextObservationTrajectoryProcessor,
)
from maze_pl.envs import GymMazeEnv
from maze_pl.schedules import Linear
from tests.datamodules.counter import Counter
from tests.datamodules.drift import Drift, Log

# Lightning asks back where there are no evaluators.
from tests.datamodules.replay_learner import (
    GAMMA,
    Counting,
    Learner,
    Picky,
    Sevens,
    fit,
    make_data,
    recorded_episodes,
    same,
    shown,
    tensors,
)

pytestmark = pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")


# ------------------------------------------------------------------------------------------------------------- batches


def test_the_first_batch_comes_after_the_other_policy_and_counts_what_it_did() -> None:
    log = Log()
    data = make_data(partial(Drift, log), num_actors=2, n_rollout_steps=3, rollouts_per_iteration=2)
    first, second = fit(data).batches
    assert (first.env_steps, second.env_steps) == (24 + 12, 12), "24: the first number of steps that is not below 20"
    assert (first.measures, second.measures) == ({"buffer_size": 36}, {"buffer_size": 48})
    played = [episode for env in log.rewards for episode in env]
    steps = sum(len(episode) for episode in played)
    assert steps == 48
    own = [reward for episode in played for reward in episode if reward > 50]
    assert len(own) == 24, "random actions come from a standard normal distribution"
    ended = sum(len(env) for env in log.rewards) - 2
    assert len(first.summaries) + len(second.summaries) >= ended - 2 > 4
    assert first.seconds > 0 and first.reprioritise is None


def test_drawn_transitions_are_those_of_the_environment() -> None:
    (batch, _) = fit(make_data(num_batches_per_iter=5, batch_size=16)).batches
    acts = batch.acts[0]
    seen, following = acts.observation["observation"], acts.next_observation["observation"]
    assert seen.shape == (5, 16, 2) and acts.reward.shape == (5, 16)
    ends = seen[..., 1] == 2 + (4 * seen[..., 0]).int()
    assert ends.any() and torch.equal(acts.discount, torch.where(ends, 0.0, GAMMA))
    assert torch.equal(following, torch.where(ends[..., None], seen, seen + torch.tensor([0.0, 1.0])))
    torch.testing.assert_close(acts.reward, seen[..., 0] + acts.action["action"][..., 0])


def test_seeds_decide_what_is_drawn() -> None:
    one, two, other = (fit(make_data(seed=seed)).batches for seed in (3, 3, 4))
    assert same(one, two) and not same(one, other)
    assert not torch.equal(tensors(one)[0], tensors(one)[6]), "each batch is drawn anew"


def test_whole_runs_are_drawn_where_rollouts_are_not_split() -> None:
    options = {"n_rollout_steps": 3, "batch_size": 20, "num_actors": 2}
    split, whole = (
        fit(make_data(split_rollouts_into_transitions=one, **options)).batches[1].acts[0] for one in (True, False)
    )
    assert split.reward.shape == (1, 20) and whole.reward.shape == (1, 60)
    runs = whole.observation["observation"].reshape(20, 3, 2)
    goes_on = whole.discount.reshape(20, 3)[:, :-1] > 0
    following = runs[:, :-1] + torch.tensor([0.0, 1.0])
    is_next = (runs[:, 1:] == following).all(-1)
    assert is_next[goes_on].float().mean() > 0.9, "but for acts whose successor is not known yet"
    seen = split.observation["observation"][0]
    assert (seen[1:] == seen[:-1] + torch.tensor([0.0, 1.0])).all(-1).float().mean() < 0.3


def test_returns_of_several_acts_are_those_of_the_episodes() -> None:
    acts = fit(make_data(n_step=10, batch_size=20)).batches[1].acts[0]
    full = acts.discount[0] == 0
    start, time = acts.observation["observation"][0].T
    left = 3 + (4 * start).int() - time
    assert full.float().mean() > 0.5
    last = acts.next_observation["observation"][0]
    assert torch.equal(last[full, 1], (2 + (4 * start).int()).float()[full])
    torch.testing.assert_close(acts.discount[0][~full], GAMMA ** (last[~full, 1] - time[~full]))
    assert (left[~full] > 0).all()


def test_another_policy_can_fill_the_buffer() -> None:
    (batch, _) = fit(make_data(initial_sampling_policy=Sevens)).batches
    action = batch.acts[0].action["action"]
    assert ((action == 7) | (action >= 100)).all() and (action == 7).any()


def test_the_policy_that_fills_the_buffer_gets_what_it_names_of_spaces_masks_and_spec() -> None:
    seen = []

    def make(spec: Any, masks: Any, value: float = 7.0) -> Sevens:
        seen.append((list(spec.steps), masks, value))
        return Sevens({key: step.action_space for key, step in spec.steps.items()})

    fit(make_data(initial_sampling_policy=make))
    assert seen == [([0], {0: {}}, 7.0)]
    with pytest.raises(ValueError, match=r"initial_sampling_policy cannot make .* by name: action_spaces_dict, masks"):
        fit(make_data(initial_sampling_policy=lambda spaces: Sevens(spaces)))


@pytest.mark.filterwarnings("ignore")
def test_a_heuristic_without_spaces_fills_the_buffer() -> None:
    given = partial(GymMazeEnv, "CartPole-v1")
    data = make_data(given, initial_sampling_policy=DummyCartPolePolicy, initial_buffer_size=60, num_actors=1)
    policy = RandomPolicy(given().action_spaces_dict)
    module = Learner()
    module.policy.act = policy.act
    (batch, _) = fit(data, module=module).batches
    assert batch.env_steps > 60 and not any(summary.env_steps < 40 for summary in batch.summaries)


def test_a_policy_with_state_goes_on_from_rollout_to_rollout_in_each_shard() -> None:
    log = Log()
    fit(make_data(partial(Drift, log), initial_sampling_policy=Counting, num_actors=2, n_shards=2, n_rollout_steps=3))
    played = [[int(reward) for episode in env for reward in episode] for env in log.rewards]
    actions = [[reward for reward in env if reward < 100] for env in played if env]
    assert actions == [list(range(12))] * 2


@pytest.mark.slow
def test_a_policy_with_state_fills_the_buffer_alike_on_all_engines() -> None:
    options = {"initial_sampling_policy": Counting, "num_actors": 4, "n_shards": 2, "n_rollout_steps": 3}
    here, there = (fit(make_data(engine=engine, **options)).batches for engine in (None, ProcessEngine(1)))
    assert same(here, there)


class Obedient(Counter):
    """Does what is allowed."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({"action": batch.observation["allowed"].argmax(-1)})


class Biased(RandomPolicy):
    """A random policy that takes no masks."""

    def __init__(self, action_spaces_dict: Any) -> None:
        super().__init__(action_spaces_dict)


@pytest.mark.parametrize("policy", [None, RandomPolicy, Biased])
def test_random_actions_heed_masks(policy: Any) -> None:
    data, module = make_data(Picky, action_masks={"action": "allowed"}, initial_sampling_policy=policy), Learner()
    module.policy = Obedient()
    assert fit(data, module=module).batches[0].env_steps == 21


@pytest.mark.slow
def test_engines_decide_nothing_about_what_is_drawn() -> None:
    options = {"num_actors": 2, "n_shards": 2, "n_rollout_steps": 3, "prioritized": True, "n_step": 2}
    here, there = (fit(make_data(engine=engine, **options), epochs=2).batches for engine in (None, ProcessEngine(2)))
    assert same(here, there)


class Forgetful(Learner):
    """Gives no errors back, or not those that are wanted."""

    errors: Any = None

    def training_step(self, batch: ReplayBatch, batch_idx: int) -> None:
        if self.errors is not None:
            assert batch.reprioritise is not None
            batch.reprioritise(self.errors)


def test_an_algorithm_that_gives_no_errors_back_cannot_have_priorities() -> None:
    with pytest.raises(ValueError, match=r"Forgetful reported none: call batch.reprioritise.*prioritized=False"):
        fit(make_data(prioritized=True), module=Forgetful())
    fit(make_data(), module=Forgetful())


@pytest.mark.parametrize(
    ("errors", "came"), [({}, "none"), ({0: torch.zeros(8)}, r"\[8\]"), ({0: torch.zeros(1, 7)}, r"\[1, 7\]")]
)
def test_errors_of_other_acts_than_those_of_the_batch_are_refused(errors: Any, came: str) -> None:
    module = Forgetful()
    module.errors = errors
    with pytest.raises(ValueError, match=rf"wants errors \[1, 8\] of 0, got .*{came}"):
        fit(make_data(prioritized=True), module=module)


def test_what_was_learned_decides_what_is_drawn() -> None:
    """Rewards are the errors here: from the second batch on, large ones are drawn."""
    options = {"priority_alpha": 1.0, "initial_buffer_size": 200, "batch_size": 100}
    even, by_error = (fit(make_data(prioritized=one, **options), epochs=5).batches[-1] for one in (False, True))
    assert by_error.acts[0].weight.shape == (1, 100) and even.acts[0].weight is None
    large = [(batch.acts[0].reward > 50).float().mean() for batch in (even, by_error)]
    assert large[0] < 0.2 and large[1] > 0.5


def test_exponents_of_priorities_follow_schedules_and_are_logged() -> None:
    options = {"prioritized": True, "initial_buffer_size": 200, "batch_size": 100}
    schedules = {"priority_alpha": Linear(1.0, 0.0), "priority_beta": Linear(0.4, 1.0)}
    changing = fit(make_data(**options, **schedules), epochs=5).batches
    for name, schedule in schedules.items():
        assert [batch.measures[name] for batch in changing] == pytest.approx([schedule(n / 10) for n in range(10)])
    share = [float((batch.acts[0].reward > 50).float().mean()) for batch in changing]
    assert share[2] > 0.3 > share[9]  # the last exponent of 0.1 draws almost uniformly
    lightest = [float(batch.acts[0].weight.min()) for batch in changing[1:]]
    assert lightest[0] < 0.5
    constant = fit(make_data(**options), epochs=1).batches[0]
    assert "priority_alpha" not in constant.measures


def test_schedules_of_priorities_need_the_length_of_the_run() -> None:
    with pytest.raises(ValueError, match=r"priority_beta needs the length of the run: set trainer.max_epochs"):
        fit(make_data(prioritized=True, priority_beta=Linear(0.4, 1.0)), epochs=-1)


def test_a_buffer_in_files_gives_the_same_and_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path))
    assert same(fit(make_data()).batches, fit(make_data(memory_map=True)).batches)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 30}, ["batch_size=30", "initial_buffer_size=20"]),
        ({"replay_buffer_size": 19}, ["initial_buffer_size=20", "replay_buffer_size=19"]),
        ({"batch_size": 0}, ["batch_size=0", "at least 1"]),
        ({"n_step": 0}, ["n_step=0"]),
        ({"num_batches_per_iter": 0}, ["num_batches_per_iter=0"]),
        ({"rollouts_per_iteration": 0}, ["rollouts_per_iteration=0"]),
        ({"num_actors": -1}, ["num_actors=-1"]),
        ({"prioritized": True, "split_rollouts_into_transitions": False}, ["prioritized", "split_rollouts"]),
        ({"priority_alpha": 1.5}, ["priority_alpha=1.5"]),
        ({"priority_beta": -0.1}, ["priority_beta=-0.1"]),
        ({"priority_beta": Linear(0.4, 2.0)}, ["priority_beta=1.2", "schedule Linear", "progress 0.5"]),
        ({"demonstration_share": 0.5}, ["demonstration_share=0.5", "demonstrations"]),
        ({"demonstration_share": 0.01, "demonstrations": InMemoryDataset("x")}, ["0.01", "batch_size=8"]),
        ({"demonstration_share": float("nan"), "demonstrations": InMemoryDataset("x")}, ["nan", "batch_size=8"]),
        ({"demonstration_share": 1.5, "demonstrations": InMemoryDataset("x")}, ["1.5", "batch_size=8"]),
    ],
    ids=lambda value: str(value) if isinstance(value, list) else "",
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        make_data(**options)
    assert all(word in str(caught.value) for word in words)


# ------------------------------------------------------------------------------------------------------ demonstrations


@pytest.fixture(scope="module")
def episodes() -> list[Any]:
    return recorded_episodes()


def test_demonstrations_take_the_place_of_the_other_policy(episodes: list[Any]) -> None:
    data = make_data(demonstrations=InMemoryDataset(episodes))
    n = sum(len(one) for one in episodes)
    first, second = fit(data).batches
    assert (first.env_steps, second.env_steps) == (1, 1)
    assert (first.measures, second.measures) == ({"buffer_size": n + 1}, {"buffer_size": n + 2})
    action = first.acts[0].action["action"]
    assert ((action == 1000) | ((action >= 100) & (action < 200))).all() and shown(first).float().mean() > 0.5
    ends = first.acts[0].discount == 0
    assert torch.equal(first.acts[0].discount, torch.where(ends, 0.0, GAMMA)), "gamma is that of the algorithm"


def test_new_transitions_take_their_places(episodes: list[Any]) -> None:
    n = sum(len(one) for one in episodes)
    data = make_data(demonstrations=InMemoryDataset(episodes), replay_buffer_size=n, n_rollout_steps=n)
    assert not shown(fit(data).batches[0]).any()


@pytest.mark.parametrize("options", [{}, {"prioritized": True}, {"n_step": 2}, {"num_batches_per_iter": 3}], ids=str)
def test_a_share_of_each_minibatch_is_demonstrations_for_ever(episodes: list[Any], options: dict[str, Any]) -> None:
    demonstrations = InMemoryDataset(episodes, IdentityWithNextObservationTrajectoryProcessor(0.5))
    share = {"demonstrations": demonstrations, "demonstration_share": 0.25, "replay_buffer_size": 20}
    batches = fit(make_data(**share, **options), epochs=3).batches
    assert batches[0].env_steps == 21 and batches[-1].measures == {"buffer_size": 20}
    for batch in batches:
        assert (shown(batch).sum(-1) == 2).all() and shown(batch).shape[-1] == 8
        assert set(batch.acts[0].discount.unique().tolist()) <= {
            0.0,
            *torch.tensor([GAMMA, np.float32(GAMMA) * np.float32(GAMMA)]).tolist(),
        }


def test_demonstrations_that_are_kept_apart_count_for_the_device_of_the_buffer(
    episodes: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    capacities = []

    def device_of(choice: Any, of_networks: Any, steps: Any, capacity: int) -> None:
        capacities.append(capacity)

    monkeypatch.setattr("maze_pl.datamodules.replay.device_of_buffer", device_of)
    n = sum(len(one) for one in episodes)
    known = {"demonstrations": InMemoryDataset(episodes), "replay_buffer_size": 2 * n, "save_buffer": True}
    for options in ({}, {"demonstration_share": 0.25}):
        fit(make_data(**known, **options), save=tmp_path / "kept.ckpt")
        fit(make_data(**known, **options), 2, ckpt_path=tmp_path / "kept.ckpt")
    assert capacities == [2 * n, 2 * n, 3 * n, 3 * n], "also in resumed runs"


def test_returns_of_demonstrations_stop_where_episodes_end(episodes: list[Any]) -> None:
    options = {"demonstrations": InMemoryDataset(episodes), "demonstration_share": 1.0, "n_step": 10, "batch_size": 20}
    acts = fit(make_data(**options)).batches[0].acts[0]
    start, time = acts.observation["observation"][0].T
    left = 3 + (4 * start).int() - time
    assert (acts.discount == 0).all()
    torch.testing.assert_close(acts.reward[0], (start + 1000) * (1 - GAMMA**left) / (1 - GAMMA))


def test_demonstrations_that_do_not_fit_are_refused(episodes: list[Any]) -> None:
    with pytest.raises(
        ValueError, match=r"its observation 'allowed' of sub-step 0 is missing, as there are only \['observation'\]"
    ):
        fit(make_data(Picky, demonstrations=InMemoryDataset(episodes)))
    clipped = InMemoryDataset(episodes, DeadEndClippingTrajectoryProcessor(1))
    with pytest.raises(ValueError, match="DeadEndClippingTrajectoryProcessor hold no next observations"):
        fit(make_data(demonstrations=clipped))
    with pytest.raises(ValueError, match="replay_buffer_size=20: raise it"):
        fit(make_data(demonstrations=InMemoryDataset(episodes), replay_buffer_size=20))


def test_an_unknown_device_of_the_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="buffer_device='gpu' must be 'auto' or 'host'"):
        make_data(buffer_device="gpu")
