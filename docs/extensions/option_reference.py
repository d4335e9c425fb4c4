"""Reference of all options in YAML and of all commands, from signatures, docstrings and parsers.

The pages are written before the site is built, to `docs/reference/options`, which git ignores.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docstring_parser
import pytorch_lightning as pl
from jsonargparse import ArgumentParser
from sphinx.application import Sphinx

from maze_pl.__main__ import COMMANDS, main
from maze_pl.cli.fit_options import DEFAULT_CALLBACKS, TRAINER_DEFAULTS, add_run_options

FOLDER = "reference/options"


@dataclass(frozen=True)
class Group:
    """Components that one page describes.

    Attributes:
        title: Title of the page.
        text: Where in a configuration the options belong.
        package: Package that exports the components.
        bases: Names of base classes in the package; the page has their subclasses.
    """

    title: str
    text: str
    package: str
    bases: tuple[str, ...] = ()


GROUPS = {
    "algorithms": Group(
        "Algorithms",
        "Options of `model`: `--model.lr 1e-3`, or `model: {class_path: PPO, init_args: {lr: 1e-3}}`.",
        "maze_pl.modules",
        ("AlgorithmModule",),
    ),
    "data_modules": Group("Data modules", "Options of `data`: `--data.n_envs 16`.", "maze_pl.datamodules"),
    "environments": Group(
        "Environments", "Options of `data.env`: `--data.env.name Acrobot-v1`.", "maze_pl.envs", ("StructuredEnv",)
    ),
    "wrappers": Group("Wrappers", "Entries of the list `data.wrappers`.", "maze_pl.envs.wrappers"),
    "networks": Group(
        "Networks: composers, critics and blocks",
        "Options of `model.networks`, and of the blocks that it names.",
        "maze_pl.perception",
    ),
    "distributions": Group(
        "Distributions", "Entries of `distribution_mapper_config` in `model.networks`.", "maze_pl.distributions"
    ),
    "policies": Group("Policies", "Values of `--policy` in commands that play episodes.", "maze_pl.agents"),
    "engines": Group("Engines", "Options of `data.engine`, and of `--runner`.", "maze_pl.collect.engines"),
    "schedules": Group("Schedules", "Values of coefficients that may change during a run.", "maze_pl.schedules"),
    "data_sets": Group("Data sets", "Options of `data.dataset`.", "maze_pl.datasets"),
    "callbacks": Group("Callbacks", "Entries of `trainer.callbacks`; some belong to every run.", "maze_pl.callbacks"),
}


def classes_of(group: Group) -> list[type]:
    """Concrete classes of a group, by name."""
    package = importlib.import_module(group.package)
    bases = tuple(getattr(package, name) for name in group.bases)
    found = []
    for name, value in sorted(vars(package).items()):
        if name.startswith("_") or not inspect.isclass(value) or inspect.isabstract(value):
            continue
        is_protocol = getattr(value, "_is_protocol", False)
        if value.__module__.startswith("maze_pl") and not is_protocol and (not bases or issubclass(value, bases)):
            found.append(value)
    return found


def meanings(owner: Any) -> dict[str, str]:
    """Description of each argument in the docstrings of a class and its bases, or of a function."""
    texts: dict[str, str] = {}
    for source in reversed(getattr(owner, "__mro__", (owner,))):
        for text in (source.__doc__, getattr(vars(source).get("__init__"), "__doc__", None)):
            if not text:
                continue
            for parameter in docstring_parser.parse(text).params:
                texts[parameter.arg_name.lstrip("*")] = parameter.description or ""
    return texts


def type_text(annotation: Any) -> str:
    """Type of an option as it is written in code, without module names."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)


def default_text(value: Any) -> str:
    """Default of an option as it is written in YAML."""
    if value is inspect.Parameter.empty:
        return "required"
    if value is None:
        return "`null`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"`{value.__name__}`"
    return f"`{value}`"


def cell(text: str) -> str:
    """Text in a table cell."""
    return " ".join(text.split()).replace("|", r"\|")


