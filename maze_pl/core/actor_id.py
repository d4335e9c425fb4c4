"""Who acts: the policy that is asked, and for which of its agents."""

from typing import NamedTuple

StepKey = int | str


class ActorID(NamedTuple):
    """The actor whose turn it is.

    Attributes:
        step_key: Key of the sub-step, which names the policy that acts.
        agent_id: The agent among those that share this policy; never used again in an episode once it is done.
    """

    step_key: StepKey
    agent_id: int
