"""A function of fixed tensors that an accelerator runs again without Python: a CUDA graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

N_WARM_UPS = 3
"""Calls before recording, in which libraries choose their algorithms and allocate their workspaces.

In the last one, operations that wait for the device are errors: a graph cannot have them, and they
spoil a recording that has begun.
"""


class DeviceGraph:
    """The operations of a function, recorded once, and replayed with current values of its tensors.

    On a CUDA device they are a CUDA graph, which one call launches as a whole. On any other device
    a replay calls the function again, with the same effect.

    The function is called several times while it is recorded. It may change tensors in place; they
    must be restored afterwards. Tensors that it reads must keep their addresses.

    Args:
        function: Function without arguments, which must not wait for the device; returns tensors.
        device: Device of all tensors.
        generator: Generator of `device` that the function draws from, besides the global one.
        prepare: Called before each call of the function while it is recorded, and not recorded
            itself; undoes what the function must not do several times. None if nothing has to be
            undone.

    Attributes:
        outputs: What the function returns, overwritten by each replay.

    Raises:
        RuntimeError: An operation waits for the device, or cannot be recorded. `generator` cannot
            be used again then; the global generator and the current stream of the device can.
    """

    def __init__(
        self,
        function: Callable[[], Sequence[Tensor]],
        device: torch.device,
        generator: torch.Generator | None = None,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        self._function = function
        self._prepare = prepare
        self._graph: torch.cuda.CUDAGraph | None = None
        self.outputs: Sequence[Tensor] = ()
        if device.type == "cuda":
            with torch.cuda.device(device):
                self._record(device, generator)
        else:
            self.outputs = self._call()

    def _call(self) -> Sequence[Tensor]:
        """Call the function as the first time."""
        if self._prepare is not None:
            self._prepare()
        return self._function()

    def _record(self, device: torch.device, generator: torch.Generator | None) -> None:
        current = torch.cuda.current_stream(device)
        stream = _side_stream(torch.cuda.current_device())
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                for _ in range(N_WARM_UPS - 1):
                    self._call()
                with _no_waiting():
                    self._call()
        finally:
            current.wait_stream(stream)
        if self._prepare is not None:
            self._prepare()
        graph = torch.cuda.CUDAGraph()
        if generator is not None:
            graph.register_generator_state(generator)
        # Other threads, such as those of loggers and of NCCL, may use the device in the meantime.
        recording = torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local")
        with _restored_after_failures(device), recording:
            self.outputs = self._function()
        self._graph = graph

    def replay(self) -> None:
        """Run the operations again."""
        if self._graph is not None:
            self._graph.replay()
            return
        for output, value in zip(self.outputs, self._function(), strict=True):
            output.copy_(value)


def uses_graphs(device: torch.device) -> bool:
    """True if the operations of a device can be recorded as a graph, and are faster that way."""
    return device.type == "cuda"


def random_devices(device: torch.device) -> list[torch.device]:
    """Return the devices whose global generators `fork_rng` is to save, besides the CPU."""
    return [device] if device.type == "cuda" else []


@cache
def _side_stream(index: int) -> torch.cuda.Stream:
    """Return the stream on which all graphs of a CUDA device are recorded.

    Libraries keep a workspace for each stream, such as 32 MiB of cuBLAS on an H200. Graphs can
    share it, as they are replayed one after the other.
    """
    return torch.cuda.Stream(torch.device("cuda", index))  # type: ignore[no-untyped-call]


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Make operations that wait for a CUDA device raise RuntimeError."""
    mode = torch.cuda.get_sync_debug_mode()
    _set_sync_debug_mode("error")
    try:
        yield
    finally:
        _set_sync_debug_mode(mode)


def _set_sync_debug_mode(mode: int | str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch does not detect every operation that waits
        torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def _restored_after_failures(device: torch.device) -> Iterator[None]:
    """Restore the current stream and the global generator of a CUDA device if a recording fails.

    `torch.cuda.graph` leaves its stream current if ending the recording fails, as it does after an
    operation that cannot be recorded. Torch before 2.13 also leaves the generator in the state of
    recording, in which it refuses to draw; another state is put in place of it, but only then, as
    graphs that were recorded earlier share the first one.
    """
    stream = torch.cuda.current_stream(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    state = generator.get_state()
    spare = generator.clone_state()
    try:
        yield
    except BaseException:
        torch.cuda.set_stream(stream)
        try:
            torch.rand(1, device=generator.device, generator=generator)
            generator.set_state(state)
        except RuntimeError:
            generator.graphsafe_set_state(spare)
        raise
