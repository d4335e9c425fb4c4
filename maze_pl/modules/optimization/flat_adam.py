"""Adam and AdamW on flat buffers."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Adam

from maze_pl.modules.optimization.flat_optimizer import Arguments, FlatOptimizer


class FlatAdam(FlatOptimizer, Adam):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) whose state lives in flat buffers, see `FlatOptimizer`.

    With decoupled weight decay it is AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101).

    Args:
        params: Parameters, or parameter groups as dictionaries; a group may be empty.
        lr: Learning rate.
        betas: Decay rates of the two moments.
        eps: Added to the denominator.
        weight_decay: L2 penalty; with `decoupled_weight_decay`, the fraction of a parameter that
            a step with a learning rate of 1 removes.
        decoupled_weight_decay: Keep the weight decay out of the moments, as AdamW does.
    """

    _moments: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        self.defaults["decoupled_weight_decay"] = decoupled_weight_decay
        if decoupled_weight_decay:
            for group in self.param_groups:
                group["decoupled_weight_decay"] = True
        self._steps: list[Tensor] = []  # by stretch
        self._bind()

    def state_dict(self) -> dict[str, Any]:
        """Return the state in the format of `torch.optim.Adam`: a step count for each parameter."""
        state = super().state_dict()
        for index, entry in state["state"].items():
            state["state"][index] = {**entry, "step": entry["step"].clone()}
        return state

    def _bind(self) -> None:
        super()._bind()
        self._one = torch.ones((), device=self.gradient.device)  # adding it costs a third of adding a number

    def _divide(self) -> None:
        self._steps = []
        super()._divide()

    def _age(self, parameter: Tensor) -> float:
        return float(self.state.get(parameter, {}).get("step", 0.0))

    def _restore(self, parameter: Tensor) -> None:
        age = self._age(parameter)
        self._steps.append(torch.full((), age, dtype=torch.float32, device=parameter.device))

    def _state_of(self, index: int, moments: dict[str, Tensor]) -> dict[str, Any]:
        return {"step": self._steps[index], **moments}

    def _arguments_of(self, group: dict[str, Any]) -> Arguments:
        is_decoupled = group.get("decoupled_weight_decay", False)
        return group["lr"], tuple(group["betas"]), group["eps"], group["weight_decay"], is_decoupled

    def _step_of(self, arguments: Arguments, indices: list[int], buffers: list[list[Tensor]]) -> None:
        lr, (beta1, beta2), eps, decay, is_decoupled = arguments
        counts = [self._steps[index] for index in indices]
        for index in dict.fromkeys(indices):
            self._steps[index].add_(self._one)
        update: Any = torch._fused_adamw_ if is_decoupled else torch._fused_adam_
        options = {"lr": lr, "beta1": beta1, "beta2": beta2, "weight_decay": decay, "eps": eps}
        update(*buffers, [], counts, amsgrad=False, maximize=False, **options)
