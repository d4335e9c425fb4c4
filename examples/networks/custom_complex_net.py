"""Networks for stacks of images and vectors, with recurrence over the stack."""

from collections.abc import Sequence

from torch import Tensor, nn

from maze_pl.perception import (
    ConcatenationBlock,
    DenseBlock,
    InferenceBlock,
    LinearOutputBlock,
    LSTMLastStepBlock,
    PerceptionBlock,
    VGGConvolutionDenseBlock,
    make_module_init_normc,
)

Shapes = dict[str, tuple[int, ...]]
NonLin = str | type[nn.Module]


class CustomComplexLatentNet(nn.Module):
    """Common part of policy and critic: everything except the heads, which are linear in the tensor "latent"."""

    def __init__(self, obs_shapes: Shapes, heads: dict[str, int], non_lin: NonLin, hidden_units: Sequence[int]) -> None:
        super().__init__()
        inventory = DenseBlock(
            in_keys="observation_inventory",
            out_keys="latent_inventory",
            in_shapes=obs_shapes["observation_inventory"],
            hidden_units=[128],
            non_lin=non_lin,
        )
        screen = VGGConvolutionDenseBlock(
            in_keys="observation_screen",
            out_keys="latent_screen",
            in_shapes=obs_shapes["observation_screen"],
            hidden_channels=[8, 16, 32],
            hidden_units=[32],
            non_lin=non_lin,
        )
        concat = ConcatenationBlock(
            in_keys=["latent_inventory", "latent_screen"],
            out_keys="latent_concat",
            in_shapes=inventory.out_shapes() + screen.out_shapes(),
            concat_dim=-1,
        )
        dense = DenseBlock("latent_concat", "latent_dense", concat.out_shapes(), hidden_units, non_lin)
        latent = LSTMLastStepBlock(
            in_keys="latent_dense",
            out_keys="latent",
            in_shapes=dense.out_shapes(),
            hidden_size=32,
            num_layers=1,
            bidirectional=False,
            non_lin=non_lin,
        )
        blocks: dict[str, PerceptionBlock] = {
            "latent_inventory": inventory,
            "latent_screen": screen,
            "latent_concat": concat,
            "latent_dense": dense,
            "latent": latent,
        }
        for block in blocks.values():
            block.apply(make_module_init_normc(1.0))
        for head, n_units in heads.items():
            blocks[head] = LinearOutputBlock("latent", head, latent.out_shapes(), n_units)
            blocks[head].apply(make_module_init_normc(0.01))
        self.perception_net = InferenceBlock(list(obs_shapes), list(heads), list(obs_shapes.values()), blocks)

    def forward(self, in_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.perception_net(in_dict)


class CustomComplexPolicyNet(CustomComplexLatentNet):
    def __init__(
        self, obs_shapes: Shapes, action_logits_shapes: Shapes, non_lin: NonLin, hidden_units: Sequence[int]
    ) -> None:
        heads = {head: n_logits for head, (n_logits,) in action_logits_shapes.items()}
        super().__init__(obs_shapes, heads, non_lin, hidden_units)


class CustomComplexCriticNet(CustomComplexLatentNet):
    def __init__(self, obs_shapes: Shapes, non_lin: NonLin, hidden_units: Sequence[int]) -> None:
        super().__init__(obs_shapes, {"value": 1}, non_lin, hidden_units)
