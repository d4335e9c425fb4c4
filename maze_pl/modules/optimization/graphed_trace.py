"""Traced gradients on an accelerator: a trace becomes a graph of the device, launched as a whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor, nn

from maze_pl.system.device_graph import DeviceGraph, random_devices


class GraphedTrace:
    """A trace of a gradient as a `DeviceGraph`, for parameters that keep their addresses.

    Minibatches are copied into the inputs of the graph, without the tensors that it does not read.
    If parameters or other tensors that the trace reads have moved, the graph is recorded again.

    Args:
        trace: Function of parameters, inputs and a buffer for the flat gradient, which returns the
            gradient and scalars; a module if it also reads other parameters and buffers.
        n_parameters: Number of parameters.
        unread: Positions of the arguments that the trace does not read.
    """

    def __init__(
        self,
        trace: Callable[..., tuple[Tensor, Tensor]],
        n_parameters: int,
        unread: Collection[int] = (),
    ) -> None:
        self._trace = trace
        self._unread = unread
        self._constants: list[Tensor] = []
        if isinstance(trace, nn.Module):
            self._constants += [*trace.parameters(), *trace.buffers()]
        self._n_parameters = n_parameters
        self._graph: DeviceGraph | None = None
        self._addresses: list[int] = []
        self._gradient_address = 0
        self._inputs: list[Tensor] = []
        self._places: list[list[int]] = []  # of the inputs of each data type, which are copied at once

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        """Write the gradient into the last argument; return it, and new scalars."""
        parameters, inputs = arguments[: self._n_parameters], arguments[self._n_parameters : -1]
        gradient = arguments[-1]
        addresses = [parameter.data_ptr() for parameter in (*parameters, *self._constants)]
        if self._graph is None or addresses != self._addresses:
            self._graph = self._recorded(parameters, inputs, gradient)
            self._addresses = addresses
        for places in self._places:
            torch._foreach_copy_([self._inputs[place] for place in places], [inputs[place] for place in places])
        self._graph.replay()
        written, scalars = self._graph.outputs
        if gradient.data_ptr() != self._gradient_address:
            gradient.copy_(written)
        return gradient, scalars.clone()

    def _recorded(self, parameters: Sequence[Tensor], inputs: Sequence[Tensor], gradient: Tensor) -> DeviceGraph:
        """Record the trace for inputs of these shapes, with the gradient in this buffer."""
        self._inputs = [tensor.clone() for tensor in inputs]
        by_type: dict[torch.dtype, list[int]] = {}
        for place, tensor in enumerate(inputs):
            if len(parameters) + place not in self._unread:
                by_type.setdefault(tensor.dtype, []).append(place)
        self._places = list(by_type.values())
        self._gradient_address = gradient.data_ptr()
        every = [*parameters, *self._inputs, gradient]
        trace = self._trace  # not `self`, so that the graph is freed as soon as it is dropped

        @torch.no_grad()
        def compute() -> tuple[Tensor, Tensor]:
            return trace(*every)

        with torch.random.fork_rng(random_devices(gradient.device)):
            return DeviceGraph(compute, gradient.device)
