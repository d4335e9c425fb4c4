"""Networks for CartPole, made of blocks: a dense block and a linear head."""

from collections.abc import Sequence

from torch import Tensor, nn

from maze_pl.perception import DenseBlock, InferenceBlock, LinearOutputBlock, make_module_init_normc

Shapes = dict[str, tuple[int, ...]]


class CustomCartpolePolicyNet(nn.Module):
    def __init__(
        self,
        obs_shapes: Shapes,
        action_logits_shapes: Shapes,
        non_lin: str | type[nn.Module],
        hidden_units: Sequence[int],
    ) -> None:
        super().__init__()
        latent = DenseBlock("observation", "latent", obs_shapes["observation"], hidden_units, non_lin)
        (n_logits,) = action_logits_shapes["action"]
        action = LinearOutputBlock("latent", "action", latent.out_shapes(), output_units=n_logits)
        self.perception_net = InferenceBlock(
            in_keys="observation",
            out_keys="action",
            in_shapes=obs_shapes["observation"],
            perception_blocks={"latent": latent, "action": action},
        )
        latent.apply(make_module_init_normc(1.0))
        action.apply(make_module_init_normc(0.01))  # all actions are about equally likely at first

    def forward(self, in_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.perception_net(in_dict)


class CustomCartpoleCriticNet(nn.Module):
    def __init__(self, obs_shapes: Shapes, non_lin: str | type[nn.Module], hidden_units: Sequence[int]) -> None:
        super().__init__()
        latent = DenseBlock("observation", "latent", obs_shapes["observation"], hidden_units, non_lin)
        value = LinearOutputBlock("latent", "value", latent.out_shapes(), output_units=1)
        self.perception_net = InferenceBlock(
            in_keys="observation",
            out_keys="value",
            in_shapes=obs_shapes["observation"],
            perception_blocks={"latent": latent, "value": value},
        )
        latent.apply(make_module_init_normc(1.0))
        value.apply(make_module_init_normc(0.01))

    def forward(self, in_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.perception_net(in_dict)
