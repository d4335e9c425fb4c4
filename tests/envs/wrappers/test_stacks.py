"""A stack from a file, trained on: through the command line, interrupted, and equal to one that was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.__main__ import main
from tests.exact.comparison import comparable, differences, without_times

STACK = """
- class_path: maze_pl.envs.wrappers.RandomResetWrapper
  init_args: {min_skip_steps: 0, max_skip_steps: 12}
- class_path: maze_pl.envs.wrappers.StepSkipWrapper
  init_args: {n_steps: 2}
- class_path: maze_pl.envs.wrappers.TimeLimitWrapper
  init_args: {max_episode_steps: 50}
- class_path: maze_pl.envs.wrappers.ObservationStackWrapper
  init_args: {stack_config: [{observation: observation, keep_original: true, tag: moves, delta: true, stack_steps: 3}]}
- class_path: maze_pl.envs.wrappers.ObservationNormalizationWrapper
- class_path: maze_pl.envs.wrappers.SplitActionsWrapper
  init_args: {split_config: {action: {torque: {indices: [0]}}}}
- class_path: maze_pl.envs.wrappers.DiscretizeActionsWrapper
  init_args: {discretization_config: {torque: {num_bins: 5, low: -1, high: 1}}}
- class_path: maze_pl.envs.wrappers.SortedSpacesWrapper
"""
FIT = [
    *("fit", "--config", "ppo_cartpole", "--data.env.name", "Pendulum-v1", "--data.wrappers", "stack.yaml"),
    *("--data.epoch_length", "2", "--data.n_envs", "2", "--data.n_rollout_steps", "25", "--model.batch_size", "25"),
    *("--data.evaluators", '{"eval": {"n_episodes": 2}}', "--data.n_normalization_samples", "50"),
]


@pytest.mark.slow
@pytest.mark.long
def test_a_stack_of_eight_from_a_file_is_trained_on_and_resumed_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stack.yaml").write_text(STACK, encoding="utf-8")
    assert main([*FIT, "--trainer.max_epochs", "3", "--run_dir", "whole"]) == 0
    assert main([*FIT, "--trainer.max_epochs", "1", "--run_dir", "parts"]) == 0
    before = comparable(tmp_path / "parts" / "checkpoints" / "last.ckpt")
    assert main(["fit", "--resume", "parts", "--trainer.max_epochs", "3"]) == 0
    whole, parts = (comparable(tmp_path / run / "checkpoints" / "last.ckpt") for run in ("whole", "parts"))
    assert differences(before["state_dict"], whole["state_dict"]) != []
    for part in ("state_dict", "optimizer_states", "epoch", "global_step"):
        assert differences(whole[part], parts[part]) == [], part
    assert differences(without_times(whole)["RolloutDataModule"], without_times(parts)["RolloutDataModule"]) == []
