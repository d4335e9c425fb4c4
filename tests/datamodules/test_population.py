"""An update takes the first pairs that are enough, whoever plays them, and leaves no trace of the others."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from maze_pl.collect.engines import InProcessEngine, ProcessEngine
from maze_pl.core.population import PopulationBatch
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.core.training_data import DataRequirements
from maze_pl.datamodules import PopulationDataModule, RolloutEvaluator
from maze_pl.envs.wrappers import ReturnNormalizationRewardWrapper
from maze_pl.perception import CustomModelComposer, FlattenConcatPolicyNet, ProbabilisticPolicyComposer
from tests.datamodules.counter import Counter
from tests.datamodules.drift import Drift, Log, Mortal, Stuck
from tests.datamodules.probe import NORMALIZED, learned, next_batch
from tests.envs.cancelling import Cancelling
from tests.equality import assert_equal
from tests.structured.catalogue import every_environment

WRAPPERS: Any = [NORMALIZED, partial(ReturnNormalizationRewardWrapper, gamma=0.9)]
EVAL = {"eval": RolloutEvaluator(n_episodes=3)}


def make_data(env: Any = Drift, policy: Any = None, **options: Any) -> PopulationDataModule:
    """In the hands of a trainer that trains a policy."""
    data = PopulationDataModule(env, seed=3, shared_noise_table_size=10_000, **{"evaluators": {}, **options})
    requirements = DataRequirements(noise_stddev=0.5)
    module = SimpleNamespace(policy=policy or Counter(), data_requirements=lambda: requirements)
    loop = SimpleNamespace(total_batch_idx=-1)
    data.trainer = SimpleNamespace(
        lightning_module=module, fit_loop=loop, global_rank=0, world_size=1, ckpt_path=None, interrupted=False
    )  # type: ignore[assignment]
    return data


def collect(data: Any) -> PopulationBatch:
    """The next batch, after which the policy has changed."""
    batch = next_batch(data)
    data.trainer.fit_loop.total_batch_idx += 1
    for parameter in data.trainer.lightning_module.policy.parameters():
        parameter.data += 0.5
    return batch


def content(batch: PopulationBatch) -> list[Any]:
    return [batch.offsets, batch.returns, batch.env_steps, batch.summaries, batch.measures]


@pytest.mark.parametrize(
    ("n_rollouts", "n_timesteps", "pairs"),
    [(6, 0, 3), (5, 0, 3), (1, 0, 1), (0, 1, 1), (0, 40, None), (2, 40, None), (12, 40, 6)],
)
def test_an_update_is_the_smallest_number_of_pairs_that_reaches_both_minima(
    n_rollouts: int, n_timesteps: int, pairs: int | None
) -> None:
    every = collect(make_data(n_rollouts_per_update=40))
    lengths = [one.env_steps for one in every.summaries]
    batch = collect(make_data(n_rollouts_per_update=n_rollouts, n_timesteps_per_update=n_timesteps))
    counts = [n for n in range(1, 21) if 2 * n >= n_rollouts and sum(lengths[: 2 * n]) >= n_timesteps]
    assert len(batch.offsets) == counts[0] == (pairs or counts[0])
    assert batch.offsets == every.offsets[: counts[0]]
    assert torch.equal(batch.returns, every.returns[: counts[0]])
    assert batch.env_steps == sum(lengths[: 2 * counts[0]])
    assert batch.measures == {"n_rollouts": 2 * counts[0], "n_timesteps": batch.env_steps}
    assert_equal(batch.summaries, every.summaries[: 2 * counts[0]])


def test_returns_are_those_of_the_perturbed_policies_and_the_policy_is_left_alone() -> None:
    log = Log()
    data = make_data(partial(Drift, log), n_rollouts_per_update=4)
    data.trainer.lightning_module.policy.weight.data.fill_(2.0)  # type: ignore[union-attr]
    batch = next_batch(data)
    noise = [batch.noise.piece(offset, 1).item() for offset in batch.offsets]
    actions = [2 + 0.5 * noise[0], 2 - 0.5 * noise[0], 2 + 0.5 * noise[1], 2 - 0.5 * noise[1]]
    starts_and_lengths = [
        (rewards[0] - action, len(rewards)) for rewards, action in zip(log.rewards[-1], actions, strict=True)
    ]
    wanted = [(start + a) * n for (start, n), a in zip(starts_and_lengths, actions, strict=True)]
    assert batch.returns.flatten().tolist() == pytest.approx(wanted)
    assert starts_and_lengths[0] == pytest.approx(starts_and_lengths[1])
    assert data.trainer.lightning_module.policy.weight.item() == 2.0  # type: ignore[union-attr]


def test_every_update_has_noise_and_episodes_of_its_own() -> None:
    log = Log()
    data = make_data(partial(Drift, log), n_rollouts_per_update=6)
    batches = [collect(data) for _ in range(3)]
    assert len({offset for batch in batches for offset in batch.offsets}) == 9
    assert len(set(log.seeds[-1])) == 9


def test_rewards_are_those_that_wrappers_made_and_statistics_those_of_the_environment() -> None:
    batch = collect(make_data(wrappers=[lambda env: ReturnNormalizationRewardWrapper(env, gamma=0.9)]))
    rewards = [one.reward for one in batch.summaries]
    assert rewards == [one.reward for one in collect(make_data()).summaries]
    assert batch.returns.flatten().tolist() != pytest.approx(rewards)


def test_what_wrappers_learn_is_brought_together_after_each_update() -> None:
    data = make_data(wrappers=WRAPPERS, n_rollouts_per_update=6)
    n_returns = 1  # of 0
    for _ in range(2):
        n_returns += collect(data).env_steps
        assert learned(data, ReturnNormalizationRewardWrapper)["base"][0] == n_returns


def test_episodes_of_training_are_cut_off_and_those_of_evaluation_are_not() -> None:
    data = make_data(max_steps=3, n_rollouts_per_update=20, evaluators=EVAL)
    assert {one.env_steps for one in collect(data).summaries} == {3}
    assert max(one.env_steps for one in data.evaluate("eval").summaries) > 3
    whole = make_data(n_rollouts_per_update=20)
    assert max(one.env_steps for one in collect(whole).summaries) > 3


@every_environment
def test_structured_environments_are_played_with_all_networks_perturbed(module: ModuleType) -> None:
    spec = Spec.of(module.make_env())
    net = partial(FlattenConcatPolicyNet, hidden_units=[4])
    policy = CustomModelComposer(ProbabilisticPolicyComposer([net])).compose(spec).policy
    before = policy.state_dict()
    data = make_data(module.make_env, policy, n_rollouts_per_update=4)
    batch = next_batch(data)
    assert batch.returns.flatten().tolist() == pytest.approx([one.reward for one in batch.summaries])
    assert batch.env_steps == 4 * module.N_STEPS
    (actor,) = data.engine._host.players.values()  # type: ignore[attr-defined]
    for name, value in actor.perturbed.state_dict().items():
        assert not torch.equal(value, before[name])


# ---------------------------------------------------------------------------------------------- in other processes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_workers", "options"),
    [
        (2, {"n_rollouts_per_update": 5}),
        (3, {"n_rollouts_per_update": 2, "n_timesteps_per_update": 50, "wrappers": WRAPPERS, "deterministic": False}),
    ],
)
def test_workers_decide_nothing_about_an_update(n_workers: int, options: dict[str, Any]) -> None:
    here, there = (make_data(evaluators=EVAL, engine=one, **options) for one in (None, ProcessEngine(n_workers)))
    for _ in range(3):
        assert_equal(content(collect(there)), content(collect(here)))
        assert_equal(there.state_dict(), here.state_dict())
    assert_equal(there.evaluate("eval").summaries, here.evaluate("eval").summaries)
    there.teardown("fit")
    here.teardown("fit")


@pytest.mark.slow
def test_the_table_of_noise_is_shared_if_something_is_evaluated_first() -> None:
    data: Any = make_data(evaluators=EVAL, engine=ProcessEngine(2))
    data.evaluate("eval")  # as in Lightning's sanity check
    collect(data)
    assert data._noise._file.seek(0, 2) == 40_000, "the first process makes it, and not each worker its own"
    data.teardown("fit")


class Endless(Drift):
    """Episodes end only if their seeds are among some."""

    def __init__(self, ending: frozenset[int]) -> None:
        super().__init__()
        self.ending = ending

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.ends = seed in self.ending
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.ends and self.time >= 210, truncated, info


@pytest.mark.slow
def test_nobody_waits_for_episodes_that_are_not_needed_and_they_leave_no_trace() -> None:
    # Those of the first two pairs of each update end, all others never do.
    ending = frozenset(derive_seed(3, "env", 0, update * 2**32 + pair) for update in range(3) for pair in range(2))
    evaluation = {derive_seed(derive_seed(3, "evaluation", "eval"), "env", 0, episode) for episode in range(3)}
    options: Any = {"n_rollouts_per_update": 0, "n_timesteps_per_update": 840, "evaluators": EVAL}
    env = partial(Endless, ending | evaluation)
    here, there = make_data(env, **options), make_data(env, engine=ProcessEngine(3), **options)
    for update in range(3):
        batch = collect(there)
        assert there._busy  # with parts of those that do not end
        assert_equal(content(batch), content(collect(here)))
        assert batch.env_steps == 840 and len(batch.summaries) == 4
        if update == 1:
            assert_equal(there.evaluate("eval").summaries, here.evaluate("eval").summaries)
            assert not there._busy
    there.teardown("fit")


@pytest.mark.slow
def test_what_a_killed_worker_was_playing_is_played_again_with_the_same_result(tmp_path: Path) -> None:
    options: Any = {"n_rollouts_per_update": 6, "deterministic": False}
    expected = [content(collect(data)) for data in [make_data(partial(Mortal, str(tmp_path)), **options)] * 2]
    (tmp_path / "kill").touch()
    data = make_data(partial(Mortal, str(tmp_path)), engine=ProcessEngine(2), **options)
    assert_equal([content(collect(data)) for _ in range(2)], expected)
    assert not list(tmp_path.iterdir())
    data.teardown("fit")


@pytest.mark.slow
def test_an_episode_that_hung_is_played_again_with_the_same_result(tmp_path: Path) -> None:
    options: Any = {"n_rollouts_per_update": 6, "deterministic": False}
    expected = content(collect(make_data(partial(Stuck, str(tmp_path)), **options)))
    (tmp_path / "hang").touch()
    data = make_data(partial(Stuck, str(tmp_path)), engine=InProcessEngine(step_timeout=0.3), **options)
    assert_equal(content(collect(data)), expected)
    assert not list(tmp_path.iterdir())
    data.teardown("fit")


# ------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_rollouts_per_update": 0}, "n_rollouts_per_update and n_timesteps_per_update are both 0"),
        ({"n_rollouts_per_update": -1}, "n_rollouts_per_update=-1 must be at least 0"),
        ({"n_timesteps_per_update": -1}, "n_timesteps_per_update=-1 must be at least 0"),
        ({"max_steps": -1}, "max_steps=-1 must be at least 0"),
        ({"epoch_length": 0}, "epoch_length=0 must be at least 1"),
        ({"shared_noise_table_size": 0}, "shared_noise_table_size=0 must be at least 1"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PopulationDataModule(Drift, **options)


def test_a_table_that_is_smaller_than_the_policy_is_refused() -> None:
    data = make_data(policy=torch.nn.Linear(100, 100))
    with pytest.raises(ValueError, match="noise table of 10,000 numbers is too small for the 10,100 parameters"):
        collect(data)


def test_other_algorithms_are_refused() -> None:
    data: Any = make_data()
    del data.trainer.lightning_module.data_requirements
    with pytest.raises(ValueError, match=r"SimpleNamespace states no noise_stddev.*DataRequirements\(noise_stddev="):
        collect(data)


def test_returns_of_agents_whose_rewards_cancel_out_are_warned_of_once() -> None:
    data = make_data(wrappers=[Cancelling], n_rollouts_per_update=2)
    with pytest.warns(UserWarning, match="the rewards of the agents add up to 0 in each episode"):
        collect(data)
    collect(data)  # would fail at a warning
