"""Identity of an actor: the policy that acts, and the agent it acts for."""

from typing import NamedTuple

StepKey = int | str


class ActorID(NamedTuple):
    """Identity of an actor: a step key and an agent id.

    Attributes:
        step_key: Key of the sub-step, which names the policy that acts.
        agent_id: Id of the agent among the agents of this policy; not reused within an episode after the agent is done.
    """

    step_key: StepKey
    agent_id: int
