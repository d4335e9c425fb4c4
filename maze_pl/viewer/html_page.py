"""The page of the episode viewer: one HTML file that holds its style, its script and its document."""

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from maze_pl.viewer.document_checks import check_document

SCRIPTS: Final = (
    *("elements.js", "arrays.js", "charts.js", "episode.js", "timeline.js"),
    *("decisions.js", "observations.js", "outcome.js", "strip.js", "event_log.js"),
    *("pane.js", "transport.js", "viewer.js"),
)
"""Scripts of the page in the order in which they need each other."""
_ESCAPES: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}  # nothing in the document ends its element


def html_page(document: Mapping[str, Any]) -> str:
    """Write a page that shows episodes without a network and without a server.

    The page contains everything that it shows. Its Content-Security-Policy permits the one script
    and the one style sheet of the page, by their hashes, and pictures that the document contains;
    nothing can be loaded, sent or submitted. Strings of the document are shown as text, so that
    none of them can run as script.

    Args:
        document: Episodes in the format "maze_pl episodes".

    Returns:
        The HTML page; it is written in UTF-8 and can also be the `srcdoc` of an iframe.

    Raises:
        ValueError: If the document is not in that format; the message says where.
    """
    check_document(document)
    style = _resource("style.css")
    script = _script()
    title = str(document["title"]).encode("utf-8", "replace").decode("utf-8")
    parts = {
        "policy": html.escape(_policy(style, script)),
        "title": html.escape(title),
        "style": style,
        "document": _embedded(document),
        "script": script,
    }
    before, *pieces = _resource("page.html").split("{{")  # not replaced one after another: a title may hold braces
    page = [before]
    for piece in pieces:
        name, after = piece.split("}}", 1)
        page += [parts[name], after]
    return "".join(page)


def _resource(name: str) -> str:
    """Text of a file of the page, with the line ends that browsers see."""
    text = files("maze_pl.viewer").joinpath("page", name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")


def _script() -> str:
    """All scripts in one scope, which nothing else sees."""
    parts = [_resource(name) for name in SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _policy(style: str, script: str) -> str:
    """Content-Security-Policy that permits this style sheet, this script, and pictures in the page."""
    rules = (
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        f"style-src '{_hash(style)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _hash(text: str) -> str:
    """Hash of an element's text, as a Content-Security-Policy writes it."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")


def _embedded(document: Mapping[str, Any]) -> str:
    """JSON of the document, in which no character means anything to HTML or ends a line of JavaScript."""
    try:
        text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    except ValueError:  # JSON has no NaN and no infinity, which a KPI or an attribute of an event may be
        text = json.dumps(_finite(document), allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def _finite(value: Any) -> Any:
    """A copy in which numbers that are not finite are null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
