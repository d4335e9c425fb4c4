"""`maze-pl new`: creates a project that is ready for training, to be adapted step by step."""

import importlib.util
import keyword
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maze_pl.cli.command_options import OptionParser
from maze_pl.config.search_path import ConfigurationError

_TEMPLATES = Path(__file__).parents[1] / "project_template"
_SUFFIX = ".template"  # so that tools do not mistake its files for parts of maze_pl
_NAME = re.compile("[a-z]([a-z0-9_]*[a-z0-9])?")  # of a module that is also the name of a distribution


def run(_: Any, command: Sequence[str], *__: Any) -> int:
    """Write a project.

    Args:
        command: `new`, and a directory that is missing or empty, which gives the package its name; and options.

    Returns:
        The exit status.

    Raises:
        ConfigurationError: The directory is not empty or not writable, or its name is unsuitable
            for a package.
    """
    parser = OptionParser("new", "Create a project with an environment, a config, an experiment and a test.")
    parser.add_paths("dir", "folder of the project, which does not exist or is empty", nargs="*")
    structured = "with an environment that makes two decisions in a step, with masks: a repair shop instead of a stock"
    parser.add_argument("--structured", action="store_true", help=structured)
    parser.usage = "maze-pl new [-h] [--structured] DIR"
    options = parser.parse(command[1:])
    if len(options.dir) != 1:
        raise ConfigurationError("expected one argument, the folder of the project: maze-pl new DIR")
    directory = options.dir[0]
    problem, experiment = ("repairs", "slow_sharpening") if options.structured else ("stock", "slow_delivery")
    package = _package_name(directory)
    existed = directory.is_dir()
    if directory.exists() and (not existed or any(directory.iterdir())):
        fault = "is not empty" if existed else "is a file"
        remedy = "use a folder that does not exist or is empty"
        raise ConfigurationError(f"{directory} {fault}: {remedy}")
    try:
        for template in (_TEMPLATES / "shared", _TEMPLATES / problem):
            _write(template, directory, package)
    except OSError as error:
        _remove_written(directory, keeps_folder=existed)
        raise ConfigurationError(f"{directory} cannot be written: {error}") from error
    sys.stdout.write(
        f"created a project with the package {package} in {directory}. Next:\n"
        f"  cd {shlex.quote(str(directory))}\n"
        f"  maze-pl fit --config ppo_{problem}\n"
        f"  maze-pl fit --config experiment/{experiment}\n"
        "  python -m pytest\n"
    )
    return 0


def _write(template: Path, directory: Path, package: str) -> None:
    """Write the files of a template into a folder; `{{package}}` in them becomes the name of the package."""
    for source in sorted(template.rglob(f"*{_SUFFIX}")):
        *folders, name = source.relative_to(template).parts
        parts = [package if folder == "package" else folder for folder in folders]
        target = directory.joinpath(*parts)
        target.mkdir(parents=True, exist_ok=True)
        text = source.read_text(encoding="utf-8").replace("{{package}}", package)
        (target / name.removesuffix(_SUFFIX)).write_text(text, encoding="utf-8")


def _remove_written(directory: Path, *, keeps_folder: bool) -> None:
    """Remove the content of a folder, and the folder itself unless it is to stay."""
    if not directory.is_dir():
        return
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    if not keeps_folder:
        directory.rmdir()


def _package_name(directory: Path) -> str:
    """Return the package name for a folder; refuse names that are invalid or reserved."""
    name = directory.resolve().name.lower().replace("-", "_").replace(" ", "_")
    problem = f"the name of the folder becomes the name of a Python package, but {name!r}"
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        places = "with a letter first and no underscore last"
        remedy = f"use letters from a to z, digits and underscores, {places}"
        raise ConfigurationError(f"{problem} is not a valid one: {remedy}")
    files = _TEMPLATES.glob(f"*/tests/*.py{_SUFFIX}")
    tests = {path.name.removesuffix(f".py{_SUFFIX}") for path in files}
    reserved = {"configs", "tests", "outputs", *tests, *sys.stdlib_module_names}
    if name in reserved or getattr(importlib.util.find_spec(name), "origin", None) is not None:
        fault = "is used by an installed package, or another folder or file of the project"
        raise ConfigurationError(f"{problem} {fault}: use another name")
    return name
