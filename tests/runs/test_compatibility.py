"""Comparison of a checkpoint with a run that is to continue from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.runs.compatibility import require_epochs, require_same_names
from maze_pl.runs.vector_inputs import VectorInputs


def test_a_run_is_not_continued_to_fewer_epochs_than_it_has(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    progress = {"current": {"started": 12, "processed": 12, "completed": 11}}
    torch.save({"state_dict": {}, "epoch": 11, "loops": {"fit_loop": {"epoch_progress": progress}}}, path)
    for n_epochs in (10, 11):
        fault = f"max_epochs={n_epochs} is less than the 12 epochs of {path}: it counts all epochs of a run"
        with pytest.raises(ConfigurationError, match=fault):
            require_epochs(path, n_epochs)
    for unlimited in (12, 13, -1, None):
        require_epochs(path, unlimited)
    require_epochs(None, 1)


def test_an_epoch_that_has_not_ended_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "within.ckpt"
    progress = {"current": {"started": 3, "processed": 2, "completed": 2}}
    torch.save({"state_dict": {}, "epoch": 2, "loops": {"fit_loop": {"epoch_progress": progress}}}, path)
    require_epochs(path, 2)
    with pytest.raises(ConfigurationError, match=r"max_epochs=1 is less than the 2 epochs"):
        require_epochs(path, 1)
    torch.save({"state_dict": {}}, path)
    require_epochs(path, 1)


def box(*shape: int) -> spaces.Box:
    return spaces.Box(-1.0, 2.0, shape, np.float32)


def spec_of(n_items: int, n_levels: int) -> dict[str, Any]:
    """A sub-step that reads a vector, and one that picks an item."""
    level, items = box(n_levels), box(n_items, 3)
    mode = StepSpec(spaces.Dict({"level": level}), spaces.Dict({"go": spaces.Discrete(2)}))
    pick = StepSpec(spaces.Dict({"items": items}), spaces.Dict({"item": spaces.Discrete(n_items)}))
    return Spec({"mode": mode, "pick": pick}).to_dict()


def test_parts_of_vectors_are_compared_in_their_sub_step_only() -> None:
    vectors = {"mode": VectorInputs(frozenset({"level", "items"})), "pick": VectorInputs(frozenset({"level"}))}
    require_same_names(spec_of(20, 2), spec_of(100, 2), "the agent", vectors, all_observations=True)
    with pytest.raises(ConfigurationError, match=r"input 1 of sub-step 'mode' is 'level' of shape \[2\] there and"):
        require_same_names(spec_of(20, 2), spec_of(20, 3), "the agent", vectors, all_observations=True)
