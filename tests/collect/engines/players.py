"""A small player to test engines with, which returns what it knows and can fail in all ways."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from maze_pl.envs.contract import check_step
from maze_pl.system.lost_process import LostProcessError


def make_policy() -> nn.Module:
    """Parameters and buffers of several types and layouts; what it returns depends on its mode."""
    torch.manual_seed(1)
    policy = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    policy.register_buffer("n_updates", torch.tensor(3, dtype=torch.int32))
    policy.register_buffer("coarse", torch.randn(5).to(torch.bfloat16))
    policy.register_buffer("flags", torch.tensor([True, False]))
    policy.register_buffer("empty", torch.zeros(0, 3))
    flat = torch.randn(16)
    policy[3].weight.data = flat.view(8, 2).t()  # neither contiguous nor alone in its memory
    policy[3].bias.data = flat[3:5]
    return policy


def change(policy: nn.Module) -> None:
    """Change all of its weights in place, as training does."""
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn_like(parameter))
        for name, value in policy.named_buffers():
            value.copy_(~value if value.dtype == torch.bool else value + len(name))


class Player:
    """Counts what it did.

    Args:
        policy: What the engine gives it.
        number: Its number.
        restarts: How often it was made anew.
    """

    def __init__(self, policy: Any, number: int, restarts: int) -> None:
        self.policy, self.number, self.restarts, self.n_calls = policy, number, restarts, 0
        self.seen = torch.zeros(70, 100)
        self.closed: str | None = None  # file that `close` leaves behind

    def count(self, *arguments: Any) -> tuple[int, int, tuple[Any, ...]]:
        self.n_calls += 1
        return self.number, self.n_calls, arguments

    def draw(self, n: int) -> tuple[Tensor, np.ndarray[Any, Any]]:
        """Numbers that depend on the player, on how often it was asked, and on the weights."""
        self.n_calls += 1
        generator = torch.Generator().manual_seed(1000 * self.number + self.n_calls)
        with torch.no_grad():
            values = self.policy(torch.randn((n, 3), generator=generator))
        return values, values.double().numpy() + self.n_calls

    def draw_globally(self) -> tuple[float, float, float]:
        """The next numbers of the global generators of Python, NumPy and torch."""
        return random.random(), float(np.random.rand()), torch.rand(()).item()

    def weights(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.policy.state_dict().items()}

    def is_training(self) -> bool:
        return bool(self.policy.training)

    def again(self) -> Tensor:
        """Return the same memory each time, as a collector does."""
        self.seen += 1
        return self.seen

    def twice(self) -> list[Tensor]:
        return [self.seen, self.seen]

    def fork_and_terminate(self) -> int | None:
        """Exit status of a process that does not end by itself."""
        here, there = multiprocessing.Pipe()
        forked = multiprocessing.get_context("fork").Process(target=lambda: (there.send(None), time.sleep(60)))
        forked.start()
        here.recv()
        forked.terminate()
        forked.join(30)
        return forked.exitcode

    def nothing(self) -> None:
        """Returns None."""

    def broken_contract(self) -> None:
        check_step("nonsense", self)

    def wrong(self) -> None:
        raise ZeroDivisionError("a mistake of the user")

    def pid(self) -> int:
        return os.getpid()

    def threads(self) -> int:
        return torch.get_num_threads()

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def kill_first(self, times: int) -> int:
        """Kill the worker unless the player was made anew often enough."""
        if self.restarts < times:
            self.kill()
        return self.restarts

    def lose_environments(self, times: int) -> int:
        """Lose a process of its environments unless the player was made anew often enough."""
        if self.restarts < times:
            raise LostProcessError("environments 0 to 3 failed: they are gone")
        return self.restarts

    def leave(self) -> None:
        os._exit(3)

    def ask_for_exit(self) -> None:
        sys.exit(4)

    def sleep(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    def wait_for(self, path: str, seconds: float = 60.0) -> bool:
        """Wait until a file exists; return False if it does not appear in time."""
        deadline = time.monotonic() + seconds
        while not os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.01)
        return os.path.exists(path)

    def variables(self, *names: str) -> list[str | None]:
        return [os.environ.get(name) for name in names]

    def close_slowly(self, path: str) -> None:
        """Let `close` take a while, and leave a file behind when it is done."""
        self.closed = path

    def close(self) -> None:
        if self.closed is not None:
            time.sleep(0.3)
            Path(self.closed).touch()


class RandomActs:
    """A policy without weights."""

    training = False
