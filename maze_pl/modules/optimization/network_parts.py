"""Parts of networks, for gradient norms by part."""

from torch import nn

from maze_pl.agents.gaussian_exploration import GaussianExploration
from maze_pl.perception import InferenceBlock


def parts_of(network: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Divide the trainable parameters of a network, or of the networks of several agents, by part.

    Parts are the blocks of a template by their names, otherwise the named children of the network.
    Names in a list of several networks begin with the index of the network.

    Args:
        network: A network, or a list of networks and explorations.

    Returns:
        Name of the part -> its parameters, without parts that have none. The name of a parameter
            that belongs to the network itself is a part of its own.
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
