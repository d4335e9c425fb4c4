"""Warm start: a new run that begins with the weights and wrapper statistics of another one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from maze_pl.core.checkpoint import NETWORKS
from maze_pl.runs.checkpoint import learned_in, read_checkpoint
from maze_pl.runs.compatibility import require_equal, shapes

if TYPE_CHECKING:
    from torch import Tensor, nn

    from maze_pl.datamodules.environments import EnvironmentDataModule
    from maze_pl.modules import AlgorithmModule


def warm_start(path: str | Path, module: AlgorithmModule, datamodule: EnvironmentDataModule) -> None:
    """Initialize a module and a data module with the weights and wrapper statistics of another run.

    Optimisers, counters, environments and parameters outside of networks start from scratch, so the
    algorithm may be a different one. If the other run had no critic, as in behavioural cloning, the
    module's critic is left unchanged.

    Other networks of the algorithm, such as target networks, get their weights from the other run.
    If it has no network of that name, a network that was an exact copy of a part of policy or
    critic is copied again; any other is left unchanged, with a message.

    Args:
        path: A run directory or a checkpoint, as for `load`.
        module: Its networks get the weights.
        datamodule: Its wrappers get the statistics.

    Raises:
        ConfigurationError: There is no checkpoint, or its networks or wrappers do not fit.
    """
    from pytorch_lightning.utilities import rank_zero_info

    checkpoint = read_checkpoint(path)
    own, other = module.state_dict(), checkpoint["state_dict"]
    critic_prefix = f"{NETWORKS}critic."
    critic = {name for name in own if name.startswith(critic_prefix)}
    if critic and not any(name.startswith(critic_prefix) for name in other):
        rank_zero_info(f"{path} has no critic: it starts anew, and learns first with critic_burn_in_epochs")
        own = {name: value for name, value in own.items() if name not in critic}
    further = _further_networks(module)
    stored = [name for name in further if any(entry.startswith(f"{name}.") for entry in other)]
    originals = {name: _original(network, module) for name, network in further.items() if name not in stored}
    prefixes = (NETWORKS, *(f"{name}." for name in stored))
    own = {name: value for name, value in own.items() if name.startswith(prefixes)}
    here, there = shapes(own), shapes({name: other[name] for name in own if name in other})
    require_equal(there, here, f"the networks of {path} do not fit", "networks")
    module.load_state_dict(module.state_dict() | {name: other[name] for name in here})
    for name, original in originals.items():
        if original is None:
            rank_zero_info(f"{path} has no network {name}, and it is not a copy of one: it starts anew")
        else:
            further[name].load_state_dict(original.state_dict())
            rank_zero_info(f"{path} has no network {name}: it is copied from the one of which it was a copy")
    datamodule.warm_start(learned_in(checkpoint, path))


def _further_networks(module: AlgorithmModule) -> dict[str, nn.Module]:
    """Return networks besides policy and critic, such as target networks, by name in the state."""
    from torch import nn

    shared = {id(tensor) for tensor in module.networks.state_dict(keep_vars=True).values()}
    networks: dict[str, nn.Module] = {}
    waiting = list(module.named_children())
    while waiting:
        name, child = waiting.pop(0)
        if isinstance(child, nn.ModuleDict | nn.ModuleList):
            waiting += [(f"{name}.{part}", network) for part, network in child.named_children()]
        elif any(id(tensor) not in shared for tensor in child.state_dict(keep_vars=True).values()):
            networks[name] = child
    return networks


def _original(network: nn.Module, module: AlgorithmModule) -> nn.Module | None:
    """Return the part of policy or critic that a network is an exact copy of, if any."""
    state = network.state_dict()
    if all(bool((value == value.flatten()[:1]).all()) for value in state.values()):
        return None  # as in fresh normalisation layers, which are all alike
    for part in module.networks.modules():
        found = part.state_dict()
        if found.keys() == state.keys() and all(_equal(found[name], value) for name, value in state.items()):
            return part
    return None


def _equal(one: Tensor, other: Tensor) -> bool:
    """Tell if two tensors have the same shape and values."""
    return one.shape == other.shape and bool((one == other).all())
