"""Run directories as training leaves them, written without training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RETURN = "eval_BaseEnvEvents/reward/mean"


def write_run(
    folder: Path,
    seed: int = 0,
    values: Sequence[float] = (1.0, 2.0, 3.0),
    step: int = 100,
    config: Mapping[str, Any] | None = None,
    statistic: str = RETURN,
) -> Path:
    """Write configuration, command and metrics of a run that has not ended.

    Args:
        folder: The run directory.
        seed: Its seed.
        values: The statistic at the multiples of `step`.
        step: Env steps between two rows.
        config: The configuration, without seed.
        statistic: Name of the statistic.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = {"seed_everything": seed, "trainer": {"max_epochs": 3}, "model": {"lr": 0.1}, **(config or {})}
    (folder / "config.yaml").write_text(json.dumps(content))
    (folder / "command.txt").write_text(f"maze-pl fit --config own --seed_everything {seed}\n")
    rows = [f"{step * (i + 1)},{30.0 * (i + 1)},{value}\r\n" for i, value in enumerate(values)]
    quoted = statistic.replace('"', '""')
    (folder / "metrics.csv").write_text(f'step,time_wall_clock,"{quoted}"\r\n' + "".join(rows), newline="")
    return folder
