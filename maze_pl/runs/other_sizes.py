"""Trained agents in environments of other sizes, such as instances with more customers than in training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.compatibility import different_spaces, require_same_names, shapes
from maze_pl.runs.vector_inputs import vector_inputs

if TYPE_CHECKING:
    from maze_pl.core.spec import Spec
    from maze_pl.modules import AlgorithmModule


def in_sizes_of(agent: Any, spec: Spec) -> Any:
    """Return an agent with networks for the sizes of an environment, and with the same weights.

    The weights of networks for sets, such as attention with a pointer, do not depend on the number of
    items. If those of the critic do, the returned agent has no critic.

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
    try:
        made: AlgorithmModule = agent.make_again(spec=spec)
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
    return made.to(agent.device).train(agent.training)


def described_sizes(agent: AlgorithmModule, spec: Spec) -> str:
    """Return a message on the first difference between the sizes of training and those of an environment.

    Args:
        agent: The agent as it was trained.
        spec: Observations and actions in the environment.
    """
    difference = different_spaces(agent.policy.spec.to_dict(), spec.to_dict())
    return f"the agent plays in other sizes than those of its training: {difference}"


def _take_critic(made: AlgorithmModule, agent: AlgorithmModule) -> None:
    """Load the weights of the critic of an agent; remove the critic if they depend on the sizes."""
    critic: Any = agent.networks.critic
    own: Any = made.networks.critic
    if critic is None or own is None or shapes(critic.state_dict()) != shapes(own.state_dict()):
        made.networks.critic = None
    else:
        own.load_state_dict(critic.state_dict())
