"""Dense, convolution and recurrent layers, and initial weights.

Images stay what the environment gives, `torch.uint8` where it gives bytes, all the way from it: in observation spaces,
memory, rollouts and minibatches, at a quarter of the size of float32. Only the convolution blocks turn bytes into
floats from 0 to 1 of the weights' type, one minibatch at a time. Floats are left as they are, and so are the values of
other integers and flags.

There is recurrence over the acts of an episode, by a block that remembers, and within an observation, such as a stack.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from maze_pl.core.class_path import import_class
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, ShapeNormalizationBlock, Shapes

Layers = Sequence[int]
"""One number for each layer."""

Sizes = Sequence[int | Sequence[int]]
"""For each layer one number, or one for height and one for width."""

ModuleClass = type[nn.Module] | str
"""A module class or its path, such as "torch.nn.ReLU"."""

_CELLS: dict[str, type[nn.LSTM | nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


def dense_layers(widths: Layers, non_lin: ModuleClass) -> nn.Sequential:
    """Dense layers from each width to the next one, each followed by an activation."""
    activation = import_class(non_lin, nn.Module)
    return nn.Sequential(*(layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), activation())))


class _NetBlock(PerceptionBlock):
    """A module `net` for the last dimension of a single tensor."""

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """[..., width]."""
        net, x = self._modules["net"], block_input[self.in_keys[0]]  # as an attribute it takes a while to find
        if not x.is_floating_point():  # such as numbers and flags that an environment shows
            x = x.to(next(self.parameters()).dtype)
        return {self.out_keys[0]: net(x)}  # type: ignore[misc]


class DenseBlock(_NetBlock):
    """Dense layers, each followed by an activation: [..., n] to [..., hidden_units[-1]].

    Args:
        in_keys: Name of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Its shape (n,), or (..., n).
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
        self.require(len(hidden_units) > 0, "at least one entry of hidden_units")
        self.net = dense_layers([self.in_shapes[0][-1], *hidden_units], non_lin)


class LinearOutputBlock(_NetBlock):
    """One linear layer without activation, for logits and values: [..., n] to [..., output_units].

    Args:
        in_keys: Name of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Its shape (n,), or (..., n).
        output_units: Number of outputs.

    Example:
        >>> LinearOutputBlock("latent", "value", [16], output_units=1).out_shapes()
        [(1,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, output_units: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        self.net = nn.Linear(self.in_shapes[0][-1], output_units)


class _ConvolutionBlock(ShapeNormalizationBlock):
    """Layers for images of floats, or of bytes, which become floats here."""

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes) -> None:
        super().__init__(in_keys, out_keys, in_shapes, in_num_dims=4, out_num_dims=4)
        self.require_single(3)
        self.n_channels = self.in_shapes[0][-3]

    def _use(self, layers: Sequence[nn.Module]) -> None:
        """Make these the layers of the block, if they leave something of its images."""
        self.net = nn.Sequential(*layers)
        try:
            self.out_shapes()
        except RuntimeError as error:  # torch knows best which layer has too little to work with
            self.require(False, f"images and options that go together; {str(error).splitlines()[0]}")

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """[B, C', H', W'] from images [B, C, H, W]."""
        # With channels last in memory, convolutions and their gradients take half to nine tenths of the time.
        images, layout = block_input[self.in_keys[0]], torch.channels_last
        if not images.is_floating_point():
            white = 255 if images.dtype == torch.uint8 else 1  # other integers are flags and numbers of things
            images = images.to(next(self.net.parameters()).dtype, memory_format=layout).div_(white)
        images = images.contiguous(memory_format=layout)
        return {self.out_keys[0]: self.net(images)}


class VGGConvolutionBlock(_ConvolutionBlock):
    """Images [..., C, H, W] to [..., hidden_channels[-1], H', W'], halved once for each entry of `hidden_channels`.

    Each entry stands for two 3 x 3 convolutions that keep height and width, with the activation after each, and 2 x 2
    max-pooling: H' = H // 2 ** len(hidden_channels). Simonyan and Zisserman 2015, arXiv:1409.1556. Images of bytes
    (`torch.uint8`) become floats from 0 to 1 here.

    Args:
        in_keys: Name of the images.
        out_keys: Name of what comes out.
        in_shapes: Their shape (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each pair of convolutions.
        non_lin: Activation, a class or its path.

    Raises:
        ValueError: The images are so small that nothing is left of them.

    Example:
        >>> VGGConvolutionBlock("screen", "latent", [3, 64, 64], hidden_channels=[8, 16, 32]).out_shapes()
        [(32, 8, 8)]
    """

    def __init__(
        self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, hidden_channels: Layers, non_lin: ModuleClass = nn.ReLU
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require(len(hidden_channels) > 0, "at least one entry of hidden_channels")
        activation, layers = import_class(non_lin, nn.Module), list[nn.Module]()
        for n_in, n_out in pairwise([self.n_channels, *hidden_channels]):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1), activation()]
            layers += [nn.Conv2d(n_out, n_out, 3, padding=1), activation(), nn.MaxPool2d(2)]
        self._use(layers)


