"""Parts of a policy for one sub-step, and their checks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gymnasium import spaces
from torch import nn

from maze_pl.agents.gaussian_exploration import GaussianExploration
from maze_pl.agents.network_io import NetworkInput, StateShapes, auxiliary_shapes, request_latent, state_shapes
from maze_pl.agents.numpy_inference import NumpyNetwork
from maze_pl.agents.numpy_sampling import NumpySampler
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.distributions.distribution_mapper import DistributionMapper

PolicyNetworks = nn.Module | Sequence[nn.Module]
"""The network of a sub-step, or one network per agent in the order of the agents' ids."""


class MaskedHead(NamedTuple):
    """The mask of an action head.

    Attributes:
        head: The head.
        observation: Name of the observation that masks it.
        n_entries: Number of entries.
    """

    head: str
    observation: str
    n_entries: int


@dataclass(frozen=True, slots=True)
class PolicyStepParts:
    """Parts of the policy for one sub-step; the networks are registered in the policy."""

    networks: tuple[nn.Module, ...]
    inputs: NetworkInput
    mapper: DistributionMapper
    sampler: NumpySampler
    plain: NumpyNetwork | None  # the network, if all agents share it and it is not recurrent
    state_shapes: StateShapes
    masks: tuple[MaskedHead, ...]
    explorations: dict[str, GaussianExploration]  # by head; registered in the policy, too
    has_gsde: bool
    auxiliary: tuple[str, ...]  # names of auxiliary outputs


def make_policy_step(
    key: StepKey, networks: PolicyNetworks, n_separate: int | None, mapper: DistributionMapper
) -> PolicyStepParts:
    """Make the parts of the policy for a sub-step.

    Args:
        key: The sub-step.
        networks: Its network, or one for each agent.
        n_separate: Number of agents with separate networks; None if they share one.
        mapper: Its distributions.

    Raises:
        ValueError: There are too few or too many networks, or their policy states or auxiliary outputs
            differ.
    """
    is_single = isinstance(networks, nn.Module) and not isinstance(networks, nn.ModuleList)
    nets: tuple[Any, ...] = (networks,) if is_single else tuple(networks)  # type: ignore[arg-type]
    expected = 1 if n_separate is None else n_separate
    if len(nets) != expected:
        has = "a network shared by its agents"
        if n_separate is not None:
            has = "separate agent networks"
        raise ValueError(f"sub-step {key!r} has {has}: expected {expected}, got {len(nets)}")
    shapes = state_shapes(nets[0])
    for net in nets:
        if state_shapes(net) != shapes:
            both = f"{shapes} and {state_shapes(net)}"
            raise ValueError(f"networks of sub-step {key!r} have different policy states: {both}")
        if auxiliary_shapes(net) != auxiliary_shapes(nets[0]):
            both = f"{auxiliary_shapes(nets[0])} and {auxiliary_shapes(net)}"
            raise ValueError(f"networks of sub-step {key!r} have different auxiliary outputs: {both}")
    masks = []
    for head, name in mapper.masks.items():
        _, space = mapper.heads[head]
        masks.append(MaskedHead(head, name, spaces.flatdim(space)))
    explorations = _explorations(key, nets, mapper)
    return PolicyStepParts(
        networks=nets,
        inputs=NetworkInput(nets[0]),
        mapper=mapper,
        sampler=NumpySampler(mapper),
        plain=NumpyNetwork(nets[0]) if len(nets) == 1 and not shapes else None,
        state_shapes=shapes,
        masks=tuple(masks),
        explorations=explorations,
        has_gsde=any(exploration.is_gsde for exploration in explorations.values()),
        auxiliary=tuple(auxiliary_shapes(nets[0])),
    )


def _explorations(
    key: StepKey, networks: Sequence[nn.Module], mapper: DistributionMapper
) -> dict[str, GaussianExploration]:
    """Make the explorations of the Gaussian heads that are configured to have one.

    Raises:
        ValueError: A network cannot return the features that gsde needs, or their numbers differ.
    """
    n_features = 0
    if any(options.type == "gsde" for options in mapper.explorations.values()):
        sizes = [request_latent(network, f"policy network of sub-step {key!r}") for network in networks]
        n_features = sizes[0]
        if len(set(sizes)) > 1:
            raise ValueError(f"networks of sub-step {key!r} have different numbers of features: {sizes}")
    explorations = {}
    for head, options in mapper.explorations.items():
        n_components = mapper.logits_shapes[head][0] // 2
        explorations[head] = GaussianExploration(options, n_components, len(networks), n_features)
    return explorations


def separate_agent_counts(spec: Spec, step_keys: Sequence[StepKey]) -> dict[StepKey, int]:
    """Number of networks for each sub-step whose agents have separate networks.

    Args:
        spec: Sub-steps with their observation and action spaces.
        step_keys: The sub-steps with separate networks; numbers may be given as text.

    Raises:
        ValueError: A sub-step is unknown, or its number of agents changes during an episode.
    """
    option = "substeps_with_separate_agent_nets"
    names = {str(key) for key in step_keys}
    counts = {key: spec.steps[key].n_agents for key in spec.step_keys if str(key) in names}
    unknown = sorted(names - {str(key) for key in counts})
    if unknown:
        raise ValueError(f"{option}: unknown sub-step {unknown[0]!r}; {list(spec.step_keys)}")
    for key, count in counts.items():
        if count < 1:
            raise ValueError(f"{option}: the number of agents of sub-step {key!r} changes")
    return counts
