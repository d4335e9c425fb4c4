"""Optimisers on flat buffers: one tensor each for all parameters, gradients and moments of a model.

Small networks have a dozen small parameters, and handling each of them separately costs more than
the arithmetic. Here the parameters are views of one tensor, so that a step, the norm of the
gradient and its reduction over ranks are one operation each.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

Arguments = tuple[Any, ...]
"""Learning rate of a group, which comes first, and its other options."""


def limit_norm(gradient: Tensor, largest: float) -> Tensor:
    """Scale a flat gradient in place to an L2 norm of at most `largest`; return its old norm."""
    norm: Tensor = torch.linalg.vector_norm(gradient)
    gradient.div_((norm / largest).clamp(min=1.0))
    return norm


class FlatOptimizer(Optimizer):
    """Base of optimisers of torch whose state lives in flat buffers.

    A subclass also derives from the optimiser of torch, whose `param_groups`, `state_dict` and
    results it reproduces. Differences: a missing gradient counts as zero; a group with a learning
    rate of 0 is skipped entirely, including its state; `zero_grad` always zeroes.

    The parameters become views of one buffer, their `grad` views of another. Calls that replace
    them (`module.double()`, `module.zero_grad()`) are detected and repaired at the next step.
    Saving a part of a model with `torch.save` writes the whole buffer; clone the tensors first.

    Attributes:
        gradient: [number of parameters] the gradient of all groups, in their order.

    Raises:
        ValueError: Parameters differ in type or device, or require no gradient.
    """

    _moments: ClassVar[tuple[str, ...]] = ()
    """Names of the state that has the shape of its parameter."""
    _pointers: Sequence[int] = ()  # empty in a copy too
    _called_with: Sequence[Arguments] = ()

    @abstractmethod
    def _arguments_of(self, group: dict[str, Any]) -> Arguments:
        """Return the learning rate and the options of a group."""

    @abstractmethod
    def _step_of(self, arguments: Arguments, indices: list[int], buffers: list[list[Tensor]]) -> None:
        """Update the parts of groups that have equal options.

        Args:
            arguments: Their options.
            indices: Indices of the groups.
            buffers: For parameters, gradients and each of the moments, the parts of the groups.
        """

    @abstractmethod
    def _restore(self, index: int, group: dict[str, Any]) -> None:
        """Restore what the state of a group has besides its moments, from `self.state`."""

    @abstractmethod
    def _state_of(self, index: int, moments: dict[str, Tensor]) -> dict[str, Any]:
        """Return the state of a parameter.

        Args:
            index: Index of its group.
            moments: Views of the moments, by name.
        """

    def active_parameters(self) -> list[Tensor]:
        """Return the parameters of the groups that a step would change, in order."""
        return [parameter for group in self.param_groups if group["lr"] != 0.0 for parameter in group["params"]]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set all gradients to zero; they are never set to None."""
        self._repair()
        self.gradient.zero_()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state that this class or the optimiser of torch returned."""
        super().load_state_dict(state_dict)
        self._bind()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters of all groups whose learning rate is not 0.

        Args:
            closure: Function that recomputes the gradients; its result is returned.
        """
        with torch.enable_grad():
            loss = None if closure is None else closure()
        self._repair()
        self.apply()
        return loss

    def apply(self) -> None:
        """Do the same as `step`, if no parameter or gradient was replaced since the last call.

        The buffers require no gradient, so that autograd notices nothing.
        """
        every = [self._arguments_of(group) for group in self.param_groups]
        if every != self._called_with:
            self._called_with = every
            self._calls = self._grouped(every)
        for arguments, (indices, buffers) in self._calls.items():
            self._step_of(arguments, indices, buffers)

    def _grouped(self, every: Sequence[Arguments]) -> dict[Arguments, tuple[list[int], list[list[Tensor]]]]:
        """Return one call for all active groups with equal options: their indices, and parts of the buffers."""
        calls: dict[Arguments, tuple[list[int], list[list[Tensor]]]] = {}
        for index, arguments in enumerate(every):
            low, high = self._bounds[index]
            if arguments[0] == 0.0 or low == high:
                continue
            indices, parts = calls.setdefault(arguments, ([], [[] for _ in self._buffers]))
            indices.append(index)
            for part, buffer in zip(parts, self._buffers, strict=True):
                part.append(buffer[low:high])
        return calls

    def active_gradient(self) -> Tensor | None:
        """Return the part of `gradient` of the `active_parameters`; None if not contiguous.

        All gradients are set to zero.
        """
        self.zero_grad()
        groups = zip(self.param_groups, self._bounds, strict=True)
        bounds = [(low, high) for group, (low, high) in groups if group["lr"] != 0.0 and low < high]
        if not bounds or sum(high - low for low, high in bounds) != bounds[-1][1] - bounds[0][0]:
            return None
        return self.gradient[bounds[0][0] : bounds[-1][1]]

    @torch.no_grad()
    def _bind(self) -> None:
        """Turn parameters, gradients and state into views of new buffers, keeping their values."""
        name = type(self).__name__
        everything = [parameter for group in self.param_groups for parameter in group["params"]]
        if len({(parameter.dtype, parameter.device) for parameter in everything}) > 1:
            raise ValueError(f"{name} needs all parameters to be of one type and on one device")
        if not all(parameter.requires_grad for parameter in everything):
            raise ValueError(f"{name} got a parameter that requires no gradient; leave it out")
        parameters = torch.cat([parameter.detach().reshape(-1) for parameter in everything])
        # The parameters themselves, their gradients, and the moments.
        self._buffers = [parameters, *(torch.zeros_like(parameters) for _ in ("gradient", *self._moments))]
        self.gradient, self._called_with = self._buffers[1], ()
        self._bounds: list[tuple[int, int]] = []
        self._views: list[tuple[Tensor, Tensor]] = []  # parameters and their gradients
        stop = 0
        for index, group in enumerate(self.param_groups):
            low = stop
            self._restore(index, group)
            for parameter in group["params"]:
                start, stop = stop, stop + parameter.numel()
                self._bind_parameter(index, parameter, [buffer[start:stop] for buffer in self._buffers])
            self._bounds.append((low, stop))
        self._pointers = [parameter.data_ptr() for parameter in everything]

    def _bind_parameter(self, index: int, parameter: Tensor, parts: Sequence[Tensor]) -> None:
        value, gradient, *moments = (part.view(parameter.shape) for part in parts)
        named = dict(zip(self._moments, moments, strict=True))
        state = self.state.get(parameter, {})
        for name, moment in named.items():
            if state.get(name) is not None:
                moment.copy_(state[name])
        if parameter.grad is not None:
            gradient.copy_(parameter.grad)
        parameter.grad = None
        parameter.data = value
        parameter.grad = gradient
        kept = self._state_of(index, named)
        if kept:
            self.state[parameter] = kept
        self._views.append((parameter, gradient))

    def _repair(self) -> None:
        """Bind groups that were added, and views that were replaced, since the last step."""
        if self._pointers != [item.data_ptr() for group in self.param_groups for item in group["params"]]:
            self._bind()
        for parameter, gradient in self._views:
            if parameter.grad is not gradient:
                gradient.copy_(torch.zeros_like(gradient) if parameter.grad is None else parameter.grad.detach())
                parameter.grad = gradient


def gradient_norm(parameters: Sequence[Tensor]) -> Tensor:
    """Return the L2 norm of the gradient of some parameters."""
    return get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
