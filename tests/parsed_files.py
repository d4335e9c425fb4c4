"""Syntax trees of files, parsed once for all tests of a process that look at code."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a file, as `ast.walk` yields them."""
    return list(ast.walk(tree_of(path)))
