"""Adam on flat buffers: all parameters, gradients and moments of a model in one tensor each.

Small networks have a dozen small parameters, and touching each of them by itself costs more than the arithmetic. Here
the parameters are views of one tensor, so that a step, the norm of the gradient and its reduction over ranks are one
operation each.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Adam

Arguments = tuple[float, tuple[float, float], float, float]
"""Learning rate, decay of the moments, epsilon and weight decay."""


@dataclass(slots=True)
class FlatState:
    """What one call of Adam changes, a tensor for each group of parameters: views of the optimiser's buffers."""

    parameters: list[Tensor]
    gradients: list[Tensor]
    first_moments: list[Tensor]
    second_moments: list[Tensor]
    steps: list[Tensor]

    def step(self, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        """One step of Adam."""
        torch._foreach_add_(self.steps, 1.0)
        torch._fused_adam_(
            self.parameters,
            self.gradients,
            self.first_moments,
            self.second_moments,
            [],
            self.steps,
            amsgrad=False,
            lr=lr,
            beta1=betas[0],
            beta2=betas[1],
            weight_decay=weight_decay,
            eps=eps,
            maximize=False,
        )


def limit_norm(gradient: Tensor, largest: float) -> Tensor:
    """Scale a flat gradient in place so that its L2 norm is at most `largest`; returns the norm that it had."""
    norm: Tensor = torch.linalg.vector_norm(gradient)
    gradient.div_((norm / largest).clamp(min=1.0))
    return norm


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
    _calls: list[tuple[FlatState, Arguments]] | None = None
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
        rest = iter(gradients)
        parts = []
        for group in self.param_groups:
            active = group["lr"] != 0.0
            for parameter in group["params"]:
                gradient = next(rest) if active else None
                parts.append((torch.zeros_like(parameter) if gradient is None else gradient).reshape(-1))
        torch.cat(parts, out=self._gradient)
        return self._gradient

    def take_gradient(self, loss: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Write the gradient of a loss straight into the buffer, without the detour of `set_gradient`.

        Args:
            loss: A scalar.
            parameters: `active_parameters()`; those on which the loss does not depend get 0.

        Returns:
            As `set_gradient`.
        """
        self._repair()
        self._gradient.zero_()
        if loss.requires_grad:
            torch.autograd.backward(loss, inputs=parameters)
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
        self.apply()
        return loss

    @torch.no_grad()
    def apply(self) -> None:
        """`step`, where neither parameters nor gradients were replaced since the last call."""
        for state, arguments in self.calls():
            state.step(*arguments)

    def calls(self) -> list[tuple[FlatState, Arguments]]:
        """What a step consists of: one call for all groups that agree in everything, none for inactive ones."""
        every: list[Arguments] = [(g["lr"], tuple(g["betas"]), g["eps"], g["weight_decay"]) for g in self.param_groups]
        if self._calls is None or every != self._called_with:
            together: dict[Arguments, list[int]] = {}
            for index, (arguments, (low, high)) in enumerate(zip(every, self._bounds, strict=True)):
                if arguments[0] != 0.0 and low < high:
                    together.setdefault(arguments, []).append(index)
            self._calls = [(self._state_of(indices), arguments) for arguments, indices in together.items()]
            self._called_with = every
        return self._calls

    def _state_of(self, indices: list[int]) -> FlatState:
        """The parts of the buffers that belong to some groups."""
        buffers = (self._parameters, self._gradient, self._first_moment, self._second_moment)
        parameters, gradients, first, second = ([b[slice(*self._bounds[i])] for i in indices] for b in buffers)
        return FlatState(parameters, gradients, first, second, [self._steps[index] for index in indices])

    def active_gradient(self) -> Tensor | None:
        """The gradients of all `active_parameters` as a part of `gradient`, None if they do not lie side by side.

        The other gradients are set to zero.
        """
        self._repair()
        groups = zip(self.param_groups, self._bounds, strict=True)
        bounds = [(low, high) for group, (low, high) in groups if group["lr"] != 0.0 and low < high]
        if not bounds or any(high != low for (_, high), (low, _) in itertools.pairwise(bounds)):
            return None
        low, high = bounds[0][0], bounds[-1][1]
        self._gradient[:low].zero_()
        self._gradient[high:].zero_()
        return self._gradient[low:high]

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
        self._calls = None
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


def gradient_norm(parameters: Sequence[Tensor]) -> Tensor:
    """L2 norm of the gradient of parameters; one operation where the gradients lie side by side in a flat buffer."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.zeros(())
    if all(_adjoin(first, second) for first, second in itertools.pairwise(gradients)):
        numbers = gradients[0].as_strided((sum(gradient.numel() for gradient in gradients),), (1,))
    else:
        numbers = torch.stack(torch._foreach_norm(gradients))
    norm: Tensor = torch.linalg.vector_norm(numbers)
    return norm


def _adjoin(first: Tensor, second: Tensor) -> bool:
    """Whether one tensor begins where the other ends, in the same storage."""
    distance = first.numel()
    return (
        second.storage_offset() - first.storage_offset() == distance
        and second.data_ptr() - first.data_ptr() == distance * first.element_size()
        and first.is_contiguous()
        and second.is_contiguous()
    )
