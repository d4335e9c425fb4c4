"""Graphs of networks: their blocks, and the tensors that these read and write."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from gymnasium import spaces
from torch import nn

from maze_pl.agents.gaussian_exploration import GaussianExploration
from maze_pl.agents.network_io import LATENT, NetworkInput, state_shapes
from maze_pl.agents.torch_actor_critic import TorchActorCritic
from maze_pl.agents.torch_policy import TorchPolicy
from maze_pl.agents.torch_shared_state_critic import TorchSharedStateCritic
from maze_pl.agents.torch_state_action_critic import TorchStateActionCritic
from maze_pl.agents.torch_state_critic import StepwiseStateCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.perception.blocks.inference_block import InferenceBlock
from maze_pl.perception.blocks.perception_block import PerceptionBlock
from maze_pl.perception.network_construction import on_zeros


@dataclass(frozen=True, eq=False)
class NetworkBox:
    """A block or a tensor.

    Attributes:
        layer: One more than the greatest layer among its inputs; 0 without inputs.
        name: Path of a block in its network; key of a tensor.
        block: Class of the block; empty for a tensor.
        shape: Shape of the tensor, without batch dimension.
        parameters: Identity of each of the block's parameters -> its number of elements.
    """

    layer: int
    name: str = ""
    block: str = ""
    shape: tuple[int, ...] = ()
    parameters: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkGraph:
    """Graph of a network's blocks and the tensors that they read and write.

    Attributes:
        network: Class of the network.
        parameters: Identity of each of the network's parameters -> its number of elements.
        boxes: Blocks and tensors, in the order of execution.
        edges: Pairs (source, target) of boxes.
    """

    network: str
    parameters: Mapping[int, int]
    boxes: list[NetworkBox] = field(default_factory=list)
    edges: list[tuple[NetworkBox, NetworkBox]] = field(default_factory=list)

    def share(self, box: NetworkBox) -> float:
        """Fraction of the network's parameters that belong to a block."""
        return sum(box.parameters.values()) / max(1, sum(self.parameters.values()))

    def add(
        self,
        sources: Sequence[NetworkBox],
        name: str,
        *,
        block: str = "",
        shape: tuple[int, ...] = (),
        parameters: Mapping[int, int] | None = None,
    ) -> NetworkBox:
        """Add a box that depends on others: a tensor with a shape, or a block with parameters.

        Args:
            sources: The boxes that it depends on.
            name: See `NetworkBox`, as for the further arguments.
            block: Class of the block; empty for a tensor.
            shape: Shape of the tensor.
            parameters: Parameters of the block; None for none.
        """
        layer = max((source.layer + 1 for source in sources), default=0)
        box = NetworkBox(layer, name, block, shape, parameters or {})
        self.boxes.append(box)
        self.edges.extend((source, box) for source in sources)
        return box

    def add_blocks(self, module: nn.Module, path: str, tensors: dict[str, NetworkBox]) -> None:
        """Add a module's blocks, inputs and outputs; an `InferenceBlock` is added block by block.

        Args:
            module: A block or any other module.
            path: Path of the module in the network: names, each followed by a dot.
            tensors: Key -> box of each tensor that blocks may read; their outputs are added to it.
        """
        if isinstance(module, InferenceBlock):
            inner = dict(tensors)
            for name, block in module.perception_blocks.items():
                self.add_blocks(block, f"{path}{name}.", inner)
            tensors |= {key: inner[key] for key in module.given_keys}
        elif isinstance(module, PerceptionBlock):
            state = getattr(module, "state_shapes", {})
            read = dict(zip(module.in_keys, module.in_shapes, strict=True)) | state
            written = dict(zip(module.out_keys, module.out_shapes(), strict=True)) | state
            for key, shape in read.items():
                if key not in tensors:  # computed outside of the blocks
                    tensors[key] = self.add((), key, shape=shape)
            box = self.add(
                [tensors[key] for key in read],
                path[:-1] or "network",
                block=type(module).__name__,
                parameters=_sizes(module),
            )
            for key, shape in written.items():
                tensors[key] = self.add([box], key, shape=shape)
        else:
            for name, child in module.named_children():
                self.add_blocks(child, f"{path}{name}.", tensors)

    def add_exploration(self, head: str, exploration: GaussianExploration, tensors: Mapping[str, NetworkBox]) -> None:
        """Add the exploration of a head, which completes the network's output.

        Args:
            head: Name of the head.
            exploration: Its exploration.
            tensors: Key -> box of each output of the network.
        """
        read = [tensors[head], tensors[LATENT]] if exploration.is_gsde else [tensors[head]]
        box = self.add(
            read,
            f"{head}_exploration",
            block=type(exploration).__name__,
            parameters=_sizes(exploration),
        )
        self.add([box], head, shape=(2 * exploration.n_components,))


# ------------------------------------------------------------------------------- from networks


