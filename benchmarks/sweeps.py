"""A sweep of 8 trials on CartPole-v1 with one and with two processes at a time.

Prints one line of JSON with the wall-clock seconds of both, their ratio, and the ratio of the processor time that they
used. Run it on two cores that nothing else uses: other processes slow down two processes more than one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONTENT = """
config: ppo_cartpole
options:
  trainer.max_epochs: {epochs}
search:
  model.lr: {{low: 1.0e-4, high: 1.0e-2, log: true}}
sampler: random
n_trials: {trials}
"""


def measure(folder: Path, n_parallel: int) -> tuple[float, float]:
    """Return the wall-clock seconds of a sweep, and the processor seconds of its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    options = ["search.yaml", "--run_dir", f"parallel_{n_parallel}", "--n_parallel", str(n_parallel)]
    command = [sys.executable, "-m", "maze_pl", "sweep", *options]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=5, help="of 20,000 env steps each")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        content = CONTENT.format(trials=arguments.trials, epochs=arguments.epochs)
        (folder / "search.yaml").write_text(content, encoding="utf-8")
        one, of_one = measure(folder, 1)
        two, of_two = measure(folder, 2)
    figures = {
        "seconds_of_1": one,
        "seconds_of_2": two,
        "ratio": two / one,
        "ratio_of_processor_time": of_two / of_one,
    }
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
