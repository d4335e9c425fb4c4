"""Evolution strategies: the policy moves to where perturbed copies of it did well, without any gradient of its own."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from maze_pl.agents import TorchActorCritic, TorchPolicy
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Policy
from maze_pl.core.population import PopulationBatch, perturbed_parameters
from maze_pl.core.spec import Spec
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.options import check_at_least, check_positive


class PolicyWrapper(Protocol):
    """A class, with all its arguments but one, as `class_path` and `init_args` in YAML."""

    def __call__(self, *, torch_policy: TorchPolicy) -> nn.Module:
        """Make what acts in place of the policy: a module with `act`, as policies have it, and `spec`."""


def centred_ranks(returns: Tensor) -> Tensor:
    """Ranks in [-0.5, 0.5] in place of returns, so that their scale and outliers do not matter.

    The lowest of n returns gets -0.5, the highest 0.5, the others lie between them in equal steps; equal ones get the
    mean of their ranks, so that nothing is learned from a difference that there is not. Their sum is 0.
    Salimans et al. 2017, arXiv:1703.03864, section 2.1; the treatment of equal returns is ours.

    Args:
        returns: [...] at least two.

    Returns:
        [...] float64.

    Example:
        >>> centred_ranks(torch.tensor([[10.0, 500.0], [30.0, 30.0]])).tolist()
        [[-0.5, 0.5], [0.0, 0.0]]
    """
    _, places, counts = torch.unique(returns, return_inverse=True, return_counts=True)
    mean_ranks: Tensor = counts.cumsum(0) - (counts + 1) / 2.0  # from 0 on
    return mean_ranks.double()[places] / (returns.numel() - 1) - 0.5


class ES(AlgorithmModule):
    """Evolution strategies with antithetic noise, ranks in place of returns, and a penalty on large parameters.

    Let theta be the policy's parameters, e_1 ... e_P vectors of standard normal noise, and f+_i and f-_i the centred
    ranks, among all 2P, of the returns of theta + s * e_i and theta - s * e_i. Then

        g = -1 / (2P) * sum_i (f+_i - f-_i) * e_i + l2_penalty * theta

    takes the place of the gradient of a loss. The sum is an estimate of s times the gradient of the expected rank, not
    divided by s, as in the code that its authors published, so that what `l2_penalty` means does not depend on s.
    Salimans et al. 2017, arXiv:1703.03864.

    The batches are those of a `PopulationDataModule`, which says how many episodes are played. Returns are not
    discounted, and a critic of the networks is left out. Logged as `train_ESEvents/...`.

    Args:
        lr: Learning rate.
        optimizer: `adam`, or `sgd` with a momentum of 0.9.
        l2_penalty: Weight of half the squared norm of the parameters.
        noise_stddev: Standard deviation of the noise, s above.
        policy_wrapper: A class that is called with `torch_policy`, the policy made of the networks, and gives what acts
            in its place, everywhere: a module with `act` and `spec`, whose parameters are what is trained.
        kwargs: Further options, see `AlgorithmModule`.

    Raises:
        ValueError: A number is out of range, the policy has no parameters, or what wraps it is no policy.
    """

    topic = "ESEvents"

    def __init__(
        self,
        *,
        lr: float = 0.01,
        optimizer: Literal["adam", "sgd"] = "adam",
        l2_penalty: float = 0.005,
        noise_stddev: float = 0.02,
        policy_wrapper: PolicyWrapper | None = None,
        **kwargs: Any,
    ) -> None:
        self._policy_wrapper = policy_wrapper
        super().__init__(lr=lr, **kwargs)
        check_at_least(0, l2_penalty=l2_penalty)
        check_positive(noise_stddev=noise_stddev)
        if optimizer not in ("adam", "sgd"):
            raise ValueError(f"optimizer={optimizer!r} must be 'adam' or 'sgd'")
        self.optimizer, self.l2_penalty, self.noise_stddev = optimizer, l2_penalty, noise_stddev

    def _set_networks(self, actor_critic: TorchActorCritic) -> None:
        policy: Any = actor_critic.policy
        if self._policy_wrapper is not None:
            policy = self._policy_wrapper(torch_policy=policy)
            is_policy = isinstance(policy, Policy) and isinstance(getattr(policy, "spec", None), Spec)
            if not (isinstance(policy, nn.Module) and is_policy):
                came = f"policy_wrapper made a {type(policy).__name__}, which is not what can act"
                raise ValueError(f"{came}: make it a torch.nn.Module with a method act and the policy's spec")
        if not perturbed_parameters(policy):
            raise ValueError(f"there is nothing to learn: the {type(policy).__name__} has no parameters")
        self._policy_wrapper = None  # it may be a lambda, which cannot be sent to a spawned process
        super()._set_networks(TorchActorCritic(policy))

    def act(self, observation: Mapping[str, Any], step_key: StepKey | None = None, **options: Any) -> dict[str, Any]:
        """Action for one observation, also of what wraps the policy; see `TorchPolicy.act_on`."""
        return TorchPolicy.act_on(self.policy, observation, step_key, **options)

    def configure_optimizers(self) -> Optimizer:
        """The optimiser that was asked for, with `adam` in groups as in `AlgorithmModule`."""
        if self.optimizer == "adam":
            return super().configure_optimizers()
        return SGD(perturbed_parameters(self.policy), lr=self.lr, momentum=0.9)

    def training_step(self, batch: PopulationBatch, batch_idx: int) -> None:
        """Learn from what a population returned."""
        if not isinstance(batch, PopulationBatch):
            came = f"ES learns from populations, not from a {type(batch).__name__}"
            raise TypeError(f"{came}: use a PopulationDataModule")
        if not bool(batch.returns.isfinite().all()):
            raise ValueError("returns of the population are not finite: look at what wrappers make of rewards")
        parameters = perturbed_parameters(self.policy)
        theta = torch.cat([parameter.reshape(-1) for parameter in parameters])
        before, gradient = theta.detach(), theta.detach() * self.l2_penalty
        weights = centred_ranks(batch.returns).diff().flatten() / (2 * len(batch.offsets))  # of -noise
        for offset, weight in zip(batch.offsets, weights.tolist(), strict=True):
            gradient.add_(batch.noise.piece(offset, len(theta)).to(theta), alpha=weight)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = self._learning_rate()
        self.optimize(theta.dot(gradient))  # a loss with this gradient
        after = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.record("policy_grad_norm", torch.linalg.vector_norm(gradient))
        self.record("policy_norm", torch.linalg.vector_norm(after))
        self.record("update_ratio", torch.linalg.vector_norm(after - before) / torch.linalg.vector_norm(after))
        self.record("return_mean", batch.returns.mean())
        self.record("return_std", batch.returns.std(correction=0))
