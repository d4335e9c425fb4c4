"""Both forms of cutting-2D in all variants."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from maze_pl.envs.cutting_2d import (
    ActionConversion,
    Cutting2DArrayEnvironment,
    Cutting2DCoreEnvironment,
    Cutting2DEnvironment,
    MaskedStructuredCutting2DEnvironment,
    ObservationConversion,
    StructuredCutting2DArrayEnvironment,
    StructuredCutting2DEnvironment,
)


def single(variant: str, settings: dict[str, Any], aggregator: Any = None) -> Callable[[], Any]:
    """Factory of an environment of single episodes."""

    def make() -> Any:
        n, size = settings["max_pieces_in_inventory"], settings["raw_piece_size"]
        core = Cutting2DCoreEnvironment(**settings, reward_aggregator=deepcopy(aggregator))
        flat = Cutting2DEnvironment(core, ActionConversion(n), ObservationConversion(size, n))
        if variant == "flat":
            return flat
        wrap: Any = StructuredCutting2DEnvironment if variant == "struct" else MaskedStructuredCutting2DEnvironment
        return wrap(flat)

    return make


def arrays(variant: str, settings: dict[str, Any], aggregator: Any = None) -> Any:
    """The array form."""
    if variant == "flat":
        return Cutting2DArrayEnvironment(**settings, reward_aggregator=aggregator)
    masked = variant == "masked"
    return StructuredCutting2DArrayEnvironment(**settings, reward_aggregator=aggregator, masked=masked)
