"""Hooks of modules, which run within a loss: those of one module, and those of all modules."""

from __future__ import annotations

from typing import Any

from torch.nn.modules import module as torch_module

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Attributes of modules that hold their hooks."""
HOOKS_OF_ALL_MODULES: tuple[Any, ...] = (
    torch_module._global_forward_hooks,
    torch_module._global_forward_pre_hooks,
    torch_module._global_backward_hooks,
    torch_module._global_backward_pre_hooks,
)
"""Hooks that torch calls for every module, as of `register_module_forward_hook`."""
