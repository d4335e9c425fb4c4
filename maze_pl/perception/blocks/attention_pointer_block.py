"""Block that chooses one item of a set, which attend to each other first."""

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.attention import heads_attend
from maze_pl.perception.blocks.item_sets import ItemSetBlock, ItemSets
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass
from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.weight_init import make_module_init_normc


class AttentionPointerBlock(ItemSetBlock):
    """Logits for choosing one item of a set whose items attend to each other: items (N, F) to (N,).

    Items are embedded together with the context, as by `PointerBlock`. In each layer, items attend
    to all items with M heads, then pass through a dense layer:

        a_i = h_i + W_o [sum_j softmax_j(k_j . q_i / sqrt(d / M)) v_j],   q, k, v = W norm(h)
        h_i <- a_i + W_2 f(W_1 norm(a_i) + b_1) + b_2

    The logit of item i is w . norm(h_i) + b. `norm` normalises each item to mean 0 and variance 1
    and scales it. Nothing depends on the slots of items, on padding, or on the number of slots.
    Dense layers are computed for items in use only.

    Vaswani et al. 2017, arXiv:1706.03762 (attention), with normalisation first (Xiong et al. 2020,
    arXiv:2002.04745); Kool et al. 2019, arXiv:1803.08475 (encoders of customers for routing).

    Args:
        in_keys: Name of the items, and names of further inputs in any order. Inputs that no option
            below names form the context.
        out_keys: Name of the logits.
        in_shapes: Shapes of the inputs, first of the items, (N, F).
        mask_key: Input (N,) that is 0 where the slot holds no item, which may include items that
            may not be chosen now: action masks rule them out later. Such slots have no effect and
            get the most negative finite logit. Without it, all slots hold items.
        hidden_units: Width of each layer of the embedding; at least one layer.
        n_layers: Number of attention layers.
        n_heads: Number of attention heads, which divides the last of `hidden_units`.
        feed_forward_units: Width of the dense layer of each attention layer.
        non_lin: Activation f, a class or its path.
        skip_masked: Whether masked slots are not even computed on the CPU, which is faster if there are
            many, but makes shapes depend on values, so that updates cannot be traced there.

    Raises:
        ValueError: Shapes do not fit the roles of the inputs, or an option names no input.

    Example:
        >>> import torch
        >>> block = AttentionPointerBlock(["customers", "waits"], "next", [[5, 3], [5]], mask_key="waits")
        >>> waits = torch.tensor([1, 1, 0, 1, 0])
        >>> block({"customers": torch.randn(5, 3), "waits": waits})["next"].softmax(-1) > 0
        tensor([ True,  True, False,  True, False])
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        mask_key: str | None = None,
        hidden_units: Layers = (64,),
        n_layers: int = 1,
        n_heads: int = 4,
        feed_forward_units: int = 128,
        non_lin: ModuleClass = nn.ReLU,
        skip_masked: bool = True,
    ) -> None:
        super().__init__(
            in_keys,
            out_keys,
            in_shapes,
            out_num_dims=2,
            mask_key=mask_key,
            chosen_keys=(),
            compare_keys=(),
            hidden_units=hidden_units,
            non_lin=non_lin,
            levels=None,
            any_order=False,
            skip_zeros=False,
            skip_masked=skip_masked,
        )
        self.require_numbers(n_layers=n_layers, n_heads=n_heads, feed_forward_units=feed_forward_units)
        width = self.embedding_width
        self.require(width % n_heads == 0, f"n_heads that divides {width}, not {n_heads}")
        activation = type(self.activation)
        layers = [_Layer(width, n_heads, feed_forward_units, activation) for _ in range(n_layers)]
        self.attention = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, 1).apply(make_module_init_normc(0.01))

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the logits [B, N]."""
        encoded = self.encode(block_input)
        embeddings = encoded.embeddings
        for layer in self.attention:
            embeddings = layer(encoded.sets, embeddings)
        scores = self.output(self.norm(embeddings)).squeeze(-1)
        lowest = torch.finfo(scores.dtype).min
        logits = encoded.sets.place(scores, lowest)
        return {self.out_keys[0]: logits}


class _Layer(nn.Module):
    """Attention of all items of each set to each other, and a dense layer."""

    def __init__(self, width: int, n_heads: int, feed_forward_units: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm_before_attention = nn.LayerNorm(width)
        self.projection = nn.Linear(width, 3 * width, bias=False).apply(make_module_init_normc(1.0))
        self.mixing = nn.Linear(width, width, bias=False).apply(make_module_init_normc(0.1))
        self.norm_before_dense = nn.LayerNorm(width)
        self.dense = nn.Linear(width, feed_forward_units).apply(make_module_init_normc(2.0**0.5))
        self.activation = activation()
        self.output = nn.Linear(feed_forward_units, width).apply(make_module_init_normc(0.1))

    def forward(self, sets: ItemSets, embeddings: Tensor) -> Tensor:
        """Return new embeddings [*items, d]."""
        projected = sets.in_slots(self.projection(self.norm_before_attention(embeddings)))  # [B, N, 3 d]
        split = [self._heads(part) for part in projected.chunk(3, -1)]
        in_use = sets.in_use()
        allowed = (in_use | ~in_use.any(-1, keepdim=True)).unsqueeze(-2)  # [B, 1, N]; empty sets attend to zeros
        query, key, value = split
        mixed, _ = heads_attend(query, key, value, allowed, scale=None, dropout=0.0, with_weights=False)
        embeddings = embeddings + self.mixing(sets.select(mixed.transpose(1, 2).flatten(2)))
        hidden = self.activation(self.dense(self.norm_before_dense(embeddings)))
        return embeddings + self.output(hidden)  # type: ignore[no-any-return]

    def _heads(self, x: Tensor) -> Tensor:
        """Divide features [B, N, d] among heads [B, heads, N, d / heads]."""
        return torch.unflatten(x, -1, (self.n_heads, -1)).transpose(1, 2)
