"""Block that chooses one item of a set: a pointer network."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.item_sets import Encoded, ItemSetBlock
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass
from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.weight_init import make_module_init_normc

Score = Literal["linear", "additive", "dot"]
"""Function of an item's embedding and the query that gives the item's logit."""


class PointerBlock(ItemSetBlock):
    """Logits for choosing one item of a set: items (N, F) and their context to (N,).

    Each item is embedded together with the context c, and with the mean of the other items:

        h_{1, i}     = f(A_1 x_i + C c + b_1)
        h_{l + 1, i} = f(A_l h_{l, i} + B_l mean_j h_{l, j} + b_l),   e_i = h_{L, i}

    The query is q = W_m mean_j e_j + W_c c + b. Each glimpse attends to the items with M heads:

        q <- q + W_o sum_j softmax_j(k_j . q / sqrt(d / M)) v_j,   k_j = W_k e_j, v_j = W_v e_j

    and the logit of item i is one of

        linear:    v . e_i
        additive:  v . tanh(W_1 e_i + q)
        dot:       W_1 e_i . q / sqrt(d)

    with `clip`, C, finally C tanh(logit). All means and sums are over the items that the mask
    allows, so the logits of an item do not depend on its slot, on padding, or on the number of
    slots: weights that were learned with n slots work with any other number.

    Vinyals et al. 2015, arXiv:1506.03134, eq. 3 (additive); Bello et al. 2016, arXiv:1611.09940
    (glimpses, clipping); Kool et al. 2019, arXiv:1803.08475, eq. 6 and 7 (several heads, dot);
    Zaheer et al. 2017, arXiv:1703.06114 (embedding). Departures: items are embedded with the
    context, and a glimpse is added to the query instead of replacing it.

    Args:
        in_keys: Name of the items, and names of further inputs in any order. Inputs that no option
            below names form the context, such as an embedding of all other observations.
        out_keys: Name of the logits.
        in_shapes: Shapes of the inputs, first of the items, (N, F).
        mask_key: Input (N,) that is 0 where the slot holds no item that may be chosen. Such slots
            have no effect and get the most negative finite logit. Without it, all may be chosen.
        chosen_keys: Inputs () or (k,), indices of items that were chosen before, whose numbers
            become part of the context, masked or not. A number that is not the index of a slot,
            such as -1, stands for no item.
        compare_keys: Inputs (m,), whose differences from all numbers of each item are encoded, too;
            they need `levels`. They are part of the context.
        hidden_units: Width of each layer of the embedding; at least one layer.
        non_lin: Activation f, a class or its path.
        levels: Numbers of items and of `compare_keys` are whole numbers from 0, and one-hot
            encoded; those of at least `levels` count as the largest. Helps if equality of numbers
            matters. None uses numbers as they are.
        any_order: Whether items with the same numbers in another order are the same, such as
            rectangles that may be rotated; the same holds for `compare_keys`.
        skip_zeros: Whether items whose numbers are all 0 do not exist.
        skip_masked: Whether masked slots are not even computed on the CPU, which is faster if there are
            many, but makes shapes depend on values, so that updates cannot be traced there. Without a
            mask, all slots are computed.
        score: "linear", "additive" or "dot"; "linear" makes no use of a query.
        n_glimpses: Number of glimpses.
        n_heads: Number of attention heads of each glimpse, which divides the last of
            `hidden_units`.
        clip: Maximum absolute value of the logits of items that may be chosen; None for none. 10 in
            the papers.

    Raises:
        ValueError: Shapes do not fit the roles of the inputs, an option names no input, or options
            contradict each other.

    Example:
        >>> import torch
        >>> block = PointerBlock(["jobs", "waits"], "job", [[5, 3], [5]], mask_key="waits")
        >>> waits = torch.tensor([1, 1, 0, 1, 0])
        >>> block({"jobs": torch.randn(5, 3), "waits": waits})["job"].softmax(-1) > 0
        tensor([ True,  True, False,  True, False])
        >>> block({"jobs": torch.randn(9, 3), "waits": torch.ones(9)})["job"].shape
        torch.Size([9])
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        mask_key: str | None = None,
        chosen_keys: Sequence[str] = (),
        compare_keys: Sequence[str] = (),
        hidden_units: Layers = (64, 64),
        non_lin: ModuleClass = nn.ReLU,
        levels: int | None = None,
        any_order: bool = False,
        skip_zeros: bool = False,
        skip_masked: bool = True,
        score: Score = "additive",
        n_glimpses: int = 0,
        n_heads: int = 1,
        clip: float | None = None,
    ) -> None:
        super().__init__(
            in_keys,
            out_keys,
            in_shapes,
            out_num_dims=2,
            mask_key=mask_key,
            chosen_keys=chosen_keys,
            compare_keys=compare_keys,
            hidden_units=hidden_units,
            non_lin=non_lin,
            levels=levels,
            any_order=any_order,
            skip_zeros=skip_zeros,
            skip_masked=skip_masked,
        )
        known = ("linear", "additive", "dot")
        self.require(score in known, f"score {', '.join(known)}, not {score!r}")
        self.require_numbers(0, n_glimpses=n_glimpses)
        self.require_numbers(n_heads=n_heads)
        width = self.embedding_width
        self.require(width % n_heads == 0, f"n_heads that divides {width}, not {n_heads}")
        is_number = isinstance(clip, int | float) and not isinstance(clip, bool)
        good = clip is None or (is_number and clip > 0)
        self.require(good, f"clip to be a number above 0 or None, not {clip!r}")
        contradictory = score == "linear" and n_glimpses > 0
        self.require(not contradictory, "no glimpses with the score linear, which uses no query")
        self.score = score
        self.clip = clip
        self.n_heads = n_heads
        if score != "linear":
            self.query_of_mean = nn.Linear(width, width).apply(make_module_init_normc(1.0))
            self.query_of_context: nn.Linear | None = None
            if self.context_width:
                of_context = nn.Linear(self.context_width, width, bias=False)
                self.query_of_context = of_context.apply(make_module_init_normc(1.0))
            self.key = nn.Linear(width, width, bias=False).apply(make_module_init_normc(1.0))
        self.glimpses = nn.ModuleList(_Glimpse(width, n_heads) for _ in range(n_glimpses))
        if score == "dot":
            self.key.apply(make_module_init_normc(0.01))
        else:
            self.output = nn.Linear(width, 1).apply(make_module_init_normc(0.01))

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the logits [B, N]."""
        encoded = self.encode(block_input)
        scores = self._scores(encoded)
        if self.clip is not None:
            scores = self.clip * scores.tanh()
        logits = encoded.sets.place(scores, torch.finfo(scores.dtype).min)
        return {self.out_keys[0]: logits}

    def _scores(self, encoded: Encoded) -> Tensor:
        """Return the logit of each item [*items], without clipping."""
        embeddings = encoded.embeddings
        if self.score == "linear":
            return self.output(embeddings).squeeze(-1)  # type: ignore[no-any-return]
        query = self.query_of_mean(encoded.sets.mean(embeddings))
        if self.query_of_context is not None:
            query = query + self.query_of_context(encoded.context)
        for glimpse in self.glimpses:
            query = query + glimpse(encoded, query)
        query = encoded.sets.spread(query)
        keys = self.key(embeddings)
        if self.score == "dot":
            return (keys * query).sum(-1) / self.embedding_width**0.5  # type: ignore[no-any-return]
        return self.output((keys + query).tanh()).squeeze(-1)  # type: ignore[no-any-return]


class _Glimpse(nn.Module):
    """Attention of a query to the items of its set."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.apply(make_module_init_normc(1.0))

    def forward(self, encoded: Encoded, query: Tensor) -> Tensor:
        """Return the glimpse [B, d], given the query [B, d]."""
        sets = encoded.sets
        head_width = query.shape[-1] // self.n_heads
        products = self.key(encoded.embeddings) * sets.spread(query)
        by_head = products.unflatten(-1, (self.n_heads, head_width))  # [*items, heads, d / heads]
        weights = sets.softmax(by_head.sum(-1) / head_width**0.5)  # [*items, heads]
        values = self.value(encoded.embeddings).unflatten(-1, (self.n_heads, head_width))
        weighted = (weights.unsqueeze(-1) * values).flatten(-2)  # [*items, d]
        glimpse: Tensor = self.output(sets.sum(weighted))
        return glimpse
