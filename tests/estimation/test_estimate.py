"""Estimates of known values from recorded episodes."""

from __future__ import annotations

import io
import math
import sys
from collections import deque
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.__main__ import main
from maze_pl.agents import TorchPolicy
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.estimation import estimate
from maze_pl.estimation.cloning import clone_of
from maze_pl.estimation.estimate import ESTIMATORS
from maze_pl.estimation.fitted_q import FittedQ, FittedQOptions, drawn_acts
from maze_pl.estimation.importance_sampling import WEIGHTING
from maze_pl.estimation.probabilities import log_probs
from maze_pl.estimation.recorded_acts import NOTHING, read_acts
from maze_pl.estimation.results import OffPolicyEstimate, OffPolicyEvaluation
from maze_pl.perception import AutomaticModelComposer
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.rollout import rollout
from tests.collect.scripted import Act, Episode, Script, make_env, spec_of
from tests.search.problems import N_ACTIONS, N_STEPS, TableCore, table_env

QUICK = FittedQOptions(n_updates=500, batch_size=128, hidden_units=64, lr=3e-3)
SMALL = FittedQOptions(n_updates=60, batch_size=16, hidden_units=16, lr=0.03)
GAMMA = 0.9


def records(policy: Any, n_episodes: int, make: Any = table_env, **options: Any) -> list[SpacesTrajectoryRecord]:
    played = rollout(make, policy, episodes=n_episodes, **options)
    return [one.spaces for one in played if one.spaces is not None]


def some_policy(seed: int) -> TorchPolicy:
    """Networks whose probabilities are far from uniform."""
    torch.manual_seed(seed)
    policy = AutomaticModelComposer().compose(Spec.of(table_env())).policy
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "blocks.2" in name:  # the last layer
                parameter.mul_(150.0)
    return policy.eval()


def probabilities(policy: TorchPolicy, history: list[int]) -> np.ndarray:
    padded = np.full(2 * N_STEPS, -1, np.float32)
    padded[: len(history)] = history
    allowed = np.ones(N_ACTIONS, np.int8)
    if len(history) % 2:
        allowed[history[-1]] = 0
    observation = {"history": padded[np.newaxis], "allowed": allowed[np.newaxis]}
    batch = PolicyBatch(len(history) % 2, observation, np.zeros(1, np.int64))
    return np.asarray(policy.probabilities(batch)["choice"][0])


