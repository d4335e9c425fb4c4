"""Bodies of requests and answers: JSON, and NumPy's archives (`.npz`) as a binary form."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from maze_pl.serving.request_error import RequestError

Array = np.ndarray[Any, np.dtype[Any]]

JSON: Final = "application/json"
NPZ: Final = "application/x-npz"
_GROUPS: Final = ("observation", "state")  # of arrays, named `<group>/<name>` in an archive
_ENTRY: Final = b"PK\x01\x02"  # begins each entry of the directory of an archive
_MOST_FURTHER: Final = 16  # arrays of an archive that the policy does not use
_HEADERS: Final[dict[tuple[int, int], Callable[..., Any]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def decoded(body: bytes, content_type: str, n_arrays: int) -> dict[str, Any]:
    """Return what a body contains.

    Args:
        body: The body.
        content_type: Its type: JSON or NPZ, with or without parameters.
        n_arrays: Number of arrays that a request may need; an archive with many more is refused.

    Raises:
        RequestError: The type is unknown, or the body is not of this type.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == JSON:
        return _from_json(body)
    if kind == NPZ:
        return _from_npz(body, n_arrays + _MOST_FURTHER)
    raise RequestError(f"content type {content_type[:80]!r} must be {JSON} or {NPZ}", "content-type", 415)


def _from_json(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise RequestError(f"the body is not valid JSON: {error}", status=400) from None
    if not isinstance(content, dict):
        raise RequestError(f"the body must be a JSON object, not {type(content).__name__}")
    return content


def _from_npz(body: bytes, most: int) -> dict[str, Any]:
    """Read an archive without unpickling, and without holding more than the body's size, also if entries overlap.

    Args:
        body: The archive.
        most: Largest number of arrays, as each takes time, however small it is.
    """
    if body.count(_ENTRY) > most:  # before the directory is read, which takes time, too
        raise RequestError(f"the archive has more than {most} arrays; leave out those that the policy does not use")
    content: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            entries = archive.infolist()
            n_bytes = sum(info.file_size for info in entries)
            for info in entries:
                if info.compress_type != zipfile.ZIP_STORED:
                    raise RequestError(f"{info.filename[:80]!r} is compressed; write the archive by numpy.savez")
                if n_bytes > len(body):
                    fault = f"its entries have {n_bytes} bytes, the body has {len(body)}"
                    raise RequestError(f"the body is not a valid archive of numpy.savez: {fault}", status=400)
                name = info.filename.removesuffix(".npy")
                group, _, member = name.partition("/")
                value = _array(archive.read(info), name)
                if group in _GROUPS:
                    if not member:
                        fault = f"{group} is an array, expected one for each entry, named {group}/<name>"
                        raise RequestError(fault, group)
                    content.setdefault(group, {})[member] = value
                else:
                    content[name] = value if value.ndim else value.item()
    except RequestError:
        raise
    except (zipfile.BadZipFile, ArithmeticError, ValueError, EOFError, OSError, RuntimeError) as error:
        raise RequestError(f"the body is not a valid archive of numpy.savez: {error}", status=400) from None
    return content


def _array(data: bytes, name: str) -> Array:
    """Return the array in a `.npy` file, as a view of its bytes."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise RequestError(f"{name[:80]!r} has version {version} of NumPy's format, expected 1.0 or 2.0")
    try:
        shape, is_fortran, dtype = _HEADERS[version](stream)
    except Exception as error:  # NumPy parses a Python literal, whose faults are of many types
        raise RequestError(f"{name[:80]!r} has an invalid header: {error}", name, 400) from None
    if dtype.hasobject:
        raise RequestError(f"{name[:80]!r} holds Python objects, expected numbers", name)
    content = data[stream.tell() :]
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content):
        fault = f"{len(content)} bytes, which do not fit its shape {shape} of {dtype}"
        raise RequestError(f"{name[:80]!r} has {fault}", name)
    return np.frombuffer(content, dtype).reshape(shape, order="F" if is_fortran else "C")


def encoded(content: Mapping[str, Any], content_type: str) -> bytes:
    """Return the body of an answer.

    Args:
        content: Names -> numbers, arrays, texts, None, and mappings of them.
        content_type: JSON or NPZ.
    """
    if content_type == NPZ:
        return _to_npz(content)
    return json.dumps(_plain(content), allow_nan=False).encode()


def _to_npz(content: Mapping[str, Any]) -> bytes:
    arrays: dict[str, Array] = {}
    for name, value in content.items():
        parts = {f"{name}/{key}": part for key, part in value.items()} if isinstance(value, Mapping) else {name: value}
        arrays.update({key: np.asarray(part) for key, part in parts.items()})
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    return stream.getvalue()


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; numbers that are not finite, such as log(0), become None."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
