"""Navigation of the site, from the tables of the start page, and links to files outside of the documentation.

The start page lists all pages in tables, one per section, so that it also serves readers of the repository. Each
section becomes a part of the navigation. Example programs and the changelog, which lie outside of the documentation,
become pages. Comments that name example episodes are replaced by them.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
EXAMPLES = "reference/examples"
CHANGELOG = "reference/changelog"
REFERENCE = ["reference/api/index", "reference/options/index", f"{EXAMPLES}/index", CHANGELOG]
SUFFIXES = (".py", ".yaml", ".ipynb")
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
PAGE = re.compile(r"\]\(([\w/]+)\.md\)")
OUTER_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([\w./-]+)((?:#[\w-]+)?)\)")
EPISODE = re.compile(r"<!-- example episode: (\w+) -->(?:\n!\[[^\]]*\]\([^)]*\))?")  # and the picture in its place
FRAME = """<iframe src="{root}_static/episodes/{name}.html" title="Two episodes of an environment" loading="lazy"
style="width: 100%; height: 760px; border: 1px solid var(--color-background-border); border-radius: 6px"></iframe>"""


def with_navigation(text: str) -> str:
    """Add a hidden table of contents for each section of the start page."""
    titles = SECTION.findall(text)
    bodies = SECTION.split(text)[2::2]
    trees = []
    for title, body in zip(titles, bodies, strict=True):
        pages = list(dict.fromkeys(PAGE.findall(body)))
        if title == "Reference":
            pages += REFERENCE
        if pages:
            listed = "\n".join(pages)
            trees.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{listed}\n```\n")
    return text + "\n" + "\n".join(trees)


def with_episodes(docname: str, text: str) -> str:
    """Show the example episodes that a page names, in place of the pictures that readers of the repository see."""
    root = "../" * docname.count("/")
    return EPISODE.sub(lambda match: FRAME.format(root=root, name=match[1]), text)


def page_of(path: str) -> str | None:
    """Page of the site that shows a file or folder of the repository, if there is one."""
    if path == "CHANGELOG.md":
        return CHANGELOG
    if path.startswith("examples") and (ROOT / path).is_dir():
        return f"{EXAMPLES}/index"
    if path.startswith("examples/"):
        return f"{EXAMPLES}/{example_page(path)}"
    return None


def with_inner_links(docname: str, text: str) -> str:
    """Let links to files outside of the documentation lead to the pages that show them.

    A link to a file without a page, such as a test, becomes its text.
    """
    folder = posixpath.dirname(docname)

    def replaced(match: re.Match[str]) -> str:
        shown, ups, path, heading = match.groups()
        if posixpath.normpath(posixpath.join("docs", folder, ups)) != ".":
            return match[0]
        page = page_of(path)
        if page is None:
            return shown
        return f"[{shown}]({posixpath.relpath(page, folder or '.')}.md{heading})"

    return OUTER_LINK.sub(replaced, text)


def prepare_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Change the source of a page before it is parsed."""
    source[0] = with_episodes(docname, with_inner_links(docname, source[0]))
    if docname == app.config.root_doc:
        source[0] = with_navigation(source[0])


def example_page(path: str) -> str:
    """Name of the page of an example: its path, with one word per folder."""
    return Path(path).with_suffix("").as_posix().removeprefix("examples/").replace("/", "-")


def notebook_text(path: Path) -> str:
    """Text and code of a notebook, as a page."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def example_text(path: Path) -> str:
    """Page of an example: its path, and what it holds."""
    if path.suffix == ".ipynb":
        return notebook_text(path)
    name = path.relative_to(ROOT).as_posix()
    kind = {".py": "python", ".yaml": "yaml"}[path.suffix]
    return f"# {name}\n\n````{kind}\n{path.read_text(encoding='utf-8')}````\n"


def outer_pages() -> dict[str, str]:
    """Pages of what lies outside of the documentation, by their names."""
    examples = sorted(path for path in (ROOT / "examples").rglob("*") if path.suffix in SUFFIXES)
    pages = {f"{EXAMPLES}/{example_page(str(path.relative_to(ROOT)))}": example_text(path) for path in examples}
    listed = "\n".join(posixpath.basename(name) for name in pages)
    pages[f"{EXAMPLES}/index"] = f"# Example programs\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    pages[CHANGELOG] = changes.replace("](docs/", "](../")
    return pages


def write_pages(app: Sphinx) -> None:
    """Write the pages that have changed."""
    for name, text in outer_pages().items():
        path = Path(app.srcdir) / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension to the events of a build."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", prepare_source)
    return {"parallel_read_safe": True}
