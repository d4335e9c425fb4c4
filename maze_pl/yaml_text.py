"""YAML as jsonargparse reads it, so that a file means the same whether it is passed on as a path or as text."""

import re
from pathlib import Path
from typing import Any

import yaml

from maze_pl.search_path import ConfigurationError

_FLOAT = (
    r"[-+]?(\d[\d_]*\.[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?|[-+]?\d[\d_]*[eE][-+]?\d+"  # 1.5, .5e3; 1e-3
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_TIMESTAMP, _NUMBER = "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:float"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML in which 1e-3 is a number, a date is text, and no key stands twice in a mapping."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Refuse a key that stands twice, of which YAML would take the last."""
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value in seen and isinstance(key, yaml.ScalarNode) and key.value != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} stands there twice", key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads: text that looks like a number is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write what occurs twice twice."""
        return True


for _class in (_Loader, _Dumper):
    _class.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_TIMESTAMP, _NUMBER)]
        for first, resolvers in _class.yaml_implicit_resolvers.items()
    }
    _class.add_implicit_resolver(_NUMBER, re.compile(f"^(?:{_FLOAT})$"), list("-+0123456789."))


def parse(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        yaml.YAMLError: It is not YAML.
    """
    return yaml.load(text, Loader=_Loader)


def read(path: Path) -> Any:
    """Content of a YAML file.

    Raises:
        ConfigurationError: It cannot be read, or is not YAML.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error


def dump(value: Any) -> str:
    """A value as YAML in one line."""
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, width=float("inf"))
    return text.removesuffix("\n").removesuffix("\n...")
