"""Flat forms of SGD and AdamW against torch's, and their states."""

from __future__ import annotations

import copy
import io
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, RMSprop

from maze_pl.modules.optimization.flat_adam import FlatAdam
from maze_pl.modules.optimization.flat_sgd import FlatSGD
from maze_pl.modules.optimization.optimizer_options import flattened

VARIANTS: dict[str, Any] = {
    "sgd": SGD,
    "momentum": partial(SGD, momentum=0.9),
    "dampening": partial(SGD, momentum=0.8, dampening=0.3, weight_decay=0.1),
    "nesterov": partial(SGD, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": partial(Adam, eps=1e-5, betas=(0.8, 0.9), weight_decay=0.1),
    "adamw": partial(AdamW, weight_decay=0.1, eps=1e-5),
}


def make_network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def groups(network: nn.Sequential, **second: Any) -> list[dict[str, Any]]:
    parts = [list(network[index].parameters()) for index in (0, 2)]
    return [{"params": parts[0], "lr": 0.01, "name": "policy"}, {"params": parts[1], "lr": 0.03, **second}]


def train(network: nn.Module, optimizer: torch.optim.Optimizer, seeds: range) -> None:
    for seed in seeds:
        optimizer.zero_grad()
        x = torch.randn(16, 3, generator=torch.Generator().manual_seed(seed)).to(flat(network).dtype)
        (network(x) - x.sum(-1, keepdim=True)).square().mean().backward()
        optimizer.step()


def flat(network: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in network.parameters()])


def saved(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_equal_those_of_torch_also_when_the_state_is_exchanged(variant: str) -> None:
    ours, theirs = make_network(), make_network()
    factory = VARIANTS[variant]
    second = {"weight_decay": 0.2}
    optimizer = flattened(factory(groups(ours, **second)))
    reference = factory(groups(theirs, **second), foreach=False)
    assert type(optimizer) is (FlatSGD if "Adam" not in type(reference).__name__ else FlatAdam)
    train(ours, optimizer, range(10))
    train(theirs, reference, range(10))
    torch.testing.assert_close(flat(ours), flat(theirs), rtol=0, atol=2e-7)
    assert (flat(ours) - flat(make_network())).abs().max() > 0.01
    our_state, their_state = saved(optimizer), saved(reference)
    assert our_state["state"].keys() == their_state["state"].keys()
    optimizer.load_state_dict(their_state)
    reference.load_state_dict(our_state)
    train(ours, optimizer, range(10, 20))
    train(theirs, reference, range(10, 20))
    torch.testing.assert_close(flat(ours), flat(theirs), rtol=0, atol=4e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", ["sgd", "momentum", "dampening", "nesterov"])
def test_steps_of_sgd_equal_those_of_torch_in_every_precision(variant: str, dtype: torch.dtype) -> None:
    ours, theirs = make_network().to(dtype), make_network().to(dtype)
    optimizer = flattened(VARIANTS[variant](groups(ours)))
    reference = VARIANTS[variant](groups(theirs), foreach=False)
    train(ours, optimizer, range(10))
    train(theirs, reference, range(10))
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(flat(ours), flat(theirs), rtol=0, atol=unit)
    for state, expected in zip(saved(optimizer)["state"].values(), saved(reference)["state"].values(), strict=True):
        momentum = expected["momentum_buffer"]
        if momentum is not None:
            torch.testing.assert_close(state["momentum_buffer"], momentum, rtol=4 * unit, atol=4 * unit)


def test_decoupled_decay_is_that_of_adamw_and_not_of_adam() -> None:
    results = []
    for factory in (partial(Adam, weight_decay=0.5), partial(AdamW, weight_decay=0.5)):
        network = make_network()
        train(network, flattened(factory(groups(network))), range(5))
        results.append(flat(network))
    assert not torch.allclose(results[0], results[1], rtol=1e-2)


@pytest.mark.parametrize("variant", ["dampening", "nesterov", "adamw"])
def test_the_state_survives_saving_loading_and_copying_bit_for_bit(variant: str) -> None:
    whole, first, second = make_network(), make_network(), make_network(seed=1)
    train(whole, flattened(VARIANTS[variant](groups(whole))), range(8))
    optimizer = flattened(VARIANTS[variant](groups(first)))
    train(first, optimizer, range(4))
    resumed = flattened(VARIANTS[variant](groups(second)))
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(saved(optimizer))
    copied_network, copied = copy.deepcopy((first, optimizer))
    for network, one in ((second, resumed), (copied_network, copied)):
        train(network, one, range(4, 8))
        assert torch.equal(flat(whole), flat(network))


def test_a_group_with_learning_rate_zero_keeps_parameters_and_momentum() -> None:
    network, reference = make_network(), make_network()
    optimizer = FlatSGD(groups(network), momentum=0.9)
    optimizer.param_groups[0]["lr"] = 0.0
    train(network, optimizer, range(3))
    assert torch.equal(flat(network[0]), flat(reference[0])) and not torch.equal(flat(network[2]), flat(reference[2]))
    assert [bool(optimizer.state[parameter]) for parameter in network.parameters()] == [False, False, True, True]
    optimizer.param_groups[0]["lr"] = 0.01
    before = flat(network[0])
    train(network, optimizer, range(3, 4))
    gradients = torch.cat([one.grad.reshape(-1) for one in network[0].parameters() if one.grad is not None])
    torch.testing.assert_close(flat(network[0]), before - 0.01 * gradients)  # the first step has no momentum yet


def test_variants_without_a_flat_form_are_left_as_they_are() -> None:
    network = make_network()

    class Mine(Adam):
        """An optimiser of one's own."""

    for factory in (RMSprop, Mine, partial(Adam, amsgrad=True), partial(SGD, maximize=True)):
        optimizer = factory(network.parameters())
        assert flattened(optimizer) is optimizer
