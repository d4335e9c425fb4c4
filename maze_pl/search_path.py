"""Where configurations lie: names become paths, and the folders of a user's project become importable."""

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

SEARCH_PATH_VARIABLE = "MAZE_PL_CONFIG_PATH"
SUFFIXES = (".yaml", ".yml", ".json")
_CONFIG_FOLDER = "configs"
OUTPUT_FOLDER = "outputs"


class ConfigurationError(ValueError):
    """Something that the user asked for does not exist or contradicts itself; the message says what and where."""


def shipped_folder() -> Path:
    """Folder of the configurations that come with maze_pl: `configs/` of a checkout, or the copy in the wheel."""
    package = Path(__file__).parent
    inside = package / _CONFIG_FOLDER
    return inside if inside.is_dir() else package.parent / _CONFIG_FOLDER


def search_folders(beside: Iterable[Path] = ()) -> list[Path]:
    """Folders in which names are looked up, the first one winning.

    Args:
        beside: Files whose own folders are searched first.

    Returns:
        The `configs` folders that these files are in, `./configs`, the folders of the environment variable
        `MAZE_PL_CONFIG_PATH`, and the shipped ones.
    """
    own = [Path(folder) for folder in os.environ.get(SEARCH_PATH_VARIABLE, "").split(os.pathsep) if folder]
    folders = [*map(config_folder, beside), Path.cwd() / _CONFIG_FOLDER, *own, shipped_folder()]
    return list(dict.fromkeys(folder.resolve() for folder in folders))


def config_folder(path: Path) -> Path:
    """The innermost folder named `configs` that a file is in, or else the folder in which it lies."""
    folders = path.resolve().parents
    return next((folder for folder in folders if folder.name == _CONFIG_FOLDER), folders[0])


def project_folder(path: Path) -> Path | None:
    """The folder from which the Python packages that belong to a configuration file are imported.

    That is where its `configs` folder lies (or `outputs`, for the configuration of a run; or the file itself), or what
    this folder is a package of. None for files that come with maze_pl.
    """
    folders = path.resolve().parents
    if shipped_folder().resolve() in folders:
        return None
    inside = next((folder for folder in folders if folder.name in (_CONFIG_FOLDER, OUTPUT_FOLDER)), None)
    project = folders[0] if inside is None else inside.parent
    while (project / "__init__.py").is_file():
        project = project.parent
    return project


def find(name: str, beside: Iterable[Path] = ()) -> Path | None:
    """Path of the configuration of this name, without suffix, or None; see `search_folders`."""
    paths = (folder / f"{name}{suffix}" for folder in search_folders(beside) for suffix in SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def known_names(beside: Iterable[Path] = ()) -> list[str]:
    """Every name that `find` would find, sorted."""
    paths = {path.relative_to(folder) for folder in search_folders(beside) for path in folder.rglob("*")}
    return sorted({path.with_suffix("").as_posix() for path in paths if path.suffix in SUFFIXES})


def resolve(name: str, beside: Iterable[Path] = ()) -> Path:
    """Path of a configuration that the user named, by path or by name.

    Raises:
        ConfigurationError: There is no such file; says where it was looked for and which names are close.
    """
    if name.endswith(SUFFIXES):
        if Path(name).is_file():
            return Path(name)
        raise ConfigurationError(f"there is no file {name} in {Path.cwd()}")
    beside = list(beside)
    found = find(name, beside)
    if found is not None:
        return found
    searched = ", ".join(map(str, search_folders(beside))) + suggestion(name, known_names(beside))
    raise ConfigurationError(f"there is no configuration named {name!r}; looked in {searched}")


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: which ones are close, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""
