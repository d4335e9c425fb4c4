"""Trust in the classes and functions that configurations import.

A configuration names classes and functions by their paths, and instantiating them runs their code.
Files that the user writes or names on the command line are trusted. A run directory or a checkpoint
may come from an unknown author: without `--trust` (`trust=True`) it may only name the parts of
`LIBRARIES` that `maze_pl.config.known_objects` lists, and nothing is imported from its folder.
"""

import argparse
import codecs
import contextlib
import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

import yaml

from maze_pl.config.known_objects import LIBRARIES as LIBRARIES
from maze_pl.config.known_objects import is_known_object, is_of_libraries
from maze_pl.config.search_path import ConfigurationError, project_folder

_DATA_SETS: Final = "minari:"  # prefix of data set names, where other texts have a module
_HARMLESS: Final[dict[str, tuple[Any, ...]]] = {"trust": (None, False), "address": (None, "auto")}
"""Safe values of arguments; others let pickles be read, from files or Ray machines."""
_RLLIB: Final = ("model", "config")
"""Place of RLlib's options; some set environment variables, import modules or read pickles."""
_RLLIB_TEXTS: Final = ("batch_mode", "grad_clip_by", "replay_buffer_config")
"""Options of RLlib that may be texts and mappings; others are numbers."""
_WITHOUT_PLACE: Final = ("init_args", "dict_kwargs")

SOURCE_FOLDERS: Final = "source_folders.txt"
"""File in a run directory that lists the folders its classes were imported from, one per line."""

TRUST_REMEDY: Final = "if you trust its origin, use --trust, or trust=True in Python"

_LARGEST_FILE: Final = 10_000_000
_MOST_NAMES: Final = 5  # in a message
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class UntrustedError(ConfigurationError):
    """Refusal to run code that a run or another file names.

    Args:
        fault: The names, see `refusal`.
        remedy: The option by which the user allows it.
    """

    def __init__(self, fault: str, remedy: str = TRUST_REMEDY) -> None:
        super().__init__(fault, remedy)
        self.fault = fault

    def __str__(self) -> str:
        return "; ".join(self.args)


@dataclass(frozen=True)
class Trust:
    """The classes that a command may instantiate.

    Attributes:
        names: Names that the user gave, without their modules, which are trusted in addition to
            `LIBRARIES`; None if everything is trusted.
    """

    names: frozenset[str] | None = None

    @classmethod
    def of_names_in(cls, content: Any) -> "Trust":
        """Trust the names that the user wrote in options and files."""
        names = [*_texts(content), *foreign_names(content)]
        return cls(frozenset(name.rpartition(".")[2] for name in names))

    def require_classes(self, config: Any, source: str | Path) -> None:
        """Refuse a parsed configuration with untrusted classes, also if named without a module.

        Args:
            config: A parsed configuration, or a part of it.
            source: Origin of the configuration, for the message.

        Raises:
            UntrustedError: A class is neither part of `LIBRARIES` nor named by the user.
        """
        if self.names is None:
            return
        for path in class_paths(config):
            is_known = is_of_libraries(path) and is_known_object(path)
            if not is_known and path.rpartition(".")[2] not in self.names:
                raise UntrustedError(refusal(source, [path]))


def refusal(source: str | Path, names: Iterable[str], run_dir: Path | None = None) -> str:
    """Return the message that something would run untrusted code, without the remedy.

    Args:
        source: The file that has the names.
        names: The untrusted names.
        run_dir: Run directory that records where they were imported from.
    """
    listed = [name if name.isprintable() else repr(name) for name in names]
    if len(listed) > _MOST_NAMES:
        listed[_MOST_NAMES:] = [f"{len(listed) - _MOST_NAMES} more"]
    libraries = f"{', '.join(LIBRARIES[:-1])} or {LIBRARIES[-1]}"
    fault = f"{source} names objects outside of {libraries}, which may execute any code"
    text = f"{fault}: {', '.join(listed)}"
    folders = ", ".join(recorded_folders(run_dir) if run_dir is not None else [])
    return f"{text} (imported from {folders} when the run was created)" if folders else text


def foreign_names(content: Any, import_folders: Sequence[str] = ()) -> list[str]:
    """Return all names in a configuration that are outside of `LIBRARIES`, in order.

    Names in these count as outside if `is_known_object` refuses them. They are class paths; other
    texts for which a module can be found, such as functions and gymnasium environments
    (`module:Name`); remote files, which the parser would fetch; arguments that cause pickles to be
    read; and options of RLlib other than numbers. Texts that contain YAML, values of options in
    texts (`--option=value`), and named files are searched recursively.

    Args:
        content: YAML content: mappings, lists, texts and numbers.
        import_folders: Folders with modules that Python does not find yet.
    """
    search = _Search(import_folders)
    search.look(content, [Path()])
    return list(search.found)


