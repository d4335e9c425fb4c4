"""Evolution strategies: gradient-free learning from returns of perturbed copies of the policy."""

from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from maze_pl.agents import TorchActorCritic, TorchPolicy
from maze_pl.core.checks import check_not_negative, check_positive
from maze_pl.core.policy import Policy
from maze_pl.core.population import PopulationBatch, perturbed_parameters
from maze_pl.core.spec import Spec
from maze_pl.core.training_data import DataRequirements
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.network_choice import NetworksOption
from maze_pl.modules.optimization.optimizer_options import OptimizerChoice
from maze_pl.modules.optimization.parameter_group import ParameterGroup
from maze_pl.schedules import Coefficient


class PolicyWrapper(Protocol):
    """A class with all arguments bound but `torch_policy`: `class_path` and `init_args` in YAML."""

    def __call__(self, *, torch_policy: TorchPolicy) -> nn.Module:
        """Make the replacement of the policy: a module with `spec`, and `act` as in policies."""


def centred_ranks(returns: Tensor) -> Tensor:
    """Convert returns to ranks in [-0.5, 0.5], so that their scale and outliers do not matter.

    The lowest of n returns gets -0.5, the highest 0.5, and the others lie between them in equal
    steps. Equal returns get the mean of their ranks, so that ties have no effect. The sum of all
    ranks is 0. Salimans et al. 2017, arXiv:1703.03864, section 2.1; the treatment of ties is an addition.

    Args:
        returns: [...] at least two returns.

    Returns:
        [...] float64 ranks.

    Example:
        >>> centred_ranks(torch.tensor([[10.0, 500.0], [30.0, 30.0]])).tolist()
        [[-0.5, 0.5], [0.0, 0.0]]
    """
    _, places, counts = torch.unique(returns, return_inverse=True, return_counts=True)
    mean_ranks: Tensor = counts.cumsum(0) - (counts + 1) / 2.0  # zero-based
    return mean_ranks.double()[places] / (returns.numel() - 1) - 0.5


