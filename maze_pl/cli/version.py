"""`maze-pl --version --verbose`: installed versions, as a bug report needs them."""

import importlib.metadata
import platform
import re

from maze_pl.core.version import __version__

_NAME = re.compile(r"[\w.-]+")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


def requirements() -> dict[str, list[str]]:
    """Names of packages by extra; those that are always needed under ""."""
    try:
        listed = importlib.metadata.requires("maze-pl") or []
    except importlib.metadata.PackageNotFoundError:  # used from its folder, without having been installed
        return {}
    packages: dict[str, list[str]] = {"": []}
    for requirement in listed:
        name = _NAME.match(requirement)
        extra = _EXTRA.search(requirement)
        assert name is not None
        named = packages.setdefault(extra[1] if extra else "", [])
        if name[0] not in named:  # one may have several bounds, for different versions of Python
            named.append(name[0])
    packages.pop("dev", None)
    return packages


def installed_version(package: str) -> str:
    """Version of a package, or that it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def versions_text() -> str:
    """Describe what is installed, by extra; imports none of it."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    lines = [f"maze-pl {__version__}", f"python {platform.python_version()} ({system})"]
    for extra, packages in sorted(requirements().items()):
        if extra:
            lines.append(f"extra {extra}:")
        indent = "  " if extra else ""
        lines += [f"{indent}{package} {installed_version(package)}" for package in sorted(packages)]
    return "\n".join(lines)
