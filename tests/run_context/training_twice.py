"""Trains two runs on two ranks, and evaluates each. usage: python training_twice.py

Writes what each rank sees to `rank_<number>.json`: directory and evaluation of each run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from maze_pl import RunContext

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
    for seed in (1, 2):
        context = RunContext(
            configuration="a2c_cartpole", silent=True, overrides={**OVERRIDES, "seed_everything": seed}
        )
        context.train(n_epochs=1)
        directory = context.run_directory.resolve()
        seen.append({"directory": str(directory), "return": context.evaluate()["eval/return"]})
    Path(f"rank_{os.environ.get('LOCAL_RANK', '0')}.json").write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    main()
