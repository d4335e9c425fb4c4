"""Block of transformer layers that attend to earlier acts of the same episode."""

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes


class TransformerMemoryBlock(PerceptionBlock):
    """Transformer layers over the latest acts of an episode: [..., n] to [..., hidden_size].

    Each layer attends to the inputs that it had in the current act and in the `memory_length` acts
    before it, as far as they belong to the episode. These inputs are the policy state. With k
    layers, an output therefore depends on the latest k * memory_length + 1 acts. For the input X of
    a layer with its memory M, in each act:

        Y = gate(X, relu(attention(LN(X), LN([M, X]))))
        X' = gate(Y, relu(feed_forward(LN(Y))))

        score of an act d acts ago = ((q + u) k_d + (q + v) W_r r_d) / sqrt(hidden_size / num_heads)

    with learned u and v, and sine and cosine waves r_d of the distance d: Transformer-XL, Dai et
    al. 2019, arXiv:1901.02860, with layer normalisation first and gates as in Parisotto et al.
    2019, arXiv:1910.06764 (GTrXL). Departures: gradients also flow to the memory, which is constant
    if it comes from acting; no dropout.

    The state is both input and output, named `<out_key>.memory` and `<out_key>.length`, the number
    of acts in the memory. If the weights have 16 bits, larger numbers than these can hold exactly
    are stored on another scale. Inputs [B, n] with a state [B, ...] are one act of B actors. Inputs
    [L, B, n] with a state [B, ...] are L consecutive acts of each, and give the same outputs as
    these acts one after the other. Without a state in the input, nothing is remembered, and all
    leading dimensions are actors that act once.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input (n,).
        hidden_size: Width of all layers and of the output; `num_heads` divides it.
        memory_length: Number of earlier acts that each layer attends to.
        num_layers: Number of layers.
        num_heads: Number of attention heads.
        feed_forward_size: Width of the hidden layer of each feed-forward network; None for four
            times `hidden_size`.
        gate: `gru` for the gates of GTrXL, `residual` for residual connections.
        gate_bias: Bias of the `gru` gates; values above 0 favour the skip connection at first.

    Attributes:
        state_shapes: Name -> shape of each part of the state, (num_layers, memory_length,
            hidden_size) and (1,).

    Raises:
        ValueError: The input is not a vector, a number is out of range, or the gate is unknown.

    Example:
        >>> block = TransformerMemoryBlock("observation", "latent", [4], hidden_size=8, memory_length=16)
        >>> block.state_shapes
        {'latent.memory': (1, 16, 8), 'latent.length': (1,)}
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_size: int,
        memory_length: int,
        num_layers: int = 1,
        num_heads: int = 4,
        feed_forward_size: int | None = None,
        gate: Literal["gru", "residual"] = "gru",
        gate_bias: float = 2.0,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        is_vector = len(self.out_keys) == len(self.in_shapes) == len(self.in_shapes[0]) == 1
        self.require(is_vector, "one vector, one output")
        self.require(gate in ("gru", "residual"), f"gate 'gru' or 'residual', not {gate!r}")
        self.require_numbers(hidden_size=hidden_size)
        n_hidden = 4 * hidden_size if feed_forward_size is None else feed_forward_size
        self.require_numbers(
            memory_length=memory_length,
            num_layers=num_layers,
            num_heads=num_heads,
            feed_forward_size=n_hidden,
        )
        divides = hidden_size % num_heads == 0
        self.require(divides, f"num_heads={num_heads} to divide hidden_size={hidden_size}")
        self.memory_length = memory_length
        self.hidden_size = hidden_size
        self.embedding = nn.Linear(self.in_shapes[0][0], hidden_size)
        layers = [_Layer(hidden_size, num_heads, n_hidden, gate, gate_bias) for _ in range(num_layers)]
        self.layers = nn.ModuleList(layers)
        distance = torch.arange(memory_length, -1, -1)  # [M + 1], of the oldest act first
        self.register_buffer("distance", distance, persistent=False)
        self.register_buffer("waves", _waves(distance, hidden_size), persistent=False)
        name = self.out_keys[0]
        self._memory_key = f"{name}.memory"
        self._length_key = f"{name}.length"
        self.state_shapes: dict[str, tuple[int, ...]] = {
            self._memory_key: (num_layers, memory_length, hidden_size),
            self._length_key: (1,),
        }

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the output [..., hidden_size] and the state after the last act."""
        dtype = self.embedding.weight.dtype
        inputs = block_input[self.in_keys[0]].to(dtype)
        leading = inputs.shape[:-1]
        actors = leading
        if self._memory_key in block_input:
            actors = block_input[self._memory_key].shape[:-3]
        n_actors = math.prod(actors)
        n_acts = math.prod(leading[: len(leading) - len(actors)])
        x = self.embedding(inputs.reshape(n_acts, n_actors, inputs.shape[-1])).transpose(0, 1)  # [B, L, n]
        shape = self.state_shapes[self._memory_key]
        if self._memory_key in block_input:
            memory = block_input[self._memory_key].to(dtype).reshape(n_actors, *shape)
            stored = block_input[self._length_key].to(dtype).reshape(n_actors, 1)
        else:
            memory = x.new_zeros(n_actors, *shape)
            stored = x.new_zeros(n_actors, 1)
        length = _count(stored, self.memory_length)
        n_earlier = length + torch.arange(n_acts, dtype=length.dtype, device=x.device)  # [B, L]
        allowed = self.get_buffer("distance") <= n_earlier.unsqueeze(-1)  # [B, L, M + 1]
        waves = self.get_buffer("waves").to(dtype)
        memories = []
        for index, layer in enumerate(self.layers):
            acts = torch.cat([memory[:, index], x], 1)  # [B, M + L, n]
            memories.append(acts[:, n_acts:])
            x = layer(acts, allowed, waves)
        return {
            self.out_keys[0]: x.transpose(0, 1).reshape(*leading, self.hidden_size),
            self._memory_key: torch.stack(memories, 1).reshape(*actors, *shape),
            self._length_key: _stored(length + n_acts, self.memory_length, dtype).reshape(*actors, 1),
        }


