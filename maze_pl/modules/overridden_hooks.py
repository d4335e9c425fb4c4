"""Overridden hooks of Lightning that would have no effect, or without which an algorithm would not work."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import pytorch_lightning as pl
from pytorch_lightning.utilities.model_helpers import is_overridden

_LIMITS: Final = "use max_grad_norm, and on_before_optimizer_step for what else concerns gradients"
_STEPS: Final = "override gradient_step, or use on_before_optimizer_step"
_OF_AUTOMATIC_STEPS: Final = {
    "configure_gradient_clipping": _LIMITS,
    "optimizer_step": _STEPS,
    "optimizer_zero_grad": _STEPS,
    "on_before_zero_grad": _STEPS,
}
"""Hooks that Lightning calls only where it steps optimisers itself, with the alternatives."""
_OF_BACKWARD: Final = ("backward", "on_before_backward", "on_after_backward")
"""Hooks of `manual_backward`, which `gradient_step` does not call."""

_HOOKS: Final = {name for name in dir(pl.LightningModule) if name == "setup" or name.startswith("on_")}


class ExtendedHooks:
    """Makes sure that a user's hooks of Lightning call the hooks of maze_pl that they override.

    Each hook of maze_pl notes that it has run. After the first call of a user's hook, the one that it
    overrides must have run. To have called the hook of a class further up is not enough, as it does
    only a part of the work.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Let the hooks of a class of maze_pl note that they have run."""
        super().__init_subclass__(**options)
        if _is_shipped(cls):
            for hook in _HOOKS.intersection(vars(cls)):
                setattr(cls, hook, _noted(vars(cls)[hook], f"{cls.__name__}.{hook}"))

    def __init__(self) -> None:
        super().__init__()
        self._called_hooks: set[str] = set()
        for hook in _HOOKS:
            if len(_defining(type(self), hook)) > 1:  # one of a user, and one of maze_pl
                # hides the method of the class until it is called
                vars(self)[hook] = functools.partial(_call_first, self, hook)


def _noted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a hook of maze_pl that notes its calls under a name."""

    @functools.wraps(function)
    def hook(self: ExtendedHooks, *arguments: Any, **options: Any) -> Any:
        self._called_hooks.add(name)
        return function(self, *arguments, **options)

    return hook


def _call_first(module: ExtendedHooks, hook: str, *arguments: Any, **options: Any) -> Any:
    """Call a hook of a user for the first time; later calls are direct.

    Raises:
        TypeError: The hook of maze_pl was not called.
    """
    *replacing, shipped = (f"{kind.__name__}.{hook}" for kind in _defining(type(module), hook))
    vars(module).pop(hook, None)
    module._called_hooks.discard(shipped)
    is_extended = False
    try:
        result = getattr(module, hook)(*arguments, **options)
        is_extended = shipped in module._called_hooks
    finally:
        if not is_extended:  # a second run is checked as well
            vars(module)[hook] = functools.partial(_call_first, module, hook)
    if not is_extended:
        came = f"{' or '.join(replacing)} replaces the hook of maze_pl, on which statistics and schedules depend"
        raise TypeError(f"{came}: call super().{hook}(...) in it")
    return result


def _defining(kind: type, hook: str) -> list[type]:
    """Return the classes that define a hook, up to the first one of maze_pl; none if maze_pl has no such hook."""
    found: list[type] = []
    for one in kind.__mro__:
        if hook in vars(one):
            found.append(one)
            if _is_shipped(one):
                return found
    return []


def refuse_uncalled_hooks(module: pl.LightningModule) -> None:
    """Refuse hooks of Lightning that are never called.

    Args:
        module: The algorithm.

    Raises:
        TypeError: Names the class, the hook and the remedy.
    """
    if module.automatic_optimization:
        return
    remedies = dict(_OF_AUTOMATIC_STEPS)
    if _is_shipped(_owner_of(module, "training_step")):  # another one may call manual_backward
        remedies.update(dict.fromkeys(_OF_BACKWARD, _STEPS))
    for hook, remedy in remedies.items():
        if is_overridden(hook, module):
            came = f"{_owner_of(module, hook).__name__}.{hook} would never be called"
            raise TypeError(f"{came}, as algorithms step their optimisers by gradient_step: {remedy}")


def _owner_of(module: pl.LightningModule, name: str) -> type:
    """Return the class that defines a method."""
    return next(kind for kind in type(module).__mro__ if name in vars(kind))


def _is_shipped(kind: type) -> bool:
    """True for a class of maze_pl."""
    return kind.__module__.partition(".")[0] == "maze_pl"
