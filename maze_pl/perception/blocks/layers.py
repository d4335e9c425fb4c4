"""Dense, convolution and recurrent layers, and weight initialisation.

Images keep the type that the environment returns. Byte images stay `torch.uint8` in observation
spaces, memory, rollouts and minibatches, a quarter of the size of float32. Only the convolution
blocks convert bytes to floats from 0 to 1 of the weights' type, one minibatch at a time. Floats,
and the values of other integers and flags, are not rescaled.

Recurrence is available over the acts of an episode (`RecurrentBlock`) and within an observation,
such as a stack (`LSTMBlock`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from maze_pl.core.class_path import import_class
from maze_pl.perception.blocks.perception_block import (
    Keys,
    PerceptionBlock,
    ShapeNormalizationBlock,
    Shapes,
    is_list,
    is_whole,
)

Layers = Sequence[int]
"""One number per layer."""

Sizes = Sequence[int | Sequence[int]]
"""For each layer, one number or a pair for height and width."""

ModuleClass = type[nn.Module] | str
"""A module class or its path, such as "torch.nn.ReLU"."""

_CELLS: dict[str, type[nn.LSTM | nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


def dense_layers(widths: Layers, non_lin: ModuleClass) -> nn.Sequential:
    """Make dense layers between consecutive widths, each followed by an activation."""
    activation = import_class(non_lin, nn.Module, "non_lin: ")
    return nn.Sequential(*(layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), activation())))


class _NetBlock(PerceptionBlock):
    """A module `net` applied to the last dimension of a single tensor."""

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the output [..., width]."""
        net, x = self._modules["net"], block_input[self.in_keys[0]]  # attribute access is slower
        if not x.is_floating_point():  # such as integers and flags in observations
            x = x.to(next(self.parameters()).dtype)
        return {self.out_keys[0]: net(x)}  # type: ignore[misc]


class DenseBlock(_NetBlock):
    """Dense layers, each followed by an activation: [..., n] to [..., hidden_units[-1]].

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input (n,), or (..., n).
        hidden_units: Width of each layer.
        non_lin: Activation, a class or its path.

    Example:
        >>> DenseBlock("observation", "latent", [4], hidden_units=[32, 16]).out_shapes()
        [(16,)]
    """

    def __init__(
        self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, hidden_units: Layers, non_lin: ModuleClass = nn.ReLU
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        self.require_lists(hidden_units=hidden_units)
        self.net = dense_layers([self.in_shapes[0][-1], *hidden_units], self.module_class(non_lin=non_lin))


class LinearOutputBlock(_NetBlock):
    """One linear layer without activation, for logits and values: [..., n] to [..., output_units].

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input (n,), or (..., n).
        output_units: Number of outputs.

    Example:
        >>> LinearOutputBlock("latent", "value", [16], output_units=1).out_shapes()
        [(1,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, output_units: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        self.require_numbers(output_units=output_units)
        self.net = nn.Linear(self.in_shapes[0][-1], output_units)


class _ConvolutionBlock(ShapeNormalizationBlock):
    """Layers for images of floats, or of bytes, which are converted to floats."""

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes) -> None:
        super().__init__(in_keys, out_keys, in_shapes, in_num_dims=4, out_num_dims=4)
        self.require_single(3)
        self.n_channels = self.in_shapes[0][-3]

    def _use(self, layers: Sequence[nn.Module]) -> None:
        """Set the layers of the block; refuse layers that reduce its images to nothing."""
        self.net = nn.Sequential(*layers)
        try:
            self.out_shapes()
        except RuntimeError as error:  # torch's message says which layer fails
            self.require(False, f"images and options that go together; {str(error).splitlines()[0]}")

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return features [B, C', H', W'] of images [B, C, H, W]."""
        # With channels last in memory, convolutions and their gradients take half to nine tenths of the time.
        images, layout = block_input[self.in_keys[0]], torch.channels_last
        if not images.is_floating_point():
            white = 255 if images.dtype == torch.uint8 else 1  # other integers are flags and counts
            images = images.to(next(self.net.parameters()).dtype, memory_format=layout).div_(white)
        images = images.contiguous(memory_format=layout)
        return {self.out_keys[0]: self.net(images)}


class VGGConvolutionBlock(_ConvolutionBlock):
    """Images [..., C, H, W] to [..., hidden_channels[-1], H', W'], halved once for each entry of `hidden_channels`.

    Each entry makes two 3 x 3 convolutions that keep height and width, each followed by the
    activation, and a 2 x 2 max-pooling: H' = H // 2 ** len(hidden_channels). Simonyan and Zisserman
    2015, arXiv:1409.1556. Byte images (`torch.uint8`) are converted to floats from 0 to 1.

    Args:
        in_keys: Name of the images.
        out_keys: Name of the output.
        in_shapes: Shape of the images (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each pair of convolutions.
        non_lin: Activation, a class or its path.

    Raises:
        ValueError: The images are too small for the layers.

    Example:
        >>> VGGConvolutionBlock("screen", "latent", [3, 64, 64], hidden_channels=[8, 16, 32]).out_shapes()
        [(32, 8, 8)]
    """

    def __init__(
        self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, hidden_channels: Layers, non_lin: ModuleClass = nn.ReLU
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_lists(hidden_channels=hidden_channels)
        activation = self.module_class(non_lin=non_lin)
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise([self.n_channels, *hidden_channels]):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1), activation()]
            layers += [nn.Conv2d(n_out, n_out, 3, padding=1), activation(), nn.MaxPool2d(2)]
        self._use(layers)