def option_rows(owner: Callable[..., Any], defaults: dict[str, Any] | None = None) -> Iterator[str]:
    """Rows of a table of the options of a class.

    Args:
        owner: The class or function.
        defaults: Defaults that replace those of the signature.
    """
    described = meanings(owner)
    for name, parameter in inspect.signature(owner).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        default = (defaults or {}).get(name, parameter.default)
        kind = cell(type_text(parameter.annotation))
        shown = f"`{kind}`" if kind else ""
        yield f"| `{name}` | {shown} | {cell(default_text(default))} | {cell(described.get(name, ''))} |"


def table(rows: Iterator[str]) -> str:
    """Table of options; a sentence if there are none."""
    listed = list(rows)
    if not listed:
        return "No options.\n"
    return "\n".join(["| option | type | default | meaning |", "|---|---|---|---|", *listed]) + "\n"


def first_line(owner: Any) -> str:
    """First paragraph of a docstring."""
    return (inspect.getdoc(owner) or "").partition("\n\n")[0]


def group_page(group: Group) -> str:
    """Page of a group of components."""
    parts = [f"# {group.title}\n", f"{group.text}\n"]
    for kind in classes_of(group):
        parts += [f"## {kind.__name__}\n", f"`{group.package}.{kind.__name__}`\n", f"{first_line(kind)}\n"]
        parts.append(table(option_rows(kind)))
    return "\n".join(parts)


def run_rows() -> Iterator[str]:
    """Rows of the options of a run that belong neither to model, data and trainer nor to a callback."""
    parser = ArgumentParser()
    add_run_options(parser)  # type: ignore[arg-type]
    for action in parser._actions:
        name = action.dest
        if name == "help" or name.partition(".")[0] in DEFAULT_CALLBACKS or action.help is None:
            continue
        kind = cell(type_text(getattr(action, "_typehint", "")))
        shown = f"`{kind}`" if kind else ""
        yield f"| `{name}` | {shown} | {default_text(action.default)} | {cell(action.help)} |"


def run_page() -> str:
    """Page of the options of `maze-pl fit` outside of model and data."""
    parts = ["# Runs and the Trainer\n", "Options of `maze-pl fit`, in files and on the command line.\n"]
    parts += ["## Run\n", table(run_rows())]
    for name, callback in DEFAULT_CALLBACKS.items():
        parts += [f"## {name}\n", f"{first_line(callback)}\n", table(option_rows(callback))]
    parts += ["## trainer\n", "Arguments of Lightning's `Trainer`. Defaults that differ from Lightning's are shown.\n"]
    parts.append(table(option_rows(pl.Trainer, TRAINER_DEFAULTS)))
    return "\n".join(parts)


def help_text(command: str) -> str:
    """Output of `maze-pl COMMAND --help`, without lists of classes."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main([command, "--help"])
    text = re.sub(r",?\s+known\s+subclasses:\s[^()]*(\([^()]*\)[^()]*)*\)", ")", output.getvalue())
    return "\n".join(line.rstrip() for line in text.splitlines())


def command_page() -> str:
    """Page of all commands."""
    parts = ["# Commands\n", f"```text\n{help_text('--help')}\n```\n"]
    for command in COMMANDS:
        parts.append(f"## maze-pl {command}\n")
        if command in ("fit", "validate", "test"):
            parts.append("The options are those of a [run](run.md), of algorithms and of data modules.\n")
        else:
            parts.append(f"```text\n{help_text(command)}\n```\n")
    return "\n".join(parts)


def write_pages(app: Sphinx) -> None:
    """Write the pages that have changed, and an index of them."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    texts = {name: group_page(group) for name, group in GROUPS.items()}
    texts = {"commands": command_page(), "run": run_page()} | texts
    entries = "\n".join(texts)
    texts["index"] = f"# Commands and options\n\n```{{toctree}}\n:maxdepth: 2\n\n{entries}\n```\n"
    for name, text in texts.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension to the events of a build."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True}
