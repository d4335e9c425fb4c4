"""Trains two runs on two ranks, and evaluates each. usage: python training_twice.py

Writes what each rank sees to `rank_<number>.json`: directory and evaluation of each run, and the seed in the
provenance that the rank shares with its processes during the run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from maze_pl import RunContext
from maze_pl.cli.fit import MazeCLI
from maze_pl.core.provenance import shared_provenance

OVERRIDES = {
    "trainer.devices": 2,
    "trainer.accelerator": "cpu",
    "data.n_envs": 2,
    "data.n_rollout_steps": 10,
    "data.epoch_length": 1,
    "data.evaluators": {"eval": {"n_episodes": 4}},
}


def main() -> None:
    seen = []
    provenances: list[dict[str, Any] | None] = []
    instantiate_trainer = MazeCLI.instantiate_trainer

    def note_and_instantiate(command: MazeCLI, **options: Any) -> Any:
        provenances.append(shared_provenance())
        return instantiate_trainer(command, **options)

    MazeCLI.instantiate_trainer = note_and_instantiate  # type: ignore[method-assign]
    for seed in (1, 2):
        context = RunContext(
            configuration="a2c_cartpole", silent=True, overrides={**OVERRIDES, "seed_everything": seed}
        )
        context.train(n_epochs=1)
        directory = context.run_directory.resolve()
        provenance = provenances[-1] or {}
        result = context.evaluate()["eval/return"]
        seen.append({"directory": str(directory), "return": result, "seed": provenance.get("seed")})
    Path(f"rank_{os.environ.get('LOCAL_RANK', '0')}.json").write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    main()
