"""Texts and values of files, in a form that is safe to print and to convert to JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_DEEPEST: Final = 20
_MOST_VALUES: Final = 20_000
_MOST_LETTERS: Final = 20_000
_MOST_BITS: Final = 1_000


def printable(text: str) -> str:
    """Replace characters that could control a terminal, except for line breaks, by escape sequences."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text[:_MOST_LETTERS]
    )


def is_printable_count(value: Any) -> bool:
    """True for a whole number that Python converts to text, as it does not for those of thousands of digits."""
    return isinstance(value, int) and value.bit_length() <= _MOST_BITS


def bounded(value: Any) -> Any:
    """Return a value of a file as plain values of limited depth and number.

    Args:
        value: Any nested value; parts that are neither numbers, texts, lists nor dicts become the
            names of their types.
    """
    return _bounded(value, _DEEPEST, [_MOST_VALUES])


def _bounded(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if isinstance(value, int) and not is_printable_count(value):
        return f"a number of {value.bit_length():,} bits"
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value[:_MOST_LETTERS]
    if depth == 0 or left[0] <= 0:
        return "..."
    if isinstance(value, Mapping):
        found = {}
        for key, item in value.items():
            if left[0] <= 0:
                break
            found[str(key)[:_MOST_LETTERS]] = _bounded(item, depth - 1, left)
        return found
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        items = []
        for item in value:
            if left[0] <= 0:
                break
            items.append(_bounded(item, depth - 1, left))
        return items
    return type(value).__name__


def as_json(facts: Mapping[str, Any]) -> str:
    """Return facts as JSON; control characters are escaped."""
    return json.dumps(bounded(facts), indent=1, allow_nan=True)


def as_lines(facts: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield facts as lines of text: `name: value`, and nested facts indented below their name.

    Args:
        facts: Name -> number, text, list or nested facts; those that are None or empty are left out.
        indent: Spaces before each line.
    """
    for name, value in facts.items():
        title = f"{indent}{printable(str(name))}:"
        if value is None or value == "" or (isinstance(value, dict | list) and not value):
            continue
        if isinstance(value, Mapping):
            yield title
            yield from as_lines(value, f"{indent}  ")
        elif isinstance(value, list):
            yield title
            yield from (f"{indent}  {line}" for item in value for line in _text(item).splitlines())
        elif "\n" in (text := _text(value)):
            yield title
            yield from (f"{indent}  {line}" for line in text.splitlines())
        else:
            yield f"{title} {text}"


def _text(value: Any) -> str:
    """Return a number or a text as it is printed."""
    value = bounded(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return printable(value if isinstance(value, str) else json.dumps(value))