class ES(AlgorithmModule):
    """Evolution strategies with antithetic noise, rank-transformed returns, and an L2 penalty.

    Let theta be the policy's parameters, e_1 ... e_P vectors of standard normal noise, and f+_i and
    f-_i the centred ranks, among all 2P, of the returns of theta + s * e_i and theta - s * e_i.
    Then

        g = -1 / (2P) * sum_i (f+_i - f-_i) * e_i + l2_penalty * theta

    serves as the gradient of a loss. The sum estimates s times the gradient of the expected rank.
    As in the authors' published code it is not divided by s, so that the meaning of `l2_penalty`
    does not depend on s. Salimans et al. 2017, arXiv:1703.03864.

    Batches come from a `PopulationDataModule`, which sets the number of episodes. Returns are not
    discounted, and a critic of the networks is dropped. Statistics are logged as
    `train_ESEvents/...`.

    Args:
        lr: Learning rate: a number or a schedule.
        l2_penalty: Weight of half the squared norm of the parameters: a number or a schedule.
        noise_stddev: Standard deviation of the noise, s above: a number or a schedule.
        policy_wrapper: Class that is called with `torch_policy`, the policy made of the networks,
            and returns its replacement everywhere: a module with `act` and `spec`, whose parameters
            are trained.
        networks: Composer that builds policy and critic; `auto`, the default, for networks that
            fit the spaces.
        spec: Observations and actions of the agent; the command line takes it from the data module.
        actor_critic: Ready-made networks, instead of `networks`.
        optimizer: `adam`, `sgd` with a momentum of 0.9, or a class of optimisers with its options.
        optimizer_groups: Pattern of parameter names -> options of the optimiser for these
            parameters; the first pattern that matches counts.
        frozen: Patterns of parameter names, such as `policy.*`, that are not trained.
        max_grad_norm: Maximum L2 norm of the gradient; 0 for no limit.
        lr_schedule: `linear` decays the learning rate from `lr` to 0 over all batches of the run.
        critic_burn_in_epochs: Must be 0, since there is no critic.
        grad_norms_by_part: Also record the gradient norm of each part of the networks, such as body
            and heads, under the statistics `policy_grad_norm` and `critic_grad_norm`.
        capture: Has no effect: an update computes no gradient by autograd.

    Raises:
        ValueError: A number is out of range, the policy has no parameters, or the result of
            `policy_wrapper` is not a policy.
    """

    batch_type: ClassVar[type] = PopulationBatch
    topic = "ESEvents"

    def __init__(
        self,
        *,
        lr: Coefficient = 0.01,
        l2_penalty: Coefficient = 0.005,
        noise_stddev: Coefficient = 0.02,
        policy_wrapper: PolicyWrapper | None = None,
        networks: NetworksOption | None = None,
        spec: Spec | dict[str, Any] | None = None,
        actor_critic: TorchActorCritic | None = None,
        optimizer: OptimizerChoice = "adam",
        optimizer_groups: dict[str, ParameterGroup] | None = None,
        frozen: list[str] | None = None,
        max_grad_norm: float = 0.0,
        lr_schedule: Literal["constant", "linear"] = "constant",
        critic_burn_in_epochs: int = 0,
        grad_norms_by_part: bool = False,
        capture: Literal["auto", "off"] = "auto",
    ) -> None:
        self._policy_wrapper = policy_wrapper
        super().__init__(
            networks=networks,
            spec=spec,
            actor_critic=actor_critic,
            lr=lr,
            optimizer=optimizer,
            optimizer_groups=optimizer_groups,
            frozen=frozen,
            max_grad_norm=max_grad_norm,
            lr_schedule=lr_schedule,
            critic_burn_in_epochs=critic_burn_in_epochs,
            grad_norms_by_part=grad_norms_by_part,
            capture=capture,
        )
        self.l2_penalty = self.coefficient("l2_penalty", l2_penalty, check_not_negative)
        self.noise_stddev = self.coefficient("noise_stddev", noise_stddev, check_positive)

    def on_networks_ready(self) -> None:
        """Drop the critic, and replace the policy if there is a `policy_wrapper`.

        Raises:
            ValueError: The policy has no parameters, or its replacement is not a policy.
        """
        super().on_networks_ready()
        policy: Any = self.policy
        if self._policy_wrapper is not None:
            policy = self._policy_wrapper(torch_policy=policy)
            is_policy = isinstance(policy, Policy) and isinstance(getattr(policy, "spec", None), Spec)
            if not (isinstance(policy, nn.Module) and is_policy):
                came = f"policy_wrapper returned a {type(policy).__name__}, which cannot act"
                raise ValueError(f"{came}: return a torch.nn.Module with a method act and the policy's spec")
        if not perturbed_parameters(policy):
            raise ValueError(f"there is nothing to learn: the {type(policy).__name__} has no parameters")
        if self.grad_norms_by_part and not isinstance(policy, TorchPolicy):
            came = f"policy_wrapper returned a {type(policy).__name__}"
            raise ValueError(f"grad_norms_by_part=True needs a TorchPolicy, but {came}: set it to False")
        self._policy_wrapper = None  # it may be a lambda, which cannot be sent to a spawned process
        self.actor_critic = TorchActorCritic(policy)

    def data_requirements(self) -> DataRequirements:
        """Return the standard deviation of the noise with which the data module perturbs policies."""
        return DataRequirements(noise_stddev=self.value_of("noise_stddev"))

    def training_step(self, batch: PopulationBatch, batch_idx: int) -> None:
        """Learn from the returns of a population."""
        if not bool(batch.returns.isfinite().all()):
            raise ValueError("returns of the population are not finite: check rewards, and wrappers that change them")
        # A callback may have frozen parameters since they were perturbed.
        parameters = perturbed_parameters(self.policy, batch.perturbed)
        theta = torch.cat([parameter.reshape(-1) for parameter in parameters])
        before, gradient = theta.detach(), theta.detach() * self.value_of("l2_penalty")
        weights = centred_ranks(batch.returns).diff().flatten() / (2 * len(batch.offsets))  # of -noise
        for offset, weight in zip(batch.offsets, weights.tolist(), strict=True):
            gradient.add_(batch.noise.piece(offset, len(theta)).to(theta), alpha=weight)
        # a loss with this gradient
        self.gradient_step(theta.dot(gradient), record_norms=self.grad_norms_by_part)
        after = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.record("policy_grad_norm", torch.linalg.vector_norm(gradient))
        self.record("policy_norm", torch.linalg.vector_norm(after))
        self.record(
            "update_ratio",
            torch.linalg.vector_norm(after - before) / torch.linalg.vector_norm(after),
        )
        self.record("return_mean", batch.returns.mean())
        self.record("return_std", batch.returns.std(correction=0))