def actor_critic_graphs(networks: TorchActorCritic) -> dict[str, NetworkGraph]:
    """Return the graphs of an agent's networks.

    Returns:
        Name -> graph. Names are `policy` and `critic`, followed by `_<step key>` if there are
        several sub-steps and by `_<agent>` if agents have separate networks. For twin Q-networks,
        which differ only in weights, the graph shows the first. Standard deviations that are
        parameters are part of the policy's graphs.
    """
    spec = networks.policy.spec
    graphs: dict[str, NetworkGraph] = {}
    # the policy may be wrapped
    modules = networks.policy.modules()
    policy = next((module for module in modules if isinstance(module, TorchPolicy)), None)
    if policy is not None:
        for (key, step), step_networks in zip(spec.steps.items(), policy.networks, strict=True):
            name = _name("policy", key, len(spec.steps))
            explorations = policy.parts_of(key).explorations
            for agent, network in enumerate(step_networks):
                graph = network_graph(network, step.observation_space, explorations)
                graphs[_name(name, agent, len(step_networks))] = graph
    critic_networks = _critic_networks(networks.critic, spec)
    for key, (network, space) in critic_networks.items():
        graphs[_name("critic", key, len(critic_networks))] = network_graph(network, space)
    return graphs


def _name(name: str, part: StepKey, n_parts: int) -> str:
    """Name of one of several parts, and of the whole if there is only one."""
    return f"{name}_{part}" if n_parts > 1 else name


def _critic_networks(critic: Any, spec: Spec) -> dict[StepKey, tuple[nn.Module, spaces.Dict]]:
    """Networks of a critic and their inputs, by sub-step or by "all"; empty for other classes."""
    if isinstance(critic, TorchStateActionCritic):
        found: dict[StepKey, tuple[nn.Module, spaces.Dict]] = {}
        critic_inputs = critic.critic_inputs(critic.spec)
        for (key, inputs), both in zip(critic_inputs.items(), critic.parts, strict=True):
            all_spaces = {**inputs.observation_space.spaces, **inputs.action_space.spaces}
            found[key] = (_first_twin(both), spaces.Dict(all_spaces))
        return found
    if isinstance(critic, TorchSharedStateCritic | StepwiseStateCritic):
        input_spaces = critic.critic_inputs(spec)
        parts = zip(critic.parts, input_spaces.values(), strict=True)
        return dict(zip(input_spaces, parts, strict=True))
    return {}


def _first_twin(both: nn.Module) -> nn.Module:
    """The first of two networks whose parameters are stacked [2, ...]."""
    tensors = [*both.parameters(), *both.buffers()]
    return copy.deepcopy(both, {id(tensor): tensor.detach()[0] for tensor in tensors})


def network_graph(
    network: nn.Module,
    observation_space: spaces.Dict,
    explorations: Mapping[str, GaussianExploration] | None = None,
) -> NetworkGraph:
    """Return the graph of a network's blocks; everything outside of blocks is one box.

    The network runs once on zeros, in evaluation mode, without changing random generators.

    Args:
        network: Takes a dict of observations and returns a dict of tensors.
        observation_space: Its observations.
        explorations: Head -> exploration that completes the network's output, for some heads of a
            policy; those without parameters are left out.

    Example:
        >>> from maze_pl.perception import FlattenConcatStateValueNet
        >>> observation_space = spaces.Dict({"x": spaces.Box(-1, 1, (4,))})
        >>> graph = network_graph(FlattenConcatStateValueNet({"x": (4,)}), observation_space)
        >>> [box.block or box.name for box in graph.boxes]
        ['x', 'FlattenConcatStateValueNet', 'value']
    """
    device = NetworkInput(network).device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        output = on_zeros(network, observation_space)
    of_network = _sizes(network)
    learned = {head: part for head, part in (explorations or {}).items() if _sizes(part)}
    parameters = dict(of_network)
    for exploration in learned.values():
        parameters |= _sizes(exploration)
    graph = NetworkGraph(type(network).__name__, parameters)
    inputs = {name: space.shape or () for name, space in observation_space.items()}
    inputs |= state_shapes(network)
    tensors = {key: graph.add((), key, shape=shape) for key, shape in inputs.items()}
    graph.add_blocks(network, "", tensors)
    in_blocks: set[int] = set()
    for box in graph.boxes:
        in_blocks.update(box.parameters)
    others = {key: size for key, size in of_network.items() if key not in in_blocks}
    missing = [key for key in output if key not in tensors or tensors[key].layer == 0]
    if others or missing:
        read = {source for source, _ in graph.edges}
        unread = []
        for key, tensor in tensors.items():
            if tensor not in read and (key in missing or key not in output):
                unread.append(tensor)
        name = "network" if others == of_network else "all else"
        box = graph.add(unread, name, block=graph.network, parameters=others)
        for key in missing:
            tensors[key] = graph.add([box], key, shape=tuple(output[key].shape[1:]))
    for head, exploration in learned.items():
        graph.add_exploration(head, exploration, tensors)
    return graph


def _sizes(module: nn.Module) -> dict[int, int]:
    return {id(parameter): parameter.numel() for parameter in module.parameters()}
