"""Check that data module and algorithm of a run fit, as options may replace only one of them."""

from collections.abc import Mapping

from pytorch_lightning import LightningDataModule, LightningModule

from maze_pl.config.merging import assembled
from maze_pl.config.pieces import with_bases
from maze_pl.config.search_path import ConfigurationError, find
from maze_pl.modules import AlgorithmModule


def require_fitting_data(module: LightningModule, data: LightningDataModule) -> None:
    """Refuse a data module that does not fit the algorithm.

    Raises:
        ConfigurationError: It does not, and a configuration of the algorithm has another one.
        ValueError: It does not fit for another reason.
    """
    if not isinstance(module, AlgorithmModule):
        return
    try:
        module.check_data_module(data)
    except ValueError as error:
        name = f"conf_train/{type(module).__name__.lower()}"
        if _data_module(name) in (None, type(data).__name__):
            raise
        raise ConfigurationError(f"{error}; `--config {name}` has both") from error


def _data_module(name: str) -> str | None:
    """Return the class name of the data module in a configuration; None if nothing names it."""
    path = find(name)
    if path is None:
        return None
    try:
        data = assembled(with_bases("--config", path)).get("data")
    except ConfigurationError:  # of a user's file, which has nothing to do with the run
        return None
    class_path = data.get("class_path") if isinstance(data, Mapping) else None
    return class_path.rpartition(".")[2] if isinstance(class_path, str) else None
