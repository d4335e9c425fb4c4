"""Options of a search, and the text that gives them."""

import re
from dataclasses import dataclass
from typing import Any, Final

METHODS: Final = ("best_of", "beam", "lookahead", "puct")
_EXAMPLES: Final = "best_of:128, beam:16, lookahead:heuristic, lookahead:policy:200, puct:64, or puct:50ms"
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)ms")
_FRACTION: Final = re.compile(r"\d+(\.\d+)?")
_MOST: Final = 1_000_000
DEFAULT_HORIZON: Final = 10_000
DEFAULT_MAX_ACTIONS: Final = 64


@dataclass(frozen=True)
class SearchOptions:
    """Method and budget of a search.

    A text gives them as `METHOD:BUDGET`, `lookahead:RULE` or `lookahead:RULE:BUDGET`, followed by
    options such as `:horizon=100`.

    Attributes:
        method: `best_of`, `beam`, `lookahead`, or `puct`.
        simulations: Episodes that are tried per decision; for `beam`, the number of action
            sequences that are kept. None for a budget in milliseconds and, with `lookahead`, for
            one per action.
        milliseconds: Time per decision, instead of a number of simulations.
        rule: Policy that plays on after each action, with `lookahead`: `policy` for that of the
            run, `heuristic`, `random`, or a class path.
        horizon: Acts after which a simulation ends.
        max_actions: Number of actions that are tried in a state: the most likely ones.
        min_ratio: Actions whose probability is below this fraction of the most likely action's are
            not tried.
    """

    method: str
    simulations: int | None = None
    milliseconds: float | None = None
    rule: str | None = None
    horizon: int = DEFAULT_HORIZON
    max_actions: int = DEFAULT_MAX_ACTIONS
    min_ratio: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "SearchOptions":
        """Read the text of a search, such as `puct:64`.

        Raises:
            ValueError: It is malformed; the message shows examples.
        """
        method, *parts = text.split(":")
        if method not in METHODS:
            raise _error(text, f"there is no method {method!r}; methods are {', '.join(METHODS)}")
        values: dict[str, Any] = {"method": method}
        if method == "lookahead":
            if not parts or not parts[0] or "=" in parts[0] or _is_budget(parts[0]):
                raise _error(text, "lookahead needs the rule that plays on")
            values["rule"] = parts.pop(0)
        for part in parts:
            name, value = _option(text, part)
            if name in values:
                raise _error(text, f"{part!r} gives {name} twice")
            values[name] = value
        if "simulations" in values and "milliseconds" in values:
            raise _error(text, "give a number of simulations or a time")
        if method == "beam" and "milliseconds" in values:
            raise _error(text, "the width of a beam is a number, not a time")
        if method != "lookahead" and not {"simulations", "milliseconds"} & values.keys():
            raise _error(text, "there is no budget")
        return cls(**values)

    def __str__(self) -> str:
        """Text that `parse` reads."""
        parts = [self.method]
        if self.rule is not None:
            parts.append(self.rule)
        if self.simulations is not None:
            parts.append(str(self.simulations))
        if self.milliseconds is not None:
            parts.append(f"{self.milliseconds:g}ms")
        if self.horizon != DEFAULT_HORIZON:
            parts.append(f"horizon={self.horizon}")
        if self.max_actions != DEFAULT_MAX_ACTIONS:
            parts.append(f"max_actions={self.max_actions}")
        if self.min_ratio:
            parts.append(f"min_ratio={self.min_ratio:g}")
        return ":".join(parts)


def _is_budget(part: str) -> bool:
    """Return whether a part of a text is a number or a time."""
    return part.isdecimal() or _DURATION.fullmatch(part) is not None


def _option(text: str, part: str) -> tuple[str, Any]:
    """Return name and value of an option of the text of a search."""
    duration = _DURATION.fullmatch(part)
    if duration is not None:
        milliseconds = float(duration[1])
        if milliseconds <= 0:
            raise _error(text, f"the time {part} must be above 0")
        return "milliseconds", milliseconds
    name, _, number = part.rpartition("=")
    if name not in ("", "horizon", "max_actions", "min_ratio"):
        raise _error(text, f"there is no option {name!r}; options are horizon, max_actions and min_ratio")
    if name == "min_ratio":
        if _FRACTION.fullmatch(number) is None or float(number) > 1.0:
            raise _error(text, f"{part!r} must be a number from 0 to 1")
        return name, float(number)
    if not number.isdecimal() or not 1 <= int(number) <= _MOST:
        raise _error(text, f"{part!r} must be a whole number from 1 to {_MOST:,}")
    return name or "simulations", int(number)


def _error(text: str, fault: str) -> ValueError:
    return ValueError(f"search {text!r}: {fault}; write {_EXAMPLES}")
