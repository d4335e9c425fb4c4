"""Differences of two specifications of an agent, in words for messages."""

from collections.abc import Mapping
from typing import Any, Final

from maze_pl.core.spaces import space_from_dict, without_integer_types

_MOST_NAMED: Final = 3
_MOST_LETTERS: Final = 150
_MISSING: Final = "missing"


def changed_spaces(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a phrase on each space, mask or number of agents that differs, with both of its values.

    Args:
        before: `Spec.to_dict()` of the one.
        now: `Spec.to_dict()` of the other.
    """
    then, current = _parts(without_integer_types(before)), _parts(without_integer_types(now))
    found = []
    for name in {**then, **current}:
        old, new = then.get(name, _MISSING), current.get(name, _MISSING)
        if old == new:
            continue
        difference = f"was {_text(old)} and is {_text(new)}"
        found.append(f"{name} {difference if _text(old) != _text(new) else 'has changed'}")
    return found


def shortened(changes: list[str]) -> str:
    """Join the first phrases, and say how many more there are."""
    text = ", ".join(changes[:_MOST_NAMED])
    n_more = len(changes) - _MOST_NAMED
    return f"{text} and {n_more} more" if n_more > 0 else text


def _parts(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a specification by names for messages."""
    parts: dict[str, Any] = {}
    for step in spec["steps"]:
        place = f"of sub-step {step['key']!r}"
        for role in ("observation", "action"):
            for name, space in step[f"{role}_space"]["spaces"].items():
                parts[f"{role} {name!r} {place}"] = space
        for head, mask in step["masks"].items():
            parts[f"the mask of action {head!r} {place}"] = repr(mask)
        for count in ("n_agents", "n_slots"):
            parts[f"{count} {place}"] = str(step[count])
    return parts


def _text(part: Any) -> str:
    """Return a part as text: a space as gymnasium prints it, in one line."""
    text = part if isinstance(part, str) else str(space_from_dict(part))
    return f"{' '.join(text.split()):.{_MOST_LETTERS}}"
