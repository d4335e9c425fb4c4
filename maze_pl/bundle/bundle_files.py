"""Writing of bundle files; `maze_pl_runtime.bundle_file` describes the format and reads them."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from typing import Any, Final

from maze_pl_runtime.bundle_file import FORMAT, MANIFEST, N_DIGITS

_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""Time of all members, so that the same content makes the same file."""


def bundle_bytes(manifest: Mapping[str, Any], members: Mapping[str, bytes]) -> bytes:
    """Return the content of a bundle.

    Args:
        manifest: Its description, without `format` and `files`; infinite numbers become text.
        members: Name -> content of the graphs.
    """
    files = {}
    for name, content in members.items():
        files[name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    complete = {"format": FORMAT, **_strict(manifest), "files": files}
    described = json.dumps(complete, indent=1, allow_nan=False).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {MANIFEST: described, **members}.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), content)
        archive.comment = b"0" * N_DIGITS
    data = buffer.getvalue()[:-N_DIGITS]
    return data + hashlib.sha256(data).hexdigest().encode()


def _strict(value: Any) -> Any:
    """Return a tree of plain values that JSON can hold: infinite bounds of spaces become "inf" or "-inf"."""
    if isinstance(value, Mapping):
        return {name: _strict(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(child) for child in value]
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value
