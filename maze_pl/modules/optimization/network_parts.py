"""Networks and their parts, for gradient norms."""

from torch import nn

from maze_pl.agents import TorchActorCritic
from maze_pl.agents.gaussian_exploration import GaussianExploration
from maze_pl.modules.optimization.gradient_step import NetworkParameters
from maze_pl.perception import InferenceBlock


def parts_of(network: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Divide the trainable parameters of a network, or of the networks of several agents, by part.

    Parts are the blocks of a template by their names, otherwise the named children of the network.
    Names in a list of several networks begin with the index of the network.

    Args:
        network: A network, or a list of networks and explorations.

    Returns:
        Name of the part -> its parameters, without parts that have none. A parameter that belongs
        to the network itself is a separate part.
    """
    parts: dict[str, list[nn.Parameter]] = {}
    if isinstance(network, nn.ModuleList):
        networks = [child for child in network if not isinstance(child, GaussianExploration)]
        for index, child in enumerate(networks):
            prefix = f"{index}/" if len(networks) > 1 else ""
            for name, parameters in parts_of(child).items():
                parts[f"{prefix}{name}"] = parameters
        deviations = [child.log_std for child in network if isinstance(child, GaussianExploration)]
        return parts | {"log_std": deviations} if deviations else parts
    blocks = network.perception_blocks if isinstance(network, InferenceBlock) else dict(network.named_children())
    for name, block in blocks.items():
        parts[name] = list(block.parameters())
    for name, parameter in network.named_parameters(recurse=False):
        parts[name] = [parameter]
    trainable: dict[str, list[nn.Parameter]] = {}
    for name, parameters in parts.items():
        kept = [parameter for parameter in parameters if parameter.requires_grad]
        if kept:
            trainable[name] = kept
    return trainable


def networks_with_norms(networks: TorchActorCritic, *, by_part: bool) -> list[NetworkParameters]:
    """List the networks of policy and critic by step key.

    Args:
        networks: Policy and critic.
        by_part: Also list the parts of each network.
    """
    step_keys = networks.policy.spec.step_keys
    of_critic = [] if networks.critic is None else networks.critic.parts
    of_policy = [networks.policy.modules_of(step_key) for step_key in step_keys]
    listed: list[NetworkParameters] = []
    for name, parts in (("policy_grad_norm", of_policy), ("critic_grad_norm", of_critic)):
        for step_key, network in zip(step_keys, parts, strict=False):
            listed.append(NetworkParameters(name, step_key, list(network.parameters())))
            if by_part:
                for part, parameters in parts_of(network).items():
                    listed.append(NetworkParameters(name, f"{step_key}/{part}", parameters))
    return listed