def true_value(policy: TorchPolicy) -> float:
    """Expected discounted return, by all sequences of choices; two acts make an environment step."""
    core = TableCore()
    total = 0.0
    for choices in product(range(N_ACTIONS), repeat=2 * N_STEPS):
        weight = 1.0
        value = 0.0
        for n in range(2 * N_STEPS):
            weight *= float(probabilities(policy, list(choices[:n]))[choices[n]])
            value += GAMMA ** (n // 2) * core.reward_of(list(choices[: n + 1]))
        total += weight * value
    return total


@pytest.fixture(scope="module")
def of_random() -> list[SpacesTrajectoryRecord]:
    return records("random", 500)


@pytest.mark.slow
def test_all_estimators_find_the_value_of_a_policy_with_sub_steps_and_masks(of_random: Any) -> None:
    policy = some_policy(3)
    value = true_value(policy)
    found = estimate(policy, of_random, "random", gamma=GAMMA, n_fits=2, fitted_q=QUICK)
    assert abs(found.recorded.value - value) > 1.0  # the policies differ
    assert [one.name for one in found.estimates] == list(ESTIMATORS)
    for one in found.estimates:
        assert one.interval is not None
        low, high = one.interval
        assert low - 0.3 < value < high + 0.3, one
        assert abs(one.value - value) < 1.5, one
    assert found["weighted_doubly_robust"].value == pytest.approx(value, abs=0.4)
    assert 20 < found.effective_sample_size < 400
    assert "effective sample size" in found.text() and not found.warnings


def test_few_episodes_are_not_blamed_on_the_agent(of_random: Any) -> None:
    spec = Spec.of(table_env())
    policy = RandomPolicy({key: step.action_space for key, step in spec.steps.items()})
    policy.spec = spec
    found = estimate(policy, of_random[:4], policy, estimators=["per_decision"], gamma=1.0)
    assert found.effective_sample_size == pytest.approx(4.0)
    assert found.warnings == ["there are only 4 recorded episodes: record more"]


def test_the_table_names_the_wrappers_that_changed_the_recorded_rewards() -> None:
    recorded = OffPolicyEstimate("recorded_episodes", 1.0, None)
    found = OffPolicyEvaluation("run", "clone", 1.0, 4, 9, recorded, math.nan, [])
    assert "in rewards" not in found.text() and "reward_wrappers" in found.to_json()
    found = replace(found, reward_wrappers=["RewardClippingWrapper", "RewardScalingWrapper"])
    found = replace(found, reward_source="the agent's run")
    names = "RewardClippingWrapper and RewardScalingWrapper"
    units = f"in rewards as recorded, which are those after {names} in episodes of the agent's run"
    assert found.text().splitlines()[1] == units


def test_huge_numbers_have_one_notation() -> None:
    recorded = OffPolicyEstimate("recorded_episodes", 2_000_000.0, (1_000_000.0, 2_500_000.5))
    fitted = OffPolicyEstimate("fitted_q", 2.5e13, (2.5577e13 + 0.5, 1386896905878999.0))
    text = OffPolicyEvaluation("run", "clone", 1.0, 4, 9, recorded, math.nan, [fitted]).text()
    assert "2.558e+13 to 1.387e+15" in text and "2,000,000" in text


def test_long_fits_have_progress_in_logs(of_random: Any, monkeypatch: Any) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr("maze_pl.system.progress._SECONDS_IN_LOGS", 0.0)
    estimate(
        some_policy(3), of_random[:12], estimators=["fitted_q"], gamma=0.9, fitted_q=SMALL, n_fits=2, progress=True
    )
    assert "fitted Q evaluation: 100%" in log.getvalue()


def test_an_agent_that_acts_differently_is_named_with_the_effective_size(of_random: Any) -> None:
    found = estimate(some_policy(3), of_random[:12], "random", estimators=["per_decision"], gamma=1.0)
    assert found.effective_sample_size < 10
    size = f"{found.effective_sample_size:.1f} episodes: the agent acts too differently"
    assert found.warnings[0].startswith(f"the effective sample size of the weighted estimates is {size}")
    page = Path(__file__).parents[2] / "docs" / "off_policy_evaluation.md"
    shown = found.warnings[0].replace(f"{found.effective_sample_size:.1f}", "8.9")
    assert f"\nwarning: {shown}\n" in page.read_text(encoding="utf-8")


def test_log_probabilities_of_random_acts_are_those_of_the_options_that_masks_allow(of_random: Any) -> None:
    spec = Spec.of(table_env())
    acts = read_acts(of_random[:3], spec)
    actions = {key: step.action_space for key, step in spec.steps.items()}
    policy = RandomPolicy(actions, {key: step.masks for key, step in spec.steps.items()})
    expected = [-math.log(3), -math.log(2)] * 2 * 3
    np.testing.assert_allclose(log_probs(policy, acts, "random"), expected)


def test_log_probabilities_of_networks_are_in_the_order_of_the_acts(of_random: Any) -> None:
    policy = some_policy(1)
    record = of_random[0]
    acts = read_acts([record, of_random[1]], policy.spec)
    choices = np.empty(4, np.int64)
    choices[0::2], choices[1::2] = record.action[0]["choice"], record.action[1]["choice"]
    expected = [math.log(probabilities(policy, choices[:n].tolist())[choices[n]]) for n in range(4)]
    np.testing.assert_allclose(log_probs(policy, acts, "it")[:4], expected, rtol=1e-5)


def test_acts_are_followed_by_the_next_situation_of_their_episode(of_random: Any) -> None:
    acts = read_acts(of_random[:2], Spec.of(table_env()))
    assert acts.lengths.tolist() == [4, 4]
    assert acts.time.tolist() == [0, 0, 1, 1] * 2
    assert acts.key_index.tolist() == [0, 1, 0, 1] * 2
    assert acts.next_key_index.tolist()[:3] == [1, 0, 1]
    assert acts.row.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert acts.next_row.tolist() == [0, 1, 1, NOTHING, 2, 3, 3, NOTHING]
    assert not acts.is_unknown.any()


def test_the_value_after_a_truncated_episode_is_that_of_its_last_situation() -> None:
    make = partial(GymMazeEnv, "CartPole-v1")
    cut = records("heuristic", 3, make, max_steps=12)
    acts = read_acts(cut, Spec.of(make()))
    last = acts.is_last
    assert (acts.next_row[last] >= 36).all() and (acts.next_time[last] == 12).all()
    np.testing.assert_array_equal(
        acts.situations[0].observation["observation"][acts.next_row[last]],
        [record.last_observation["observation"] for record in cut],
    )
    policy = RandomPolicy({0: acts.spec.steps[0].action_space})
    values = FittedQ(acts, policy, 0.95, 0, options=FittedQOptions(n_updates=50)).fit(np.ones(3), 0)
    assert (values.tail != 0.0).all()
    terminated = read_acts(records("random", 3, make), acts.spec)
    values = FittedQ(terminated, policy, 0.95, 0, options=FittedQOptions(n_updates=50)).fit(np.ones(3), 0)
    assert (values.tail == 0.0).all()


def test_the_part_of_an_episode_that_a_resumed_run_continued_is_left_out() -> None:
    make = partial(GymMazeEnv, "CartPole-v1")
    parts, wholes = (records("heuristic", 2, make, max_steps=max_steps) for max_steps in (5, 9))
    acts = read_acts([*parts, *wholes], Spec.of(make()))
    assert acts.lengths.tolist() == [9, 9]


def one_act(key: int, reward: float = 1.0, truncated: bool = False) -> Script:
    """Episodes of a single act; two sub-steps are declared, of which only one ever acts."""
    return Script((1, 1), False, ((Episode((Act(key, 0, reward, 0.0, 1),), truncated, (key, 0)),),))


def agent_of(scripted: Script) -> TorchPolicy:
    torch.manual_seed(0)
    return AutomaticModelComposer().compose(spec_of(scripted)).policy


@pytest.mark.parametrize("key", [0, 1])
@pytest.mark.parametrize("deterministic", [False, True])
def test_sub_steps_that_never_act_are_left_out_of_the_values(key: int, deterministic: bool) -> None:
    scripted = one_act(key, 3.0)
    played = records("random", 4, lambda: make_env(scripted, 0))
    options: dict[str, Any] = {"deterministic": deterministic, "fitted_q": SMALL}
    found = estimate(agent_of(scripted), played, gamma=0.5, estimators=["fitted_q"], n_fits=2, **options)
    assert found["fitted_q"].value == pytest.approx(3.0, abs=0.6)


def test_samples_of_episodes_have_an_act_of_which_it_is_known_what_followed() -> None:
    scripted = one_act(0)
    policy = agent_of(scripted)
    (known,) = records("random", 1, lambda: make_env(scripted, 0), seed=1)
    cut = records("random", 3, lambda: make_env(one_act(0, 2.0, truncated=True), 0), seed=2)
    unknown = [replace(record, last_actor=None, last_observation=None) for record in cut]
    few = FittedQOptions(n_updates=1)
    found = estimate(policy, [known, *unknown], gamma=0.5, estimators=["fitted_q"], n_fits=20, fitted_q=few)
    assert found.n_episodes == 4
    assert found["fitted_q"].interval is not None  # of 20 samples of 4 episodes, about 6 lack the known one
    with pytest.raises(ValueError, match="does not know what followed any of the recorded acts: record episodes with"):
        estimate(policy, unknown, gamma=0.5, estimators=["fitted_q"])
    model = FittedQ(read_acts([known, *unknown], policy.spec), policy, 0.5, 0)
    assert [model.can_fit(np.array(counts)) for counts in ([1, 3, 0, 0], [0, 2, 1, 1])] == [True, False]
    with pytest.raises(ValueError, match="not known what followed any act of this sample"):
        model.fit(np.array([0, 2, 1, 1]), 0)


def test_a_single_act_has_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = one_act(1, 3.0)
    policy = agent_of(scripted)
    played = records("random", 3, lambda: make_env(scripted, 0))
    for n_episodes in (1, 3):
        acts = read_acts(played[:n_episodes], policy.spec)
        monkeypatch.setattr("maze_pl.estimation.fitted_q.BATCH_SIZE", 2)
        values = FittedQ(acts, policy, 0.5, 0, options=SMALL).fit(np.ones(n_episodes), 0)
        assert values.of_acts == pytest.approx(np.full((n_episodes, 1), 3.0), abs=0.6)


def test_acts_are_drawn_by_their_numbers_also_from_many() -> None:
    occurrences = torch.tensor([0, 3, 0, 1, 0])
    drawn = drawn_acts(occurrences.cumsum(0), 20_000, torch.Generator().manual_seed(0))
    assert torch.bincount(drawn, minlength=5) / 20_000 == pytest.approx(occurrences / 4, abs=0.02)
    many = torch.zeros(2**24 + 2, dtype=torch.int64)
    many[-2] = 5
    assert drawn_acts(many.cumsum(0), 3, torch.Generator()).tolist() == [2**24] * 3


@pytest.mark.parametrize("kind", [tuple, deque])
def test_any_sequence_of_records_is_evaluated(kind: Any, of_random: Any) -> None:
    options: Any = {"estimators": ["per_decision"], "gamma": GAMMA}
    policy = some_policy(0)
    expected = estimate(policy, of_random[:20], "random", **options)
    assert estimate(policy, kind(of_random[:20]), "random", **options)["per_decision"] == expected["per_decision"]


@pytest.mark.slow
def test_a_clone_has_the_probabilities_of_the_policy_that_recorded_the_acts() -> None:
    policy = some_policy(5)
    acts = read_acts(records(policy, 300), policy.spec)
    clone = clone_of(acts, 0).policy
    gap = log_probs(policy, acts, "it") - log_probs(clone, acts, "clone")
    assert abs(gap.mean()) < 0.05
    found = estimate(policy, records(policy, 300), estimators=["weighted_importance_sampling"], gamma=GAMMA)
    assert found["weighted_importance_sampling"].value == pytest.approx(found.recorded.value, abs=0.5)


def test_the_policy_that_recorded_the_episodes_has_their_mean_return() -> None:
    policy = some_policy(2)
    own = records(policy, 20)
    found = estimate(policy, own, policy, estimators=list(WEIGHTING), gamma=GAMMA)
    assert all(one.value == pytest.approx(found.recorded.value) for one in found.estimates)
    assert found.effective_sample_size == pytest.approx(20)


def test_the_same_seed_gives_the_same_estimates(of_random: Any) -> None:
    options: Any = {"estimators": ["fitted_q", "doubly_robust"], "n_fits": 2, "fitted_q": FittedQOptions(n_updates=30)}
    policy = some_policy(0)
    first = estimate(policy, of_random[:20], "random", seed=4, **options)
    again = estimate(policy, of_random[:20], "random", seed=4, **options)
    other = estimate(policy, of_random[:20], "random", seed=5, **options)
    assert first == again
    assert first["fitted_q"].value != other["fitted_q"].value


def test_a_policy_that_acts_differently_is_warned_of() -> None:
    policy = some_policy(3)
    found = estimate(policy, records("random", 12), "random", estimators=["per_decision"], gamma=GAMMA)
    (warning,) = found.warnings
    assert "the effective sample size of the weighted estimates is" in warning


def test_what_cannot_be_evaluated_is_named(of_random: Any, tmp_path: Path) -> None:
    policy = some_policy(0)
    few = of_random[:5]
    with pytest.raises(ValueError, match=r"estimators=\['best'\]: choose any of importance_sampling"):
        estimate(policy, few, "random", estimators=["best"])
    with pytest.raises(ValueError, match="deterministic actions have no probabilities"):
        estimate(policy, few, "random", deterministic=True)
    with pytest.raises(ValueError, match="cloning needs at least two episodes"):
        estimate(policy, few[:1], estimators=["per_decision"])
    with pytest.raises(ValueError, match="has no probabilities of actions"):
        estimate(policy, few, object(), estimators=["per_decision"])
    with pytest.raises(ValueError, match=r"is not an agent: .* policy whose attribute spec is Spec.of\(env\)"):
        estimate(object(), few)
    with pytest.raises(ValueError, match=r"does not fit: its observation .* of sub-step"):
        estimate(policy, records("random", 2, partial(GymMazeEnv, "CartPole-v1")), "random")
    with pytest.raises(ValueError, match="there is no file or folder"):
        estimate(policy, tmp_path / "nowhere", "random")
    with pytest.raises(ValueError, match="gamma"):
        estimate(policy, few, "random", gamma=1.5)


def test_a_folder_may_be_called_like_a_behaviour(of_random: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("random").mkdir()
    found = estimate(some_policy(0), of_random[:12], "random", estimators=["per_decision"], gamma=GAMMA)
    assert found.behaviour == "random"


@pytest.mark.slow
def test_the_command_estimates_a_run(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    fit = ["fit", "--config", "ppo_auto", "--trainer.max_epochs", "1", "--data.epoch_length", "1"]
    assert main([*fit, "--run_dir", "run", "--data.evaluators", "{}"]) == 0
    play = ["rollout", "run", "--n_episodes", "6", "--runner", "sequential", "--output_dir", "played"]
    assert main([*play, "--trajectories", "spaces"]) == 0
    capsys.readouterr()
    options = ["--episodes", "played", "--behaviour", "run", "--gamma", "1", "--estimator", "per_decision"]
    assert main(["estimate", "run", *options, "--to", "out"]) == 0
    text = capsys.readouterr().out
    assert "effective sample size: 6.0 of 6 episodes" in text
    assert "recorded episodes" in text and "per decision" in text
    assert text.splitlines()[1] == "in rewards as recorded, which are those after ReturnNormalizationRewardWrapper"
    assert main(["estimate", "run", *options, "--checkpoint", "last"]) == 0
    assert main(["estimate", "run", *options, "--checkpoint", "first"]) == 2
    assert "neither first nor" in capsys.readouterr().err
    assert {path.name for path in Path("out").iterdir()} == {"estimates.json", "estimates.csv"}
    rows = Path("out", "estimates.csv").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "estimator,value,low,high"
    assert rows[1].split(",")[1][:8] == rows[2].split(",")[1][:8]
    assert main(["estimate", "run", *options, "--to", "out"]) == 2
    assert "--to out exists" in capsys.readouterr().err
    assert main(["estimate", "nowhere", *options]) == 2
    assert "there is no run directory or checkpoint nowhere" in capsys.readouterr().err
