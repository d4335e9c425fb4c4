"""Check that the data module of a run fits its algorithm, as options may replace one of the two only."""

from pytorch_lightning import LightningDataModule, LightningModule

from maze_pl.config.merging import assembled
from maze_pl.config.pieces import with_bases
from maze_pl.config.search_path import ConfigurationError, find
from maze_pl.modules import AlgorithmModule


def require_fitting_data(module: LightningModule, data: LightningDataModule) -> None:
    """Refuse a data module that does not fit the algorithm.

    Raises:
        ConfigurationError: It does not, and a shipped configuration of the algorithm has another one.
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
    """Return the class name of the data module in a configuration; None without such a configuration."""
    path = find(name)
    if path is None:
        return None
    content = assembled(with_bases("--config", path))
    return str(content["data"]["class_path"]).rpartition(".")[2]