class StridedConvolutionBlock(_ConvolutionBlock):
    """Convolutions, each followed by an activation: [..., C, H, W] to [..., hidden_channels[-1], H', W'].

    A layer with kernel k, stride s and padding p leaves floor((n + 2 p - k) / s) + 1 of n. Images of bytes
    (`torch.uint8`) become floats from 0 to 1 here.

    Args:
        in_keys: Name of the images.
        out_keys: Name of what comes out.
        in_shapes: Their shape (C, H, W), or (..., C, H, W).
        hidden_channels: Channels of each convolution.
        hidden_kernels: Size of each kernel; a number, or one for height and one for width.
        hidden_strides: Stride of each convolution, likewise; 1 if not given.
        hidden_padding: Zeros that are added at both ends of a dimension, likewise; none if not given.
        non_lin: Activation, a class or its path.

    Raises:
        ValueError: Not one kernel, stride, ... for each convolution, or nothing is left of the images.

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
        n = len(hidden_channels)
        options = (hidden_kernels, hidden_strides or [1] * n, hidden_padding or [0] * n)
        good = {n} == {len(values) for values in options} != {0}
        self.require(good, f"one kernel, stride and padding for each of hidden_channels={[*hidden_channels]}")
        activation, layers = import_class(non_lin, nn.Module), list[nn.Module]()
        for (n_in, n_out), *values in zip(pairwise([self.n_channels, *hidden_channels]), *options, strict=True):
            layers += [nn.Conv2d(n_in, n_out, *values), activation()]  # type: ignore[arg-type]
        self._use(layers)


class RecurrentBlock(PerceptionBlock):
    """LSTM or GRU layers whose state is carried from act to act: [..., n] to [..., hidden_size].

    The state is among what goes in and what comes out, as `<out_key>.hidden` and for an LSTM `<out_key>.cell`. With
    inputs [B, n] and a state [B, ...] this is one act of B actors; with inputs [L, B, n] and a state [B, ...] it is L
    acts of each, one after the other, from the state before the first to the one after the last. Without a state in
    the input it is zero, and all leading dimensions are actors that act once.

    `LSTMBlock` instead reads the times of a single observation, such as a stack, and carries nothing.

    Args:
        in_keys: Name of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Its shape (n,).
        hidden_size: Width of the state and of what comes out.
        num_layers: Number of layers.
        cell: "lstm" or "gru".

    Attributes:
        state_shapes: Name -> shape of each part of the state, (num_layers, hidden_size).

    Raises:
        ValueError: What goes in is no vector, or the cell is unknown.

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
        self.require(cell in _CELLS, f"cell 'lstm' or 'gru', not {cell!r}")
        self.net = _CELLS[cell](self.in_shapes[0][0], hidden_size, num_layers)
        parts = ("hidden", "cell") if cell == "lstm" else ("hidden",)
        self.state_shapes = {f"{self.out_keys[0]}.{part}": (num_layers, hidden_size) for part in parts}

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """[..., hidden_size], and the state after the last act."""
        dtype = next(self.parameters()).dtype
        inputs = block_input[self.in_keys[0]].to(dtype)
        given = [block_input[name].to(dtype) for name in self.state_shapes if name in block_input]
        leading = inputs.shape[:-1]
        actors = given[0].shape[:-2] if given else leading
        lengths = leading[: len(leading) - len(actors)] or (1,)
        sequences = inputs.reshape(*lengths, actors.numel(), inputs.shape[-1])  # [L, B, n]
        # [B, num_layers, hidden_size] -> [num_layers, B, hidden_size]
        before = [state.reshape(actors.numel(), *state.shape[-2:]).transpose(0, 1).contiguous() for state in given]
        output, after = self.net(sequences, (tuple(before) if len(before) == 2 else before[0]) if given else None)
        states = after if isinstance(after, tuple) else (after,)
        named = zip(self.state_shapes.items(), states, strict=True)
        carried = {name: state.transpose(0, 1).reshape(*actors, *shape) for (name, shape), state in named}
        return {self.out_keys[0]: output.reshape(*leading, self.net.hidden_size), **carried}


