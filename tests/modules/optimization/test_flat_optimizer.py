from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from maze_pl.modules.optimization import flat_optimizer
from maze_pl.modules.optimization.flat_adam import FlatAdam
from maze_pl.modules.optimization.flat_optimizer import gradient_norm
from maze_pl.modules.optimization.flat_sgd import FlatSGD


def make_network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def batch_loss(network: nn.Module, seed: int) -> Tensor:
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(seed)).to(next(network.parameters()))
    loss: Tensor = (network(x) - x.sum(-1, keepdim=True)).square().mean()
    return loss


def train(network: nn.Module, optimizer: torch.optim.Optimizer, seeds: range) -> None:
    for seed in seeds:
        optimizer.zero_grad()
        batch_loss(network, seed).backward()
        optimizer.step()


def flat(network: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in network.parameters()])


def groups(network: nn.Sequential, second_lr: float) -> list[dict[str, Any]]:
    return [
        {"params": list(network[0].parameters()), "lr": 3e-3, "name": "policy"},
        {"params": list(network[2].parameters()), "lr": second_lr, "name": "critic"},
    ]


@pytest.mark.parametrize("second_lr", [3e-3, 1e-2])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_fifty_steps_equal_those_of_adam(second_lr: float, weight_decay: float) -> None:
    ours, theirs = make_network(), make_network()
    train(ours, FlatAdam(groups(ours, second_lr), weight_decay=weight_decay), range(50))
    train(theirs, torch.optim.Adam(groups(theirs, second_lr), weight_decay=weight_decay, foreach=False), range(50))
    torch.testing.assert_close(flat(ours), flat(theirs), rtol=0, atol=1e-7)
    assert (flat(ours) - flat(make_network())).abs().max() > 0.05


