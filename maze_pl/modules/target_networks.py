"""Target networks: frozen copies of networks that follow them slowly."""

import copy
from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)

_NETWORK = "_network_of_target"
"""Attribute of a target network: its network, in a tuple, as it is not a part of the target."""


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
        (network,) = vars(target).get(_NETWORK, (None,))
        if network is None:
            continue
        by_name = dict(target.named_modules())
        for name, part in network.named_modules():
            if id(part) in chosen and name in by_name:
                chosen.add(id(by_name[name]))
                copies.append(by_name[name])
    return copies


@torch.no_grad()
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
    torch._foreach_lerp_([slow for slow, _ in moving], [fast for _, fast in moving], tau)
