"""The documentation site: it is built without a warning, complete, and needs no network."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

import maze_pl.modules
import maze_pl_runtime

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "extensions"))
navigation = importlib.import_module("navigation")
api_reference = importlib.import_module("api_reference")
option_reference = importlib.import_module("option_reference")
example_episodes = importlib.import_module("example_episodes")
sys.path.pop(0)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from a copy of the repository, in which generated pages may be written."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("docs", "examples", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("reference", "__pycache__"))
    shutil.copy(ROOT / "CHANGELOG.md", folder)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    command += ["-D", "example_episode_steps=4", "-D", "toc_object_entries=0", "docs", "html"]  # a third of the time
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-5000:]
    return folder / "html"


class Loads(HTMLParser):
    """Addresses that a page loads by itself."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe"):
            self.found.append(values.get("src") or "")
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.found.append(values.get("href") or "")


class Titles(HTMLParser):
    """The heading of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.first = ""
        self._is_open = False
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_open = tag == "h1" or (self._is_open and tag != "a")  # a link to the heading follows it

    def handle_data(self, data: str) -> None:
        if self._is_open:
            self.first += data

    def handle_endtag(self, tag: str) -> None:
        self._is_open = self._is_open and tag != "h1"


@pytest.mark.slow
def test_every_page_is_in_the_navigation_and_loads_nothing_from_the_network(site: Path) -> None:
    index = (site / "index.html").read_text(encoding="utf-8")
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    for page in sorted(name for name in pages if not name.startswith("reference/")):
        assert (site / page).is_file(), page
        assert page == "index.html" or f'href="{page}"' in index, page
        heading = (ROOT / "docs" / page).with_suffix(".md").read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        assert Titles(site / page).first == re.sub("[`*]", "", heading), f"{page} is another page"
        outer = [address for address in Loads(site / page).found if address.startswith(("http:", "https:", "//"))]
        assert not outer, (page, outer)


@pytest.mark.slow
def test_public_names_and_options_are_found_by_the_search(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    for word in ("gae_lambda", "PPO", "ObservationNormalizationWrapper", "maze_pl.envs"):
        assert word.lower() in index.lower(), word
    inventory = (site / "reference" / "api" / "maze_pl.modules.html").read_text(encoding="utf-8")
    for name in api_reference.exported_names(maze_pl.modules):
        assert f'id="maze_pl.modules.{name}"' in inventory or f'<span class="pre">{name}</span>' in inventory, name


@pytest.mark.slow
def test_start_page_has_an_episode_to_scrub(site: Path) -> None:
    (frame,) = [address for address in Loads(site / "index.html").found if "episode" in address]
    page = (site / frame).read_text(encoding="utf-8")
    assert "Cutting-2D" in page
    assert page.count("episode") > 1


@pytest.mark.slow
def test_gallery_has_an_episode_of_each_problem(site: Path) -> None:
    frames = [address for address in Loads(site / "gallery.html").found if "episode" in address]
    assert [Path(frame).stem for frame in frames] == list(example_episodes.examples())
    for frame, example in zip(frames, example_episodes.examples().values(), strict=True):
        page = (site / frame).read_text(encoding="utf-8")
        assert all(f'"{name}"' in page for name in example.policies)


def test_episodes_take_the_place_of_comments_at_any_depth() -> None:
    text = navigation.with_episodes("tutorial/page", "before <!-- example episode: job_shop -->\n![A](b.png) after")
    assert 'src="../_static/episodes/job_shop.html"' in text
    assert text.startswith("before <iframe")
    assert text.endswith("</iframe> after")


def test_the_navigation_follows_the_tables_of_the_start_page() -> None:
    text = "# Title\n\n## First\n\n| [A](a.md) | [B](tutorial/b.md#part) |\n\n## Reference\n\n[C](c.md)\n"
    changed = navigation.with_navigation(text)
    assert ":caption: First\n\na\n```" in changed
    assert ":caption: Reference\n\nc\nreference/api/index" in changed


@pytest.mark.parametrize(
    ("docname", "link", "expected"),
    [
        ("speed", "../examples/low_level_cartpole.py", "reference/examples/low_level_cartpole.md"),
        ("tutorial/01_problem", "../../examples/structured", "../reference/examples/index.md"),
        ("speed", "engines.md#failures", "engines.md#failures"),
        ("tutorial/01_problem", "../speed.md", "../speed.md"),
    ],
)
def test_links_out_of_the_documentation_lead_to_pages(docname: str, link: str, expected: str) -> None:
    assert navigation.with_inner_links(docname, f"[text]({link})") == f"[text]({expected})"


def test_links_to_files_without_a_page_become_their_text() -> None:
    assert navigation.with_inner_links("speed", "see [a `test`](../tests/test_site.py).") == "see a `test`."


def test_formulas_in_docstrings_are_shown_as_they_are_written() -> None:
    lines = ["Advantages *[B]* and `a * b`.", "", "    A = r * g", "", "Args:", "    reward: [*batch] rewards."]
    api_reference.prepare_docstring(None, "function", "gae", None, None, lines)
    assert lines == [
        r"Advantages \*[B]\* and `a * b`.",
        "",
        "::",
        "",
        "    A = r * g",
        "",
        "Args:",
        r"    reward: [\*batch] rewards.",
    ]


@pytest.mark.parametrize("library", [maze_pl, maze_pl_runtime])
def test_the_api_reference_has_all_names_that_packages_export(library: ModuleType) -> None:
    described = set()
    for name in api_reference.PACKAGES:
        for module, member in api_reference.members(importlib.import_module(name)):
            described.add(id(getattr(importlib.import_module(module), member)))
    packages = [info.name for info in pkgutil.walk_packages(library.__path__, f"{library.__name__}.") if info.ispkg]
    missing = []
    for name in [library.__name__, *packages]:
        package = importlib.import_module(name)
        exported = api_reference.exported_names(package)
        missing += [f"{name}.{one}" for one in exported if id(getattr(package, one)) not in described]
    assert described and not missing


def test_options_have_type_default_and_meaning() -> None:
    (row,) = [row for row in option_reference.option_rows(maze_pl.modules.PPO) if "`clip_range`" in row]
    assert "`0.2`" in row
    assert "float" in row
    assert len(row.split(" | ")[-1]) > 20


@pytest.mark.parametrize("name", option_reference.GROUPS)
def test_every_option_is_described(name: str) -> None:
    for kind in option_reference.classes_of(option_reference.GROUPS[name]):
        for row in option_reference.option_rows(kind):
            assert not row.endswith("|  |"), f"{kind.__name__}: {row}"
