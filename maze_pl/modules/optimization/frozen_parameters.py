"""Parameters that callbacks have frozen, in checkpoints."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from maze_pl.modules.optimization.restored_state import names_by_group


def frozen_names(module: nn.Module, optimizers: Sequence[Optimizer]) -> list[str]:
    """Return the names of the optimisers' parameters that require no gradient, as `names_by_group`."""
    return [name for name, parameter in _named(module, optimizers) if not parameter.requires_grad]


def restore_frozen(
    module: nn.Module, optimizers: Sequence[Optimizer], entry: Mapping[str, Any] | None, path: object
) -> None:
    """Freeze and unfreeze the parameters of optimisers as they were when a checkpoint was saved.

    Callbacks freeze parameters when a run starts, such as `BaseFinetuning` of Lightning, which
    restores the groups of optimisers afterwards, but not what it has unfrozen.

    Args:
        module: The algorithm.
        optimizers: Its optimisers.
        entry: The entry of the checkpoint; of earlier versions, nothing is restored.
        path: The checkpoint that the run continues from; None for a new run, without effect.
    """
    if path is None or entry is None or "frozen" not in entry:
        return
    frozen = set(entry["frozen"])
    unfrozen: set[int] = set()
    for name, parameter in _named(module, optimizers):
        if not parameter.requires_grad and name not in frozen:
            unfrozen.add(id(parameter))
        parameter.requires_grad_(name not in frozen)
    for part in module.modules():
        own = {id(parameter) for parameter in part.parameters(recurse=False)}
        if own & unfrozen and isinstance(part, _BatchNorm) and part.running_mean is not None:
            part.track_running_stats = True  # as `BaseFinetuning` does when it unfreezes


def _named(module: nn.Module, optimizers: Sequence[Optimizer]) -> list[tuple[str, Tensor]]:
    """Return names and parameters of optimisers, without those that are not in the module."""
    named: list[tuple[str, Tensor]] = []
    for optimizer, names in zip(optimizers, names_by_group(module, optimizers), strict=True):
        for group, own in zip(optimizer.param_groups, names, strict=True):
            named += [(name, one) for name, one in zip(own, group["params"], strict=True) if name]
    return named
