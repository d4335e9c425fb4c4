"""Comparison of optimisers with the state of optimisers in a checkpoint, before they take it.

The state belongs to parameters by their place. Optimisers of torch take any state whose groups are of
the same sizes, also that of other parameters, and fail in the next step where it lacks something.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor, nn
from torch.optim import Optimizer

from maze_pl.core.checkpoint_content import WEIGHTS_ONLY, checkpoint_entry
from maze_pl.modules.optimization.flat_optimizer import FlatOptimizer
from maze_pl.modules.optimization.parameter_names import names_of

_LIKE_PARAMETERS = ("exp_avg", "momentum_buffer", "square_avg")  # state with the shape of its parameter
_WITHOUT_STATE = ("params", "lr", "initial_lr", "name", "part", "pattern", "weight_decay")  # options
_CURRENT_WEIGHTS = "current_model_state"
"""Entry of Lightning's `WeightAveraging` in checkpoints whose `state_dict` is an average."""
GroupNames = list[list[str]]
"""Names of the parameters of an optimiser, by group."""


def names_by_group(module: nn.Module, optimizers: Sequence[Optimizer]) -> list[GroupNames]:
    """Return the names of the parameters of each optimiser; of several names of one, the first.

    Args:
        module: The algorithm.
        optimizers: Its optimisers.
    """
    names = names_of(module)
    every: list[GroupNames] = []
    for optimizer in optimizers:
        groups = [group["params"] for group in optimizer.param_groups]
        every.append([[names.get(id(one), [""])[0] for one in group] for group in groups])
    return every


def require_fitting_state(
    module: pl.LightningModule,
    optimizers: Sequence[Optimizer],
    checkpoint: dict[str, Any],
    path: object,
) -> None:
    """Refuse the state of optimisers of another kind, or of other parameters.

    There may be more or fewer optimisers than in the checkpoint, such as that of an entropy coefficient, which
    can be tuned from now on or no longer. State that earlier versions left out is added to the
    checkpoint.

    Args:
        module: The algorithm.
        optimizers: Its optimisers.
        checkpoint: The checkpoint that they are to continue from; empty for a new run.
        path: Its file, for the message.

    Raises:
        ValueError: The state does not fit, or belongs to other weights than those of the module.
    """
    if not checkpoint:
        return
    if "optimizer_states" not in checkpoint:
        raise ValueError(f"{path} {WEIGHTS_ONLY}")
    if _CURRENT_WEIGHTS in checkpoint and not _is_averaging(module):
        raise ValueError(
            f"the weights in {path} are an average, which the optimiser's state does not fit: "
            "resume with the callback that averages, such as EMAWeightAveraging, "
            "or use --warm-start to begin a new run with the average"
        )
    states = checkpoint["optimizer_states"]
    _add_maxima(states)
    entry = checkpoint_entry(checkpoint)
    saved = None if entry is None else entry.get("optimized")
    current = names_by_group(module, optimizers)
    problems: list[str] = []
    for index, (optimizer, state) in enumerate(zip(optimizers, states, strict=False)):  # others are new
        there = None if saved is None else saved[index]
        groups = optimizer.param_groups
        differences = [_difference_of_groups(state, groups), _difference_of_names(there, current[index], groups)]
        differences += [_difference_of_shapes(state, groups), _difference_of_kind(state, optimizer)]
        problems += filter(None, differences)
    if problems:
        remedy = "use --warm-start, or the optimiser, groups and frozen parameters of that run"
        raise ValueError(f"the optimiser's state in {path} does not fit ({problems[0]}): {remedy}")


def _is_averaging(module: pl.LightningModule) -> bool:
    """True if a callback of the run averages weights."""
    callbacks: list[pl.Callback] = module.trainer.callbacks  # type: ignore[attr-defined]
    return any(isinstance(one, WeightAveraging) for one in callbacks)


def _add_maxima(states: Sequence[Mapping[str, Any]]) -> None:
    """Add the state of `amsgrad`, which earlier versions ignored in `optimizer_groups`."""
    for state in states:
        for group in state["param_groups"]:
            if not group.get("amsgrad"):
                continue
            for place in group["params"]:
                entries = state["state"].get(place, {})
                if "exp_avg_sq" in entries:
                    entries.setdefault("max_exp_avg_sq", entries["exp_avg_sq"].clone())


