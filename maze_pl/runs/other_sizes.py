"""Trained agents in environments of other sizes, such as instances with more customers than in training."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.spec import Spec
from maze_pl.runs.compatibility import different_spaces, require_same_names, shapes
from maze_pl.runs.vector_inputs import vector_inputs

if TYPE_CHECKING:
    from maze_pl.modules import AlgorithmModule


def in_sizes_of(agent: Any, spec: Spec) -> Any:
    """Return an agent with networks for the sizes of an environment, and with the same weights.

    The weights of networks for sets, such as attention with a pointer, do not depend on the number
    of items. If those of the critic do, the returned agent has no critic. Bounds are those of
    training, by which networks may scale what they read.

    Args:
        agent: An agent; algorithms that `maze_pl.load` has loaded can be made again, others are returned as they are.
        spec: Observations and actions in the environment.

    Returns:
        The agent itself if its spaces have the sizes of the environment's.

    Raises:
        ConfigurationError: The weights of the policy depend on the sizes, or the spaces have other names.
    """
    if getattr(agent, "make_again", None) is None:
        return agent
    there, here = agent.policy.spec.to_dict(), spec.to_dict()
    difference = different_spaces(there, here)
    if difference is None:
        return agent
    refusal = f"the policy was trained with other spaces: {difference}"
    remedy = "use its environment and wrappers"
    if not _differ_in_sizes_only(there, here):
        raise ConfigurationError(f"{refusal}; {remedy}")
    try:
        with torch.random.fork_rng(devices=()):  # networks are made on the CPU; their first weights do not count
            made: AlgorithmModule = agent.make_again(spec=_with_bounds_of(there, here))
        weights, expected = agent.policy.state_dict(), made.policy.state_dict()
        fits = shapes(weights) == shapes(expected)
        vectors = vector_inputs(made.policy, expected, spec)
        require_same_names(there, here, "the policy", vectors, all_observations=not fits)
    except Exception as error:  # networks for entirely different spaces may fail in any way
        raise ConfigurationError(f"{refusal}; {remedy}") from error
    if not fits:
        raise ConfigurationError(f"{refusal}, and the weights of its networks depend on these sizes; {remedy}")
    made.policy.load_state_dict(weights)
    _take_critic(made, agent)
    made.env_steps = agent.env_steps
    made.make_again = agent.make_again
    return made.to(agent.device).train(agent.training)


def described_sizes(agent: AlgorithmModule, sized: AlgorithmModule) -> str:
    """Return a message on the first difference between the sizes of training and those of an environment.

    Args:
        agent: The agent as it was trained.
        sized: The agent with networks for the environment.
    """
    difference = different_spaces(agent.policy.spec.to_dict(), sized.policy.spec.to_dict())
    message = f"the agent plays in other sizes than those of its training: {difference}"
    if agent.networks.critic is not None and sized.networks.critic is None:
        return f"{message}; it has no critic there, as the critic's weights depend on the sizes"
    return message


def _differ_in_sizes_only(there: dict[str, Any], here: dict[str, Any]) -> bool:
    """True if the differing spaces of two specifications are numbers of items, which sets may have any of.

    These are shapes of observations with at most two axes, numbers of categories, and numbers of
    options of `Discrete` actions. Weights that fit say nothing about other spaces: the same logits
    may stand for other choices of a `MultiDiscrete` action, and images of several sizes may be
    flattened to the same vector.

    Args:
        there: `Spec.to_dict()` of an agent.
        here: `Spec.to_dict()` of an environment.
    """
    for step, current in zip(there["steps"], here["steps"], strict=False):
        for role, may_differ in (("observation", _may_have_other_items), ("action", _may_have_other_options)):
            own = current[f"{role}_space"]["spaces"]
            for name, space in step[f"{role}_space"]["spaces"].items():
                other = own.get(name, space)  # missing ones are found by their names
                if not _has_same_size(space, other) and not may_differ(space, other):
                    return False
    return True


def _has_same_size(space: dict[str, Any], other: dict[str, Any]) -> bool:
    """True for spaces of one type with the same shape, numbers of categories, and first category."""
    return all(space.get(key) == other.get(key) for key in ("type", "shape", "n", "nvec", "start"))


def _with_bounds_of(there: dict[str, Any], here: dict[str, Any]) -> Spec:
    """Return a specification with the sizes of an environment and the bounds of an agent's training.

    Args:
        there: `Spec.to_dict()` of the agent.
        here: `Spec.to_dict()` of the environment.
    """
    sized = copy.deepcopy(here)
    for step, current in zip(there["steps"], sized["steps"], strict=False):
        for role in ("observation_space", "action_space"):
            own = current[role]["spaces"]
            for name, space in step[role]["spaces"].items():
                if name not in own:
                    continue
                if _has_same_size(space, own[name]):
                    own[name] = space
                elif space["type"] == "box":
                    own[name] = {**own[name], "dtype": space["dtype"], **_bounds_of_items(space, own[name]["shape"])}
    return Spec.from_dict(sized)


def _bounds_of_items(space: dict[str, Any], shape: list[int]) -> dict[str, Any]:
    """Return the bounds that a box has for any item, as `low` and `high` of a box with another number of items.

    Args:
        space: Description of the box, whose items are along the first axis.
        shape: Shape of the other box; if its items have another number of features, they count as one.
    """
    if shape[1:] == space["shape"][1:]:
        axis: int | None = 0
    else:
        axis = None
    bounds = {}
    for name, outermost in (("low", np.min), ("high", np.max)):
        known = np.broadcast_to(space[name], space["shape"])
        bounds[name] = np.broadcast_to(outermost(known, axis=axis), shape).tolist()
    return bounds


def _may_have_other_items(space: dict[str, Any], other: dict[str, Any]) -> bool:
    """True for observations of the same type that are not images."""
    return bool(space["type"] == other["type"]) and max(len(one.get("shape", ())) for one in (space, other)) <= 2


def _may_have_other_options(space: dict[str, Any], other: dict[str, Any]) -> bool:
    """True for actions that choose one of several options."""
    return bool(space["type"] == other["type"] == "discrete" and space["start"] == other["start"])


def _take_critic(made: AlgorithmModule, agent: AlgorithmModule) -> None:
    """Load the weights of the critic of an agent; remove the critic if they depend on the sizes."""
    critic: Any = agent.networks.critic
    own: Any = made.networks.critic
    if critic is None or own is None or shapes(critic.state_dict()) != shapes(own.state_dict()):
        made.networks.critic = None
    else:
        own.load_state_dict(critic.state_dict())
