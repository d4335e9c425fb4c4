"""A program that stands for `maze-pl fit` in tests of sweeps: it trains in no time, and its return is known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from maze_pl.runs import run_processes

TRAINS = """
import json, math, os, pathlib, signal, sys, time
words = sys.argv[1:]

def value(name, default=None):
    for word in words:
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return words[words.index(name) + 1] if name in words else default

resumed = value("--resume")
folder = pathlib.Path(resumed or value("--run_dir"))
folder.mkdir(parents=True, exist_ok=True)
with (folder / "calls.txt").open("a") as file:
    file.write(" ".join(words) + "\\n")
if resumed:
    words[:] = (folder / "calls.txt").read_text().splitlines()[0].split(" ")
if (pathlib.Path("edits")).exists():
    with pathlib.Path("mine.yaml").open("a") as file:
        file.write("seed_everything: 1\\n")
rate = float(value("--model.lr", "0.1"))
clip = float(value("--model.clip_range", "0"))
if rate > 0.5:
    print("maze-pl: error: the learning rate is too high", file=sys.stderr)
    sys.exit(2)

ended = "\\nended: epochs\\n400 env steps in 0:00:01 (400 env steps/s)\\nrun directory: here\\n"

def train(run, seed):
    run.mkdir(exist_ok=True)
    (run / "config.yaml").write_text("{}")
    with (run / "run.log").open("a") as file:
        file.write("command: maze-pl fit\\nrun directory: here\\n")
    rows = ["step,eval_BaseEnvEvents/reward/mean,eval_BaseEnvEvents/kpi/mean/cost"]
    for epoch in range(1, 5):
        best = 100 - 10 * abs(math.log10(rate) + 2) - clip + seed
        rows.append(f"{100 * epoch},{best - abs(epoch - 3)},{rate * 100 + epoch}")
        (run / "part").write_text("\\n".join(rows) + "\\n")
        (run / "part").rename(run / "metrics.csv")
        if (pathlib.Path("slow")).exists():
            time.sleep(0.1)
    with (run / "run.log").open("a") as file:
        file.write("" if pathlib.Path("silent").exists() else ended)

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGINT])  # as the program holds them at first
if pathlib.Path("hang").exists() and not resumed:
    (folder / "config.yaml").write_text("{}")
    time.sleep(60)
if value("--seeds"):
    seeds = list(range(int(value("--seeds"))))
    (folder / "part").write_text(json.dumps({"seeds": seeds, "options": []}))
    (folder / "part").rename(folder / "seeds.json")  # as `maze-pl fit --seeds`: a sweep reads it at any time
    for seed in seeds:
        train(folder / f"seed_{seed}", seed)
else:
    train(folder, 0)
"""
"""The best return is 100 - 10 |log10(lr) + 2|, less the clip range, reached in the third of four evaluations."""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sweeps run the stand-in in a folder, which becomes the current one."""
    (folder / "trains.py").write_text(TRAINS, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(run_processes, "SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(run_processes, "program", lambda: [sys.executable, "-S", str(folder / "trains.py")])
