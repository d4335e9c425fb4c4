"""Units of recorded numbers, and networks that learn in them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from maze_pl.estimation.recorded_units import InRecordedUnits, Units


class Inputs(nn.Module):
    """Returns the place twice as logits, and what is passed on."""

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"power": torch.cat([observation["place"]] * 2, -1), "mode": observation["mask"]}


def test_a_network_gets_standardised_observations_and_returns_gaussians_of_actions_as_they_are() -> None:
    place = Units.of(np.array([[10, 7], [30, 7]], np.int32))
    power = Units(np.array([500.0, -2.0]), np.array([100.0, 0.0]))
    network = InRecordedUnits(Inputs(), {"place": place}, {"power": power})
    observation = {"place": torch.tensor([[20, 7], [40, 8]], dtype=torch.int32), "mask": torch.ones(2, 3)}
    found = network(observation)
    log_100 = np.log(100.0)
    expected = [[500.0, -2.0, log_100, 0.0], [700.0, -1.0, log_100 + 2.0, 1.0]]
    np.testing.assert_allclose(found["power"].numpy(), expected, rtol=1e-6)
    assert found["mode"] is observation["mask"] and observation["place"].dtype == torch.int32


def test_equal_numbers_have_no_spread_however_their_mean_is_rounded() -> None:
    assert Units.of(np.full((7, 1), 0.1)).spread.item() == 0.0
    assert Units.of(np.full((3, 1), 1e9, np.float32)).scale.item() == 1.0
    assert Units.of(np.array([True, False])).spread.item() == 0.5
    np.testing.assert_allclose(Units.of(np.array([1e-9, 3e-9])).standardised(np.array([1e-9])), [-1.0], rtol=1e-6)
