"""A policy and critic of maze_pl as a module that RLlib's PPO and APPO train."""

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import TARGET_NETWORK_ACTION_DIST_INPUTS, TargetNetworkAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn

from maze_pl.agents import StateCritic, TorchActorCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.rllib.action_distribution import ActionDistribution
from maze_pl.rllib.action_layout import ActionLayout
from maze_pl.rllib.module_inputs import ModuleInputs, module_inputs
from maze_pl.rllib.step_networks import copy_of, from_bytes, trained_part


class PolicyModule(TorchRLModule, ValueFunctionAPI, TargetNetworkAPI):  # type: ignore[misc]  # RLlib has no types
    """Policy and state critic of one sub-step, with the distributions and masks of maze_pl.

    `model_config` has `networks`, the agent as `to_bytes` returns it, and `step_key`.

    Attributes:
        trained: The networks of the sub-step.
        target: A copy of them, which APPO updates; None until it asks for it.
    """

    trained: nn.ModuleDict
    target: nn.ModuleDict | None

    def setup(self) -> None:
        """Build the module; RLlib calls this."""
        agent = from_bytes(self.model_config["networks"])
        self._step_key: StepKey = self.model_config["step_key"]
        # in a list, since this module must not own the networks of other sub-steps
        self._agent = [agent]
        self._target_agent: list[TorchActorCritic] = []
        self.trained = trained_part(agent, self._step_key)
        self.target = None
        self.layout = ActionLayout.of(agent.policy, self._step_key)
        self.action_dist_cls = ActionDistribution.with_layout(self.layout)

    def _forward(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return logits and masks [B, n] of the observations."""
        inputs = module_inputs(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self._packed(self._agent[0], inputs)}

    def _packed(self, agent: TorchActorCritic, inputs: ModuleInputs) -> Tensor:
        logits = agent.policy.action_logits(self._step_key, inputs.observation, inputs.agent_id)
        return self.layout.pack(logits, inputs.observation)

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Tensor:
        """Return the values [B] of the observations."""
        inputs = module_inputs(batch[Columns.OBS])
        critic = self._agent[0].critic
        assert isinstance(critic, StateCritic)
        return critic.value(self._step_key, inputs.observation, inputs.agent_id)

    def make_target_networks(self) -> None:
        """Make the copy of the networks that APPO updates."""
        agent = copy_of(self._agent[0])
        agent.requires_grad_(False)
        self._target_agent = [agent]
        self.target = trained_part(agent, self._step_key)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return the networks and their copy."""
        assert self.target is not None
        return [(self.trained, self.target)]

    def forward_target(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return logits and masks [B, n] of the copy."""
        inputs = module_inputs(batch[Columns.OBS])
        with torch.no_grad():
            return {TARGET_NETWORK_ACTION_DIST_INPUTS: self._packed(self._target_agent[0], inputs)}
