"""Units of recorded numbers, and networks that learn in them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents import TorchPolicy
from maze_pl.agents.input_range import unreadable
from maze_pl.core.spec import Spec, StepSpec
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


SINCE_1970 = 1.7e9 + np.array([[0.0], [10.0], [20.0], [30.0], [40.0]])
IN_UNITS = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]]) / 2.0**0.5


def test_numbers_far_from_0_keep_their_differences() -> None:
    for times in (SINCE_1970, SINCE_1970.astype(np.int64)):
        standardised = Units.of(times).standardised(times)
        assert standardised.dtype == np.float32
        np.testing.assert_allclose(standardised, IN_UNITS, rtol=1e-6)


class Means(nn.Module):
    """Returns a linear function as the mean of the power, in which the standard deviation is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        self.layer.weight.data.fill_(1.0)

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        mean = self.layer(observation["time"])
        return {"power": torch.cat([mean, torch.zeros_like(mean)], -1)}


@pytest.mark.parametrize("number", [np.float64, np.int64])
def test_policies_learn_from_observations_and_actions_far_from_0(number: type) -> None:
    step = StepSpec(
        spaces.Dict(time=spaces.Box(0, 2**40, (1,), number)),
        spaces.Dict(power=spaces.Box(0, 2**40, (1,), np.float64)),
    )
    times = SINCE_1970.astype(number)
    units = {"time": Units.of(times)}, {"power": Units.of(SINCE_1970)}
    policy = TorchPolicy([InRecordedUnits(Means(), *units)], Spec({0: step}))
    observation = {"time": torch.from_numpy(times)}
    action = {"power": torch.from_numpy(SINCE_1970[::-1].copy())}
    log_density = -0.5 * (2.0 * IN_UNITS[:, 0]) ** 2 - 0.5 * np.log(2.0 * np.pi * 200.0)
    for one in (policy, policy.float()):
        found = one.distribution(0, observation).environment_log_prob(action)
        np.testing.assert_allclose(found.detach().numpy(), log_density, rtol=1e-6)


def test_the_range_of_observations_is_that_of_the_network() -> None:
    step = StepSpec(
        spaces.Dict(time=spaces.Box(-np.inf, np.inf, (1,), np.float64)), spaces.Dict(power=spaces.Box(0, 1))
    )
    policy = TorchPolicy([InRecordedUnits(Means(), {}, {})], Spec({0: step}))
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float32}
    assert unreadable(policy, 0, {"time": np.array([1e39])}) is not None


def test_equal_numbers_have_no_spread_however_their_mean_is_rounded() -> None:
    assert Units.of(np.full((7, 1), 0.1)).spread.item() == 0.0
    assert Units.of(np.full((3, 1), 1e9, np.float32)).scale.item() == 1.0
    rounded = np.array([0.1, np.nextafter(np.float32(0.1), np.float32(1.0))], np.float32)
    assert Units.of(rounded).spread.item() == 0.0
    assert Units.of(np.array([1.0, 1.0 + 1e-6], np.float32)).spread.item() > 0.0
    assert Units.of(np.array([True, False])).spread.item() == 0.5
    np.testing.assert_allclose(Units.of(np.array([1e-9, 3e-9])).standardised(np.array([1e-9])), [-1.0], rtol=1e-6)
