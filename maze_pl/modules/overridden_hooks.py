"""Overridden hooks of Lightning that would have no effect, or without which an algorithm would not work."""

import inspect
from types import CodeType
from typing import Any, Final

import pytorch_lightning as pl
from pytorch_lightning.utilities.model_helpers import is_overridden

from maze_pl.modules.hooks import AlgorithmHooks

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


def refuse_unsuitable_hooks(module: pl.LightningModule) -> None:
    """Refuse hooks of Lightning that are never called, or that do not call those of maze_pl.

    Args:
        module: The algorithm.

    Raises:
        TypeError: Names the class, the hook and the remedy.
    """
    if not module.automatic_optimization:
        remedies = dict(_OF_AUTOMATIC_STEPS)
        if _is_shipped(_owner_of(module, "training_step")):  # another one may call manual_backward
            remedies.update(dict.fromkeys(_OF_BACKWARD, _STEPS))
        for hook, remedy in remedies.items():
            if is_overridden(hook, module):
                came = f"{_owner_of(module, hook).__name__}.{hook} would never be called"
                raise TypeError(f"{came}, as algorithms step their optimisers by gradient_step: {remedy}")
    for kind, hook in _hooks_of_users(module):
        if not _names(vars(kind)[hook], hook):
            came = f"{kind.__name__}.{hook} replaces the hook of maze_pl, on which statistics and schedules depend"
            raise TypeError(f"{came}: call super().{hook}(...) in it")


def _owner_of(module: pl.LightningModule, name: str) -> type:
    """Return the class that defines a method."""
    return next(kind for kind in type(module).__mro__ if name in vars(kind))


def _is_shipped(kind: type) -> bool:
    """True for a class of maze_pl."""
    return kind.__module__.partition(".")[0] == "maze_pl"


def _hooks_of_users(module: pl.LightningModule) -> list[tuple[type, str]]:
    """Return each class and hook of Lightning in it that comes before a hook of maze_pl with the same name."""
    extended: set[str] = set()  # hooks of the classes of maze_pl so far, which come later in the order
    found: list[tuple[type, str]] = []
    for kind in reversed(type(module).__mro__):
        if kind is AlgorithmHooks:
            continue
        hooks = [name for name in vars(kind) if name in _HOOKS]
        if _is_shipped(kind):
            extended.update(hooks)
        else:
            found += [(kind, name) for name in hooks if name in extended]
    return found


def _names(function: Any, hook: str) -> bool:
    """True if the code of a hook has its name in it, as calls by `super()` have; or if it is unknown."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType) or code.co_name != hook:
        return True
    return hook in _words_of(code)


def _words_of(code: CodeType) -> set[str]:
    """Return the names and texts in code, and in the functions inside."""
    words = {*code.co_names}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            words |= _words_of(constant)
        elif isinstance(constant, str):
            words.add(constant)
    return words
