"""Origin of code: which functions may read state that a loss depends on, by the file that they are in."""

import sysconfig
from pathlib import Path
from types import CodeType, ModuleType

import gymnasium
import numpy as np
import torch
import typing_extensions


def _folder(package: ModuleType) -> str:
    return f"{Path(package.__file__ or '').parent}/"


LIBRARY = f"{sysconfig.get_path('stdlib')}/"
"""Folder of the standard library."""
MOVING = ("pytorch_lightning", "lightning_fabric", "torch.optim")
"""Packages whose objects change with every step of an optimiser."""
_TORCH = _folder(torch)
_MAZE_PL = f"{Path(__file__).parents[2]}/"
_OPTIMIZATION = f"{_MAZE_PL}modules/optimization/"
_SHIPPED = (
    _MAZE_PL,
    _folder(gymnasium),
    *(f"{_TORCH}{part}/" for part in ("nn/modules", "nn/utils", "nn/parallel", "optim", "distributions")),
)
"""Files whose functions read nothing that changes by computed names."""
WITHOUT_STATE = (
    *(f"{_OPTIMIZATION}{name}.py" for name in ("gradient_step", "traced_loss", "step_plan", "capture")),
    *(f"{_OPTIMIZATION}{name}.py" for name in ("flat_minibatch", "graphed_trace")),
    *(f"{_OPTIMIZATION}{name}.py" for name in ("reads", "value_detectors", "code_origin")),
    *(f"{LIBRARY}{name}.py" for name in ("abc", "enum", "typing", "functools", "dataclasses")),
    *(f"{LIBRARY}{name}" for name in ("contextlib.py", "copy.py", "warnings.py")),
    *(f"{LIBRARY}{name}" for name in ("collections/", "_collections_abc.py")),
    f"{_TORCH}nn/modules/module.py",
    str(typing_extensions.__file__),
    _folder(np),
    "<frozen",
)
"""Files of functions that depend on their arguments only, and of the code that observes."""


def may_read_state(file: str) -> bool:
    """True if functions of a file may read state that a loss depends on."""
    if file.startswith(WITHOUT_STATE):
        return False
    return file.startswith(_SHIPPED) or not file.startswith(_TORCH)


def is_user_code(code: CodeType) -> bool:
    """True if a function is neither part of maze_pl nor of the libraries it builds on."""
    return not code.co_filename.startswith(_SHIPPED) and code.co_filename != "<string>"


def place_of(code: CodeType) -> str:
    """Name of a function with its file and line."""
    return f"{code.co_qualname} ({Path(code.co_filename).name}:{code.co_firstlineno})"
