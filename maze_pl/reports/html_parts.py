"""Parts of an HTML page. All texts are escaped here, so that nothing from a file can become markup."""

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from maze_pl.reports.plain_text import printable


@dataclass(frozen=True)
class Markup:
    """Text that is HTML already, made by a function of this module.

    Attributes:
        html: The HTML.
    """

    html: str


Content = Markup | str
"""HTML, or a text that is escaped."""

NOTHING: Final = Markup("")


def escaped(text: object) -> str:
    """Return a text for the content or an attribute of an element, without control characters."""
    return html.escape(printable(str(text)).encode("utf-8", "replace").decode("utf-8"))


def content_html(content: Content) -> str:
    """Return HTML for a content."""
    return content.html if isinstance(content, Markup) else escaped(content)


def joined(parts: Sequence[Content]) -> Markup:
    """Return contents one after the other."""
    return Markup("\n".join(content_html(part) for part in parts))


def element(tag: str, content: Content, **attributes: str) -> Markup:
    """Return an element.

    Args:
        tag: Its name.
        content: Its content.
        attributes: Its attributes; a trailing underscore of a name is left out.
    """
    texts = [f' {name.rstrip("_").replace("_", "-")}="{escaped(value)}"' for name, value in attributes.items()]
    return Markup(f"<{tag}{''.join(texts)}>{content_html(content)}</{tag}>")


def section(title: str, *contents: Content) -> Markup:
    """Return a section with a heading."""
    return element("section", joined([element("h2", title), *contents]))


def facts(values: Mapping[str, Content | None]) -> Markup:
    """Return a list of names and values; empty values are left out."""
    rows = []
    for name, value in values.items():
        if value is not None and content_html(value):
            rows.append(element("div", joined([element("dt", name), element("dd", value)])))
    return element("dl", joined(rows)) if rows else NOTHING


def table(head: Sequence[str], rows: Sequence[Sequence[Content]], n_text: int = 1) -> Markup:
    """Return a table that scrolls sideways where it is too wide.

    Args:
        head: Titles of the columns.
        rows: Contents of the cells.
        n_text: Number of columns, from the left, with texts; the others have numbers.
    """
    titles = [element("th", name, scope="col", class_="" if i < n_text else "number") for i, name in enumerate(head)]
    lines = [element("tr", joined(titles))]
    for row in rows:
        cells = [element("td", cell, class_="" if i < n_text else "number") for i, cell in enumerate(row)]
        lines.append(element("tr", joined(cells)))
    return element("div", element("table", joined(lines)), class_="wide", tabindex="0")


def code(text: str) -> Markup:
    """Return a command or a text in a block that wraps its lines."""
    return element("pre", element("code", text))


def missing(reason: str, command: str | None = None) -> Markup:
    """Return a note that something is missing, with the command that would add it."""
    parts: list[Content] = [element("p", reason)]
    if command is not None:
        parts.append(code(command))
    return element("div", joined(parts), class_="missing")


def folded(title: str, content: Content) -> Markup:
    """Return a content that is shown on demand."""
    return element("details", joined([element("summary", title), content]))


def picture(content: bytes, kind: str, label: str) -> Markup:
    """Return a picture, in which scripts do not run.

    Args:
        content: Content of the file.
        kind: `png` or `svg`.
        label: Description for screen readers.
    """
    media = "image/svg+xml" if kind == "svg" else "image/png"
    address = f"data:{media};base64,{base64.b64encode(content).decode('ascii')}"
    return Markup(f'<img alt="{escaped(label)}" src="{address}">')


def frame(page: str, label: str) -> Markup:
    """Return another page in a frame that can neither reach this page nor anything else.

    Args:
        page: The HTML of the other page.
        label: Description for screen readers.
    """
    source = html.escape(page.encode("utf-8", "replace").decode("utf-8"))
    return Markup(f'<iframe title="{escaped(label)}" sandbox="allow-scripts" srcdoc="{source}"></iframe>')


