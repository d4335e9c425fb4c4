"""The data module of on-policy algorithms: fresh rollouts, fair evaluation, statistics that are known everywhere."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from lightning_fabric.utilities import move_data_to_device

from maze_pl.collect.engines import Engine, InProcessEngine, ProcessEngine
from maze_pl.collect.state_tensors import from_tensors
from maze_pl.core.batches import Evaluation, Rollout
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, ReturnNormalizationRewardWrapper, TimeLimitWrapper
from maze_pl.envs.wrappers.return_normalization_reward_wrapper import Moments
from tests.datamodules.drift import Drift, Log
from tests.datamodules.probe import (
    EVAL,
    NORMALIZED,
    SCALE,
    WRAPPERS,
    Probe,
    equal,
    evaluation_envs,
    fit,
    learned,
    make_data,
    make_trainer,
    validate,
)

# Lightning asks back where there are no evaluators.
pytestmark = pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")


# ---------------------------------------------------------------------------------------------------- collection


def test_each_rollout_is_collected_by_the_newest_weights() -> None:
    module = fit(make_data(evaluators=EVAL), max_epochs=3)
    acted_by = [rollout.segments[0].action["action"].floor().unique().tolist() for rollout in module.rollouts]
    assert acted_by == [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    assert [len(evaluation.summaries) for evaluation in module.evaluations] == [7, 7, 7]


def test_a_policy_acts_in_evaluation_mode_and_without_a_graph() -> None:
    module = fit(make_data(evaluators=EVAL))
    assert module.policy.modes == {False}
    assert not module.rollouts[0].segments[0].observation["observation"].requires_grad


def test_iterating_has_no_side_effects_before_a_rollout_is_asked_for() -> None:
    log = Log()
    data = make_data(log, epoch_length=5, evaluators=EVAL)
    source, (evaluation,) = data.train_dataloader(), data.val_dataloader()
    assert (len(source), len(evaluation)) == (5, 1)
    first, second = iter(source), iter(source)
    assert first is not second
    iter(evaluation)
    assert log.seeds == []
    with pytest.raises(RuntimeError, match=r"rollouts need a policy: .*Trainer\.fit"):
        next(first)


class Restless(RolloutDataModule):
    """Its source is asked for an iterator more often than there are epochs."""

    def train_dataloader(self) -> Any:
        source = super().train_dataloader()
        iter(source)
        iter(source)
        return source


def test_further_iterators_leave_training_alone() -> None:
    assert equal(fit(make_data(data_class=Restless)).rollouts, fit(make_data()).rollouts)


def test_the_specification_takes_one_environment_that_is_closed_and_needs_no_trainer() -> None:
    log = Log()
    data = make_data(log)
    assert log.seeds == []
    assert data.spec is data.spec
    assert data.spec.steps[0].observation_shapes == {"observation": (2,)}
    assert (len(log.seeds), log.closed) == (1, 1)


class Masked(Drift):
    """Also shows which of three actions are allowed."""

    def __init__(self, log: Log | None) -> None:
        super().__init__(log)
        self.observation_space = spaces.Dict({"place": self.observation_space, "allowed": spaces.MultiBinary(3)})
        self.action_space = spaces.Discrete(3)


class Crowd(GymMazeEnv):
    """Says that its number of agents changes."""

    def __init__(self, log: Log | None) -> None:
        super().__init__(Drift(log))

    @property
    def agent_counts_dict(self) -> Mapping[int | str, int]:
        return {0: -1}


def test_masks_of_the_configuration_are_those_of_the_environment_too() -> None:
    data = make_data(env=Masked, action_masks={"action": "allowed"})
    env = data.make_env()
    assert env.action_masks_dict == {0: data.spec.steps[0].masks} == {0: {"action": "allowed"}}
    for wrong in ({"action": "nothing"}, {"nothing": "allowed"}):
        with pytest.raises(ValueError, match=r"fit no sub-step: .* heads \['action'\] and .* \['allowed', 'place'\]"):
            _ = make_data(env=Masked, action_masks=wrong).spec


def test_masks_and_limits_on_agents_reach_the_specification() -> None:
    assert make_data(env=Masked, action_masks={"action": "allowed"}).spec.steps[0].masks == {"action": "allowed"}
    step = make_data(env=Crowd, max_agents={0: 4}).spec.steps[0]
    assert (step.n_agents, step.n_slots) == (-1, 4)
    with pytest.raises(ValueError, match=r"such as by max_agents=\{0: 4\} in Python, or --max_agents '\{0: 4\}' "):
        _ = make_data(env=Crowd).spec


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("n_envs", -1),
        ("n_rollout_steps", 0),
        ("epoch_length", 0),
        ("n_normalization_samples", 0),
        ("vectorization", "threads"),
        ("on_nondeterminism", "ignore"),
    ],
)
def test_options_out_of_range_are_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{option}={value!r} must be"):
        make_data(**{option: value})


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("n_envs", "8", "n_envs='8' must be an integer, not str"),
        ("n_envs", 2.0, r"n_envs=2\.0 must be an integer, not float"),
        ("n_envs", True, "n_envs=True must be an integer, not bool"),
        ("n_rollout_steps", None, "n_rollout_steps=None must be an integer"),
        ("epoch_length", [3], r"epoch_length=\[3\] must be an integer"),
        ("wrappers", ["TimeLimitWrapper"], r"wrappers=\['TimeLimitWrapper'\] must be callables"),
        ("wrappers", TimeLimitWrapper.wrap, r"wrappers=.*wrap.* must be a list; write wrappers=\[\.\.\.\], also"),
        ("evaluators", {"eval": 8}, r"evaluators\['eval'\]=8 must be a RolloutEvaluator"),
        ("evaluators", [RolloutEvaluator()], r"evaluators=\[.*\] must be a dict of evaluators by name"),
        ("evaluators", RolloutEvaluator(), r"must be a dict of evaluators by name; write evaluators=\{'eval': Rollout"),
        ("action_masks", "allowed", r"action_masks='allowed' must be a dict, head -> observation"),
    ],
)
def test_options_of_a_wrong_type_are_refused_by_name(option: str, value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make_data(**{option: value})


def test_an_environment_that_is_not_callable_is_refused_with_an_example() -> None:
    with pytest.raises(TypeError, match=r"env='CartPole-v1' .* must be callables .*write env=lambda: GymMazeEnv"):
        RolloutDataModule("CartPole-v1")  # type: ignore[arg-type]


def test_evaluators_out_of_range_are_refused() -> None:
    with pytest.raises(TypeError, match="n_episodes='8' of an evaluator must be an integer"):
        RolloutEvaluator(n_episodes="8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_episodes=0"):
        RolloutEvaluator(n_episodes=0)
    with pytest.raises(ValueError, match="n_envs=-1"):
        RolloutEvaluator(n_envs=-1)
    with pytest.raises(ValueError, match="no evaluator can be named 'train'"):
        make_data(evaluators={"train": RolloutEvaluator()})


# ---------------------------------------------------------------------------------------------------- evaluation


@pytest.mark.parametrize("deterministic", [True, False])
def test_an_evaluation_repeats_itself(deterministic: bool) -> None:
    evaluators = {"eval": RolloutEvaluator(n_episodes=7, deterministic=deterministic)}
    first, second = validate(make_data(evaluators=evaluators), times=2).returns()
    assert first == second
    assert len(set(first)) == 7


def test_episodes_of_an_evaluation_depend_on_nothing_but_their_number() -> None:
    seven = [validate(make_data(evaluators={"eval": RolloutEvaluator(7, n_envs=n)})) for n in (1, 3, 7, 20)]
    more = validate(make_data(n_envs=1, evaluators={"eval": RolloutEvaluator(9)}))
    first = seven[0].returns()
    assert all(module.returns() == first for module in seven)
    assert more.returns()[0][:7] == first[0]
    for module in seven:
        assert [summary.episode_index for summary in module.evaluations[0].summaries] == list(range(7))


def test_episodes_are_played_in_groups_of_eight_unless_it_is_said_otherwise() -> None:
    assert RolloutEvaluator(n_episodes=3).groups == [range(3)]
    assert RolloutEvaluator(n_episodes=20).groups == [range(8), range(8, 16), range(16, 20)]
    assert RolloutEvaluator(n_episodes=3, n_envs=2).groups == [range(2), range(2, 3)]


def test_several_evaluators_play_episodes_of_their_own() -> None:
    evaluators = {
        "eval": RolloutEvaluator(n_episodes=3),
        "sampled": RolloutEvaluator(n_episodes=3, deterministic=False),
        "many": RolloutEvaluator(n_episodes=12),
    }
    module = fit(make_data(evaluators=evaluators), max_epochs=2)
    assert [(one.name, len(one.summaries)) for one in module.evaluations] == [
        ("eval", 3),
        ("sampled", 3),
        ("many", 12),
        ("eval", 3),
        ("sampled", 3),
        ("many", 12),
    ]
    assert not set(module.returns("eval")[0]) & set(module.returns("many")[0])


def test_without_evaluators_nothing_is_evaluated() -> None:
    assert fit(make_data(evaluators={})).evaluations == []
    assert list(RolloutDataModule(Drift).evaluators) == ["eval"]


def test_evaluation_has_environments_and_seeds_of_its_own() -> None:
    log = Log()
    data = make_data(log, evaluators=EVAL, **WRAPPERS)
    _ = data.spec
    evaluated = fit(data, max_epochs=2)
    assert equal(evaluated.rollouts, fit(make_data(**WRAPPERS), max_epochs=2).rollouts)
    _, *played = [set(seeds) for seeds in log.seeds]  # the first one only described itself
    estimated, training, evaluation = played[0], played[1] | played[2], set.union(*played[3:])
    assert len(played) == 1 + 2 + 7
    assert len(evaluation) == 7
    assert min(len(estimated), len(training)) > 3
    assert not (estimated & training or training & evaluation or estimated & evaluation)
    assert log.closed == len(log.seeds)


@pytest.mark.parametrize("engine", [InProcessEngine(), pytest.param(ProcessEngine(1), marks=pytest.mark.slow)])
def test_an_engine_that_another_data_module_has_started_is_refused(engine: Engine) -> None:
    options: dict[str, Any] = {"engine": engine, "evaluators": EVAL}
    data, other = make_data(**options), make_data(seed=4, **options)
    policy = Probe().policy

    class Evaluated(Probe):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            super().training_step(batch, batch_idx)
            other.evaluate("eval", policy)

    class Saved(Evaluated):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            super().training_step(batch, batch_idx)
            data.state_dict()  # would be that of the other environments

    for module in (Evaluated(), Saved()):
        with pytest.raises(ValueError, match=r"started by another data module, .* give each data module its own"):
            make_trainer().fit(module, data)
        other.teardown("validate")
    expected = [fit(make_data(seed=seed)).rollouts for seed in (3, 4)]
    for _ in range(2):  # one run after the other may have it
        for one, rollouts in zip((data, other), expected, strict=True):
            assert equal(fit(one).rollouts, rollouts)


def test_any_policy_can_be_evaluated() -> None:
    data = make_data(evaluators=EVAL)
    fitted = fit(data)
    assert [one.reward for one in data.evaluate("eval", fitted.policy).summaries] == fitted.returns()[0]
    data.teardown("validate")


def test_an_evaluation_is_moved_to_a_device_without_a_copy() -> None:
    evaluation = Evaluation("eval", [])
    assert move_data_to_device(evaluation, torch.device("cpu")).summaries is evaluation.summaries


# ---------------------------------------------------------------------------------------------------- statistics


def test_observation_statistics_are_estimated_once_and_hold_everywhere() -> None:
    log = Log()
    data = make_data(log, wrappers=[NORMALIZED], evaluators=EVAL, n_normalization_samples=200)
    _ = data.spec
    module = fit(data, max_epochs=2)
    state = learned(data, ObservationNormalizationWrapper)
    mean, std = (state["observation"][name].numpy() for name in ("mean", "std"))

    def shown(seeds: list[int | None]) -> np.ndarray:
        return (np.array([Drift().reset(seed=seed)[0] for seed in seeds]) - mean) / std

    assert 0.3 < mean[0] < 0.7 and 1.5 < mean[1] < 2.5  # starts are uniform, episodes take 3 to 6 steps
    alone = data.make_env().reset(seed=5)[0]["observation"]
    assert len(log.seeds) == 1 + 1 + 2 + 7 + 1  # described, estimated, training, evaluation, and the one made last
    np.testing.assert_allclose(alone, shown([5])[0], rtol=1e-5)
    np.testing.assert_allclose(module.policy.seen[0], shown([seeds[0] for seeds in log.seeds[2:4]]), rtol=1e-5)
    first_evaluation = next(seen for seen in module.policy.seen if len(seen) == 7)
    np.testing.assert_allclose(first_evaluation, shown([seeds[0] for seeds in log.seeds[4:11]]), rtol=1e-5)
    other = make_data(wrappers=[NORMALIZED], n_envs=3, n_normalization_samples=200)
    fit(other)
    assert str(learned(other, ObservationNormalizationWrapper)) == str(state)


def test_return_statistics_are_merged_after_each_rollout_in_the_order_of_the_environments() -> None:
    log = Log()
    n_envs, n_steps, n_rollouts = 3, 7, 4
    data = make_data(log, wrappers=[SCALE], n_envs=n_envs, n_rollout_steps=n_steps, evaluators=EVAL)
    _ = data.spec
    module = fit(data, max_epochs=2)
    returns: list[list[float]] = []
    for episodes in log.rewards[2 : 2 + n_envs]:
        running: list[float] = []
        for rewards in episodes:
            now = 0.0
            for reward in rewards:
                now = reward + 0.9 * now
                running.append(now)
        assert len(running) == n_steps * n_rollouts
        returns.append(running)
    merged = Moments().add(0.0)
    for rollout in range(n_rollouts):
        for running in returns:
            part = Moments()
            for value in running[rollout * n_steps : (rollout + 1) * n_steps]:
                part = part.add(value)
            merged = merged.merge(part)
    state = learned(data, ReturnNormalizationRewardWrapper)
    assert (state["base"], state["delta"]) == (list(merged), [0, 0.0, 0.0])
    everything = np.array([0.0, *np.ravel(returns)])
    assert merged.n == everything.size
    assert merged.mean == pytest.approx(everything.mean(), rel=1e-12)
    assert merged.m2 == pytest.approx(everything.var() * everything.size, rel=1e-12)
    env = data.make_env()
    start = env.reset(seed=1)[0]["observation"][0]
    _, reward, *_ = env.step({"action": np.ones(1, np.float32)})
    assert reward == pytest.approx((start + 1) / everything.std(), rel=1e-6)
    assert module.returns()[0][0] == sum(log.rewards[2 + n_envs][0])  # the environment's own, as it was given


@pytest.mark.parametrize("is_warm", [False, True])
def test_statistics_begin_again_with_another_module(is_warm: bool) -> None:
    def make(**options: Any) -> RolloutDataModule:
        data: RolloutDataModule = make_data(**WRAPPERS, **options)
        if is_warm:
            data.warm_start(earlier.wrapper_statistics())
        return data

    earlier = make_data(seed=8, **WRAPPERS)
    fit(earlier)
    fresh, data = make(), make()
    expected = fit(fresh)
    for _ in range(2):
        assert equal(fit(data).rollouts, expected.rollouts)
        assert str(data.wrapper_statistics()) == str(fresh.wrapper_statistics())
    copied = copy.deepcopy(data)
    assert equal(fit(copied).rollouts, expected.rollouts)


def test_statistics_go_on_with_the_same_module_and_with_a_checkpoint(tmp_path: Path) -> None:
    data, module, trainer = make_data(**WRAPPERS), Probe(), make_trainer()
    trainer.fit(module, data)
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    count = learned(data, ReturnNormalizationRewardWrapper)["base"][0]
    make_trainer().fit(module, data)
    assert count == 1 + 2 * 7 * 2
    assert learned(data, ReturnNormalizationRewardWrapper)["base"][0] == 1 + 2 * 2 * 7 * 2
    resumed = fit(data, 2, ckpt_path=tmp_path / "run.ckpt")
    expected = fit(make_data(**WRAPPERS), 2)
    assert equal(resumed.rollouts, expected.rollouts[2:])
    assert equal(fit(data, 2).rollouts, expected.rollouts)  # without the statistics of the checkpoint


def test_evaluation_teaches_wrappers_nothing() -> None:
    data = [make_data(wrappers=[SCALE], evaluators=evaluators) for evaluators in ({}, EVAL)]
    for one in data:
        fit(one, max_epochs=2)
    without, with_evaluation = (learned(one, ReturnNormalizationRewardWrapper) for one in data)
    assert without == with_evaluation


def test_evaluation_environments_have_the_statistics_of_training_and_keep_them() -> None:
    data = make_data(evaluators=EVAL, **WRAPPERS)
    module = fit(data, max_epochs=2)
    data.evaluate("eval", module.policy)
    known = {name: str(from_tensors(state)) for name, state in data.state_dict()["shared"].items()}
    assert len(known) == 2
    for state in evaluation_envs(data).shared_states():
        assert {name: str(part) for name, part in state.items()} == known
    data.teardown("validate")


def test_a_rollout_says_how_long_it_took_and_which_episodes_ended() -> None:
    rollouts: list[Rollout] = fit(make_data()).rollouts
    ended = [int((one.rows.terminated | one.rows.truncated).sum()) for one in rollouts]
    assert [len(one.summaries) for one in rollouts] == ended
    assert sum(ended) > 2
    assert all(0 < one.seconds < 10 and math.isfinite(one.seconds) for one in rollouts)


def test_processes_of_environments_import_nothing_heavy() -> None:
    made_by = make_data()._environments.factory().func.__module__
    code = f"import sys, {made_by}; print([name for name in ('torch', 'pytorch_lightning') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "[]", result.stderr


class LeavesBounds(Drift):
    """Shows a time beyond the bounds of its space, but not at first."""

    def __init__(self, log: Log | None) -> None:
        super().__init__(log)
        self.observation_space = spaces.Box(0, 2, (2,), np.float32)


@pytest.mark.parametrize("check", ["fast", "full"])
def test_the_data_module_says_how_closely_environments_are_looked_at(check: Any) -> None:
    """Of training and of evaluation."""
    data = make_data(env=LeavesBounds, check=check, evaluators=EVAL, n_rollout_steps=30)
    if check == "fast":
        assert fit(data).evaluations
        return
    with pytest.raises(ValueError, match=r"environment \d: .* holds 3.0; its space allows 0.0 to 2.0"):
        fit(data)
    with pytest.raises(ValueError, match=r"environment \d: .* holds 3.0; its space allows 0.0 to 2.0"):
        validate(data)


def test_there_are_fast_and_full_checks_only() -> None:
    with pytest.raises(ValueError, match="check='slow' must be 'fast' or 'full'"):
        make_data(check="slow")
