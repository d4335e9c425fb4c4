"""Warm start: a new run that begins with the weights and wrapper statistics of another one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from maze_pl.agents.bounded_actions import complete_critics
from maze_pl.core.checkpoint_content import NETWORKS, checkpoint_entry
from maze_pl.runs.checkpoint_files import read_checkpoint, wrapper_statistics_in
from maze_pl.runs.compatibility import require_equal, require_same_names, shapes
from maze_pl.runs.vector_inputs import vector_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from maze_pl.core.checkpoint_content import CheckpointEntry
    from maze_pl.datamodules.environments import EnvironmentDataModule
    from maze_pl.modules import AlgorithmModule

_CRITIC = f"{NETWORKS}critic"
_EXPLORATION = f"{NETWORKS}policy.exploration"
"""The scale of exploration, which the options of the new run determine."""
_STANDARD_DEVIATIONS = f"{NETWORKS}policy.explorations"
"""Standard deviations that are parameters, which deterministic policies do not have."""


def warm_start(path: str | Path, module: AlgorithmModule, datamodule: EnvironmentDataModule) -> None:
    """Initialise a module and a data module with the weights and wrapper statistics of another run.

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
        ConfigurationError: There is no checkpoint, or its networks or wrappers do not fit, or its
            observations or actions have other names.
    """
    from pytorch_lightning.utilities import rank_zero_info

    checkpoint = read_checkpoint(path)
    weights = checkpoint["state_dict"]
    further = _further_networks(module)
    stored = [name for name in further if _has(weights, name)]
    originals = {name: _original(further[name], module) for name in further if name not in stored}
    prefixes = (NETWORKS, *(f"{name}." for name in stored))
    expected = {name: value for name, value in module.state_dict().items() if name.startswith(prefixes)}
    expected.pop(_EXPLORATION, None)
    if _has(expected, _CRITIC) and not _has(weights, _CRITIC):
        expected = {name: value for name, value in expected.items() if not name.startswith(_CRITIC)}
        how = "critic_burn_in_epochs trains it before the policy"
        rank_zero_info(f"{path} has no critic: the critic starts from scratch; {how}")
    found = _weights_for(expected, weights, prefixes)
    _require_fit(found, expected, checkpoint_entry(checkpoint), module, datamodule, path)
    module.load_state_dict(module.state_dict() | found)
    for name, original in originals.items():
        if original is None:
            start = "which is not a copy of another one: it starts from scratch"
            rank_zero_info(f"{path} has no network {name}, {start}")
        else:
            further[name].load_state_dict(original.state_dict())
            rank_zero_info(f"{path} has no network {name}: it is copied again from policy or critic")
    datamodule.warm_start(wrapper_statistics_in(checkpoint, path))


def _weights_for(
    expected: Mapping[str, Tensor], weights: Mapping[str, Tensor], prefixes: tuple[str, ...]
) -> dict[str, Tensor]:
    """Return the weights in another run of the networks that a module has.

    Args:
        expected: Weights of the module.
        weights: Weights of the other run.
        prefixes: Beginnings of the names of networks.
    """
    found = {name: value for name, value in weights.items() if name.startswith(prefixes)}
    found.pop(_EXPLORATION, None)
    complete_critics(found, expected)
    for part in (_CRITIC, _STANDARD_DEVIATIONS):
        if not _has(expected, part):  # the algorithm needs none, or they start from scratch
            found = {name: value for name, value in found.items() if not name.startswith(part)}
    return found


def _require_fit(
    found: dict[str, Tensor],
    expected: dict[str, Tensor],
    entry: CheckpointEntry | None,
    module: AlgorithmModule,
    datamodule: EnvironmentDataModule,
    path: str | Path,
) -> None:
    """Refuse weights of other shapes, and weights for other sub-steps, observations or actions.

    Args:
        found: The weights.
        expected: Weights that the module has.
        entry: maze_pl's entry of the checkpoint; without spaces in it, names are not compared.
        module: The module, whose networks may read several observations as one vector.
        datamodule: Has the spaces of the environment.
        path: The checkpoint, for messages.

    Raises:
        ConfigurationError: They do not fit.
    """
    there, here = shapes(found), shapes(expected)
    if entry is not None and "spec" in entry:
        vectors = vector_inputs(module, expected, datamodule.spec)
        agent, current = f"the agent of {path}", datamodule.spec.to_dict()
        require_same_names(entry["spec"], current, agent, vectors, all_observations=there != here)
    require_equal(there, here, f"the networks of {path} do not fit", "networks")


def _has(weights: Mapping[str, Tensor], network: str) -> bool:
    """True if weights contain those of a network."""
    return any(name.startswith(f"{network}.") for name in weights)


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
        if found.keys() != state.keys():
            continue
        if all(_equal(found[name], value) for name, value in state.items()):
            return part
    return None


def _equal(first: Tensor, second: Tensor) -> bool:
    """True if two tensors have the same shape and values."""
    return first.shape == second.shape and bool((first == second).all())
