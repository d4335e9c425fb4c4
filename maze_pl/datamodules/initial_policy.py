"""The policy that fills a replay buffer before the first update."""

from collections.abc import Callable
from typing import Any

from maze_pl.core.calls_by_name import made_by_name
from maze_pl.core.policy import Policy
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec


def make_initial_policy(maker: Callable[..., Policy] | None, spec: Spec) -> Policy:
    """Make the policy; a `RandomPolicy` gets the masks that it lacks.

    Args:
        maker: Class or function, which takes any of `action_spaces_dict`, `masks` and `spec`; None
            means `RandomPolicy`.
        spec: Specification of the environment.

    Raises:
        ValueError: It takes other arguments.
    """
    masks = {key: step.masks for key, step in spec.steps.items()}
    known: dict[str, Any] = {"action_spaces_dict": {key: step.action_space for key, step in spec.steps.items()}}
    known |= {"masks": masks, "spec": spec}
    policy: Policy = made_by_name("initial_sampling_policy", maker or RandomPolicy, known)
    if isinstance(policy, RandomPolicy):
        policy.add_masks(masks)
    return policy
