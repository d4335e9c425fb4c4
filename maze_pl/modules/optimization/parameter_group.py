"""Options of the parameters whose names match a pattern."""

from dataclasses import dataclass, field
from typing import Any

from maze_pl.schedules import Coefficient


@dataclass(frozen=True)
class ParameterGroup:
    """Options of the optimiser for some parameters, in place of those that it has for all.

    Args:
        lr: Learning rate: a number, which `lr_schedule` decays like that of the algorithm, or a
            schedule; None means the learning rate of the algorithm.
        weight_decay: Weight decay; None means that of the optimiser.
        options: Further options of the optimiser, such as `eps`.
    """

    lr: Coefficient | None = None
    weight_decay: float | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def all_options(self) -> dict[str, Any]:
        """Options besides the learning rate."""
        decay = {} if self.weight_decay is None else {"weight_decay": self.weight_decay}
        return {**decay, **self.options}
