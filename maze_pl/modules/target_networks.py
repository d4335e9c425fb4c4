"""Target networks: frozen copies of networks that follow them slowly."""

import copy
from collections.abc import Iterable
from typing import TypeVar

import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch import nn

from maze_pl.core.soft_update import SoftUpdate

Network = TypeVar("Network", bound=nn.Module)

_NETWORK = "_network_of_target"
"""Attribute of a target network: its network, in a tuple, as it is not a submodule of it."""

_SOFT_UPDATE = "_soft_update_of_target"
"""Attribute of a target network: pieces of its tensors, see `SoftUpdate`."""

LARGEST_GAP = 0.1
"""Relative difference of weights, lost by rounding, from which `warn_of_rounding` warns."""


def target_copy(network: Network) -> Network:
    """Return a copy of a network whose parameters require no gradient.

    As an attribute of an algorithm it is saved with checkpoints and left out of the optimisers.
    While the algorithm learns, copies of frozen layers keep their running statistics, as these do.

    Args:
        network: The network, or several in one module, such as a policy.
    """
    target = copy.deepcopy(network).requires_grad_(False)
    vars(target)[_NETWORK] = (network,)
    return target


def copies_in_targets(module: nn.Module, layers: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the copies of some layers in the target networks of a module.

    Args:
        module: Module whose parts include the results of `target_copy`.
        layers: Parts of the networks that were copied.
    """
    chosen = {id(layer) for layer in layers}
    copies: list[nn.Module] = []
    for target in module.modules():
        if _NETWORK not in vars(target):
            continue
        (network,) = vars(target)[_NETWORK]
        by_name = dict(target.named_modules())
        for name, part in network.named_modules():
            if id(part) in chosen and name in by_name:
                chosen.add(id(by_name[name]))  # copies of this copy count, too
                copies.append(by_name[name])
    return copies


def soft_update(target: nn.Module, network: nn.Module, tau: float) -> None:
    """Move a target network towards its network: target + tau * (network - target).

    Buffers that are not floating point are left alone.

    Args:
        target: What `target_copy` returned for the network.
        network: The network.
        tau: Fraction of the way; 1 copies the network.

    Example:
        >>> network = nn.Linear(1, 1, bias=False)
        >>> target = target_copy(network)
        >>> _ = network.weight.data.fill_(2.0), target.weight.data.fill_(1.0)
        >>> soft_update(target, network, tau=0.25)
        >>> target.weight.item(), target.weight.requires_grad
        (1.25, False)
    """
    pairs = zip(
        [*target.parameters(), *target.buffers()],
        [*network.parameters(), *network.buffers()],
        strict=True,
    )
    moving = [(slow, fast) for slow, fast in pairs if slow.is_floating_point()]
    update: SoftUpdate = vars(target).setdefault(_SOFT_UPDATE, SoftUpdate())
    update.apply([slow for slow, _ in moving], [fast for _, fast in moving], tau)


def forget_pieces(module: nn.Module) -> None:
    """Release what `soft_update` keeps of the target networks in a module, before they leave a GPU."""
    for target in module.modules():
        vars(target).pop(_SOFT_UPDATE, None)


def warn_of_rounding(target: nn.Module, tau: float) -> None:
    """Warn if a target network cannot follow its network, as its weights have too few digits.

    A step of a weight w by tau * d is lost if it is below half the distance to the next number, which
    is at most eps * |w|. So differences d of up to eps / (2 * tau) * |w| remain.

    Args:
        target: The target network, or a network of the same precision.
        tau: Fraction of the way in an update, see `soft_update`; 0 is not meant to follow.
    """
    dtypes = {parameter.dtype for parameter in target.parameters() if parameter.is_floating_point()}
    coarsest = max(dtypes, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)
    gap = torch.finfo(coarsest).eps / 2 / tau if tau else 0.0
    if gap > LARGEST_GAP:
        name = str(coarsest).removeprefix("torch.")
        fault = f"with tau={tau:g}, target networks whose weights are {name} hardly follow"
        lost = f"a weight that differs by less than about {gap:.0%} may not move"
        remedy = "choose a precision that keeps weights in float32, such as bf16-mixed, or a larger tau"
        rank_zero_warn(f"{fault}: {lost}; {remedy}")
