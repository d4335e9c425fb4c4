"""Where configurations lie, and what they hold: names become paths, and YAML becomes what jsonargparse reads in it."""

import difflib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

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
    beside, is_path = list(beside), name.endswith(SUFFIXES)
    path = Path(name) if is_path else find(name, beside)
    if path is None or not path.is_file():
        searched = ", ".join(map(str, [Path.cwd()] if is_path else search_folders(beside)))
        near = suggestion(name, known_names(beside))
        raise ConfigurationError(f"there is no configuration {name!r}; looked in {searched}{near}")
    return path


def suggestion(name: str, known: Iterable[str], shown: Callable[[str], str] = str) -> str:
    """The end of a message about an unknown name: which ones are close, as they are to be shown, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(map(shown, near))}?" if near else ""


# ----------------------------------------------------------------------------------------------------------------- YAML


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML in which no key stands twice in a mapping."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Refuse a key that stands twice, of which YAML would take the last."""
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value in seen and isinstance(key, yaml.ScalarNode) and key.value != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} stands there twice", key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def parse(text: str) -> Any:
    """The value of a YAML text, or the text itself where it is none; jsonargparse says what is wrong with it."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError:
        return text


def read(path: Path) -> Any:
    """Content of a YAML file.

    Raises:
        ConfigurationError: It cannot be read, or is not YAML.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error


def dump(value: Any) -> str:
    """A value as YAML in one line, that means to jsonargparse what the YAML meant from which it was read.

    A number such as 1e-3 passes as text, without quotes, and dates do, which are none to jsonargparse.
    """
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=float("inf"))
    return text.removesuffix("\n").removesuffix("\n...")