def may_name_foreign(content: Any) -> bool:
    """True if any text looks like a name outside of `LIBRARIES`, whether it is found or not."""
    for text in _texts(content):
        path = text.partition(":")[0]
        is_path = ("." in text or ":" in text) and all(map(str.isidentifier, path.split(".")))
        if is_path and not is_of_libraries(path):
            return True
    return False


Place = tuple[str, ...]
"""Keys that lead to a part of a configuration, without `init_args`."""


class _Search:
    """Recursive search of a configuration for names outside of `LIBRARIES`.

    Args:
        import_folders: Folders with modules, besides the ones on Python's path.

    Attributes:
        found: The names outside of `LIBRARIES`, in order.
    """

    def __init__(self, import_folders: Sequence[str]) -> None:
        self.found: dict[str, None] = {}
        self._import_folders = list(import_folders)
        self._read: set[tuple[Path, Place, Place]] = set()

    def look(self, content: Any, folders: list[Path], place: Place = ()) -> None:
        """Search a part of the configuration.

        Args:
            content: The part.
            folders: Folders in which the parser would look for files that it names.
            place: Keys that lead to it.
        """
        if isinstance(content, Mapping):
            for key, value in content.items():
                self.look(key, folders)
                inner = (*place, *_names_in(key))
                self._look_at_argument(inner, value)
                self.look(value, folders, inner)
        elif isinstance(content, list | tuple):
            for value in content:
                self.look(value, folders, place)
        elif isinstance(content, str):
            if self._is_foreign(content, place[-1:] == ("class_path",)):
                self.found[content] = None
                return
            for value in _values_in(content):
                self.look(value, folders, place)
            for path in _files(content, folders):
                known = (path, place[:3], place[-1:])  # finitely many, if a file names itself
                if known not in self._read:
                    self._read.add(known)
                    self._look_into(path, folders, place)

    def _look_at_argument(self, place: Place, value: Any) -> None:
        """Find an argument with a value that lets code be executed."""
        name = place[-1] if place else ""
        if name in _HARMLESS and value not in _HARMLESS[name]:
            self.found[f"{name}: {value}"] = None
        option = place[2] if place[:2] == _RLLIB and len(place) > 2 else None
        if option is not None and option not in _RLLIB_TEXTS and not _is_number(value):
            self.found[".".join([*_RLLIB, option])] = None

    def _look_into(self, path: Path, folders: list[Path], place: Place) -> None:
        """Search a file as the parser would read it: as YAML, or as a list of lines."""
        with contextlib.suppress(UnicodeDecodeError):  # not a text, nor is it one for the parser
            with path.open("rb") as file:
                codecs.getincrementaldecoder("utf-8")().decode(file.read(4096))
            if path.stat().st_size > _LARGEST_FILE:
                self.found[f"{path} (too large to be checked)"] = None
                return
            text = path.read_text(encoding="utf-8")
            for value in [*_values_in(text), *text.splitlines()]:
                self.look(value, [*folders, path.parent], place)

    def _is_foreign(self, text: str, is_class_path: bool) -> bool:
        """True if a text names something outside of `LIBRARIES` that can be imported or fetched."""
        if ("://" in text or "::" in text) and _is_elsewhere(text):
            return True
        if text.startswith(_DATA_SETS):
            return False
        head = text.partition(":")[0]  # of module:Name
        if head == text and "." not in text:
            return False
        if is_of_libraries(head):
            return not is_known_object(text.replace(":", "."))
        root = head.partition(".")[0]
        return (is_class_path and bool(root)) or _is_importable(root, self._import_folders)


def _is_elsewhere(text: str) -> bool:
    """True if a text is the address of a remote file, which the parser would read."""
    from fsspec import available_protocols  # type: ignore[import-untyped]

    return any(part.partition("://")[0] in available_protocols() for part in text.split("::"))


def _is_importable(root: str, folders: Sequence[str] = ()) -> bool:
    """True if Python finds a module on its path or in these folders; the module is not imported."""
    if not root or "/" in root:
        return False
    try:
        return (importlib.util.find_spec(root) or PathFinder.find_spec(root, folders)) is not None
    except (ValueError, ImportError):  # such as __main__
        return True


