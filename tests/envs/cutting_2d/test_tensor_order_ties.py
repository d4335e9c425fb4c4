"""Orders in tensors do not depend on the order in which a device sorts equal numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from maze_pl.envs.cutting_2d import MixedPeriodicDemand
from maze_pl.envs.cutting_2d.tensor_orders import TensorOrders


class Sorts(TorchDispatchMode):
    """Notes for each sort whether equal numbers keep their order."""

    def __init__(self) -> None:
        super().__init__()
        self.are_stable: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket in (torch.ops.aten.sort, torch.ops.aten.argsort):
            self.are_stable.append(bool(kwargs.get("stable")))
        return func(*args, **kwargs)


def test_the_shuffle_of_orders_is_stable() -> None:
    orders = TensorOrders(MixedPeriodicDemand(2, 9, rotate=True), (8, 6), torch.device("cpu"))
    with Sorts() as sorts:
        orders.period(torch.arange(50))
    assert sorts.are_stable == [True]
