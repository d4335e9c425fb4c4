"""Plain values of files that torch has written, read without torch and without running anything.

Such a file is a zip archive with a pickle. Here each class that the pickle names is replaced by one
that does nothing, and tensors are replaced by their shapes: their bytes are not read.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, cast

_LARGEST_PICKLE: Final = 100_000_000
_DAMAGES: Final = (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, zlib.error)


@dataclass(frozen=True)
class TensorShape:
    """A tensor without its numbers.

    Attributes:
        shape: Its shape.
        dtype: Name of its type of numbers, such as `Float`.
    """

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class Unread:
    """An object of a class that is not imported; it accepts everything and does nothing."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Make an instance from any arguments."""
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        """Ignore all arguments."""

    def __setstate__(self, state: Any) -> None:
        """Ignore the state."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Ignore an item."""

    def append(self, value: Any) -> None:
        """Ignore an item."""

    def extend(self, values: Any) -> None:
        """Ignore items."""


class _Rebuilt(Unread):
    """Replacement for torch's functions that make tensors and parameters."""

    def __new__(cls, *arguments: Any, **_: Any) -> Any:
        """Return the shape; a parameter has that of its tensor."""
        if arguments and isinstance(arguments[0], TensorShape):
            return arguments[0]
        if len(arguments) > 2 and isinstance(arguments[0], str) and isinstance(arguments[2], tuple):
            sizes = [size for size in arguments[2] if isinstance(size, int)]
            return TensorShape(tuple(sizes), arguments[0])
        return super().__new__(cls)


class _PlainUnpickler(pickle._Unpickler):
    """Unpickler that imports nothing. It is the one written in Python: a pickle cannot make its memory grow at will."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class without effects in place of the named one."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch._utils" and name.startswith("_rebuild_"):
            return _Rebuilt
        return type(str(name), (Unread,), {})

    def persistent_load(self, pid: Any) -> Any:
        """Return the type of numbers of a tensor's storage."""
        is_storage = isinstance(pid, tuple) and len(pid) > 1 and isinstance(pid[1], type)
        return pid[1].__name__.removesuffix("Storage") if is_storage else ""


def archive_values(path: Path) -> dict[str, Any]:
    """Return the content of a file that torch has written.

    Args:
        path: The file.

    Returns:
        The content, with `TensorShape` in place of tensors and `Unread` in place of other objects.

    Raises:
        ValueError: The file is damaged, or holds something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith("/data.pkl") and name.count("/") == 1]
            if len(names) != 1:
                raise ValueError("it is an archive of another program")
            if archive.getinfo(names[0]).file_size > _LARGEST_PICKLE:
                raise ValueError(f"its description is larger than {_LARGEST_PICKLE:,} bytes")
            content = archive.read(names[0])
    except _DAMAGES as error:
        is_archive = _begins_as_archive(path)
        raise ValueError("it is damaged or cut short" if is_archive else "it is not an archive") from error
    try:
        values = _PlainUnpickler(io.BytesIO(content)).load()
    except Exception as error:  # a forged pickle may raise anything
        raise ValueError(f"its description cannot be read: {type(error).__name__}") from error
    if not isinstance(values, dict):
        raise ValueError(f"it holds a {type(values).__name__}, not a dict")
    return cast(dict[str, Any], values)


def _begins_as_archive(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"
