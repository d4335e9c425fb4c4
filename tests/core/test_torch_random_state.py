"""The state of torch's global generators is restored, so that the same numbers are drawn again."""

from __future__ import annotations

import pytest
import torch

from maze_pl.core.torch_random_state import restore_torch_random_state, torch_random_state
from tests.devices import DEVICES


@pytest.mark.parametrize("name", DEVICES)
def test_the_same_numbers_are_drawn_again(name: str) -> None:
    device = torch.device(name)
    states = torch_random_state(device)
    drawn = torch.rand(3), torch.rand(3, device=device)
    restore_torch_random_state(states, device)
    assert torch.equal(torch.rand(3), drawn[0]) and torch.equal(torch.rand(3, device=device), drawn[1])
