"""Search path of configurations, and their YAML as jsonargparse reads it."""

import difflib
import os
import re
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any

import yaml

SEARCH_PATH_VARIABLE = "MAZE_PL_CONFIG_PATH"
SUFFIXES = (".yaml", ".yml", ".json")
_CONFIG_FOLDER = "configs"
_MOST_NODES = 1_000_000  # limit for a YAML text
OUTPUT_FOLDER = "outputs"


class ConfigurationError(ValueError):
    """Error for a request that names something that does not exist, or contradicts itself."""


def shipped_folder() -> Path:
    """Return the folder of shipped configurations, in a checkout or in the wheel."""
    package = Path(__file__).parents[1]
    inside = package / _CONFIG_FOLDER
    return inside if inside.is_dir() else package.parent / _CONFIG_FOLDER


def search_folders(files: Iterable[Path] = ()) -> list[Path]:
    """Return the folders in which names are looked up; the first one wins.

    Args:
        files: Files whose folders are searched first.

    Returns:
        The `configs` folders that these files are in, `./configs`, the folders of the environment
        variable `MAZE_PL_CONFIG_PATH`, and the shipped ones.
    """
    named = os.environ.get(SEARCH_PATH_VARIABLE, "").split(os.pathsep)
    folders = [config_folder(path) for path in files]
    folders.append(Path.cwd() / _CONFIG_FOLDER)
    folders += [Path(folder) for folder in named if folder]
    folders.append(shipped_folder())
    return list(dict.fromkeys(folder.resolve() for folder in folders))


def config_folder(path: Path) -> Path:
    """Return the innermost folder named `configs` around a file, or else the file's folder."""
    folders = path.resolve().parents
    return next((folder for folder in folders if folder.name == _CONFIG_FOLDER), folders[0])


def project_folder(path: Path) -> Path | None:
    """Return the folder from which a configuration file's project imports Python packages.

    That is the parent of its `configs` folder (of `outputs`, for the configuration of a run; else
    the file's folder). If it is inside of a package, it is the folder that contains the package.
    None for shipped files.
    """
    folders = path.resolve().parents
    if shipped_folder().resolve() in folders:
        return None
    names = (_CONFIG_FOLDER, OUTPUT_FOLDER)
    inside = next((folder for folder in folders if folder.name in names), None)
    project = folders[0] if inside is None else inside.parent
    while (project / "__init__.py").is_file():
        project = project.parent
    return project


def find(name: str, files: Iterable[Path] = ()) -> Path | None:
    """Return the path of a configuration by name without suffix, or None; see `search_folders`."""
    paths = (folder / f"{name}{suffix}" for folder in search_folders(files) for suffix in SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def known_names(files: Iterable[Path] = ()) -> list[str]:
    """Return all names that `find` would find, sorted."""
    names: set[str] = set()
    for folder in search_folders(files):
        for path in folder.rglob("*"):
            if path.suffix in SUFFIXES:
                names.add(path.relative_to(folder).with_suffix("").as_posix())
    return sorted(names)


def resolve(name: str, files: Iterable[Path] = ()) -> Path:
    """Return the path of a configuration that the user gave by path or by name.

    Raises:
        ConfigurationError: There is no such file; lists the searched folders and similar names.
    """
    files = list(files)
    is_path = name.endswith(SUFFIXES)
    path = Path(name) if is_path else find(name, files)
    if path is None or not path.is_file():
        folders = [Path.cwd()] if is_path else search_folders(files)
        searched = ", ".join(map(str, folders))
        near = suggestion(name, known_names(files))
        raise ConfigurationError(f"there is no configuration {name!r}; looked in {searched}{near}")
    return path


def suggestion(name: str, known: Iterable[str], formatted: Callable[[str], str] | None = None) -> str:
    """Return the end of a message about an unknown name: similar names, or nothing.

    Names that differ in a letter or two are shown without others.

    Args:
        name: The unknown name.
        known: Names that exist.
        formatted: Converts a name to the text in the message; None leaves it as it is.
    """
    names = list(known)
    nearest = difflib.get_close_matches(name, names, n=3, cutoff=0.9)
    near = nearest or difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    texts = near if formatted is None else map(formatted, near)
    return f"; did you mean {' or '.join(texts)}?" if near else ""


# ----------------------------------------------------------------------------------------------------------------- YAML


_TEXT_TAG = "tag:yaml.org,2002:str"
_NUMBER_TAG = "tag:yaml.org,2002:float"
EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+")
"""Numbers to jsonargparse; YAML takes them for texts if the dot, or the sign of the exponent, is missing."""


class WrittenNumber(str):
    """A number without quotes that YAML takes for a text, such as `1e-3`, as it was written."""

    __slots__ = ()


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML loader that refuses duplicate keys, and tells numbers such as `1e-3` from texts in quotes."""

    def construct_scalar(self, node: Any) -> Any:
        """Return the value of a scalar; a number that YAML takes for a text is a `WrittenNumber`."""
        value = super().construct_scalar(node)
        is_number = node.tag == _TEXT_TAG and not node.style and EXPONENT.fullmatch(value)
        return WrittenNumber(value) if is_number else value

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Refuse duplicate keys, of which YAML would use the last."""
        if isinstance(node, yaml.MappingNode):
            _refuse_duplicates([key for key, _ in node.value])
        return super().construct_mapping(node, deep)


def _date_or_text(loader: Any, node: yaml.ScalarNode) -> Any:
    """Return a date; a day that does not exist, such as 2026-02-30, is a text."""
    try:
        return loader.construct_yaml_timestamp(node)
    except ValueError:
        return node.value


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _date_or_text)