class LSTMBlock(ShapeNormalizationBlock):
    """LSTM layers over the times of one observation, then a dense layer: [..., T, n] to [..., T, hidden_size].

        h_1, ..., h_T = LSTM(x_1, ..., x_T),   y_t = non_lin(W h_t + b)

    The state starts as zero with each observation and is not kept. The dense layer is the same for all times.

    Args:
        in_keys: Name of the sequences.
        out_keys: Name of what comes out.
        in_shapes: Their shape (T, n), or (..., T, n).
        hidden_size: Width of the state, of each direction, and of what comes out.
        num_layers: Number of LSTM layers.
        bidirectional: Whether there are further layers that read from the last time to the first.
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
        n = self.in_shapes[0][-1]
        self.lstm = nn.LSTM(n, hidden_size, num_layers, batch_first=True, bidirectional=bidirectional)
        self.dense = dense_layers([(1 + bidirectional) * hidden_size, hidden_size], non_lin)

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """[B, T, hidden_size] from [B, T, n]."""
        return {self.out_keys[0]: self.dense(self.lstm(block_input[self.in_keys[0]])[0])}


def make_module_init_normc(std: float) -> Callable[[nn.Module], None]:
    """Make an initialiser for `nn.Module.apply`: weights of a fixed norm in random directions, biases zero.

        w_i = std * g_i / |g_i|,   g_i ~ N(0, I),   for the incoming weights w_i of output unit i

    It changes dense and convolution layers and leaves all others as they are. Random numbers come from torch's
    global generator.

    Args:
        std: Norm of each unit's incoming weights; 1.0 for hidden layers, 0.01 for the outputs of a policy, which then
            starts out nearly uniform.

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
    """The bias with which a sigmoid gives a probability where all else is zero.

        b = log(p / (1 - p)),   sigmoid(b) = p

    For the head of a Bernoulli distribution that is to begin with the rate p.

    Args:
        probability: p, between 0 and 1.

    Raises:
        ValueError: It is not between 0 and 1.

    Example:
        >>> layer = nn.Linear(4, 3).apply(make_module_init_normc(0.01))
        >>> _ = nn.init.constant_(layer.bias, compute_sigmoid_bias(0.1))
        >>> layer(torch.zeros(4)).sigmoid()
        tensor([0.1000, 0.1000, 0.1000], grad_fn=<SigmoidBackward0>)
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability={probability} must lie between 0 and 1, without 0 and 1 themselves")
    return math.log(probability / (1.0 - probability))
