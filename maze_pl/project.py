"""`maze-pl new`: a project of one's own, with everything that training in it needs, to be changed piece by piece."""

import importlib.util
import keyword
import shutil
import sys
from pathlib import Path

from maze_pl.search_path import ConfigurationError

_TEMPLATE = Path(__file__).with_name("project_template")
_SUFFIX = ".template"  # keeps the parts of the project from being taken for parts of maze_pl


def create_project(directory: Path) -> str:
    """Write a project.

    Args:
        directory: Does not exist, or is empty; the project's package gets its name.

    Returns:
        What to do next.

    Raises:
        ConfigurationError: The directory holds something or cannot be written, or its name cannot be a package's.
    """
    package = _package_name(directory)
    existed = directory.is_dir()
    if directory.exists() and not existed:
        raise ConfigurationError(f"{directory} is a file: name a folder that does not exist yet")
    if existed and any(directory.iterdir()):
        raise ConfigurationError(f"{directory} already holds something: name a folder that does not exist, or is empty")
    try:
        for source in sorted(_TEMPLATE.rglob(f"*{_SUFFIX}")):
            *folders, name = source.relative_to(_TEMPLATE).parts
            target = directory.joinpath(*(package if part == "package" else part for part in folders))
            target.mkdir(parents=True, exist_ok=True)
            text = source.read_text(encoding="utf-8").replace("{{package}}", package)
            (target / name.removesuffix(_SUFFIX)).write_text(text, encoding="utf-8")
    except OSError as error:
        for path in directory.iterdir() if directory.is_dir() else []:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not existed and directory.is_dir():
            directory.rmdir()
        raise ConfigurationError(f"{directory} cannot be written: {error}") from error
    return (
        f"{directory} holds a project with the package {package}. Next:\n"
        f"  cd {directory}\n  maze-pl fit --config ppo_stock\n  maze-pl fit --config experiment/slow_delivery\n"
        "  python -m pytest\n"
    )


def _package_name(directory: Path) -> str:
    """A name for the package that nothing else has."""
    name = directory.resolve().name.lower().replace("-", "_").replace(" ", "_")
    wanted = f"the folder's name becomes that of a Python package, but {name!r}"
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigurationError(f"{wanted} cannot be one: use letters, digits and underscores, with a letter first")
    if name in ("configs", "tests", "outputs"):
        raise ConfigurationError(f"{wanted} is what another folder of the project is called: use another name")
    spec = None if name in sys.stdlib_module_names else importlib.util.find_spec(name)
    if name in sys.stdlib_module_names or (spec is not None and spec.origin is not None):
        raise ConfigurationError(f"{wanted} is that of a package that is already installed: use another name")
    return name
