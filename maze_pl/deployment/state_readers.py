"""Parts of a deployment that use the state of the simulation, besides conversions."""

from maze_pl.core.policy import MazeStatePolicy, Policy
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import wrappers_of
from maze_pl.envs.wrappers.residual_action_wrapper import ResidualActionWrapper
from maze_pl.search import SearchPolicy


def without_search(policy: Policy) -> Policy:
    """Return the policy that guides a search, any other policy as it is."""
    return policy.policy if isinstance(policy, SearchPolicy) else policy


def reads_state(policy: Policy) -> bool:
    """True if a policy, or the one that guides a search, is given states, as in a rollout."""
    return isinstance(without_search(policy), MazeStatePolicy)


def state_reader(policy: Policy, env: StructuredEnv) -> str | None:
    """Name the part that is given states: the policy, or a wrapper with a rule; None if there is none.

    Args:
        policy: The policy.
        env: The environment with its wrappers.
    """
    if reads_state(policy):
        return type(without_search(policy)).__name__
    for wrapper in wrappers_of(env):
        if issubclass(type(wrapper), ResidualActionWrapper) and wrapper.rule.reads_state:
            return f"{type(wrapper.rule.rule).__name__} of {type(wrapper).__name__}"
    return None
