"""Short description of networks, by which a checkpoint tells which networks its weights are for.

The names and shapes of weights do not show activations and distributions: with other ones, the
weights would load, and the agent would act differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from maze_pl.agents import TorchActorCritic, TorchPolicy

if TYPE_CHECKING:
    from maze_pl.core.checkpoint_content import CheckpointEntry

_PREFIX = "actor_critic."  # of the weights of policy and critic in those of an algorithm
_TORCH = "torch.nn.modules."
_WITHOUT_EFFECT = (
    *(nn.Identity, nn.Flatten, nn.Unflatten, nn.ModuleList, nn.ModuleDict, nn.Sequential),
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
)


class NamedNetworks:
    """Lets an algorithm name the option of its networks where weights are those of other networks."""

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **options: Any) -> Any:
        """Load weights; see `torch.nn.Module.load_state_dict`.

        Args:
            state_dict: The weights.
            args: Further arguments of torch's method.
            options: Its options.

        Raises:
            RuntimeError: The weights do not fit the networks.
        """
        module: Any = self
        loaded: Any = super()
        try:
            return loaded.load_state_dict(state_dict, *args, **options)
        except RuntimeError as error:
            if module.actor_critic is None or _shapes(state_dict) == _shapes(module.state_dict()):
                raise
            name = type(self).__name__
            remedy = f"give those of their run, as in {name}.load_from_checkpoint(path, networks=...)"
            fault = f"the weights are of other networks than this {name} has"
            raise RuntimeError(f"{fault}: {remedy}\n{error}") from error


def describe_networks(networks: TorchActorCritic) -> dict[str, str]:
    """Return the activations of networks and the distributions of action heads.

    Args:
        networks: Policy and critic.

    Returns:
        Part of the networks -> names of classes.
    """
    policy, critic = networks.policy, networks.critic
    described = {}
    if isinstance(policy, TorchPolicy):  # others wrap one, and may hide it
        for key in policy.spec.step_keys:
            described[f"activations of the policy, sub-step {key!r}"] = _activations(policy.modules_of(key))
            for head, distribution in policy.distribution_classes(key).items():
                described[f"distribution of action head {head!r}, sub-step {key!r}"] = distribution.__name__
    if isinstance(critic, nn.Module):
        described["activations of the critic"] = _activations(critic)
    return described


def require_same_networks(networks: TorchActorCritic, entry: CheckpointEntry, weights: Mapping[str, Any]) -> None:
    """Refuse weights of networks with other activations or distributions.

    Weights with other names or shapes do not load, which is reported elsewhere.

    Args:
        networks: Policy and critic that are to get the weights.
        entry: maze_pl's entry of a checkpoint; those of earlier versions have no description.
        weights: Weights in the checkpoint, by name.

    Raises:
        ValueError: A part of the networks differs.
    """
    own = networks.state_dict(prefix=_PREFIX)
    if _shapes(weights) != _shapes(own):
        return
    saved = entry.get("networks", {})
    for part, found in describe_networks(networks).items():
        if found != saved.get(part, found):
            fault = f"the checkpoint is of other networks: {part}: {saved[part] or 'none'}, here {found or 'none'}"
            remedy = "pass networks as in its run, as in load_from_checkpoint(path, networks=...)"
            raise ValueError(f"{fault}; {remedy}; --warm-start and load_state_dict take over weights alone")


def _shapes(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shapes of the weights of policy and critic; None for extra state that is not a tensor."""
    return {name: getattr(value, "shape", None) for name, value in weights.items() if name.startswith(_PREFIX)}


def _activations(networks: nn.Module) -> str:
    """Return the classes of torch's layers that have neither weights nor other layers, in their order."""
    names = []
    for module in networks.modules():
        kind = type(module)
        is_layer = kind.__module__.startswith(_TORCH) and not any(True for _ in module.children())
        if is_layer and not isinstance(module, _WITHOUT_EFFECT) and not module.state_dict():
            names.append(kind.__name__)
    return ", ".join(names)