def _names_in(key: Any) -> list[str]:
    """Return the names in a key such as `data.init_args.n_envs`."""
    return [name for name in str(key).split(".") if name not in _WITHOUT_PLACE]


def _is_number(value: Any) -> bool:
    """True for numbers, also as texts, what stands for one, and lists of these."""
    if isinstance(value, list | tuple):
        return all(map(_is_number, value))
    if not isinstance(value, str):
        return value is None or isinstance(value, bool | int | float)
    try:
        float(value)
    except ValueError:
        return value in ("auto", "None")
    return True


def _values_in(text: str) -> Iterator[Any]:
    """Yield the value in `--option=value`, and a text's YAML value, if it differs from the text.

    Of broken YAML, all words are yielded.
    """
    if "=" in text:
        yield text.partition("=")[2]
    try:
        value = yaml.load(str(text), Loader=_LOADER)  # the loader takes no subclasses of texts
    except (yaml.YAMLError, ValueError):
        words = text.translate(str.maketrans("{}[]\"',", " " * 7)).split()
        yield from (word for word in words if word != text)
        return
    if value != text:
        yield value


def _files(text: str, folders: list[Path]) -> Iterator[Path]:
    """Yield the local files that a text names."""
    if not text.strip():
        return
    for folder in folders:
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            path = (folder / Path(text).expanduser()).resolve()
            if path.is_file():
                yield path


def _texts(content: Any) -> Iterator[str]:
    """Yield all texts in a configuration."""
    if isinstance(content, Mapping):
        content = [*content.values()]
    if isinstance(content, list | tuple):
        for value in content:
            yield from _texts(value)
    elif isinstance(content, str):
        yield content


def class_paths(config: Any) -> Iterator[str]:
    """Yield the paths of all classes and functions in a configuration, parsed or not."""
    if isinstance(config, argparse.Namespace):  # a parsed configuration
        config = vars(config)
    if isinstance(config, Mapping):
        if isinstance(config.get("class_path"), str):
            yield config["class_path"]
        config = [*config.values()]
    if isinstance(config, list | tuple):
        for value in config:
            yield from class_paths(value)


# ------------------------------------------------------------------------------------------------- folders of modules


def source_folders(config: Any) -> list[Path]:
    """Return the folders that a configuration imports from, except installed packages."""
    installed = {Path(path).resolve() for path in sysconfig.get_paths().values()}
    folders: dict[Path, None] = {}
    for path in class_paths(config):
        if not is_of_libraries(path) and (place := _place(path.partition(".")[0])) is not None:
            folders[place.parent] = None
    return [folder for folder in folders if folder not in installed]


def _place(root: str) -> Path | None:
    """Return the file or folder of a module, if it has one."""
    try:
        spec = importlib.util.find_spec(root)
    except (ValueError, ImportError):
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or [])
    if spec.has_location and spec.origin is not None:
        places.append(spec.origin)
    return Path(places[0]).resolve() if places else None


def recorded_folders(run_dir: Path) -> list[str]:
    """Return the folders from which a run imported its classes when it was made."""
    try:
        lines = (run_dir / SOURCE_FOLDERS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return [line for line in lines if line]


def import_folders(run_dir: Path) -> list[str]:
    """Return the folders for imports of a trusted run: its project's, then the recorded ones.

    A copied run with its project imports the code next to it, not that of the original.

    Args:
        run_dir: The run directory.
    """
    project = project_folder(run_dir / "config.yaml")
    folders = [*([str(project)] if project is not None else []), *recorded_folders(run_dir)]
    return [folder for folder in folders if Path(folder).is_dir()]


def extend_import_path(folders: Iterable[str]) -> None:
    """Append these folders to Python's import path."""
    sys.path += [folder for folder in dict.fromkeys(folders) if folder not in sys.path]


def require_modules(config: Any, run_dir: Path) -> None:
    """Refuse a trusted configuration whose modules are not found, before it is instantiated.

    Args:
        config: A configuration, or a part of it.
        run_dir: The run directory that it belongs to.

    Raises:
        ConfigurationError: A module is missing; the message names its folder when the run was created.
    """
    for path in class_paths(config):
        root = path.partition(".")[0]
        if "." in path and not _is_importable(root):
            folders = ", ".join(recorded_folders(run_dir))
            origin = f" (it was in {folders} when the run was created)" if folders else ""
            fault = f"{run_dir} needs {path}, but the module {root!r} was not found{origin}"
            remedy = f"add the folder that contains {root!r} to PYTHONPATH, or install it"
            raise ConfigurationError(f"{fault}; {remedy}")
