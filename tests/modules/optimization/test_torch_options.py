"""Options of groups that flat optimisers do not have: they work as in torch, also in runs of earlier versions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from maze_pl.modules import PPO, FlatAdam, FlatSGD, ParameterGroup
from maze_pl.modules.optimization.optimizer_options import flattened
from tests.modules.kit import KIT

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

MOMENTUM = partial(SGD, momentum=0.9)


def made(options: dict[str, Any], **others: Any) -> PPO:
    groups = {"*": ParameterGroup(options=options)}
    given = {"batch_size": 20, "n_optimization_epochs": 2, "optimizer_groups": groups, **others}
    return PPO(actor_critic=KIT.make_actor_critic(), lr=0.01, **given)


def stepped(optimizer: Optimizer) -> list[Tensor]:
    """Parameters after steps with random gradients, of which the fourth is large."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    generator = torch.Generator().manual_seed(1)
    for index in range(12):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator) * (10.0 if index == 3 else 1.0)
        optimizer.step()
    return [parameter.detach().clone() for parameter in parameters]


@pytest.mark.parametrize(
    ("optimizer", "options", "of_torch", "kind"),
    [
        ("adam", {"amsgrad": True}, Adam, Adam),
        ("adam", {"maximize": True}, Adam, Adam),
        ("adam", {"differentiable": False, "eps": 1e-3}, Adam, FlatAdam),
        ("adam", {"decoupled_weight_decay": True, "weight_decay": 0.5}, Adam, FlatAdam),
        (partial(Adam, decoupled_weight_decay=True, weight_decay=0.5), {}, partial(AdamW, weight_decay=0.5), FlatAdam),
        (AdamW, {"decoupled_weight_decay": False, "weight_decay": 0.5}, AdamW, FlatAdam),
        (AdamW, {"amsgrad": True}, AdamW, AdamW),
        ("sgd", {"maximize": True}, MOMENTUM, SGD),
        ("sgd", {"nesterov": True}, MOMENTUM, FlatSGD),
    ],
)
def test_options_of_a_group_have_the_effect_that_they_have_in_torch(
    optimizer: Any, options: dict[str, Any], of_torch: Any, kind: type
) -> None:
    ours = made(options, optimizer=optimizer).configure_optimizers()
    assert type(ours) is kind
    copies = []
    for group in ours.param_groups:
        copies.append({"params": [nn.Parameter(one.detach().clone()) for one in group["params"]], **options})
    theirs = of_torch(copies, lr=0.01)
    torch.testing.assert_close(stepped(ours), stepped(theirs), rtol=0, atol=2e-6)


def test_parameters_that_are_added_to_a_flat_optimiser_have_the_decay_of_the_others() -> None:
    results = []
    for convert in (flattened, lambda optimizer: optimizer):
        first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
        optimizer = convert(AdamW([first], lr=0.01, weight_decay=0.5))
        optimizer.add_param_group({"params": [second]})
        results.append(stepped(optimizer))
    torch.testing.assert_close(*results, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [FlatAdam, FlatSGD])
@pytest.mark.parametrize("option", ["amsgrad", "maximize"])
def test_flat_optimisers_refuse_what_they_cannot_do(kind: Any, option: str) -> None:
    parameters = [nn.Parameter(torch.ones(2))]
    with pytest.raises(ValueError, match=rf"{kind.__name__} has no {option}: use torch\.optim\.(Adam|SGD)$"):
        kind([{"params": parameters, option: True}])
    kind([{"params": parameters, option: False}])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"amsgrad": True}, {"maximize": True}], ids=str)
def test_traced_updates_have_the_options(options: dict[str, Any]) -> None:
    states = []
    for capture in ("auto", "off"):
        torch.manual_seed(1)
        module = made(options, capture=capture)
        KIT.fit(module, epochs=2, length=2)
        assert (module.n_traces > 0) == (capture == "auto")
        states.append([parameter.detach() for parameter in module.parameters()])
    torch.testing.assert_close(*states, rtol=1e-4, atol=1e-6)


def test_runs_of_earlier_versions_which_ignored_amsgrad_continue_with_it(tmp_path: Path) -> None:
    path = tmp_path / "earlier.ckpt"
    KIT.fit(made({}, capture="off"), epochs=1, length=1).save_checkpoint(path)
    checkpoint = torch.load(path, weights_only=True)
    (state,) = checkpoint["optimizer_states"]
    for group in state["param_groups"]:
        group["amsgrad"] = True
    assert all(set(entries) == {"step", "exp_avg", "exp_avg_sq"} for entries in state["state"].values())
    torch.save(checkpoint, path)
    resumed = made({"amsgrad": True}, capture="off")
    trainer = KIT.fit(resumed, epochs=2, length=1, ckpt_path=path)
    (optimizer,) = trainer.optimizers
    assert type(optimizer) is Adam
    for entries, before in zip(optimizer.state.values(), state["state"].values(), strict=True):
        assert bool((entries["max_exp_avg_sq"] >= before["exp_avg_sq"]).all())
        assert bool((entries["max_exp_avg_sq"] >= entries["exp_avg_sq"]).all())
        assert float(entries["step"]) > float(before["step"])
