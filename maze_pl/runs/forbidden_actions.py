"""Message on policies that choose what masks forbid, which rules may do without an error."""

import sys

import numpy as np

from maze_pl.core.allowed_options import forbidden_actions
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.spaces import no_value
from maze_pl.core.spec import Spec


class ForbiddenActions:
    """Tells once per worker, on standard error, that a policy has chosen what a mask forbids.

    The simulation gets such actions as they are; some simulations replace them. Each process that
    plays episodes of a rollout is a worker.

    Args:
        spec: Spaces of the agents, with masks.
        name: Name of the policy.
    """

    def __init__(self, spec: Spec, name: str) -> None:
        self._spec = spec
        self._name = name
        self._has_told = not any(step.masks for step in spec.steps.values())

    def look(self, batch: PolicyBatch, step: PolicyStep) -> None:
        """Compare actions with their masks, unless a message was printed before."""
        if self._has_told:
            return
        key = batch.step_key
        for head, name in self._spec.steps[key].masks.items():
            actions, space = np.asarray(step.action[head]), self._spec.steps[key].action_space[head]
            if no_value(space, actions, len(batch.agent_id)):
                continue  # the environment refuses them
            is_forbidden = forbidden_actions(actions, batch.observation[name], space)
            if is_forbidden.any():
                self._tell(f"{actions[is_forbidden][0].tolist()} of {head!r} in sub-step {key!r}", name)
                return

    def _tell(self, action: str, mask: str) -> None:
        """Print the message."""
        self._has_told = True
        if sys.stderr is None:  # in a process without a console
            return
        from tqdm import tqdm

        fact = f"{self._name} has chosen {action}, which the mask {mask!r} forbids"
        effect = "the simulation gets such actions as they are, and they cannot be learned from"
        tqdm.write(f"maze-pl: {fact}; {effect}", file=sys.stderr)  # above a bar of this process
