"""An action that a policy might take, for callers that choose among several."""

from dataclasses import dataclass
from typing import Any

from maze_pl.core.actor_id import ActorID
from maze_pl.envs.structured_env import Action


@dataclass(frozen=True)
class Candidate:
    """An action that a policy might take.

    Attributes:
        actor_id: The actor that would act.
        action: Head -> value.
        probability: Probability of the whole action, the product over all heads.
        maze_action: The action as the simulation would receive it; None if it depends on further
            sub-steps or on a custom wrapper.
    """

    actor_id: ActorID
    action: Action
    probability: float
    maze_action: Any = None
