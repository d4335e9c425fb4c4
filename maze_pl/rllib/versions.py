"""Check that RLlib is installed in the version that maze_pl is tested with."""

import logging
from importlib import import_module, metadata, util
from typing import Final

TESTED_RAY: Final = "2.60"
"""Release of Ray that the package is tested with; patches of it are accepted."""
_INSTALL: Final = 'pip install "maze-pl[rllib]"'


def require_rllib() -> None:
    """Import RLlib, or say why it cannot be used.

    Raises:
        ImportError: Ray or a package that RLlib needs is not installed, or Ray has another version.
    """
    if util.find_spec("ray") is None:
        raise ImportError(f"RLlib is not installed: {_INSTALL}")
    installed = metadata.version("ray")
    require_tested(installed)
    try:
        import_module("ray.rllib")
    except ImportError as error:
        raise ImportError(f"RLlib of Ray {installed} lacks a package ({error}): {_INSTALL}") from error
    for name in ("ray", "ray.rllib"):
        logging.getLogger(name).setLevel(logging.ERROR)  # RLlib warns about its own defaults


def require_tested(installed: str) -> None:
    """Refuse a version of Ray that is older or newer than the tested release.

    Args:
        installed: The version, such as `2.60.1`.

    Raises:
        ImportError: It belongs to another release.
    """
    release = _numbers(installed)[:2]
    tested = _numbers(TESTED_RAY)
    if release != tested:
        age = "older" if release < tested else "newer"
        fault = f"Ray {installed} is {age} than Ray {TESTED_RAY}, whose RLlib maze_pl is tested with"
        raise ImportError(f"{fault}: {_INSTALL}, or train with an algorithm of maze_pl by `maze-pl fit`")


def _numbers(version: str) -> list[int]:
    """Return the leading numbers of a version."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return numbers
