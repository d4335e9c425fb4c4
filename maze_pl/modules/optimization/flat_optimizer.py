"""Adam on flat buffers: one tensor each for all parameters, gradients and moments of a model.

Small networks have a dozen small parameters, and handling each of them separately costs more than
the arithmetic. Here the parameters are views of one tensor, so that a step, the norm of the
gradient and its reduction over ranks are one operation each.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import Adam

Arguments = tuple[float, tuple[float, float], float, float]
"""Learning rate, decay rates of the moments, epsilon and weight decay."""


def limit_norm(gradient: Tensor, largest: float) -> Tensor:
    """Scale a flat gradient in place to an L2 norm of at most `largest`; return its old norm."""
    norm: Tensor = torch.linalg.vector_norm(gradient)
    gradient.div_((norm / largest).clamp(min=1.0))
    return norm


class FlatAdam(Adam):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) whose state lives in flat buffers.

    `param_groups` and `state_dict` have the format of `torch.optim.Adam`, which can load them, and
    the numbers are the same. Differences: a missing gradient counts as zero; a group with a
    learning rate of 0 is skipped entirely, including its moments and its step count; `zero_grad`
    always zeroes.

    The parameters become views of one buffer, their `grad` views of another. Calls that replace
    them (`module.double()`, `module.zero_grad()`) are detected and repaired at the next step.
    Saving a part of a model with `torch.save` writes the whole buffer; clone the tensors first.

    Args:
        params: Parameters, or parameter groups as dictionaries; a group may be empty.
        lr: Learning rate.
        betas: Decay rates of the two moments.
        eps: Added to the denominator.
        weight_decay: L2 penalty.

    Attributes:
        gradient: [number of parameters] the gradient of all groups, in their order.

    Raises:
        ValueError: Parameters differ in type or device, or require no gradient.
    """

    _pointers: Sequence[int] = ()  # empty in a copy too
    _called_with: Sequence[Arguments] = ()

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        self._bind()

    def active_parameters(self) -> list[Tensor]:
        """Return the parameters of the groups that a step would change, in order."""
        return [parameter for group in self.param_groups if group["lr"] != 0.0 for parameter in group["params"]]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set all gradients to zero; they are never set to None."""
        self._repair()
        self.gradient.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Return the state in the format of `torch.optim.Adam`: a step count for each parameter."""
        state = super().state_dict()
        for index, entry in state["state"].items():
            state["state"][index] = {**entry, "step": entry["step"].clone()}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state that this class or `torch.optim.Adam` returned."""
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

    @torch.no_grad()
    def apply(self) -> None:
        """Do the same as `step`, if no parameter or gradient was replaced since the last call."""
        every: list[Arguments] = [(g["lr"], tuple(g["betas"]), g["eps"], g["weight_decay"]) for g in self.param_groups]
        if every != self._called_with:  # one call for all active groups with equal options
            self._called_with, self._calls = every, dict[Arguments, list[list[Tensor]]]()
            for arguments, (low, high), steps in zip(every, self._bounds, self._steps, strict=True):
                if arguments[0] != 0.0 and low < high:
                    tensors = [*(buffer[low:high] for buffer in self._buffers), steps]
                    lists = self._calls.setdefault(arguments, [[], [], [], [], []])
                    for of_call, tensor in zip(lists, tensors, strict=True):
                        of_call.append(tensor)
        for (lr, (beta1, beta2), eps, decay), (*changed, counts) in self._calls.items():
            options = {"lr": lr, "beta1": beta1, "beta2": beta2, "weight_decay": decay, "eps": eps}
            torch._foreach_add_(counts, 1.0)
            torch._fused_adam_(*changed, [], counts, amsgrad=False, maximize=False, **options)  # type: ignore[call-overload]

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
        everything = [parameter for group in self.param_groups for parameter in group["params"]]
        if len({(parameter.dtype, parameter.device) for parameter in everything}) > 1:
            raise ValueError("FlatAdam needs all parameters to be of one type and on one device")
        if not all(parameter.requires_grad for parameter in everything):
            raise ValueError("FlatAdam got a parameter that requires no gradient; leave it out")
        parameters = torch.cat([parameter.detach().reshape(-1) for parameter in everything])
        # The parameters themselves, their gradients, and both moments.
        self._buffers = [parameters, *(torch.zeros_like(parameters) for _ in range(3))]
        self.gradient, self._called_with = self._buffers[1], ()
        self._bounds: list[tuple[int, int]] = []
        self._steps: list[Tensor] = []
        self._views: list[tuple[Tensor, Tensor]] = []  # parameters and their gradients
        stop = 0
        for group in self.param_groups:
            low, steps = stop, torch.zeros((), dtype=torch.float32, device=parameters.device)
            for parameter in group["params"]:
                start, stop = stop, stop + parameter.numel()
                self._bind_parameter(parameter, [buffer[start:stop] for buffer in self._buffers], steps)
            self._bounds.append((low, stop))
            self._steps.append(steps)
        self._pointers = [parameter.data_ptr() for parameter in everything]

    def _bind_parameter(self, parameter: Tensor, parts: Sequence[Tensor], steps: Tensor) -> None:
        value, gradient, first, second = (part.view(parameter.shape) for part in parts)
        state = self.state.get(parameter, {})
        if "exp_avg" in state:
            for ours, theirs in ((first, "exp_avg"), (second, "exp_avg_sq"), (steps, "step")):
                ours.copy_(state[theirs])
        if parameter.grad is not None:
            gradient.copy_(parameter.grad)
        parameter.grad = None
        parameter.data = value
        parameter.grad = gradient
        self.state[parameter] = {"step": steps, "exp_avg": first, "exp_avg_sq": second}
        self._views.append((parameter, gradient))

    def _repair(self) -> None:
        """Take in groups that were added and views that were replaced since the last step."""
        if self._pointers != [item.data_ptr() for group in self.param_groups for item in group["params"]]:
            self._bind()
        for parameter, gradient in self._views:
            if parameter.grad is not gradient:
                gradient.copy_(torch.zeros_like(gradient) if parameter.grad is None else parameter.grad.detach())
                parameter.grad = gradient


def gradient_norm(parameters: Sequence[Tensor]) -> Tensor:
    """Return the L2 norm of the gradient of some parameters."""
    return get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
