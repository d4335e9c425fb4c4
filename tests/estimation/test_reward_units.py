"""Units of recorded rewards: told from the configuration of the recordings, or of the runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.estimation import estimate
from maze_pl.estimation.reward_units import AGENT, RewardUnit, unit_of_rewards
from maze_pl.runs.rollout import rollout
from maze_pl.runs.rollout_table import episode_table
from maze_pl.runs.rollout_wrappers import recorded_reward_wrappers

NORMALISED = "ReturnNormalizationRewardWrapper"
CLIPPED = "RewardClippingWrapper"


def cart() -> Any:
    return GymMazeEnv("CartPole-v1")


def recorded(folder: Path, *wrappers: str) -> Path:
    """The folder of a rollout with these wrappers."""
    (folder / "trajectories" / "spaces").mkdir(parents=True)
    paths = ["maze_pl.envs.wrappers.TimeLimitWrapper", *(f"maze_pl.envs.wrappers.{name}" for name in wrappers)]
    content = {"wrappers": [{"class_path": path, "init_args": {}} for path in paths]}
    (folder / "config.yaml").write_text(json.dumps(content))
    played = rollout(cart, "random", 2, max_steps=3)
    (folder / "episodes.csv").write_bytes(episode_table(played))
    for one in played:
        assert one.spaces is not None
        one.spaces.save(folder / "trajectories" / "spaces" / f"{one.episode_id}.spaces")
    return folder


def test_the_recordings_tell_their_wrappers_whatever_the_runs_have(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "one", NORMALISED)
    file = next(folder.rglob("*.spaces"))
    for entry in (folder, str(file), tmp_path):
        assert unit_of_rewards([entry], {AGENT: [NORMALISED]}, trust=False) == RewardUnit([NORMALISED])
    unit = unit_of_rewards([folder], {"the run old": [NORMALISED], AGENT: []}, trust=False)
    both = f"the recorded rewards are after {NORMALISED}, in training they were those of the environment"
    assert unit == RewardUnit([NORMALISED], "", [f"{both}: the estimates have the unit of the recorded ones"])


def test_rewards_of_different_units_are_named(tmp_path: Path) -> None:
    folders = [recorded(tmp_path / "one", CLIPPED), recorded(tmp_path / "two")]
    (warning,) = unit_of_rewards(folders, {}, trust=False).warnings
    assert warning.endswith(f"which are mixed: some are after {CLIPPED}, others those of the environment")


@pytest.mark.parametrize(
    ("runs", "unit"),
    [
        ({"the run old": [CLIPPED], AGENT: [CLIPPED]}, RewardUnit([CLIPPED], "the run old")),
        ({AGENT: [CLIPPED]}, RewardUnit([CLIPPED], AGENT)),
        ({}, RewardUnit([])),
    ],
)
def test_runs_stand_for_recordings_without_a_configuration(runs: Any, unit: RewardUnit) -> None:
    records = [one.spaces for one in rollout(cart, "random", 2, max_steps=3)]
    assert unit_of_rewards([*records, "minari:some/data"], runs, trust=False) == unit


def test_estimates_of_policies_name_the_unit_of_the_recordings(tmp_path: Path) -> None:
    spec = Spec.of(cart())
    policy = RandomPolicy({key: step.action_space for key, step in spec.steps.items()})
    policy.spec = spec
    found = estimate(policy, recorded(tmp_path / "one", NORMALISED), "random", estimators=["per_decision"], gamma=1.0)
    assert f"\nin rewards as recorded, which are those after {NORMALISED}\n" in found.text()


def test_classes_of_other_packages_are_imported_for_trusted_recordings_only(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "one")
    content = {"wrappers": [{"class_path": "tests.estimation.custom_rewards.DoubledReward"}]}
    (folder / "config.yaml").write_text(json.dumps(content))
    assert recorded_reward_wrappers(folder) == []
    assert recorded_reward_wrappers(folder, trust=True) == ["DoubledReward"]
    (folder / "config.yaml").write_text("[broken")
    assert recorded_reward_wrappers(folder) is None
