"""Language of docstrings: first lines say what a thing is or does, and phrases of another tongue stay out."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import maze_pl
import maze_pl_runtime
from tests.parsed_files import nodes_of

PACKAGE = Path(maze_pl.__file__).parent
SOURCES = sorted([*PACKAGE.rglob("*.py"), *Path(maze_pl_runtime.__file__).parent.rglob("*.py")])
QUESTION = re.compile(r"(What|Who|Whose|How|Whether|Where|Which|When)\b")
PHRASES = re.compile(
    r"\b(anew|beside|dealt out|slow copies|is none of|the former)\b"
    r"|\bof (one's|whose|its|their|your|his|her|my|our) own\b"
    r"|\b(that|those) of (which|whom|those|that)\b"
    r"|\b(any more|at all costs|come out|for ever|from which on|holds? 0|in truth|nobody|somebody)\b"
    r"|\b(continue|behave)s? equally\b|^Tell if\b|(?-i:\bHere belongs?\b)"
    r"|(?<!there )\bis no (?!longer\b|such\b|next\b|correction\b)\w+",
    re.IGNORECASE,
)


def docstrings() -> Iterator[tuple[str, str]]:
    """Docstrings of all modules, classes and functions, with their places."""
    for path in SOURCES:
        for node in nodes_of(path):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text is not None:
                    yield f"{path.relative_to(PACKAGE.parent)}:{getattr(node, 'lineno', 1)}", text


def test_no_docstring_opens_with_a_question_word() -> None:
    assert not [f"{place} {text.splitlines()[0]}" for place, text in docstrings() if QUESTION.match(text)]


def texts() -> Iterator[tuple[str, str]]:
    """Docstrings, messages and comments, with their places, without names of arguments."""
    for path in SOURCES:
        place, source = path.relative_to(PACKAGE.parent), path.read_text(encoding="utf-8")
        for node in nodes_of(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{place}:{node.lineno}", re.sub(r"`[^`]*`|^\s*\w+:", "", node.value, flags=re.MULTILINE)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield f"{place}:{token.start[0]}", token.string


def test_no_docstring_message_or_comment_has_a_phrase_that_stops_a_reader() -> None:
    assert not [f"{place} {phrase[0]}" for place, text in texts() for phrase in PHRASES.finditer(text)]


DOCS = PACKAGE.parent / "docs"
PAGES = [PACKAGE.parent / "README.md", *DOCS.glob("*.md"), *DOCS.glob("tutorial/*.md"), *DOCS.glob("results/*.md")]
PHRASES_OF_PAGES = re.compile(
    r"\b(anew|beside|dealt|slow copies|is none|the former|any more|come out|from which on|holds? 0|nobody|somebody)\b"
    r"|\bof (one's|its|their|your|his|her|my|our|whose) own\b"
    r"|\b(that|those) of (which|whom|those|that)\b|(?<!there )\bis no (?!longer\b|such\b)\w+",
    re.IGNORECASE,
)


def prose(page: Path) -> Iterator[tuple[str, str]]:
    """Paragraphs, headings and table rows of a page outside of fenced blocks, with their places."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    for part in re.finditer(r"[^\n]+(?:\n(?!\||#|- )[^\n]+)*", text):
        yield f"{page.name}:{text.count(chr(10), 0, part.start()) + 1}", " ".join(part[0].split())


def test_no_page_has_a_phrase_that_stops_a_reader() -> None:
    found = [
        f"{place} {phrase[0]}"
        for page in PAGES
        for place, text in prose(page)
        for phrase in PHRASES_OF_PAGES.finditer(text)
    ]
    assert not found


def test_headings_of_pages_are_names_of_things_or_tasks() -> None:
    headings = [(place, text.lstrip("# ")) for page in PAGES for place, text in prose(page) if text.startswith("#")]
    assert len(headings) > 150
    assert not [f"{place} {heading}" for place, heading in headings if QUESTION.match(heading)]
