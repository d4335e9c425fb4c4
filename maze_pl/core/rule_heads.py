"""Check of the action heads that hand-written rules decide."""

from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import spaces

from maze_pl.core.actor_id import StepKey


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


class RuleHeads:
    """Action heads of a rule in each sub-step, which are checked when they are asked for the first time.

    Args:
        action_spaces_dict: Action space of each sub-step.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict]) -> None:
        self._spaces = dict(action_spaces_dict)
        self._checked: set[StepKey] = set()

    def of(
        self, rule: object, step_key: StepKey, known_heads: Callable[[spaces.Dict], Mapping[str, spaces.Space[Any]]]
    ) -> spaces.Dict:
        """Return the heads of a sub-step.

        Args:
            rule: The rule, for messages.
            step_key: The sub-step.
            known_heads: Function from the heads to head -> space, of all heads that the rule can decide.

        Raises:
            ValueError: A head is unknown, or has another space.
        """
        heads = self._spaces[step_key]
        if step_key not in self._checked:
            require_heads(rule, heads, known_heads(heads))
            self._checked.add(step_key)
        return heads
