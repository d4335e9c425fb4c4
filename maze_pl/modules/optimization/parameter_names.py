"""Names of parameters, and patterns that choose some of them."""

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase

from torch import Tensor, nn

NETWORKS_PREFIX = "actor_critic."
"""Prefix of the names of policy and critic, which patterns leave out."""
_MOST_NAMES = 40  # in a message


def names_of(module: nn.Module) -> dict[int, list[str]]:
    """Return all names of each parameter and buffer, by the id of the tensor.

    A tensor that is shared by policy and critic has several names.

    Args:
        module: The algorithm.
    """
    names: dict[int, list[str]] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        for name, tensor in own_tensors(part).items():
            names.setdefault(id(tensor), []).append(f"{prefix}{name}".removeprefix(NETWORKS_PREFIX))
    return names


def own_tensors(part: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module, without those of its parts."""
    named = (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False))
    return dict(named)


def matches(pattern: str, names: Iterable[str]) -> bool:
    """True if a pattern matches one of the names as a whole; `*` stands for any text."""
    return any(fnmatchcase(name, pattern) for name in names)


def refuse_unmatched(option: str, pattern: str, names: Mapping[int, Collection[str]]) -> None:
    """Refuse a pattern that matches no parameter.

    Args:
        option: Name of the option that the pattern belongs to.
        pattern: The pattern.
        names: Names that it could have matched.
    """
    known = list(dict.fromkeys(name for group in names.values() for name in group))
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    there_are = f"there are {', '.join(known[:_MOST_NAMES])}{more}"
    raise ValueError(f"{option}: {pattern!r} matches no parameter; {there_are} (* stands for any text)")


def trainable_by_group(modules: Mapping[str, nn.Module | None]) -> dict[str, list[nn.Parameter]]:
    """Return the trainable parameters of modules by name, without empty groups.

    Args:
        modules: Name -> module; a parameter belongs to the first one that has it.
    """
    groups: dict[str, list[nn.Parameter]] = {}
    assigned: set[int] = set()
    for name, module in modules.items():
        parameters = [] if module is None else [p for p in module.parameters() if id(p) not in assigned]
        assigned |= {id(parameter) for parameter in parameters}
        groups[name] = [parameter for parameter in parameters if parameter.requires_grad]
    return {name: parameters for name, parameters in groups.items() if parameters}