class StridedConvolutionBlock(_ConvolutionBlock):
    """Convolutions, each followed by an activation: [..., C, H, W] to [..., hidden_channels[-1], H', W'].

    A layer with kernel k, stride s and padding p maps size n to floor((n + 2 p - k) / s) + 1. Byte
    images (`torch.uint8`) are converted to floats from 0 to 1.

    Args:
        in_keys: Name of the images.
        out_keys: Name of the output.
        in_shapes: Shape of the images (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each convolution.
        hidden_kernels: Size of each kernel; a number, or a pair for height and width.
        hidden_strides: Stride of each convolution, likewise; 1 by default.
        hidden_padding: Zeros added at both ends of a dimension, likewise; 0 by default.
        non_lin: Activation, a class or its path.

    Raises:
        ValueError: There is not one kernel, stride and padding for each convolution, or the images
            are too small for the layers.

    Example:
        >>> block = StridedConvolutionBlock(
        ...     "screen", "latent", [4, 84, 84], [32, 64, 64], hidden_kernels=[8, 4, 3], hidden_strides=[4, 2, 1]
        ... )
        >>> block.out_shapes()
        [(64, 7, 7)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_channels: Layers,
        hidden_kernels: Sizes,
        hidden_strides: Sizes | None = None,
        hidden_padding: Sizes | None = None,
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_lists(hidden_channels=hidden_channels)
        n = len(hidden_channels)
        strides = [1] * n if hidden_strides is None else hidden_strides
        padding = [0] * n if hidden_padding is None else hidden_padding
        self._require_sizes(hidden_kernels=hidden_kernels, hidden_strides=strides)
        self._require_sizes(0, hidden_padding=padding)
        options = (hidden_kernels, strides, padding)
        good = {n} == {len(values) for values in options}
        self.require(good, f"one kernel, stride and padding for each of hidden_channels={[*hidden_channels]}")
        activation = self.module_class(non_lin=non_lin)
        layers: list[nn.Module] = []
        for (n_in, n_out), *values in zip(pairwise([self.n_channels, *hidden_channels]), *options, strict=True):
            layers += [nn.Conv2d(n_in, n_out, *values), activation()]  # type: ignore[arg-type]
        self._use(layers)

    def _require_sizes(self, least: int = 1, **options: Sizes) -> None:
        """Refuse options that are not lists of numbers and pairs of numbers."""
        each = f"a whole number of at least {least} or a pair of them"
        for name, values in options.items():
            sizes: list[Any] = [*values] if is_list(values) else [None]
            pairs = [size if is_list(size) else (size, size) for size in sizes]
            good = all(len(pair) == 2 and all(is_whole(size, least) for size in pair) for pair in pairs)
            self.require(good, f"{name} to be a list, each entry {each}; not {values!r}")


class RecurrentBlock(PerceptionBlock):
    """LSTM or GRU layers with a state carried from act to act: [..., n] to [..., hidden_size].

    The state is both input and output, named `<out_key>.hidden` and, for an LSTM, `<out_key>.cell`.
    Inputs [B, n] with a state [B, ...] are one act of B actors. Inputs [L, B, n] with a state [B,
    ...] are L consecutive acts of each; the given state is the one before the first act, the
    returned state the one after the last. Without a state in the input, the state is zero, and all
    leading dimensions are actors that act once.

    `LSTMBlock` instead processes the time steps of a single observation, such as a stack, and
    carries no state.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input (n,).
        hidden_size: Width of the state and of the output.
        num_layers: Number of layers.
        cell: "lstm" or "gru".

    Attributes:
        state_shapes: Name -> shape of each part of the state, (num_layers, hidden_size).

    Raises:
        ValueError: The input is not a vector, or the cell is unknown.

    Example:
        >>> block = RecurrentBlock("observation", "memory", [4], hidden_size=8, cell="gru")
        >>> block.state_shapes
        {'memory.hidden': (1, 8)}
        >>> step = block({"observation": torch.zeros(5, 4), "memory.hidden": torch.zeros(5, 1, 8)})
        >>> {name: tuple(tensor.shape) for name, tensor in step.items()}
        {'memory': (5, 8), 'memory.hidden': (5, 1, 8)}
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_size: int,
        num_layers: int = 1,
        cell: Literal["lstm", "gru"] = "lstm",
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require(len(self.out_keys) == len(self.in_shapes) == len(self.in_shapes[0]) == 1, "one vector, one output")
        self.require(isinstance(cell, str) and cell in _CELLS, f"cell 'lstm' or 'gru', not {cell!r}")
        self.require_numbers(hidden_size=hidden_size, num_layers=num_layers)
        self.net = _CELLS[cell](self.in_shapes[0][0], hidden_size, num_layers)
        parts = ("hidden", "cell") if cell == "lstm" else ("hidden",)
        self.state_shapes = {f"{self.out_keys[0]}.{part}": (num_layers, hidden_size) for part in parts}

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the output [..., hidden_size] and the state after the last act."""
        dtype = next(self.parameters()).dtype
        inputs = block_input[self.in_keys[0]].to(dtype)
        given = [block_input[name].to(dtype) for name in self.state_shapes if name in block_input]
        leading = inputs.shape[:-1]
        actors = given[0].shape[:-2] if given else leading
        lengths = leading[: len(leading) - len(actors)] or (1,)
        n_actors = math.prod(actors)  # Size.numel() would fix the size of the batch in exported programs
        sequences = inputs.reshape(*lengths, n_actors, inputs.shape[-1])  # [L, B, n]
        # [B, num_layers, hidden_size] -> [num_layers, B, hidden_size]
        before = [state.reshape(n_actors, *state.shape[-2:]).transpose(0, 1).contiguous() for state in given]
        output, after = self.net(sequences, (tuple(before) if len(before) == 2 else before[0]) if given else None)
        states = after if isinstance(after, tuple) else (after,)
        named = zip(self.state_shapes.items(), states, strict=True)
        carried = {name: state.transpose(0, 1).reshape(*actors, *shape) for (name, shape), state in named}
        return {self.out_keys[0]: output.reshape(*leading, self.net.hidden_size), **carried}


class LSTMBlock(ShapeNormalizationBlock):
    """LSTM over an observation's time steps, then a dense layer: [..., T, n] to [..., T, hidden_size].

        h_1, ..., h_T = LSTM(x_1, ..., x_T),   y_t = non_lin(W h_t + b)

    The state is zero at the start of each observation and is not kept. All time steps share the
    dense layer.

    Args:
        in_keys: Name of the sequences.
        out_keys: Name of the output.
        in_shapes: Shape of the sequences (T, n), or (..., T, n).
        hidden_size: Width of the state of each direction, and of the output.
        num_layers: Number of LSTM layers.
        bidirectional: Whether further layers process the sequence in reverse.
        non_lin: Activation, a class or its path.

    Example:
        >>> LSTMBlock("stack", "latent", [4, 16], hidden_size=32).out_shapes()
        [(4, 32)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes, in_num_dims=3, out_num_dims=3)
        self.require_single(2)
        self.require_numbers(hidden_size=hidden_size, num_layers=num_layers)
        self.require_flags(bidirectional=bidirectional)
        n = self.in_shapes[0][-1]
        self.lstm = nn.LSTM(n, hidden_size, num_layers, batch_first=True, bidirectional=bidirectional)
        widths = [(1 + bidirectional) * hidden_size, hidden_size]
        self.dense = dense_layers(widths, self.module_class(non_lin=non_lin))

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the output [B, T, hidden_size] for sequences [B, T, n]."""
        return {self.out_keys[0]: self.dense(self.lstm(block_input[self.in_keys[0]])[0])}


def make_module_init_normc(std: float) -> Callable[[nn.Module], None]:
    """Make an initialiser for `nn.Module.apply`: weights of a fixed norm in random directions, biases zero.

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
        raise ValueError(f"probability={probability} must lie between 0 and 1, without 0 and 1 themselves")
    return math.log(probability / (1.0 - probability))