@pytest.mark.parametrize(("kind", "options"), [(FlatAdam, {"weight_decay": 0.1}), (FlatSGD, {"momentum": 0.9})])
def test_steps_in_pieces_are_equal_bit_for_bit(
    kind: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = make_network(), make_network()
    optimizers = [kind(groups(network, 1e-2), **options) for network in (whole, cut)]
    for seeds in (range(20), range(20, 30)):
        train(whole, optimizers[0], seeds)
        with monkeypatch.context() as patch:
            patch.setattr(flat_optimizer, "gains_from_pieces", lambda device: True)
            patch.setattr(flat_optimizer, "piece_size", lambda sizes: 8)
            train(cut, optimizers[1], seeds)
        assert len(next(iter(optimizers[1]._calls.values()))[0]) > 2
        assert torch.equal(flat(whole), flat(cut))
        cut[0].weight.data = cut[0].weight.data.clone()  # the buffers are made again
    states = [optimizer.state_dict()["state"] for optimizer in optimizers]
    assert states[0].keys() == states[1].keys()
    for index, state in states[0].items():
        for name, tensor in state.items():
            assert torch.equal(tensor, states[1][index][name])


def test_parameters_and_gradients_are_views_of_one_buffer() -> None:
    network = make_network()
    optimizer = FlatAdam(groups(network, 1e-3))
    train(network, optimizer, range(3))
    gradient = torch.cat(
        [parameter.grad.reshape(-1) for parameter in network.parameters() if parameter.grad is not None]
    )
    torch.testing.assert_close(gradient, optimizer.gradient, rtol=0, atol=0)
    optimizer.gradient.fill_(7.0)
    assert all(parameter.grad is not None and bool((parameter.grad == 7.0).all()) for parameter in network.parameters())
    storages = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
    assert len(storages) == 1


def test_what_is_written_into_the_active_gradient_is_stepped_along() -> None:
    by_backward, written = make_network(), make_network()
    train(by_backward, FlatAdam(by_backward.parameters(), lr=1e-2), range(5))
    optimizer = FlatAdam(written.parameters(), lr=1e-2)
    for seed in range(5):
        gradients = torch.autograd.grad(batch_loss(written, seed), optimizer.active_parameters())
        target = optimizer.active_gradient()
        assert target is not None and not target.any()
        torch.cat([gradient.flatten() for gradient in gradients], out=target)
        optimizer.apply()
    assert torch.equal(flat(by_backward), flat(written))


def test_the_active_gradient_is_that_of_groups_side_by_side() -> None:
    parts = [nn.Parameter(torch.ones(n)) for n in (2, 3, 4)]
    optimizer = FlatAdam([{"params": [part]} for part in parts])
    for rates, size in (([1, 1, 1], 9), ([0, 1, 1], 7), ([1, 1, 0], 5), ([1, 0, 1], None), ([0, 0, 0], None)):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        gradient = optimizer.active_gradient()
        assert (None if gradient is None else len(gradient)) == size


def test_group_with_learning_rate_zero_is_not_touched_at_all() -> None:
    network = make_network()
    before = flat(network[0])
    optimizer = FlatAdam(groups(network, 1e-2))
    optimizer.param_groups[0]["lr"] = 0.0
    train(network, optimizer, range(4))
    assert torch.equal(flat(network[0]), before)
    state = [optimizer.state[parameter] for parameter in network.parameters()]
    assert [float(entry["step"]) for entry in state] == [0.0, 0.0, 4.0, 4.0]
    assert all(bool((entry["exp_avg"] == 0).all()) for entry in state[:2])
    assert [id(parameter) for parameter in optimizer.active_parameters()] == [id(p) for p in network[2].parameters()]
    optimizer.param_groups[0]["lr"] = 1e-2
    train(network, optimizer, range(1))
    assert [float(entry["step"]) for entry in state] == [1.0, 1.0, 5.0, 5.0]
    # The first step of Adam moves each parameter by the learning rate, as its count starts at 1.
    torch.testing.assert_close((flat(network[0]) - before).abs().max().item(), 1e-2, rtol=1e-3, atol=0)


def save_and_load(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


def test_state_survives_saving_and_loading_bit_for_bit() -> None:
    whole = make_network()
    train(whole, FlatAdam(groups(whole, 1e-2)), range(10))
    first = make_network()
    optimizer = FlatAdam(groups(first, 1e-2))
    train(first, optimizer, range(5))
    second = make_network(seed=1)
    resumed = FlatAdam(groups(second, 1e-2))
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(save_and_load(optimizer))
    train(second, resumed, range(5, 10))
    assert torch.equal(flat(whole), flat(second))


def test_state_is_exchanged_with_adam_in_both_directions() -> None:
    flat_network, plain_network = make_network(), make_network()
    flat_optimizer = FlatAdam(flat_network.parameters(), lr=1e-2)
    plain_optimizer = torch.optim.Adam(plain_network.parameters(), lr=1e-2)
    train(flat_network, flat_optimizer, range(5))
    train(plain_network, plain_optimizer, range(5))
    flat_state, plain_state = save_and_load(flat_optimizer), save_and_load(plain_optimizer)
    flat_optimizer.load_state_dict(plain_state)
    plain_optimizer.load_state_dict(flat_state)
    train(flat_network, flat_optimizer, range(5, 10))
    train(plain_network, plain_optimizer, range(5, 10))
    torch.testing.assert_close(flat(flat_network), flat(plain_network), rtol=0, atol=1e-7)


def test_conversion_to_double_is_noticed_and_keeps_the_state() -> None:
    ours, theirs = make_network(), make_network()
    optimizer, reference = FlatAdam(ours.parameters(), lr=1e-2), torch.optim.Adam(theirs.parameters(), lr=1e-2)
    train(ours, optimizer, range(3))
    train(theirs, reference, range(3))
    ours.double()
    theirs.double()
    for state in reference.state.values():
        state.update(exp_avg=state["exp_avg"].double(), exp_avg_sq=state["exp_avg_sq"].double())
    train(ours, optimizer, range(3, 6))
    train(theirs, reference, range(3, 6))
    assert optimizer.gradient.dtype == torch.float64
    torch.testing.assert_close(flat(ours), flat(theirs), rtol=0, atol=1e-6)


def test_gradients_set_to_none_elsewhere_are_noticed() -> None:
    ours, theirs = make_network(), make_network()
    optimizer, reference = FlatAdam(ours.parameters(), lr=1e-2), torch.optim.Adam(theirs.parameters(), lr=1e-2)
    for seed in range(5):
        for network, update in ((ours, optimizer), (theirs, reference)):
            network.zero_grad(set_to_none=True)
            batch_loss(network, seed).backward()
            update.step()
    torch.testing.assert_close(flat(ours), flat(theirs), rtol=0, atol=1e-7)


def test_gradient_left_over_is_zero_after_module_zero_grad() -> None:
    network = make_network()
    optimizer = FlatAdam(network.parameters(), lr=1e-2)
    batch_loss(network, 0).backward()
    network.zero_grad(set_to_none=True)
    before = flat(network)
    optimizer.step()
    assert torch.equal(flat(network), before)


def test_group_can_be_added_later() -> None:
    network, extra = make_network(), nn.Parameter(torch.ones(3))
    optimizer = FlatAdam(network.parameters(), lr=1e-2)
    train(network, optimizer, range(3))
    moment = optimizer.state[network[0].weight]["exp_avg"].clone()
    optimizer.add_param_group({"params": [extra], "lr": 1e-2})
    assert torch.equal(optimizer.state[network[0].weight]["exp_avg"], moment)
    extra.sum().backward()
    optimizer.step()
    torch.testing.assert_close(extra.detach(), torch.full((3,), 0.99))


@pytest.mark.parametrize("option", ["amsgrad", "maximize", "capturable", "differentiable"])
def test_options_of_adam_that_other_code_has_set_are_refused(option: str) -> None:
    network = make_network()
    optimizer = FlatAdam(network.parameters())
    train(network, optimizer, range(1))
    optimizer.param_groups[0][option] = True
    with pytest.raises(ValueError, match=rf"FlatAdam has no {option}: use torch\.optim\.Adam$"):
        optimizer.step()
    optimizer.param_groups[0][option] = False
    optimizer.step()


def test_copies_of_networks_are_independent(tmp_path: Path) -> None:
    network = make_network()
    optimizer = FlatAdam(network.parameters(), lr=1e-2)
    other = copy.deepcopy(network)
    train(network, optimizer, range(2))
    assert torch.equal(flat(other), flat(make_network()))


def test_closure_is_called_with_gradients_enabled() -> None:
    network = make_network()
    optimizer = FlatAdam(network.parameters(), lr=1e-2)

    def closure() -> float:
        optimizer.zero_grad()
        loss = batch_loss(network, 0)
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) > 0.0
    assert not torch.equal(flat(network), flat(make_network()))


def test_parameters_that_cannot_share_a_buffer_are_refused() -> None:
    with pytest.raises(ValueError, match="one type and on one device"):
        FlatAdam([nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1, dtype=torch.float64))])
    with pytest.raises(ValueError, match="requires no gradient"):
        FlatAdam([nn.Parameter(torch.ones(1), requires_grad=False)])


@pytest.mark.parametrize("chosen", [[0, 1, 2], [0, 2], [2, 0], [1]], ids=str)
def test_the_norm_of_a_gradient_is_that_of_its_parts_wherever_they_lie(chosen: list[int]) -> None:
    flat = torch.arange(20.0)
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in ((2, 3), (4,), (10,))]
    for places in ([0, 6, 10], [14, 6, 1]):
        for parameter, place in zip(parameters, places, strict=True):
            parameter.grad = flat[place : place + parameter.numel()].view_as(parameter)
        given = [parameters[index] for index in chosen]
        expected = torch.cat([parameter.grad.flatten() for parameter in given if parameter.grad is not None]).norm()
        torch.testing.assert_close(gradient_norm(given), expected)
    parameters[0].grad = None
    assert gradient_norm(parameters[:1]).item() == 0.0
