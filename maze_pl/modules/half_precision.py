"""Half precision of networks alone, so that rewards, discounts and returns keep their digits."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.plugins import HalfPrecision
from pytorch_lightning.strategies import Strategy
from torch import nn

from maze_pl.core.batches import Batch


class HalfPrecisionOfNetworks(HalfPrecision):
    """`bf16-true` and `16-true` without rounding what networks learn from.

    Lightning rounds every number of a batch, so that a discount of 0.999 becomes 1, and makes half
    precision the default type of the tensors that `training_step` creates. Neither is needed:
    networks convert their inputs themselves, as they do while they act. As with `bf16-mixed`, only
    networks compute in half precision. Parameters and buffers of the algorithm itself, such as
    entropy coefficients and scheduled options, keep their type, also those in a `ParameterDict` or
    a `ParameterList` that is its attribute: small steps would not move them.

    Args:
        strategy: Strategy of the trainer, which gets its plugin back when the run ends.
        replaced: This plugin.
    """

    def __init__(self, strategy: Strategy, replaced: HalfPrecision) -> None:
        super().__init__(replaced.precision)
        self._strategy = strategy
        self._replaced = replaced

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Convert the submodules of an algorithm, its networks."""
        for child in module.children():
            if not isinstance(child, nn.ParameterDict | nn.ParameterList):
                super().convert_module(child)
        return module

    def tensor_init_context(self) -> AbstractContextManager[None]:
        """Create tensors with the usual type; networks are converted once they exist."""
        return nullcontext()

    def convert_input(self, data: Any) -> Any:
        """Return batches of maze_pl as they are, and convert other data as Lightning does."""
        return data if isinstance(data, Batch) else super().convert_input(data)

    @contextmanager
    def forward_context(self) -> Generator[None, None, None]:
        """Keep the default type of tensors."""
        yield

    def teardown(self) -> None:
        """Put the plugin of Lightning back, for other modules that the trainer may run."""
        self._strategy.precision_plugin = self._replaced


def keep_batches_exact(trainer: pl.Trainer) -> None:
    """Let half precision apply to networks alone, for this run of a trainer.

    Plugins of users and of other strategies are left alone.
    """
    strategy = trainer.strategy
    plugin = strategy.precision_plugin
    if type(plugin) is HalfPrecision:
        strategy.precision_plugin = HalfPrecisionOfNetworks(strategy, plugin)
