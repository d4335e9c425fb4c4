"""Graphs of a device; on the CPU, which has none, replays call the function again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from maze_pl.system.device_graph import DeviceGraph
from tests.devices import DEVICES


@pytest.mark.parametrize("device", DEVICES)
def test_a_replay_computes_with_current_values(device: str) -> None:
    number, total = torch.tensor([2.0], device=device), torch.tensor([0.0], device=device)

    def add() -> list[Tensor]:
        total.add_(number)
        return [number * 10]

    graph = DeviceGraph(add, torch.device(device))
    total.zero_()
    for value in (3.0, 4.0):
        number.fill_(value)
        graph.replay()
        assert float(graph.outputs[0]) == value * 10
    assert float(total) == 7.0


@pytest.mark.parametrize("device", DEVICES)
def test_each_replay_draws_new_numbers_of_the_generator(device: str) -> None:
    generator = torch.Generator(device).manual_seed(0)
    graph = DeviceGraph(lambda: [torch.rand(3, generator=generator, device=device)], torch.device(device), generator)
    generator.manual_seed(5)
    found = []
    for _ in range(2):
        graph.replay()
        found.append(graph.outputs[0].clone())
    expected = torch.Generator(device).manual_seed(5)
    for numbers in found:
        assert torch.equal(numbers, torch.rand(3, generator=expected, device=device))
