"""Choice of an algorithm's networks: a composer, or networks that fit the spaces."""

from inspect import getattr_static
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import pytorch_lightning as pl
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher

from maze_pl.agents import Critic, TorchActorCritic
from maze_pl.core.spec import Spec
from maze_pl.perception.models.automatic_model_composer import AutomaticModelComposer, as_yaml

DistributionOverrides = list[dict[str, Any]]
"""Distributions of action spaces or heads, in the format of `CustomModelComposer`."""


@runtime_checkable
class ModelComposer(Protocol):
    """Builder of networks from a specification."""

    def compose(self, spec: Spec) -> TorchActorCritic:
        """Build the networks.

        Args:
            spec: Observations and actions of the agent.
        """
        ...


NetworksOption = ModelComposer | Literal["auto"]
"""A composer, or `auto` for networks that are chosen from the spaces."""


class ChosenNetworks(NamedTuple):
    """Networks, and their description as YAML if they were chosen automatically."""

    networks: TorchActorCritic
    description: str | None


def composer_of(networks: Any, actor_critic: TorchActorCritic | None) -> ModelComposer | None:
    """Return the composer that the options of an algorithm ask for, None for ready-made networks.

    Args:
        networks: The option `networks`, a `NetworksOption` or None.
        actor_critic: Ready-made networks.

    Raises:
        TypeError: `networks` is something else.
        ValueError: Both are given, or `networks` is an unknown name.
    """
    if networks is not None and actor_critic is not None:
        raise ValueError("pass either networks, which are built from the specification, or a ready-made actor_critic")
    if isinstance(networks, str) and networks != "auto":
        raise ValueError(f"networks={networks!r} must be a composer, or 'auto' for networks that fit the spaces")
    if actor_critic is not None:
        return None
    if networks is None or isinstance(networks, str):
        return AutomaticModelComposer()
    if not isinstance(networks, ModelComposer):
        example = "AutomaticModelComposer(hidden_units=[64, 64]) of maze_pl.perception"
        ready = "ready-made networks are passed as actor_critic=TorchActorCritic(policy, critic)"
        raise TypeError(f"networks={networks!r} must be a composer, such as {example}, or 'auto'; {ready}")
    return networks


def composed(
    composer: ModelComposer, spec: Spec, critic_type: type, head_distributions: DistributionOverrides
) -> ChosenNetworks:
    """Build networks.

    Args:
        composer: The composer.
        spec: Observations and actions of the agent.
        critic_type: Class of critics that automatic networks have; `object` for none.
        head_distributions: Distributions of action heads in automatic networks.
    """
    if isinstance(composer, AutomaticModelComposer):
        networks = composer.compose(spec, critic_type, head_distributions)
        return ChosenNetworks(networks, as_yaml(composer.describe(spec, critic_type, head_distributions)))
    return ChosenNetworks(composer.compose(spec), None)


def as_spec(spec: Any) -> Spec:
    """Return the specification that the option `spec` of an algorithm gives.

    Raises:
        TypeError: It is neither a specification nor its description as a dict.
    """
    if isinstance(spec, Spec):
        return spec
    if isinstance(spec, dict) and "steps" in spec:
        return Spec.from_dict(spec)
    found = spec.__name__ if isinstance(spec, type) else f"a {type(spec).__name__}"
    raise TypeError(f"spec must be a Spec, such as spec=RolloutDataModule(env).spec, not {found}")


def spec_of_data(trainer: pl.Trainer) -> Spec:
    """Return the specification of the data module, from which networks are to be built.

    Raises:
        ValueError: There is none, or networks cannot be built in this process.
    """
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        raise ValueError("networks built in a spawned process are lost: give spec=data.spec, or use strategy=ddp")
    data: Any = getattr(trainer, "datamodule", None)
    # A property is not called to find out that it exists: its errors would be taken for its absence.
    spec = None if getattr_static(data, "spec", None) is None else data.spec
    if not isinstance(spec, Spec):
        raise ValueError("networks need a specification: give one as spec=..., or a data module that has one")
    return spec


def require_critic(algorithm: str, critic: Critic | None, critic_type: type) -> None:
    """Refuse a critic of a class with which an algorithm cannot learn.

    Args:
        algorithm: Name of the algorithm.
        critic: The critic, None if the networks have none.
        critic_type: Class that it must have.

    Raises:
        ValueError: The critic is of another class, or there is none.
    """
    if not isinstance(critic, critic_type):
        found = "none" if critic is None else f"a {type(critic).__name__}"
        remedy = "name a composer that builds one in networks, or set networks to auto"
        raise ValueError(f"{algorithm} needs a {critic_type.__name__}, not {found}: {remedy}")
