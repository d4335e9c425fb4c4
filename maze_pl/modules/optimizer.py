"""Adam on flat buffers: all parameters, gradients and moments of a model in one tensor each.

Small networks have a dozen small parameters, and touching each of them by itself costs more than the arithmetic. Here
the parameters are views of one tensor, so that a step, the norm of the gradient and its reduction over ranks are one
operation each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.optim import Adam

_HYPERPARAMETERS = ("lr", "betas", "eps", "weight_decay")


class FlatAdam(Adam):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) whose state lives in flat buffers.

    `param_groups` and `state_dict` are those of `torch.optim.Adam`, which can load them, and the numbers are the same.
    Differences: a gradient that is missing counts as zero; a group whose learning rate is 0 is not touched at all,
    neither are its moments or its step count; `zero_grad` always zeroes.

    The parameters become views of one buffer, their `grad` views of another one. What replaces them
    (`module.double()`, `module.zero_grad()`) is noticed and repaired at the next step. Saving a part of a model with
    `torch.save` writes the whole buffer; clone the tensors first.

    Args:
        params: Parameters, or groups of them as dictionaries; a group may be empty.
        lr: Learning rate.
        betas: Decay of the two moments.
        eps: Added to the denominator.
        weight_decay: L2 penalty.

    Raises:
        ValueError: Parameters differ in type or device, or require no gradient.
    """

    _bound = False

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

    @property
    def gradient(self) -> Tensor:
        """[number of parameters] the gradient of all groups, in their order."""
        return self._gradient

    def active_parameters(self) -> list[Tensor]:
        """Parameters of the groups that a step would change, in order."""
        return [parameter for group in self.param_groups if group["lr"] != 0.0 for parameter in group["params"]]

    @torch.no_grad()
    def set_gradient(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """Write the gradient.

        Args:
            gradients: One for each of `active_parameters`; None counts as zero.

        Returns:
            [number of parameters] the flat gradient, 0 for groups that are not active. Changing it changes `grad`.
        """
        self._repair()
        start = 0
        for group, (low, high) in zip(self.param_groups, self._bounds, strict=True):
            if low == high:
                continue
            if group["lr"] == 0.0:
                self._gradient[low:high].zero_()
                continue
            stop = start + len(group["params"])
            parts = [
                torch.zeros_like(parameter).view(-1) if gradient is None else gradient.reshape(-1)
                for parameter, gradient in zip(group["params"], gradients[start:stop], strict=True)
            ]
            torch.cat(parts, out=self._gradient[low:high])
            start = stop
        return self._gradient

    @torch.no_grad()
    def write_gradient(self, flat: Tensor) -> Tensor:
        """Write the gradient from one tensor.

        Args:
            flat: The gradients of all `active_parameters`, one after the other.

        Returns:
            As `set_gradient`.
        """
        self._repair()
        start = 0
        for group, (low, high) in zip(self.param_groups, self._bounds, strict=True):
            if group["lr"] == 0.0:
                self._gradient[low:high].zero_()
                continue
            self._gradient[low:high].copy_(flat[start : start + high - low])
            start += high - low
        return self._gradient

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set all gradients to zero; they are never set to None."""
        self._repair()
        self._gradient.zero_()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; the state of the others is kept."""
        super().add_param_group(param_group)
        if self._bound:
            self._bind()

    def state_dict(self) -> dict[str, Any]:
        """The state as `torch.optim.Adam` has it, with a step count for each parameter."""
        state = super().state_dict()
        for index, entry in state["state"].items():
            state["state"][index] = {**entry, "step": entry["step"].clone()}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state that this class or `torch.optim.Adam` returned."""
        super().load_state_dict(state_dict)
        self._bind()

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], Any]) -> Any: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters of all groups whose learning rate is not 0.

        Args:
            closure: Computes gradients anew; what it returns is returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._repair()
        pending = [index for index, group in enumerate(self.param_groups) if group["lr"] != 0.0 and group["params"]]
        while pending:
            # Groups that agree in everything share one call.
            group = self.param_groups[pending[0]]
            together = [index for index in pending if _agree(group, self.param_groups[index])]
            pending = [index for index in pending if index not in together]
            steps = [self._steps[index] for index in together]
            for count in steps:
                count.add_(1.0)
            parameters, gradients, first, second = (
                [buffer[slice(*self._bounds[index])] for index in together]
                for buffer in (self._parameters, self._gradient, self._first_moment, self._second_moment)
            )
            torch._fused_adam_(
                parameters,
                gradients,
                first,
                second,
                [],
                steps,
                amsgrad=False,
                lr=float(group["lr"]),
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
        return loss

    @torch.no_grad()
    def _bind(self) -> None:
        """Make parameters, gradients and state views of new buffers, with the values that they have."""
        everything = [parameter for group in self.param_groups for parameter in group["params"]]
        if len({(parameter.dtype, parameter.device) for parameter in everything}) > 1:
            raise ValueError("FlatAdam needs all parameters to be of one type and on one device")
        if not all(parameter.requires_grad for parameter in everything):
            raise ValueError("FlatAdam got a parameter that requires no gradient; leave it out")
        self._parameters = torch.cat([parameter.detach().reshape(-1) for parameter in everything])
        self._gradient, self._first_moment, self._second_moment = (torch.zeros_like(self._parameters) for _ in range(3))
        self._bounds: list[tuple[int, int]] = []
        self._steps: list[Tensor] = []
        self._views: list[tuple[Tensor, int, Tensor]] = []
        start = 0
        for group in self.param_groups:
            low = start
            steps = torch.zeros((), dtype=torch.float32, device=self._parameters.device)
            for parameter in group["params"]:
                stop = start + parameter.numel()
                self._bind_parameter(parameter, start, stop, steps)
                start = stop
            self._bounds.append((low, start))
            self._steps.append(steps)
        self._bound = True

    def _bind_parameter(self, parameter: Tensor, start: int, stop: int, steps: Tensor) -> None:
        buffers = (self._parameters, self._gradient, self._first_moment, self._second_moment)
        value, gradient, first, second = (buffer[start:stop].view(parameter.shape) for buffer in buffers)
        state = self.state.get(parameter, {})
        if "exp_avg" in state:
            first.copy_(state["exp_avg"])
            second.copy_(state["exp_avg_sq"])
            steps.copy_(state["step"])
        if parameter.grad is not None:
            gradient.copy_(parameter.grad)
        parameter.grad = None
        parameter.data = value
        parameter.grad = gradient
        self.state[parameter] = {"step": steps, "exp_avg": first, "exp_avg_sq": second}
        self._views.append((parameter, value.data_ptr(), gradient))

    def _repair(self) -> None:
        """Notice views that were replaced since the last step."""
        if not self._bound:
            self._bind()
            return
        for parameter, pointer, gradient in self._views:
            if parameter.data_ptr() != pointer:
                self._bind()
                return
            if parameter.grad is not gradient:
                with torch.no_grad():
                    if parameter.grad is None:
                        gradient.zero_()
                    else:
                        gradient.copy_(parameter.grad)
                parameter.grad = gradient


def _agree(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return all(first[name] == second[name] for name in _HYPERPARAMETERS)


def set_flat_gradient(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
    """Make the gradients of parameters views of one new tensor, which is returned.

    Args:
        parameters: Parameters of any optimiser.
        gradients: One for each of them; None counts as zero.
    """
    pairs = list(zip(parameters, gradients, strict=True))
    flat = torch.cat([(torch.zeros_like(p) if gradient is None else gradient).reshape(-1) for p, gradient in pairs])
    parts = torch.split(flat, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
    return flat


def gradient_norm(module: nn.Module) -> Tensor:
    """L2 norm of the gradient of all parameters of a module."""
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    if not gradients:
        return torch.zeros(())
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return norm
