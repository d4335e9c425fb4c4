"""Networks for CartPole in plain PyTorch."""

from torch import Tensor, nn

Shapes = dict[str, tuple[int, ...]]


class CustomPlainCartpolePolicyNet(nn.Module):
    def __init__(
        self,
        obs_shapes: Shapes,
        action_logits_shapes: Shapes,
        hidden_layer_0: int,
        hidden_layer_1: int,
        use_bias: bool,
    ) -> None:
        super().__init__()
        (self.observation_name,), (self.action_name,) = obs_shapes, action_logits_shapes
        self.l0 = nn.Linear(4, hidden_layer_0, bias=use_bias)
        self.l1 = nn.Linear(hidden_layer_0, hidden_layer_1, bias=use_bias)
        self.l2 = nn.Linear(hidden_layer_1, 2, bias=use_bias)

    def forward(self, in_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        latent = self.l0(in_dict[self.observation_name]).relu()
        return {self.action_name: self.l2(self.l1(latent).relu())}


class CustomPlainCartpoleCriticNet(nn.Module):
    def __init__(self, obs_shapes: Shapes, hidden_layer_0: int, hidden_layer_1: int, use_bias: bool) -> None:
        super().__init__()
        (self.observation_name,) = obs_shapes
        self.l0 = nn.Linear(4, hidden_layer_0, bias=use_bias)
        self.l1 = nn.Linear(hidden_layer_0, hidden_layer_1, bias=use_bias)
        self.l2 = nn.Linear(hidden_layer_1, 1, bias=use_bias)

    def forward(self, in_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        latent = self.l0(in_dict[self.observation_name]).relu()
        return {"value": self.l2(self.l1(latent).relu())}