class _Layer(nn.Module):
    """Attention to the latest acts, and a feed-forward network, each with a gate.

    Args:
        width: Width of inputs and outputs, n.
        n_heads: Number of attention heads, H.
        n_hidden: Width of the hidden layer of the feed-forward network.
        gate: Kind of the gates.
        gate_bias: Their bias.
    """

    def __init__(self, width: int, n_heads: int, n_hidden: int, gate: str, gate_bias: float) -> None:
        super().__init__()
        head = (n_heads, width // n_heads)
        self.head = head
        self.attention_norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.position = nn.Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(head))  # u
        self.position_bias = nn.Parameter(torch.zeros(head))  # v
        self.output = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, n_hidden), nn.ReLU(), nn.Linear(n_hidden, width))
        self.attention_gate: nn.Module = _Sum()
        self.feed_forward_gate: nn.Module = _Sum()
        if gate == "gru":
            self.attention_gate = _GRUGate(width, gate_bias)
            self.feed_forward_gate = _GRUGate(width, gate_bias)

    def forward(self, acts: Tensor, allowed: Tensor, waves: Tensor) -> Tensor:
        """Return the outputs [B, L, n] of the last L acts.

        Args:
            acts: [B, M + L, n] inputs of the layer in the acts of the memory and in the L acts after it.
            allowed: [B, L, M + 1] whether an act attends to each of the M acts before it and itself.
            waves: [M + 1, n] encoding of the distances to them.
        """
        window = allowed.shape[2]
        x = acts[:, window - 1 :]
        normed = self.attention_norm(acts)
        query = self.query(normed[:, window - 1 :]).unflatten(-1, self.head)  # [B, L, H, n / H]
        # [B, M + L, H, n / H] -> [B, L, H, n / H, M + 1], for each act the acts that it may attend to
        keys = self.key(normed).unflatten(-1, self.head).unfold(1, window, 1)
        values = self.value(normed).unflatten(-1, self.head).unfold(1, window, 1)
        positions = self.position(waves).unflatten(-1, self.head)  # [M + 1, H, n / H]
        content_score = torch.einsum("blhn,blhnw->blhw", query + self.content_bias, keys)
        position_score = torch.einsum("blhn,whn->blhw", query + self.position_bias, positions)
        score = (content_score + position_score) / math.sqrt(self.head[1])
        weight = score.masked_fill(~allowed.unsqueeze(2), -torch.inf).softmax(-1)
        mixed = torch.einsum("blhw,blhnw->blhn", weight, values).flatten(2)
        x = self.attention_gate(x, self.output(mixed).relu())
        changed: Tensor = self.feed_forward_gate(x, self.feed_forward(self.feed_forward_norm(x)).relu())
        return changed


