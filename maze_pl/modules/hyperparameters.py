"""Arguments of an algorithm's constructor, as checkpoints hold them and as they were given."""

from typing import Any

import pytorch_lightning as pl
from torch import nn

from maze_pl.core.checks import is_plain
from maze_pl.schedules import described


def save_plain_hyperparameters(module: pl.LightningModule) -> dict[str, Any]:
    """Keep numbers, strings, and lists and dicts of them in `hparams`: checkpoints may hold nothing else.

    It must be called within the constructor.

    Args:
        module: The algorithm.

    Returns:
        Name -> argument as it was given, without networks.
    """
    ignored = ["spec", "actor_critic"]
    module.save_hyperparameters(ignore=ignored)
    given = {name: value for name, value in module.hparams.items() if not isinstance(value, nn.Module)}
    given.pop("networks", None)  # they may hold lambdas, which cannot be sent to a spawned process
    ignored += [name for name, value in module.hparams.items() if not is_plain(value)]
    if module.hparams.get("networks") is None:
        ignored.append("networks")  # ready-made networks must be passed again
    module.save_hyperparameters(ignore=ignored)
    if callable(given.get("lr")):
        module.hparams["lr"] = described(given["lr"])  # a text, which no constructor accepts
    return given
