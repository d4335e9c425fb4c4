"""Reading of bundle files: nothing is used before every byte has been verified.

A bundle is a ZIP archive of uncompressed members: `manifest.json`, and the ONNX graphs that it
names. The comment at the end of the archive is the SHA-256 of all bytes before it.
"""

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any, Final

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
N_DIGITS: Final = 64  # of the checksum at the end of a file


class BundleError(ValueError):
    """A bundle cannot be used; the message names the file and the reason."""


def read_bundle(path: str | Path, data: bytes | None = None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Verify a bundle, or its `data` if read before; return its manifest, and its graphs by name.

    Raises:
        BundleError: The bundle cannot be used.
    """
    try:
        data = Path(path).read_bytes() if data is None else data
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}") from None
    if hashlib.sha256(data[:-N_DIGITS]).hexdigest().encode() != data[-N_DIGITS:]:
        fault = "is not a bundle of `maze-pl export`, or was changed or cut off"
        raise BundleError(f"{path} {fault}: its content does not match the checksum at its end")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
                raise ValueError("its members are compressed")
            members = {name: archive.read(name) for name in archive.namelist()}
        manifest: dict[str, Any] = json.loads(members.pop(MANIFEST))
        if manifest["format"] != FORMAT:
            fault = f"{path} has format {manifest['format']!r}, expected {FORMAT}"
            raise BundleError(f"{fault}: install a newer maze_pl_runtime")
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
        if digests != {name: described["sha256"] for name, described in manifest["files"].items()}:
            raise ValueError("its members do not match the checksums in its manifest")
    except (BundleError, MemoryError):
        raise
    except Exception as error:  # of members that are not those of a bundle
        raise BundleError(f"{path} is not a valid bundle: {type(error).__name__}: {error}") from error
    return manifest, members
