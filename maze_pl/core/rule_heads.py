"""Check of the action heads that hand-written rules decide."""

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces


def require_heads(rule: object, given: spaces.Dict, known: Mapping[str, spaces.Space[Any]]) -> None:
    """Refuse action heads whose values mean something else than the numbers that a rule gives.

    Args:
        rule: The rule, for the message.
        given: Action space of the sub-step.
        known: Head -> space, of all heads that the rule can decide.

    Raises:
        ValueError: A head is unknown, or has another space.
    """
    if all(known.get(head) == space for head, space in given.spaces.items()):
        return
    fault = f"{type(rule).__name__} gives actions of {dict(known)}, but the action heads are {given.spaces}"
    remedy = "play it without wrappers that change actions"
    other = "or let maze_pl.envs.wrappers.translated_rule_policy.TranslatedRulePolicy translate it"
    raise ValueError(f"{fault}; {remedy}, {other}")
