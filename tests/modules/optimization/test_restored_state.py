"""State of optimisers in a checkpoint: it goes on where it fits, and is refused where it does not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adafactor, Adagrad, Adam, AdamW, Optimizer, RMSprop

from maze_pl.core.checkpoint_content import add_to_checkpoint
from maze_pl.modules import PPO, FlatAdam, FlatSGD, ParameterGroup
from maze_pl.modules.optimization.restored_state import names_by_group, require_fitting_state
from tests.modules.kit import KIT

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

FIRST, LAST = "policy.*.body.0.*", "policy.*.body.3.*"


class Twins(nn.Module):
    """Two layers with the same shapes, of which the options of an optimiser may name either."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(2, 3)
        self.right = nn.Linear(2, 3)


def new(factory: Callable[[Any], Optimizer], layers: str = "left right") -> tuple[nn.Module, Optimizer]:
    """Return a module, and an optimiser of some of its layers."""
    module = Twins()
    groups = [{"params": list(getattr(module, name).parameters()), "name": f"part {name}"} for name in layers.split()]
    return module, factory(groups)


def stepped(factory: Callable[[Any], Optimizer], layers: str = "left right") -> tuple[nn.Module, Optimizer]:
    """Return the same after a step."""
    module, optimizer = new(factory, layers)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return module, optimizer


def saved(module: nn.Module, optimizer: Optimizer, has_names: bool = True) -> dict[str, Any]:
    """Return what a checkpoint has of an optimiser."""
    checkpoint: dict[str, Any] = {"optimizer_states": [optimizer.state_dict()]}
    if has_names:
        add_to_checkpoint(checkpoint, optimized=names_by_group(module, [optimizer]))
    return checkpoint


AMSGRAD = partial(Adam, amsgrad=True)
CENTERED = partial(RMSprop, centered=True)
MOMENTUM = partial(FlatSGD, momentum=0.9)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (FlatAdam, FlatAdam),
        (FlatAdam, partial(FlatAdam, weight_decay=0.1, decoupled_weight_decay=True)),
        (FlatAdam, partial(Adam, maximize=True)),
        (AMSGRAD, FlatAdam),
        (AMSGRAD, AMSGRAD),
        (FlatAdam, MOMENTUM),
        (RMSprop, partial(RMSprop, alpha=0.5)),
        (CENTERED, RMSprop),
        (Adafactor, partial(Adafactor, weight_decay=0.1)),
        (SGD, partial(RMSprop, centered=True)),
    ],
)
def test_state_that_an_optimiser_can_take_is_not_refused(first: Any, then: Any) -> None:
    checkpoint = saved(*stepped(first))
    module, optimizer = new(then)
    before = {name: value.clone() for name, value in module.named_parameters()}
    require_fitting_state(module, [optimizer], checkpoint, "last.ckpt")
    options = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(checkpoint["optimizer_states"][0])
    for group, own in zip(optimizer.param_groups, options, strict=True):
        group.update(own)  # as an algorithm does
    assert all(torch.equal(value, before[name]) for name, value in module.named_parameters())
    optimizer.step()


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        (FlatAdam, RMSprop, r"RMSprop needs square_avg, there is exp_avg, exp_avg_sq, step"),
        (RMSprop, FlatAdam, r"Adam needs exp_avg, exp_avg_sq, there is square_avg, step"),
        (Adagrad, FlatAdam, r"Adam needs exp_avg, exp_avg_sq, there is step, sum"),
        (FlatAdam, AMSGRAD, r"Adam needs max_exp_avg_sq, there is exp_avg, exp_avg_sq, step"),
        (RMSprop, partial(RMSprop, momentum=0.9), r"RMSprop needs momentum_buffer, there is square_avg, step"),
        (RMSprop, CENTERED, r"RMSprop needs grad_avg, there is square_avg, step"),
        (MOMENTUM, FlatAdam, r"Adam needs exp_avg, exp_avg_sq, step, there is momentum_buffer"),
        (MOMENTUM, Adagrad, r"Adagrad needs step, sum, there is momentum_buffer"),
    ],
)
def test_an_optimiser_that_needs_other_state_is_refused(first: Any, then: Any, message: str) -> None:
    checkpoint = saved(*stepped(first))
    module, optimizer = new(then)
    with pytest.raises(ValueError, match=rf"the optimiser's state in last.ckpt does not fit \({message}\): use --warm"):
        require_fitting_state(module, [optimizer], checkpoint, "last.ckpt")


