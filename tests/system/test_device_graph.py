"""Graphs of a device; on the CPU, which has none, replays call the function again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from maze_pl.system.device_graph import N_WARM_UPS, DeviceGraph
from tests.devices import DEVICES
from tests.system.simulated_cuda import SimulatedCuda

CUDA = torch.device("cuda")


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


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_prepared_is_no_part_of_the_graph(device: str) -> None:
    place = torch.zeros(1, dtype=torch.int64, device=device)
    rows = torch.zeros(2, device=device)

    def write() -> list[Tensor]:
        rows.index_copy_(0, place, torch.ones(1, device=device))  # out of range in a third call
        place.add_(1)
        return []

    graph = DeviceGraph(write, torch.device(device), None, place.zero_)
    place.zero_()
    rows.zero_()
    graph.replay()
    graph.replay()
    assert (rows.tolist(), place.tolist()) == ([1.0, 1.0], [2])


def test_warm_ups_and_the_recording_are_prepared_and_share_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimulatedCuda()
    cuda.install(monkeypatch)
    default = cuda.current

    def act() -> list[Tensor]:
        cuda.calls.append(f"called on {cuda.current.name}")
        return []

    DeviceGraph(act, CUDA, None, lambda: cuda.calls.append("prepared")).replay()
    warm_up = ["prepared", "called on side"]
    before, after = ["side waits for default"], ["default waits for side"]
    recording = ["prepared", "recording on side, thread_local", "called on side"]
    assert cuda.calls == before + warm_up * N_WARM_UPS + after + recording + ["replayed"]
    assert (cuda.current, cuda.mode) == (default, 0)


def test_graphs_of_a_device_share_a_stream_and_so_the_workspaces_of_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimulatedCuda()
    cuda.install(monkeypatch)
    graphs = [DeviceGraph(lambda: [], device) for device in (CUDA, torch.device("cuda", 0), CUDA)]
    assert cuda.n_streams == 1
    assert len(graphs) == 3


def test_a_function_that_waits_for_the_device_is_refused_before_a_recording_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = SimulatedCuda()
    cuda.install(monkeypatch)
    cuda.mode = 1
    default = cuda.current

    def act() -> list[Tensor]:
        cuda.wait()
        return []

    with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
        DeviceGraph(act, CUDA)
    assert cuda.calls == ["side waits for default", "default waits for side"], "what was begun is waited for"
    assert (cuda.current, cuda.mode, cuda.generator.state) == (default, 1, 0)


@pytest.mark.parametrize("spoils_generator", [False, True])
def test_a_failed_recording_leaves_the_stream_and_the_global_generator_as_they_were(
    spoils_generator: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = SimulatedCuda()
    cuda.install(monkeypatch)
    cuda.spoils_generator = spoils_generator
    cuda.generator.state = 7
    default = cuda.current

    def act() -> list[Tensor]:
        cuda.wait_unnoticed()
        return []

    generator = torch.Generator()
    with pytest.raises(RuntimeError, match="failed due to a previous error during capture"):
        DeviceGraph(act, CUDA, generator)
    assert cuda.registered == [generator]
    assert (cuda.current, cuda.mode) == (default, 0)
    assert (cuda.generator.is_recording, cuda.generator.state) == (False, 7)


@pytest.mark.cuda
def test_after_a_failed_recording_the_device_draws_and_records_on() -> None:
    number = torch.ones(1, device="cuda")
    stream = torch.cuda.current_stream()
    earlier = DeviceGraph(lambda: [torch.rand(1, device="cuda")], CUDA)
    n_calls = []

    def wait() -> list[Tensor]:
        n_calls.append(1)
        torch.cuda.synchronize()  # which the mode of the last warm-up does not notice
        return [torch.rand(1, device="cuda")]

    with pytest.raises(RuntimeError):
        DeviceGraph(wait, CUDA)
    assert len(n_calls) == N_WARM_UPS + 1, "the recording has begun"
    assert torch.cuda.current_stream() == stream
    torch.cuda.manual_seed(3)
    expected = torch.rand(1, device="cuda")
    torch.cuda.manual_seed(3)
    earlier.replay()
    assert torch.equal(earlier.outputs[0], expected)
    later = DeviceGraph(lambda: [number * 2], CUDA)
    later.replay()
    assert float(later.outputs[0]) == 2.0
