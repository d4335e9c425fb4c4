"""The part of an agent's networks that belongs to one sub-step, as RLlib trains it."""

from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import torch
from torch import Tensor, nn

from maze_pl.agents import StateCritic, TorchActorCritic
from maze_pl.agents.network_io import state_shapes
from maze_pl.core.actor_id import StepKey


def to_bytes(networks: TorchActorCritic) -> bytes:
    """Serialise networks for RLlib's workers, which are processes of this run."""
    content: bytes = cloudpickle.dumps(networks)
    return content


def from_bytes(content: bytes) -> TorchActorCritic:
    """Return the networks that `to_bytes` has serialised."""
    networks: TorchActorCritic = cloudpickle.loads(content)
    return networks


def trained_part(networks: TorchActorCritic, step_key: StepKey) -> nn.ModuleDict:
    """Return policy and critic of a sub-step; they remain modules of `networks`.

    Args:
        networks: The agent.
        step_key: The sub-step.
    """
    parts = nn.ModuleDict({"policy": networks.policy.modules_of(step_key)})
    critic = networks.critic
    if critic is not None:
        index = networks.policy.spec.step_keys.index(step_key)
        parts["critic"] = critic.parts[index if len(critic.parts) > 1 else 0]
    return parts


def parts_by_step(networks: TorchActorCritic) -> dict[StepKey, nn.ModuleDict]:
    """Return the trained part of each sub-step."""
    return {key: trained_part(networks, key) for key in networks.policy.spec.step_keys}


def require_trainable(networks: TorchActorCritic) -> None:
    """Refuse networks that RLlib cannot train by sub-steps.

    Raises:
        ValueError: They are recurrent, explore by gSDE, share parameters between sub-steps, or their
            critic is not a state critic of each sub-step.
    """
    policy, critic = networks.policy, networks.critic
    several = len(policy.spec.steps) > 1
    if critic is not None and not isinstance(critic, StateCritic):
        raise ValueError(f"RLlib's algorithms cannot train a {type(critic).__name__}: use a critic of states")
    if isinstance(critic, StateCritic) and several and critic.kind != "step":
        fault = f"RLlib trains each sub-step by itself, but a {critic.kind} critic serves all of them"
        raise ValueError(f"{fault}: use a StepStateCriticComposer, or train with `maze-pl fit`")
    if state_shapes(networks):
        raise ValueError("networks with a recurrent state cannot be trained with RLlib: use `maze-pl fit`")
    for key in policy.spec.step_keys:
        if policy.parts_of(key).has_gsde:
            raise ValueError(f"sub-step {key!r} explores by gsde, which RLlib does not know: use state_dependent")
    owners: dict[int, StepKey] = {}
    for key, part in parts_by_step(networks).items():
        for parameter in part.parameters():
            other = owners.setdefault(id(parameter), key)
            if other != key:
                fault = f"sub-steps {other!r} and {key!r} share parameters, but RLlib trains each by itself"
                raise ValueError(f"{fault}: give them separate networks, or train with `maze-pl fit`")


def load_weights(networks: TorchActorCritic, weights: dict[StepKey, dict[str, Any]]) -> None:
    """Copy the weights that RLlib has trained into the networks.

    Args:
        networks: The agent.
        weights: Step key -> state of its trained part, as tensors.

    Raises:
        ValueError: A weight is not finite.
    """
    for key, part in parts_by_step(networks).items():
        for name, tensor in weights[key].items():
            is_number = isinstance(tensor, Tensor) and tensor.is_floating_point()
            if is_number and not bool(torch.isfinite(tensor).all()):
                remedy = "lower lr in model.config, or limit the gradient with grad_clip"
                raise ValueError(f"the weights {name} of sub-step {key!r} became NaN or infinite: {remedy}")
        part.load_state_dict(weights[key])


def copy_of(networks: TorchActorCritic) -> TorchActorCritic:
    """Return an independent copy, as target networks."""
    return from_bytes(to_bytes(networks))
