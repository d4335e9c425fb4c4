"""Runs and rollouts that are written by hand, without training, and wrappers outside of the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from maze_pl.collect.state_tensors import to_tensors
from maze_pl.core.checkpoint_content import WRAPPER_STATISTICS, add_to_checkpoint
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrapper import ObservationWrapper, RewardWrapper
from maze_pl.runs.checkpoint_files import checkpoint_digest
from maze_pl.runs.rollout import rollout
from maze_pl.runs.rollout_table import episode_table


class ShiftedObservation(ObservationWrapper):
    """Stands for a wrapper that changes observations by statistics."""


class ShiftedReward(RewardWrapper):
    """Stands for a wrapper that changes rewards by statistics."""


def write_checkpoint(file: Path, statistics: dict[str, Any], **options: Any) -> Path:
    """Write a checkpoint with these statistics of wrappers and options of data, in the directory of a run."""
    run = file.parent.parent
    file.parent.mkdir(parents=True, exist_ok=True)
    (run / "config.yaml").write_text("{}")
    content: dict[str, Any] = {"state_dict": {}}
    content["RolloutDataModule"] = {WRAPPER_STATISTICS: to_tensors(statistics)}
    # nothing can make this environment, as on a machine without the simulator
    arguments = {"env": {"class_path": "no_simulator.Env"}, **options}
    data = {"class_path": "maze_pl.datamodules.RolloutDataModule", "init_args": arguments}
    add_to_checkpoint(content, config={"model": {}, "data": data})
    torch.save(content, file)
    return file


def write_rollout(
    folder: Path, played_by: Path | None = None, form: str = "spaces", seed: int = 0, **config: Any
) -> Path:
    """Write two episodes as a rollout leaves them, and return the folder of their files."""
    files = folder / "trajectories" / form
    files.mkdir(parents=True)
    played = rollout(lambda: GymMazeEnv("CartPole-v1"), "random", 2, max_steps=3, record=(form,), seed=seed)
    (folder / "config.yaml").write_text(json.dumps(config))
    (folder / "episodes.csv").write_bytes(episode_table(played))
    if played_by is not None:
        checkpoint = {"file": str(played_by), "sha256": checkpoint_digest(played_by)}
        entry = {"command": "maze-pl rollout", "versions": {}, "git": None, "checkpoint": checkpoint}
        (folder / "provenance.json").write_text(json.dumps({"commands": [entry]}))
    for one in played:
        getattr(one, form).save(files / f"{one.episode_id}.{form}")
    return files
