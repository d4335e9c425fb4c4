"""State of this process that a test must leave as it found it, because later tests run in the same process."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

FROM_OUTSIDE = frozenset(os.environ)
OF_RUNS = ("MAZE_PL_", "PL_", "WANDB_", "OMP_", "LOCAL_RANK", "RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_")


def environment() -> dict[str, str]:
    """Environment variables from outside and those that runs set; libraries set more when they are imported first."""
    return {
        name: value
        for name, value in os.environ.items()
        if (name in FROM_OUTSIDE or name.startswith(OF_RUNS)) and name != "PYTEST_CURRENT_TEST"
    }


def handlers_of_signals() -> list[Any]:
    """The handlers of the signals that commands handle, and the signals that are blocked."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1)
    return [*map(signal.getsignal, numbers), signal.pthread_sigmask(signal.SIG_BLOCK, ())]


def handlers_of_logs() -> list[Any]:
    """Handlers of the loggers that commands change, but for those of pytest."""
    loggers = [logging.getLogger(name) for name in ("", "maze_pl", "pytorch_lightning", "lightning_fabric")]
    return [[kept for kept in logger.handlers if "pytest" not in type(kept).__module__] for logger in loggers]


def modes_of_torch() -> list[Any]:
    """Return the settings that affect torch's numbers and speed."""
    return [
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_anomaly_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.distributed.is_available() and torch.distributed.is_initialized(),
    ]


def open_wandb_run() -> Any:
    """The run of Weights & Biases that this process writes to."""
    wandb = sys.modules.get("wandb")
    return None if wandb is None else wandb.run


def start_method() -> str:
    """Return how `multiprocessing` starts processes: until it is set, by the default method of the platform."""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def children() -> set[int | None]:
    """Return the running processes that `multiprocessing` has started."""
    return {child.pid for child in multiprocessing.active_children()}


STATE: dict[str, Callable[[], Any]] = {
    "the current folder": os.getcwd,
    "environment variables": environment,
    "handlers of signals": handlers_of_signals,
    "handlers of logs": handlers_of_logs,
    "modes of torch": modes_of_torch,
    "errors of NumPy": np.geterr,
    "the hook for exceptions": lambda: sys.excepthook,
    "the start method of processes": start_method,
    "the run of Weights & Biases": open_wandb_run,
    "processes": children,
}


def process_state() -> dict[str, Any]:
    """Return the whole state, by name."""
    return {name: read() for name, read in STATE.items()}


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What differs, with both values; of environment variables only those that differ."""
    changed = {name: (value, after[name]) for name, value in before.items() if after[name] != value}
    if after["processes"] <= before["processes"]:
        changed.pop("processes", None)  # some have ended
    if "environment variables" in changed:
        first, second = changed["environment variables"]
        names = {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}
        changed["environment variables"] = {name: (first.get(name), second.get(name)) for name in names}
    return changed


def wait_for_processes(before: set[int | None], seconds: float = 20.0) -> None:
    """Wait for other processes than those before, which may be ending; on a busy machine that takes a while."""
    end = time.monotonic() + seconds
    while children() - before and time.monotonic() < end:
        time.sleep(0.05)


def seed_generators() -> None:
    """Let no test depend on how many random numbers those before it have drawn."""
    random.seed(0)
    np.random.seed(0)
    if torch.cuda.is_available():
        torch.manual_seed(0)
    else:  # the same in a hundredth of the time, as no accelerators are asked
        torch.default_generator.manual_seed(0)
