"""Global random state is restored, also on a device that it was not saved on."""

from __future__ import annotations

import pytest
import torch

from maze_pl.modules.random_state import global_random_state, restore_random_state


def test_the_generators_of_the_cpu_continue() -> None:
    device = torch.device("cpu")
    state = global_random_state(device)
    drawn = torch.rand(3)
    restore_random_state(state, device)
    assert torch.equal(torch.rand(3), drawn)


def test_a_gpu_gets_a_seed_of_its_rank_from_a_checkpoint_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed", seeds.append)
    restore_random_state(global_random_state(torch.device("cpu")), torch.device("cuda", 0), seed=7)
    assert seeds == [7]


@pytest.mark.cuda
def test_ranks_on_a_gpu_draw_different_numbers_after_a_checkpoint_of_the_cpu() -> None:
    device = torch.device("cuda", 0)
    state = global_random_state(torch.device("cpu"))
    drawn = []
    for seed in (1, 2, 1):
        restore_random_state(state, device, seed)
        drawn.append(torch.rand(3, device=device))
    assert torch.equal(drawn[0], drawn[2]) and not torch.equal(drawn[0], drawn[1])
