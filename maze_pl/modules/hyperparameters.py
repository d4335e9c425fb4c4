"""Arguments of an algorithm's constructor, as checkpoints hold them and as they were given."""

import copy
import inspect
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from torch import nn

from maze_pl.core.checks import is_plain
from maze_pl.schedules import described

_NETWORKS = ("spec", "actor_critic")
"""Arguments that checkpoints hold in another form."""


class PlainHyperparameters:
    """Keeps other objects than plain values out of `hparams`, also if subclasses save their arguments.

    An argument that is such an object keeps the text or the value that was saved for it before.

    Attributes:
        make_again: Makes the algorithm with untrained networks for another `spec`, by the configuration of its run;
            None if it was not loaded from one. Copies lack it, as it holds objects that may not be copied.
    """

    make_again: Callable[..., Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies get, without `make_again`."""
        inherited: Any = super()
        state = dict(inherited.__getstate__())
        state.pop("make_again", None)
        return state

    def save_hyperparameters(
        self,
        *args: Any,
        ignore: Sequence[str] | str | None = None,
        frame: FrameType | None = None,
        logger: bool = True,
    ) -> None:
        """Save arguments of the constructor that are plain values; see `LightningModule.save_hyperparameters`.

        Args:
            args: Names of arguments, or a dict or namespace of them; none for all arguments.
            ignore: Names of arguments to leave out.
            frame: Frame of the constructor; None for the caller's.
            logger: Whether loggers get them.
        """
        module: Any = self
        inherited: Any = super()
        current = inspect.currentframe()
        if frame is None and current is not None:
            frame = current.f_back
        left_out = [ignore] if isinstance(ignore, str) else list(ignore or [])
        if not any(isinstance(one, str) for one in args):
            left_out += _NETWORKS
        before = dict(module.hparams)
        inherited.save_hyperparameters(*args, ignore=left_out, frame=frame, logger=logger)
        objects = [name for name, value in module.hparams.items() if not is_plain(value)]
        module.remove_ignored_hparams(objects)
        module._hparams_initial = copy.deepcopy(module.hparams)  # what loggers get
        module.hparams.update({name: before[name] for name in objects if name in before})


def save_plain_hyperparameters(module: pl.LightningModule) -> dict[str, Any]:
    """Keep numbers, strings, and lists and dicts of them in `hparams`: checkpoints may hold nothing else.

    It must be called within the constructor.

    Args:
        module: The algorithm.

    Returns:
        Name -> argument as it was given, without networks.
    """
    ignored = [*_NETWORKS]
    pl.LightningModule.save_hyperparameters(module, ignore=ignored)
    given = {name: value for name, value in module.hparams.items() if not isinstance(value, nn.Module)}
    given.pop("networks", None)  # they may hold lambdas, which cannot be sent to a spawned process
    ignored += [name for name, value in module.hparams.items() if not is_plain(value)]
    if module.hparams.get("networks") is None:
        ignored.append("networks")  # ready-made networks must be passed again
    pl.LightningModule.save_hyperparameters(module, ignore=ignored)
    if callable(given.get("lr")):
        module.hparams["lr"] = described(given["lr"])  # a text, which no constructor accepts
    return given
