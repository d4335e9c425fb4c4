"""A function of fixed tensors that an accelerator runs again without Python: a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

N_WARM_UPS = 3
"""Calls before recording, in which libraries choose their algorithms and allocate their workspaces."""


class DeviceGraph:
    """The operations of a function, recorded once, and replayed with the current values of its tensors.

    On a CUDA device they are a CUDA graph, which one call launches as a whole. On any other device
    a replay calls the function again, with the same effect.

    The function is called several times while it is recorded. It may change tensors in place; they
    must be restored afterwards. Tensors that it reads must keep their addresses.

    Args:
        function: Function without arguments, which must not wait for the device; returns tensors.
        device: Device of all tensors.
        generator: Generator of `device` that the function draws from, besides the global one.

    Attributes:
        outputs: What the function returns, overwritten by each replay.

    Raises:
        RuntimeError: An operation cannot be recorded. The generator cannot be used again then.
    """

    def __init__(
        self,
        function: Callable[[], Sequence[Tensor]],
        device: torch.device,
        generator: torch.Generator | None = None,
    ) -> None:
        self._function = function
        self._graph: torch.cuda.CUDAGraph | None = None
        self.outputs: Sequence[Tensor] = ()
        if device.type == "cuda":
            self._record(device, generator)
        else:
            self.outputs = function()

    def _record(self, device: torch.device, generator: torch.Generator | None) -> None:
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(N_WARM_UPS):
                self._function()
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        if generator is not None:
            graph.register_generator_state(generator)
        with torch.cuda.device(device), torch.cuda.graph(graph):
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
    """Return the devices whose global generators `torch.random.fork_rng` is to save, besides the CPU."""
    return [device] if device.type == "cuda" else []
