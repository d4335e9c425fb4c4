"""Language of docstrings: first lines say what a thing is or does, and phrases of another tongue stay out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import maze_pl

PACKAGE = Path(maze_pl.__file__).parent
QUESTION = re.compile(r"(What|Who|Whose|How|Whether|Where|Which|When)\b")
PHRASES = ("dealt out", "slow copies", "of one's own", "that of which", "those of those", " anew")


def docstrings() -> Iterator[tuple[str, str]]:
    """Docstrings of all modules, classes and functions, with their places."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text is not None:
                    yield f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)}", text


def test_no_docstring_opens_with_a_question_word() -> None:
    assert not [f"{place} {text.splitlines()[0]}" for place, text in docstrings() if QUESTION.match(text)]


def test_no_docstring_has_a_phrase_that_stops_a_reader() -> None:
    found = [f"{place} {phrase}" for place, text in docstrings() for phrase in PHRASES if phrase in text]
    assert not found
