"""Numbers of agents for which a policy has networks."""

from maze_pl.agents.torch_policy import TorchPolicy
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Policy
from maze_pl.deployment.state_readers import without_search
from maze_pl.runs.bundle_policy import BundlePolicy


def agent_limits(policy: Policy) -> dict[StepKey, int]:
    """Return the number of agents of each sub-step in which each agent has its own network.

    Args:
        policy: The policy of a deployment; all others are for any number of agents.
    """
    guide = without_search(policy)
    limits: dict[StepKey, int] = {}
    if isinstance(guide, TorchPolicy):
        for key in guide.spec.step_keys:
            limits[key] = len(guide.parts_of(key).networks)
    elif isinstance(guide, BundlePolicy):
        for step in guide.manifest["steps"]:
            limits[step["key"]] = step["separate_networks"] or 1
    return {key: n_networks for key, n_networks in limits.items() if n_networks > 1}
