"""Pages of the API reference: one for each package, with every name that it exports.

They are written before the site is built, to `docs/reference/api`, which git ignores.
"""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx

FOLDER = "reference/api"
SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Example|Examples|Note):")
MARKUP = re.compile(r"[*|](?=(?:[^`]*`[^`]*`)*[^`]*$)")  # outside of backticks

# Packages and modules in the order of the reference. Packages that export nothing are listed by their modules.
PACKAGES = [
    "maze_pl",
    "maze_pl.envs.vector",
    "maze_pl.envs",
    "maze_pl.envs.wrappers",
    "maze_pl.envs.checker",
    "maze_pl.envs.arrays",
    "maze_pl.envs.tensors",
    "maze_pl.envs.cutting_2d",
    "maze_pl.envs.job_shop",
    "maze_pl.envs.multi_echelon_stock",
    "maze_pl.envs.ride_hailing",
    "maze_pl.envs.vehicle_routing",
    "maze_pl.events",
    "maze_pl.perception",
    "maze_pl.distributions",
    "maze_pl.agents",
    "maze_pl.modules",
    "maze_pl.datamodules",
    "maze_pl.datasets",
    "maze_pl.collect",
    "maze_pl.collect.engines",
    "maze_pl.search",
    "maze_pl.rllib",
    "maze_pl.schedules",
    "maze_pl.loggers",
    "maze_pl.callbacks",
    "maze_pl.functional",
    "maze_pl.records",
    "maze_pl.deployment",
    "maze_pl.run_context",
    "maze_pl.comparison",
    "maze_pl.estimation",
    "maze_pl.core",
    "maze_pl_runtime",
    # modules of other packages, from which custom code imports
    "maze_pl.datasets.state_conversion",
    "maze_pl.perception.network_graph",
    "maze_pl.perception.drawing",
    "maze_pl.perception.models.built_in",
    "maze_pl.system.atomic_files",
    "maze_pl.system.lost_process",
    "maze_pl.system.ranks",
    "maze_pl.viewer.arrays",
]


def exported_names(package: ModuleType) -> list[str]:
    """Names that a package exports: those of `__all__`, or else its public classes and functions."""
    if hasattr(package, "__all__"):
        return sorted(package.__all__)
    names = []
    for name, value in vars(package).items():
        is_ours = getattr(value, "__module__", "").startswith("maze_pl")
        if not name.startswith("_") and is_ours and (inspect.isclass(value) or inspect.isfunction(value)):
            names.append(name)
    return sorted(names)


def defined_names(module: ModuleType) -> list[str]:
    """Public classes and functions that a module defines itself."""
    return [name for name in exported_names(module) if getattr(module, name).__module__ == module.__name__]


def members(package: ModuleType) -> list[tuple[str, str]]:
    """Modules and names that the page of a package describes.

    A package that exports nothing, such as `maze_pl.core`, is described by what its modules define.
    """
    is_module = not hasattr(package, "__path__")
    exported = defined_names(package) if is_module else exported_names(package)
    names = [(package.__name__, name) for name in exported]
    if names:
        return names
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        names += [(info.name, name) for name in defined_names(module)]
    return names


def directive(module: str, name: str, described: dict[int, str]) -> str:
    """Directive that documents a name, with the members that it adds to its bases.

    Args:
        module: The module that exports the name.
        name: The name.
        described: Identity -> full name of what has been documented before, to which the name is added.
    """
    value = getattr(importlib.import_module(module), name)
    known = described.setdefault(id(value), f"{module}.{name}")
    if known != f"{module}.{name}":
        role = "class" if inspect.isclass(value) else "func"
        return f"`{name}` is :py:{role}:`{known}`.\n"
    if inspect.isclass(value):
        # the runtime has a `Policy` as well, to which annotations of maze_pl do not refer
        index = "   :no-index:\n" if module == "maze_pl_runtime" else ""
        return f".. autoclass:: {module}.{name}\n{index}   :members:\n   :show-inheritance:\n"
    if inspect.isroutine(value):
        return f".. autofunction:: {module}.{name}\n"
    return f".. autodata:: {module}.{name}\n"


def prepare_docstring(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Show asterisks and bars as such, and indented paragraphs, which are formulas, as they are written."""
    prepared: list[str] = []
    in_section = in_formula = False
    for number, line in enumerate(lines):
        if line and not line.startswith(" "):
            in_section = bool(SECTION.fullmatch(line))
            in_formula = False
        starts = line.startswith("    ") and not in_section and not in_formula
        if starts and number and not lines[number - 1]:
            in_formula = True
            prepared += ["::", ""]
        is_code = in_formula or line.lstrip().startswith((">>>", "..."))
        prepared.append(line if is_code else MARKUP.sub(r"\\\g<0>", line))
    lines[:] = prepared


def page(package: str, described: dict[int, str]) -> str:
    """Page of a package, in reStructuredText."""
    module = importlib.import_module(package)
    summary = inspect.getdoc(module) or ""
    parts = [f"{package}\n{'=' * len(package)}\n", f"{summary}\n"]
    parts += [directive(owner, name, described) for owner, name in members(module)]
    return "\n".join(parts)


def write_pages(app: Sphinx) -> None:
    """Write the pages that have changed, and an index of them."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    entries = "\n".join(f"   {package}" for package in PACKAGES)
    described: dict[int, str] = {}
    texts = {package: page(package, described) for package in PACKAGES}
    texts["index"] = f"Python API\n==========\n\n.. toctree::\n   :maxdepth: 2\n\n{entries}\n"
    for name, text in texts.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension to the events of a build."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=400)  # before sections are converted
    return {"parallel_read_safe": True}