def _difference_of_groups(state: Mapping[str, Any], groups: Sequence[dict[str, Any]]) -> str:
    """Describe how the groups of a checkpoint differ from those of an optimiser; "" if they do not."""
    there, here = _labels(state["param_groups"]), _labels(groups)
    if there != here:
        return f"parameter groups {', '.join(there)} there and {', '.join(here)} here"
    for label, saved, group in zip(there, state["param_groups"], groups, strict=True):
        if len(saved["params"]) != len(group["params"]):
            sizes = f"{len(saved['params'])} parameters there and {len(group['params'])} here"
            return f"group {label} has {sizes}"
    return ""


def _labels(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of groups; a pattern that leaves nothing else of a part has the name of the part."""
    parts = [str(group.get("part", group.get("name", index))) for index, group in enumerate(groups)]
    names = [str(group.get("name", index)) for index, group in enumerate(groups)]
    return [part if parts.count(part) == 1 else name for part, name in zip(parts, names, strict=True)]


def _difference_of_names(there: GroupNames | None, here: GroupNames, groups: Sequence[dict[str, Any]]) -> str:
    """Describe the first group with other parameters; checkpoints of earlier versions have no names."""
    for label, saved, current in zip(_labels(groups), there or [], here, strict=False):
        if saved != current:
            place = next((i for i, (one, other) in enumerate(zip(saved, current, strict=False)) if one != other), 0)
            return f"group {label} has {saved[place]} there and {current[place]} here"
    return ""


def _difference_of_shapes(state: Mapping[str, Any], groups: Sequence[dict[str, Any]]) -> str:
    """Describe the first state with another shape than its parameter."""
    for saved, group in zip(state["param_groups"], groups, strict=False):
        for place, parameter in zip(saved["params"], group["params"], strict=False):
            entries = state["state"].get(place, {})
            for name in _LIKE_PARAMETERS:
                value = entries.get(name)
                if isinstance(value, Tensor) and value.shape != parameter.shape:
                    return f"{name} of shape {tuple(value.shape)} there and {tuple(parameter.shape)} here"
    return ""


def _difference_of_kind(state: Mapping[str, Any], optimizer: Optimizer) -> str:
    """Describe what the state lacks for an optimiser that is of another kind, or has other options."""
    for saved, group in zip(state["param_groups"], optimizer.param_groups, strict=False):
        for place, parameter in zip(saved["params"], group["params"], strict=False):
            there = set(state["state"].get(place, {}))
            if not there or (_options(saved) == _options(group) and not isinstance(optimizer, FlatOptimizer)):
                continue
            is_flat = isinstance(optimizer, FlatOptimizer)  # it has its state before it takes a step
            here = set(optimizer.state.get(parameter, {})) if is_flat else _state_names(optimizer, group, parameter)
            lacking = here - there
            if lacking:
                kind = type(optimizer).__name__.removeprefix("Flat")
                return f"{kind} needs {', '.join(sorted(lacking))}, there is {', '.join(sorted(there))}"
    return ""


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a group that may decide which state an optimiser has."""
    return {name: value for name, value in group.items() if name not in _WITHOUT_STATE}


def _state_names(optimizer: Optimizer, group: Mapping[str, Any], parameter: Tensor) -> set[str]:
    """Return the names of the state that an optimiser has of a parameter after a step, if it can be tried."""
    imitation = nn.Parameter(torch.zeros_like(parameter))
    imitation.grad = torch.zeros_like(parameter)
    probe: Any = object.__new__(type(optimizer))
    vars(probe).update(vars(optimizer))
    vars(probe).update({name: {} for name in vars(optimizer) if name.endswith("_hooks")})
    vars(probe).update(state=defaultdict(dict), param_groups=[{**group, "params": [imitation]}])
    try:
        type(optimizer).step(probe)  # not that of the instance, which schedulers replace
    except Exception:  # of an optimiser by others that needs more than this
        return set()
    return set(probe.state[imitation])
