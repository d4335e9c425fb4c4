"""Contract between algorithms and data modules: the class of the batches, and the options that data depends on.

An algorithm declares the class of batches that it learns from, a data module that of the batches it
delivers, both as `batch_type`. Numbers of an algorithm that the data depends on are passed as
`DataRequirements`, so that a data module reads no options of algorithms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True)
class DataRequirements:
    """Numbers of an algorithm that its training data depends on; None where it has no such number.

    Attributes:
        gamma: Discount of one environment step, by which rewards are summed between two acts of
            an actor. Data modules with replay need it.
        noise_stddev: Standard deviation of the noise that is added to the parameters of the policy.
            Data modules that play with perturbed policies need it.
    """

    gamma: float | None = None
    noise_stddev: float | None = None


@runtime_checkable
class Learner(Protocol):
    """An algorithm, as its data module knows it."""

    def data_requirements(self) -> DataRequirements:
        """Return the numbers that the training data depends on."""
        ...


@runtime_checkable
class DeclaresPolicy(Protocol):
    """An algorithm whose policy acts in its environments.

    Attributes:
        policy: The policy.
    """

    policy: Any


@runtime_checkable
class DeclaresDiscount(Protocol):
    """An algorithm that discounts rewards.

    Attributes:
        gamma: Discount of one environment step.
    """

    gamma: float


@runtime_checkable
class DeclaresBatches(Protocol):
    """An algorithm or a data module that declares its training batches.

    Attributes:
        batch_type: Class of the batches that it learns from, or delivers; `object` stands for any
            class.
    """

    batch_type: type


@runtime_checkable
class DeclaresRolloutSize(Protocol):
    """A data module that delivers rollouts of one size."""

    @property
    def env_steps_per_rollout(self) -> int:
        """Environment steps of a training batch on each rank."""
        ...


@runtime_checkable
class DeclaresSameStarts(Protocol):
    """A data module that may play several episodes from each start.

    Attributes:
        n_same_starts: Number of episodes from each start.
    """

    n_same_starts: int


@runtime_checkable
class DeclaresKpis(Protocol):
    """A data module whose environment may declare its KPIs."""

    @property
    def kpi_names(self) -> tuple[str, ...] | None:
        """Names of the KPIs of an episode; None if the environment does not declare them."""
        ...


@runtime_checkable
class DeclaresKpisOfEvaluators(Protocol):
    """A data module whose evaluators may play environments with other KPIs."""

    def kpi_names_of(self, source: str) -> tuple[str, ...] | None:
        """Return the names of the KPIs of an evaluator, or those of training; None if they are not declared.

        Args:
            source: Name of an evaluator; others stand for training.
        """
        ...


def requirements_of(module: object) -> DataRequirements:
    """Return what a module requires of its data; nothing if it declares nothing."""
    return module.data_requirements() if isinstance(module, Learner) else DataRequirements()
