"""Weight initialisation."""

import math
from collections.abc import Callable

import torch
from torch import nn


def make_module_init_normc(std: float) -> Callable[[nn.Module], None]:
    """Make an initialiser for `nn.Module.apply`.

    Weights have a fixed norm and random directions, biases are zero:

        w_i = std * g_i / |g_i|,   g_i ~ N(0, I),   for the incoming weights w_i of output unit i

    It initialises dense and convolution layers and leaves all others unchanged. Random numbers come
    from torch's global generator.

    Args:
        std: Norm of each unit's incoming weights; 1.0 for hidden layers, 0.01 for the outputs of a
            policy, which is then nearly uniform at first.

    Example:
        >>> layer = nn.Linear(4, 3).apply(make_module_init_normc(0.5))
        >>> bool(torch.allclose(layer.weight.norm(dim=1), torch.tensor(0.5)))
        True
    """

    def initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            with torch.no_grad():
                direction = torch.randn_like(module.weight)
                norms = direction.flatten(1).norm(dim=1).reshape(-1, *[1] * (direction.dim() - 1))
                module.weight.copy_(direction * (std / norms))
                if module.bias is not None:
                    module.bias.zero_()

    return initialise


def compute_sigmoid_bias(probability: float) -> float:
    """Return the bias for which a sigmoid is a given probability at zero weights.

        b = log(p / (1 - p)),   sigmoid(b) = p

    Use it for the head of a Bernoulli distribution that should start with rate p.

    Args:
        probability: p, strictly between 0 and 1.

    Raises:
        ValueError: `probability` is not strictly between 0 and 1.

    Example:
        >>> layer = nn.Linear(4, 3).apply(make_module_init_normc(0.01))
        >>> _ = nn.init.constant_(layer.bias, compute_sigmoid_bias(0.1))
        >>> layer(torch.zeros(4)).sigmoid()
        tensor([0.1000, 0.1000, 0.1000], grad_fn=<SigmoidBackward0>)
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability={probability} must lie between 0 and 1, exclusive")
    return math.log(probability / (1.0 - probability))
