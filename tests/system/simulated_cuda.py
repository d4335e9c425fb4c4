"""What `DeviceGraph` calls of `torch.cuda`, without a device: calls are noted, and functions run on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch

from maze_pl.system import device_graph


class SimulatedGenerator:
    """A global generator that may be left in the state of recording.

    Attributes:
        is_recording: Whether it refuses to draw.
        state: Number of draws.
    """

    device = "simulated"

    def __init__(self, state: int = 0) -> None:
        self.state = state
        self.is_recording = False

    def get_state(self) -> int:
        return self.state

    def set_state(self, state: int) -> None:
        self.state = state

    def clone_state(self) -> SimulatedGenerator:
        return SimulatedGenerator(self.state)

    def graphsafe_set_state(self, other: SimulatedGenerator) -> None:
        self.state, self.is_recording = other.state, other.is_recording


class SimulatedCuda:
    """One simulated device; operations that wait are errors in the mode for it and while a graph is recorded.

    Attributes:
        calls: Names of what happened, in order.
        current: The current stream.
        mode: How operations that wait are treated.
        is_recording: Whether a graph is recorded.
        n_streams: Number of streams that were made.
        spoils_generator: Whether a failed recording leaves the generator in the state of recording.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.current: Any = SimulatedStream(self, "default")
        self.mode: int | str = 0
        self.is_recording = False
        self.is_spoiled = False
        self.spoils_generator = False
        self.generator = SimulatedGenerator()
        self.registered: list[Any] = []
        self.n_streams = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put it in place of `torch.cuda`."""
        simulated = {
            "Stream": self.new_stream,
            "current_stream": lambda device=None: self.current,
            "set_stream": self.set_stream,
            "stream": self.on_stream,
            "device": self.on_device,
            "current_device": lambda: 0,
            "CUDAGraph": lambda: SimulatedGraph(self),
            "graph": lambda graph, stream, capture_error_mode: _Recording(self, stream, capture_error_mode),
            "get_sync_debug_mode": lambda: self.mode,
            "set_sync_debug_mode": self.set_mode,
            "default_generators": (self.generator,),
        }
        for name, value in simulated.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch, "rand", self.draw)
        monkeypatch.setattr(device_graph, "_side_stream", cache(device_graph._side_stream.__wrapped__))

    def new_stream(self, device: Any) -> SimulatedStream:
        self.n_streams += 1
        return SimulatedStream(self, "side")

    def set_stream(self, stream: Any) -> None:
        self.current = stream

    def set_mode(self, mode: int | str) -> None:
        self.mode = mode

    @contextmanager
    def on_stream(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def on_device(self, device: Any) -> Iterator[None]:
        yield

    def draw(self, size: int, *, device: Any, generator: SimulatedGenerator) -> None:
        if generator.is_recording:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
        generator.state += 1

    def wait(self) -> None:
        """An operation that waits for the device."""
        if self.mode == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        self.wait_unnoticed()

    def wait_unnoticed(self) -> None:
        """An operation that the mode for debugging does not know, and that cannot be recorded."""
        if self.is_recording:
            self.is_spoiled = True
            raise RuntimeError("operation not permitted when stream is capturing")


class SimulatedStream:
    def __init__(self, cuda: SimulatedCuda, name: str) -> None:
        self.cuda = cuda
        self.name = name

    def wait_stream(self, other: SimulatedStream) -> None:
        self.cuda.calls.append(f"{self.name} waits for {other.name}")


class SimulatedGraph:
    def __init__(self, cuda: SimulatedCuda) -> None:
        self.cuda = cuda

    def register_generator_state(self, generator: Any) -> None:
        self.cuda.registered.append(generator)

    def replay(self) -> None:
        self.cuda.calls.append("replayed")


class _Recording:
    """As `torch.cuda.graph`, it leaves its stream only if ending the recording succeeds."""

    def __init__(self, cuda: SimulatedCuda, stream: Any, errors: str) -> None:
        self._cuda = cuda
        self._stream = stream
        self._errors = errors

    def __enter__(self) -> None:
        self._before = self._cuda.current
        self._cuda.current = self._stream
        self._cuda.is_recording = True
        self._cuda.calls.append(f"recording on {self._stream.name}, {self._errors}")

    def __exit__(self, *_: object) -> None:
        self._cuda.is_recording = False
        if self._cuda.is_spoiled:
            self._cuda.generator.is_recording = self._cuda.spoils_generator
            raise RuntimeError("operation failed due to a previous error during capture")
        self._cuda.current = self._before