@pytest.mark.parametrize("factory", [FlatAdam, RMSprop])
def test_state_of_other_parameters_with_the_same_shapes_is_refused(factory: Any) -> None:
    module, optimizer = stepped(factory, "left right")
    with pytest.raises(ValueError, match=r"parameter groups part right, part left there and part left, part right"):
        require_fitting_state(module, [optimizer], saved(*stepped(factory, "right left")), "last.ckpt")
    of_left, of_right = stepped(factory, "left"), stepped(factory, "right")
    for _, one in (of_left, of_right):
        one.param_groups[0]["name"] = "part"
    with pytest.raises(ValueError, match=r"\(group part has left.weight there and right.weight here\)"):
        require_fitting_state(of_right[0], [of_right[1]], saved(*of_left), "last.ckpt")


def test_numbers_and_shapes_of_parameters_are_compared_also_without_names() -> None:
    module, optimizer = stepped(Adam, "left")
    both = saved(module, optimizer, has_names=False)
    require_fitting_state(module, [optimizer], both, "last.ckpt")
    require_fitting_state(module, [optimizer, stepped(RMSprop)[1]], both, "last.ckpt")  # the second one is new
    both["optimizer_states"][0]["param_groups"][0]["params"] = [0]
    with pytest.raises(ValueError, match=r"group part left has 1 parameters there and 2 here"):
        require_fitting_state(module, [optimizer], both, "last.ckpt")
    both["optimizer_states"][0]["param_groups"][0]["params"] = [1, 0]
    with pytest.raises(ValueError, match=r"exp_avg of shape \(3,\) there and \(3, 2\) here"):
        require_fitting_state(module, [optimizer], both, "last.ckpt")


def test_a_probe_leaves_an_optimiser_with_a_scheduler_unchanged() -> None:
    checkpoint = saved(*stepped(RMSprop))
    module, optimizer = stepped(CENTERED)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # replaces the method step of the optimiser
    calls: list[int] = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    before = {name: value.clone() for name, value in module.named_parameters()}
    steps = [float(one["step"]) for one in optimizer.state.values()]
    with pytest.raises(ValueError, match=r"RMSprop needs grad_avg"):
        require_fitting_state(module, [optimizer], checkpoint, "last.ckpt")
    assert not calls
    assert [float(one["step"]) for one in optimizer.state.values()] == steps
    assert all(torch.equal(value, before[name]) for name, value in module.named_parameters())


# ------------------------------------------------------------------------------------------------------ whole runs


def made(**options: Any) -> PPO:
    return PPO(actor_critic=KIT.make_actor_critic(), lr=0.01, batch_size=20, n_optimization_epochs=2, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ({}, {"frozen": ["policy.*"]}, r"parameter groups policy, critic there and critic here"),
        ({"frozen": [FIRST]}, {"frozen": [LAST]}, r"group policy has \S+body.3.weight there and \S+body.0.weight here"),
        (
            {"optimizer_groups": {"*.weight": ParameterGroup(lr=0.1), "*.bias": ParameterGroup(lr=0.2)}},
            {"optimizer_groups": {"*.bias": ParameterGroup(lr=0.2), "*.weight": ParameterGroup(lr=0.1)}},
            r"parameter groups policy \*.weight, policy \*.bias, .* there and policy \*.bias, policy \*.weight",
        ),
        ({}, {"optimizer": RMSprop}, r"RMSprop needs square_avg"),
    ],
)
def test_a_run_is_not_continued_with_the_state_of_other_parameters(
    tmp_path: Path, first: dict[str, Any], then: dict[str, Any], message: str
) -> None:
    path = tmp_path / "one.ckpt"
    KIT.fit(made(**first), epochs=1).save_checkpoint(path)
    with pytest.raises(
        ValueError, match=rf"the optimiser's state in {path} does not fit \({message}.*use --warm-start"
    ):
        KIT.fit(made(**then), epochs=2, ckpt_path=path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "then",
    [
        {"optimizer_groups": {"critic.*": ParameterGroup(lr=0.1)}},
        {"optimizer": "sgd"},
        {"optimizer": partial(AdamW, weight_decay=0.1)},
    ],
)
def test_a_run_continues_with_other_options_of_the_same_parameters(tmp_path: Path, then: dict[str, Any]) -> None:
    path = tmp_path / "one.ckpt"
    KIT.fit(made(), epochs=1).save_checkpoint(path)
    KIT.fit(made(**then), epochs=2, ckpt_path=path)


@pytest.mark.slow
def test_a_checkpoint_without_state_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "weights.ckpt"
    KIT.fit(made(), epochs=1).save_checkpoint(path, weights_only=True)
    with pytest.raises(ValueError, match=rf"^{path} was written with save_weights_only, .*such as last.ckpt"):
        KIT.fit(made(), epochs=2, ckpt_path=path)
