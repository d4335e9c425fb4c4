"""Trainers that write nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl


def make_trainer(folder: Path, **options: Any) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    settings = {"enable_checkpointing": False, "num_sanity_val_steps": 0, "default_root_dir": folder}
    if not options.pop("is_evaluated", False):
        settings["limit_val_batches"] = 0
    return pl.Trainer(**{**quiet, **settings, **options})
