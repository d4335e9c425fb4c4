"""Algorithms of a few lines, and a callback that watches them."""

from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from torch import Tensor

from maze_pl.core.batches import Rollout
from maze_pl.functional import lambda_return
from maze_pl.modules import PPO, AlgorithmModule


def flat(module: torch.nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1).clone() for parameter in module.parameters()])


class Reinforce(AlgorithmModule):
    """REINFORCE as a user may write it."""

    def __init__(self, gamma: float = 0.99, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gamma = gamma

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        rows = rollout.rows
        nothing = torch.zeros_like(rows.reward)
        returns = lambda_return(rows.reward, nothing, rows.terminated, rows.truncated, self.gamma, 1.0)
        loss = torch.zeros(())
        for key, segment in rollout.segments.items():
            log_prob, _ = self.policy.evaluate(key, segment.observation, segment.action, segment.agent_id)
            loss = loss - (log_prob * returns).mean()
        self.record("policy_loss", loss, 0)
        self.gradient_step(loss)


class DivergingCrew(PPO):
    """PPO for a team in which only the policy of the crew learns; computes by hand how far it has moved.

    Attributes:
        divergences: Mean KL divergence over the crew's acts before each update; None without any.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.divergences: list[float | None] = []
        for parameter in self.policy.networks[0].parameters():
            parameter.requires_grad_(False)

    def gradient_step(self, *arguments: Any, **options: Any) -> None:
        acts = arguments[1].get("crew")
        self.divergences.append(None)
        if acts is not None:
            with torch.no_grad():
                log_prob, _ = self.policy.evaluate("crew", acts.observation, acts.action, acts.agent_id)
            change = log_prob - acts.old_log_prob
            self.divergences[-1] = float((change.exp() - 1 - change).mean())
        super().gradient_step(*arguments, **options)


class GradientAscent(AlgorithmModule):
    """Raises the sum of the first bias of the critic; the loss is on no path to anything else."""

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        assert self.critic is not None
        bias = self.critic.network.body[3].bias
        self.gradient_step(-3.0 * bias.sum(), record_norms=True)


class Watcher(Callback):
    """Records what callbacks see, and when."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any], dict[str, float]]] = []

    def note(self, hook: str, trainer: Trainer, module: Any) -> None:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.seen.append((hook, {source: dict(table) for source, table in module.epoch_statistics.items()}, metrics))

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.note("validation_end", trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.note("train_epoch_end", trainer, pl_module)
