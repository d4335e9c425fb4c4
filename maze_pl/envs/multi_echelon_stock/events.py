"""Events of the chain of stocks."""

from collections.abc import Callable

import numpy as np

from maze_pl.events import define_episode_stats, define_epoch_stats, define_stats_grouping, define_step_stats
from maze_pl.events.topics import EventT


def _summed(*names: str) -> Callable[[EventT], EventT]:
    """Return a decorator that adds statistics of the sums of attributes over an episode."""

    def decorate(event: EventT) -> EventT:
        for name in names:
            event = define_step_stats(sum, input_name=name, output_name=name)(event)
            event = define_episode_stats(sum, input_name=name, output_name=name)(event)
            event = define_epoch_stats(np.mean, input_name=name, output_name=f"mean_{name}")(event)
        return event

    return decorate


class StockEvents:
    """Events of a period."""

    @_summed("demand", "served", "lost")
    def customer_demand(self, demand: int, served: int, lost: int) -> None:
        """Customers demanded units; `served` of them were in stock, and `lost` will not be waited for."""

    @_summed("holding", "shortage", "fixed")
    @define_stats_grouping("echelon")
    def echelon_period(
        self, echelon: int, order: int, shipped: int, stock: int, holding: float, shortage: float, fixed: float
    ) -> None:
        """An echelon completed a period.

        It ordered `order` units, `shipped` units were sent to it, and `stock` units remained in
        stock at the end. The last three are its costs.
        """
