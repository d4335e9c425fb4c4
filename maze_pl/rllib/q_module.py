"""A policy of maze_pl whose outputs are values of actions, as a module that RLlib's DQN trains."""

from typing import Any

import torch
from ray.rllib.algorithms.dqn.default_dqn_rl_module import QF_NEXT_PREDS, QF_PREDS, QF_TARGET_NEXT_PREDS
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import QNetAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.utils.schedules.scheduler import Scheduler
from torch import Tensor, nn

from maze_pl.agents import StateCritic, TorchActorCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.distributions import EpsilonGreedyProbabilityDistribution
from maze_pl.rllib.action_layout import ActionLayout
from maze_pl.rllib.module_inputs import module_inputs
from maze_pl.rllib.step_networks import copy_of, from_bytes, trained_part


class QModule(TorchRLModule, QNetAPI, TargetNetworkAPI):  # type: ignore[misc]  # RLlib has no types
    """Values of the actions of one sub-step with one discrete head; options that a mask excludes have -inf.

    `model_config` has `networks`, the agent as `to_bytes` returns it, `step_key`, `double_q` and
    `epsilon`. With a critic in the networks, values are V(s) + A(s, a) - mean of A over the allowed
    options, as in the algorithm `DQN` of maze_pl with `dueling`.

    Attributes:
        trained: The networks of the sub-step.
        target: A copy of them, which DQN updates; None until it asks for it.
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
        self._double_q: bool = self.model_config["double_q"]
        self.epsilon_schedule = Scheduler(
            fixed_value_or_schedule=self.model_config["epsilon"], framework=self.framework
        )

    def _values(self, agent: TorchActorCritic, observations: dict[str, Tensor]) -> Tensor:
        """Return the values [B, n] of all options."""
        inputs = module_inputs(observations)
        outputs = agent.policy.action_logits(self._step_key, inputs.observation, inputs.agent_id)
        ((head, _),) = self.layout.logit_sizes.items()
        values = outputs[head]
        allowed = torch.ones_like(values, dtype=torch.bool)
        if head in self.layout.mask_sizes:
            allowed = inputs.observation[self.layout.mapper.masks[head]].bool()
            allowed = allowed | ~allowed.any(-1, keepdim=True)
        if isinstance(agent.critic, StateCritic):
            mean = torch.where(allowed, values, 0.0).sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True)
            state_value = agent.critic.value(self._step_key, inputs.observation, inputs.agent_id)
            values = values - mean + state_value[..., None]
        return values.masked_fill(~allowed, -torch.inf)

    def compute_q_values(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Return the values [B, n] of the actions."""
        return {QF_PREDS: self._values(self._agent[0], batch[Columns.OBS])}

    def _forward_inference(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return the actions [B] with the highest values."""
        with torch.no_grad():
            return {Columns.ACTIONS: self._values(self._agent[0], batch[Columns.OBS]).argmax(-1)}

    def _forward_exploration(self, batch: dict[str, Any], t: int = 0, **_: Any) -> dict[str, Any]:
        """Return actions [B], at random with the probability epsilon.

        Args:
            batch: Has the observations.
            t: Steps of RLlib so far, on which epsilon depends.
        """
        inputs = module_inputs(batch[Columns.OBS])
        policy = self._agent[0].policy
        with torch.no_grad():
            joint = policy.distribution(self._step_key, inputs.observation, inputs.agent_id)
            ((head, part),) = joint.distributions.items()
            assert isinstance(part, EpsilonGreedyProbabilityDistribution)
            part.exploration = torch.tensor(float(self.epsilon_schedule.update(t)))
            return {Columns.ACTIONS: joint.sample()[head]}

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return the values [B, n] of observations and next observations that the loss needs."""
        output = self.compute_q_values(batch)
        with torch.no_grad():
            if self._double_q:
                output[QF_NEXT_PREDS] = self._values(self._agent[0], batch[Columns.NEXT_OBS])
            output[QF_TARGET_NEXT_PREDS] = self._values(self._target_agent[0], batch[Columns.NEXT_OBS])
        return output

    def make_target_networks(self) -> None:
        """Make the copy of the networks that DQN updates."""
        agent = copy_of(self._agent[0])
        agent.requires_grad_(False)
        self._target_agent = [agent]
        self.target = trained_part(agent, self._step_key)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return the networks and their copy."""
        assert self.target is not None
        return [(self.trained, self.target)]

    def forward_target(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the values [B, n] of the copy."""
        return {QF_PREDS: self._values(self._target_agent[0], batch[Columns.OBS])}