class _Sum(nn.Module):
    """Residual connection."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x + y."""
        return x + y


class _GRUGate(nn.Module):
    """Gate of GTrXL, a gated recurrent unit over the depth of the network.

        r = sigmoid(W_r y + U_r x),   z = sigmoid(W_z y + U_z x - b),   h = tanh(W_h y + U_h (r x))
        gate(x, y) = (1 - z) x + z h

    Args:
        width: Width of x and y.
        bias: b.
    """

    def __init__(self, width: int, bias: float) -> None:
        super().__init__()
        self.bias = bias
        self.of_output = nn.Linear(width, 3 * width)
        self.of_input = nn.Linear(width, 2 * width, bias=False)
        self.of_reset_input = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the gated sum of x and y, [..., width]."""
        reset_of_y, update_of_y, candidate_of_y = self.of_output(y).chunk(3, -1)
        reset_of_x, update_of_x = self.of_input(x).chunk(2, -1)
        reset = torch.sigmoid(reset_of_y + reset_of_x)
        update = torch.sigmoid(update_of_y + update_of_x - self.bias)
        candidate = torch.tanh(candidate_of_y + self.of_reset_input(reset * x))
        return (1.0 - update) * x + update * candidate


def _largest_exact(dtype: torch.dtype) -> float:
    """Return the number up to which a floating point type holds all whole numbers: 256 for bfloat16."""
    return 2.0 / torch.finfo(dtype).eps


def _stored(count: Tensor, highest: int, dtype: torch.dtype) -> Tensor:
    """Return a number of acts, at most `highest`, in the type of the state.

    Numbers n above the exact ones of a short type, m, are stored such that rounding keeps them apart:

        m 2^(4 (n - m) / m)

    Args:
        count: [B, 1], at least float32.
        highest: Largest number, the length of the memory.
        dtype: Type of the weights, in which states may be kept.
    """
    count = count.clamp(max=highest)
    exact = _largest_exact(dtype)
    if highest > exact:
        count = torch.where(count <= exact, count, exact * torch.exp2(4.0 * (count - exact) / exact))
    return count.to(dtype)


def _count(stored: Tensor, highest: int) -> Tensor:
    """Return the number of acts [B, 1], at least as float32, that `_stored` has stored."""
    exact = _largest_exact(stored.dtype)
    count = stored.to(torch.promote_types(stored.dtype, torch.float32))
    if highest > exact:
        more = exact + (torch.log2(count / exact) * exact / 4.0).round()
        count = torch.where(count <= exact, count, more)
    return count.clamp(0, highest)


def _waves(distance: Tensor, width: int) -> Tensor:
    """[M + 1, width] sines and cosines of distances [M + 1], of wavelengths from 2 pi to 20,000 pi."""
    n_frequencies = (width + 1) // 2
    frequency = 10_000.0 ** (-torch.arange(n_frequencies, dtype=torch.float64) / n_frequencies)
    angle = distance.double().unsqueeze(-1) * frequency
    return torch.cat([angle.sin(), angle.cos()], -1)[:, :width].float()