def document(title: str, body: Content, *, style: str = "", with_scripts: bool = True) -> str:
    """Return a whole page that loads nothing, in light and dark.

    Args:
        title: Its title.
        body: Its content.
        style: Further rules of style.
        with_scripts: Whether scripts may run, which frames in it need.
    """
    page = _PAGE if with_scripts else _PAGE.replace(_SCRIPTS, "")
    head, _, rest = page.partition("{title}")
    middle, _, end = rest.partition("{body}")
    start, closing, between = middle.partition("</style>")
    return f"{head}{escaped(title)}{start}{style}{closing}{between}{content_html(body)}{end}"


_STYLE: Final = """
:root { color-scheme: light dark; --page: light-dark(#f4f5f7, #10141a); --card: light-dark(#ffffff, #191f27);
  --ink: light-dark(#1a212b, #e7ebf0); --muted: light-dark(#55606d, #a3aebb); --line: light-dark(#d8dee5, #303945);
  --accent: light-dark(#1d5fc2, #86b4ff); --note: light-dark(#fdf4e3, #2f2719); --code: light-dark(#f4f6f8, #12171d); }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px; max-width: 1100px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
h1 { font-size: 22px; margin: 8px 0; } h2 { font-size: 17px; margin: 0 0 10px; }
h3 { font-size: 14px; margin: 14px 0 6px; }
header p { margin: 0 0 12px; color: var(--muted); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px;
  margin: 0 0 14px; }
p { margin: 0 0 8px; } .muted { color: var(--muted); font-size: 13px; }
dl { margin: 0; } dl > div { display: grid; grid-template-columns: 130px 1fr; gap: 10px; padding: 4px 0;
  border-top: 1px solid var(--line); } dl > div:first-child { border-top: 0; }
dt { color: var(--muted); } dd { margin: 0; min-width: 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 0 0 14px; }
.tiles > div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
.tiles b { display: block; font-size: 20px; font-weight: 650; } .tiles span { color: var(--muted); font-size: 13px; }
pre { margin: 0 0 8px; padding: 8px 10px; background: var(--code); border-radius: 6px; white-space: pre-wrap;
  font: 13px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; max-height: 480px; overflow: auto; }
dd pre { margin: 0 0 4px; } pre:last-child { margin-bottom: 0; }
.wide { overflow-x: auto; margin: 0 0 8px; --shade: light-dark(#0003, #0009); background:
  linear-gradient(to right, var(--card) 50%, #0000) left / 36px 100% local no-repeat,
  linear-gradient(to left, var(--card) 50%, #0000) right / 36px 100% local no-repeat,
  linear-gradient(to right, var(--shade), #0000) left / 14px 100% scroll no-repeat,
  linear-gradient(to left, var(--shade), #0000) right / 14px 100% scroll no-repeat; }
table { border-collapse: collapse; font-size: 14px; min-width: 50%; }
th, td { border-bottom: 1px solid var(--line); padding: 5px 12px 5px 0; text-align: left; vertical-align: top; }
th, td { overflow-wrap: break-word; }
th { color: var(--muted); font-weight: 600; } .number { text-align: right; white-space: nowrap;
  padding: 5px 0 5px 16px; } th.number { white-space: normal; } th { vertical-align: bottom; }
.missing { background: var(--note); border-radius: 6px; padding: 10px 12px; margin: 0 0 8px; }
.missing p:last-child { margin: 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 14px; }
.charts svg { width: 100%; height: auto; display: block; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); gap: 14px; }
figure { margin: 0; } figcaption { color: var(--muted); font-size: 13px; }
img { max-width: 100%; max-height: 640px; background: #ffffff; border-radius: 6px; padding: 6px; }
iframe { width: 100%; height: min(900px, 85vh); border: 1px solid var(--line); border-radius: 6px; }
summary { cursor: pointer; color: var(--accent); } details > pre { margin-top: 8px; }
@media (max-width: 520px) { body { padding: 10px; } section { padding: 12px; }
  dl > div { grid-template-columns: 1fr; gap: 0; } }
"""
_SCRIPTS: Final = " script-src 'unsafe-inline';"
_RULES: Final = (
    f"default-src 'none'; style-src 'unsafe-inline';{_SCRIPTS} img-src data:; base-uri 'none'; form-action 'none'"
)
_PAGE: Final = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_RULES}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{title}}</title>
<style>{_STYLE}</style>
</head>
<body>
{{body}}
</body>
</html>
"""
