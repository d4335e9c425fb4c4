from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.collect.replay.placement import bytes_of_values, device_of_buffer
from maze_pl.core.spec import StepSpec

STEP = StepSpec(
    spaces.Dict(image=spaces.Box(0, 255, (8, 8, 3), np.uint8), speed=spaces.Box(-1, 1, (2,), np.float32)),
    spaces.Dict(choice=spaces.Discrete(4), force=spaces.Box(-1, 1, (3,), np.float32)),
)
GPU = torch.device("cuda", 0)


def test_bytes_of_a_transition_are_those_of_its_arrays() -> None:
    assert bytes_of_values(STEP) == 2 * (8 * 8 * 3 + 2 * 4) + 8 + 3 * 4 == 420


@pytest.mark.parametrize(("free", "device"), [(840_000, GPU), (839_999, None)])
def test_a_buffer_takes_at_most_half_of_the_free_memory(monkeypatch: Any, free: int, device: Any) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda of: (free, 10**9))
    assert device_of_buffer("auto", GPU, {0: STEP}, 1000) == device
    assert device_of_buffer("auto", GPU, {0: STEP, 1: STEP}, 1000) is None, "two sub-steps take twice as much"


@pytest.mark.parametrize(("choice", "of_networks"), [("host", GPU), ("auto", torch.device("cpu"))])
def test_other_buffers_are_in_memory(choice: Any, of_networks: torch.device) -> None:
    assert device_of_buffer(choice, of_networks, {0: STEP}, 1000) is None


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
def test_numbers_that_torch_cannot_write_by_index_stay_in_memory(monkeypatch: Any, dtype: Any) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda of: (10**9, 10**9))
    step = StepSpec(spaces.Dict(depth=spaces.Box(0, 255, (4,), dtype)), spaces.Dict(choice=spaces.Discrete(4)))
    assert device_of_buffer("auto", GPU, {0: step}, 1000) is None
    assert device_of_buffer("auto", GPU, {0: STEP}, 1000) == GPU
