"""Optimisers on flat buffers: one tensor each for all parameters, gradients and moments of a model.

Small networks have a dozen small parameters, and handling each of them separately costs more than
the arithmetic. Here the parameters are views of one tensor, so that a step, the norm of the
gradient and its reduction over ranks are one operation each.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from maze_pl.core.tensor_pieces import gains_from_pieces, in_pieces, piece_size

TORCH_OPTIONS = ("amsgrad", "maximize", "capturable", "differentiable")
"""Options of the optimisers of torch that flat ones do not have."""
Arguments = tuple[Any, ...]
"""Learning rate of a group, which comes first, and its other options."""


def limit_norm(gradient: Tensor, largest: float) -> Tensor:
    """Scale a flat gradient in place to an L2 norm of at most `largest`; return its old norm."""
    norm: Tensor = torch.linalg.vector_norm(gradient)
    gradient.div_((norm / largest).clamp(min=1.0))
    return norm


class Stretch(NamedTuple):
    """Consecutive parameters of a group that took the same steps, all trained or all frozen.

    Attributes:
        group: Index of the group.
        parameters: The parameters.
        low: Index of their first number in the buffers.
        high: Index after their last number.
        is_trained: True if they require a gradient.
    """

    group: int
    parameters: list[Tensor]
    low: int
    high: int
    is_trained: bool


class FlatOptimizer(Optimizer):
    """Base of optimisers of torch whose state lives in flat buffers.

    A subclass also derives from the optimiser of torch, whose `param_groups`, `state_dict` and
    results it reproduces. Differences: a missing gradient counts as zero; a group with a learning
    rate of 0 is skipped entirely, including its state; `zero_grad` always zeroes. Parameters that
    no longer require a gradient are skipped in the same way, until they require one again.

    The parameters become views of one buffer, their `grad` views of another. Calls that replace
    them (`module.double()`, `module.zero_grad()`) are detected and repaired at the next step.
    Saving a part of a model with `torch.save` writes the whole buffer; clone the tensors first.

    Attributes:
        gradient: [number of parameters] the gradient of all groups, in their order.

    Raises:
        ValueError: Parameters differ in type or device, or require no gradient when they are added;
            or a group has an option of `TORCH_OPTIONS`.
    """

    _moments: ClassVar[tuple[str, ...]] = ()
    """Names of the state that has the shape of its parameter."""
    _pointers: Sequence[int] = ()  # empty in a copy too
    _trained: Sequence[bool] = ()
    _called_with: Sequence[Arguments] = ()

    @abstractmethod
    def _arguments_of(self, group: dict[str, Any]) -> Arguments:
        """Return the learning rate and the options of a group."""

    @abstractmethod
    def _step_of(self, arguments: Arguments, indices: list[int], buffers: list[list[Tensor]]) -> None:
        """Update the parts of groups that have equal options.

        Args:
            arguments: Their options.
            indices: Index of the stretch of each part.
            buffers: For parameters, gradients and each of the moments, the parts of the stretches.
        """

    @abstractmethod
    def _age(self, parameter: Tensor) -> Hashable:
        """Return what the state of a parameter has besides its moments, from `self.state`."""

    @abstractmethod
    def _restore(self, parameter: Tensor) -> None:
        """Restore what the next stretch has besides its moments, from its first parameter's state."""

    @abstractmethod
    def _state_of(self, index: int, moments: dict[str, Tensor]) -> dict[str, Any]:
        """Return the state of a parameter.

        Args:
            index: Index of its stretch.
            moments: Views of the moments, by name.
        """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, as in torch.

        Raises:
            ValueError: A parameter requires no gradient, or the group has an option of `TORCH_OPTIONS`.
        """
        self._refuse_options(param_group)
        super().add_param_group(param_group)
        if not all(parameter.requires_grad for parameter in self.param_groups[-1]["params"]):
            name = type(self).__name__
            raise ValueError(f"{name} got a parameter that requires no gradient; leave it out")

    def _refuse_options(self, group: dict[str, Any]) -> None:
        """Raise ValueError if a group has an option of `TORCH_OPTIONS`, which other code may have set."""
        unknown = [option for option in TORCH_OPTIONS if group.get(option)]
        if unknown:
            name = type(self).__name__
            remedy = f"use torch.optim.{name.removeprefix('Flat')}"
            raise ValueError(f"{name} has no {unknown[0]}: {remedy}")

    def active_parameters(self) -> list[Tensor]:
        """Return the parameters that a step would change, in order."""
        self._repair()
        return [parameter for stretch in self._active() for parameter in stretch.parameters]

    def _active(self) -> list[Stretch]:
        """Return the stretches that a step would change."""
        groups = self.param_groups
        return [one for one in self._stretches if one.is_trained and groups[one.group]["lr"] != 0.0]

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
        """Update the `active_parameters`.

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
        """Return one call for all active stretches with equal options: indices, parts of buffers.

        On a GPU the parts are cut into pieces, each of which has the index of its stretch.
        """
        calls: dict[Arguments, tuple[list[int], list[list[Tensor]]]] = {}
        for index, stretch in enumerate(self._stretches):
            arguments = every[stretch.group]
            if arguments[0] == 0.0 or not stretch.is_trained:
                continue
            indices, parts = calls.setdefault(arguments, ([], [[] for _ in self._buffers]))
            indices.append(index)
            for part, buffer in zip(parts, self._buffers, strict=True):
                part.append(buffer[stretch.low : stretch.high])
        if gains_from_pieces(self.gradient.device):
            return {arguments: _cut(*call) for arguments, call in calls.items()}
        return calls

    def active_gradient(self) -> Tensor | None:
        """Return the part of `gradient` of the `active_parameters`; None if not contiguous.

        All gradients are set to zero.
        """
        self.zero_grad()
        active = self._active()
        n_numbers = sum(stretch.high - stretch.low for stretch in active)
        if not active or n_numbers != active[-1].high - active[0].low:
            return None
        return self.gradient[active[0].low : active[-1].high]

    @torch.no_grad()
    def _bind(self) -> None:
        """Turn parameters, gradients and state into views of new buffers, keeping their values."""
        name = type(self).__name__
        everything = self._every_parameter()
        if len({(parameter.dtype, parameter.device) for parameter in everything}) > 1:
            raise ValueError(f"{name} needs all parameters to be of one type and on one device")
        parameters = torch.cat([parameter.detach().reshape(-1) for parameter in everything])
        # The parameters themselves, their gradients, and the moments.
        self._buffers = [parameters, *(torch.zeros_like(parameters) for _ in ("gradient", *self._moments))]
        self.gradient = self._buffers[1]
        self._views: list[tuple[Tensor, Tensor]] = []  # parameters and their gradients
        stop = 0
        for parameter in everything:
            start, stop = stop, stop + parameter.numel()
            self._bind_parameter(parameter, [buffer[start:stop] for buffer in self._buffers])
        self._pointers = [parameter.data_ptr() for parameter in everything]
        self._divide()

    def _bind_parameter(self, parameter: Tensor, parts: Sequence[Tensor]) -> None:
        value, gradient, *moments = (part.view(parameter.shape) for part in parts)
        state = self.state.get(parameter, {})
        for name, moment in zip(self._moments, moments, strict=True):
            if state.get(name) is not None:
                moment.copy_(state[name])
        if parameter.grad is not None:
            gradient.copy_(parameter.grad)
        parameter.grad = None
        parameter.data = value
        parameter.grad = gradient
        self._views.append((parameter, gradient))

    def _divide(self) -> None:
        """Divide the groups into stretches, and give each parameter its state."""
        self._called_with = ()
        self._trained = [parameter.requires_grad for parameter in self._every_parameter()]
        self._stretches: list[Stretch] = []
        stop = 0
        for index, group in enumerate(self.param_groups):
            for (is_trained, _), alike in groupby(group["params"], self._history):
                parameters = list(alike)
                low = stop
                self._restore(parameters[0])
                for parameter in parameters:
                    start, stop = stop, stop + parameter.numel()
                    self._keep_state(parameter, start, stop)
                self._stretches.append(Stretch(index, parameters, low, stop, is_trained))

    def _history(self, parameter: Tensor) -> tuple[bool, Hashable]:
        """Return what the parameters of a stretch have in common."""
        return parameter.requires_grad, self._age(parameter)

    def _keep_state(self, parameter: Tensor, start: int, stop: int) -> None:
        """Give a parameter of the next stretch its state, with moments of these places in the buffers."""
        moments = {}
        for name, buffer in zip(self._moments, self._buffers[2:], strict=True):
            moments[name] = buffer[start:stop].view(parameter.shape)
        kept = self._state_of(len(self._stretches), moments)
        if kept:
            self.state[parameter] = kept

    def _every_parameter(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _repair(self) -> None:
        """Notice what has changed since the last step: groups, replaced views, frozen parameters.

        Raises:
            ValueError: A group has an option of `TORCH_OPTIONS`.
        """
        for group in self.param_groups:
            self._refuse_options(group)
        everything = self._every_parameter()
        if self._pointers != [parameter.data_ptr() for parameter in everything]:
            self._bind()
        elif self._trained != [parameter.requires_grad for parameter in everything]:
            self._divide()
        for parameter, gradient in self._views:
            if parameter.grad is not gradient:
                gradient.copy_(torch.zeros_like(gradient) if parameter.grad is None else parameter.grad.detach())
                parameter.grad = gradient


def _cut(indices: list[int], buffers: list[list[Tensor]]) -> tuple[list[int], list[list[Tensor]]]:
    """Cut the parts of stretches into pieces, see `tensor_pieces`."""
    size = piece_size([len(part) for part in buffers[0]])
    of_pieces: list[int] = []
    for index, part in zip(indices, buffers[0], strict=True):
        of_pieces += [index] * len(torch.split(part, size))
    return of_pieces, [in_pieces(parts, size) for parts in buffers]


def gradient_norm(parameters: Sequence[Tensor]) -> Tensor:
    """Return the L2 norm of the gradient of some parameters."""
    return get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