def _refuse_duplicates(keys: Iterable[yaml.Node]) -> None:
    """Raise yaml.YAMLError if a key of a mapping occurs twice."""
    previous: set[str] = set()
    for key in keys:
        is_merge = key.value == "<<"
        if key.value in previous and isinstance(key, yaml.ScalarNode) and not is_merge:
            fault = f"the key {key.value!r} occurs twice"
            raise yaml.constructor.ConstructorError(None, None, fault, key.start_mark)
        previous.add(str(key.value))


def _load(text: str) -> Any:
    """Load a YAML text; aliases that expand to an excessive number of values are refused.

    Raises:
        yaml.YAMLError: It is not YAML, or nested aliases expand to more than `_MOST_NODES` values.
    """
    loader = _Loader(str(text))
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _size_with_aliases(node, {}) > _MOST_NODES:
            fault = f"its aliases expand to more than {_MOST_NODES:,} values"
            raise yaml.constructor.ConstructorError(None, None, fault, node.start_mark)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _size_with_aliases(node: yaml.Node, known: dict[int, int]) -> int:
    """Count the nodes under a node; each use of an alias counts.

    Args:
        node: Root of the count.
        known: Counts of nodes so far, by identity; a node that contains itself counts once.
    """
    if id(node) in known:
        return known[id(node)]
    size = 1
    known[id(node)] = size  # while its parts are counted, which may contain it
    if isinstance(node, yaml.SequenceNode):
        size += sum(_size_with_aliases(child, known) for child in node.value)
    elif isinstance(node, yaml.MappingNode):
        size += sum(_size_with_aliases(child, known) for _, child in node.value)
    known[id(node)] = size
    return size


def parse(text: str) -> Any:
    """Load a YAML text; return invalid YAML unchanged, as jsonargparse reports it."""
    try:
        return _load(text)
    except yaml.YAMLError:
        return text


def read(path: Path) -> Any:
    """Load a YAML file.

    Raises:
        ConfigurationError: It cannot be read, or is not YAML.
    """
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        return _load(text)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}; save it as UTF-8") from error
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} cannot be read: {_tab(error, text) or error}") from error


def _tab(error: Exception, text: str) -> str:
    """Say that a line of a YAML text is indented by a tab, if that is the error; else return nothing."""
    mark = getattr(error, "problem_mark", None)
    index = -1 if mark is None else mark.line
    lines = dict(enumerate(text.splitlines()))
    is_tab = re.match(r" *\t", lines.get(index, "")) is not None
    return f"line {index + 1} is indented by a tab, which YAML does not allow: use spaces" if is_tab else ""


class _Dumper(yaml.SafeDumper):
    """YAML dumper whose texts are texts to jsonargparse, too: it quotes `1e3`."""


def _written_number(dumper: yaml.SafeDumper, number: WrittenNumber) -> yaml.ScalarNode:
    return dumper.represent_scalar(_NUMBER_TAG, str(number))


_Dumper.add_implicit_resolver(_NUMBER_TAG, EXPONENT, list("-+0123456789"))
_Dumper.add_representer(WrittenNumber, _written_number)


def dump(value: Any) -> str:
    """Dump a value as one line of YAML that jsonargparse reads as it would the original YAML.

    A number such as 1e-3 is a text to YAML; it is dumped as it was written, without quotes. So are
    dates, which jsonargparse takes for texts.
    """
    options: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "width": float("inf")}
    text: str = yaml.dump(value, Dumper=_Dumper, **options)
    return text.removesuffix("\n").removesuffix("\n...")


def dump_lines(value: Any) -> str:
    """Dump a value as the lines of a YAML file; see `dump`."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def as_values(content: Any) -> Any:
    """Return the content of a file or an option as jsonargparse reads it: with numbers, and with dates as texts."""
    if isinstance(content, dict):
        return {as_values(key): as_values(item) for key, item in content.items()}
    if isinstance(content, list):
        return [as_values(item) for item in content]
    if isinstance(content, WrittenNumber):
        return float(content.replace("_", ""))
    return dump(content) if isinstance(content, date) else content


def reads_otherwise(text: str) -> bool:
    """True if jsonargparse may read a text as something else, such as a number or null."""
    content = parse(text)
    is_same = type(content) is str and content == text
    return not is_same or text == "None" or text.lstrip("-").isdigit()  # as it reads 08


def as_word(value: Any) -> str:
    """Return a value as a word of the command line; a text with a list or a mapping in brackets stays as it is."""
    is_bracketed = isinstance(value, str) and value.lstrip().startswith(("[", "{"))
    is_structure = is_bracketed and isinstance(parse(value), dict | list)
    return value if is_structure else dump(value)
