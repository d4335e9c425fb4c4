"""An algorithm in place of another one, whose data module stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.cli.fitting_data import require_fitting_data
from maze_pl.config.search_path import ConfigurationError
from maze_pl.datamodules import ReplayDataModule, RolloutDataModule
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import DQN, PPO


def make_env() -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1")


def test_another_kind_of_algorithm_leads_to_a_configuration_with_data_that_fits() -> None:
    rollouts = RolloutDataModule(make_env, n_envs=2, n_rollout_steps=4)
    replayed = ReplayDataModule(make_env, num_actors=2, n_rollout_steps=4)
    require_fitting_data(PPO(batch_size=8), rollouts)
    require_fitting_data(DQN(), replayed)
    with pytest.raises(ConfigurationError, match=r"use ReplayDataModule, .*; `--config conf_train/dqn` has both$"):
        require_fitting_data(DQN(), rollouts)
    with pytest.raises(ConfigurationError, match=r"or RolloutDataModule, .*; `--config conf_train/ppo` has both$"):
        require_fitting_data(PPO(batch_size=8), replayed)


def test_other_reasons_lead_to_no_other_configuration() -> None:
    with pytest.raises(ValueError, match="batch_size=3 does not divide") as error:
        require_fitting_data(PPO(batch_size=3), RolloutDataModule(make_env, n_envs=2, n_rollout_steps=4))
    assert "--config" not in str(error.value)


@pytest.mark.parametrize("content", ["model: {lr: 1}", "data: some.yaml", "data: {class_path: 3}", "", "base: lost"])
def test_a_file_of_the_user_with_this_name_does_not_hide_the_refusal(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("configs", "conf_train").mkdir(parents=True)
    Path("configs", "conf_train", "dqn.yaml").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"use ReplayDataModule") as error:
        require_fitting_data(DQN(), RolloutDataModule(make_env, n_envs=2, n_rollout_steps=4))
    assert "--config" not in str(error.value)
