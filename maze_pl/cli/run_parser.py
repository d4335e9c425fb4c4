"""Parser of the options of a run, also for functions in place of classes."""

from collections.abc import Callable, Collection
from typing import Any

from pytorch_lightning.cli import LightningArgumentParser


class RunParser(LightningArgumentParser):
    """Lightning's parser, to which jsonargparse may pass the links of a class that a function replaces."""

    def add_function_arguments(
        self, function: Callable[..., Any], *args: Any, linked_targets: Collection[str] = (), **kwargs: Any
    ) -> list[str]:
        """Add the arguments of a function.

        Args:
            function: The function.
            args: Further arguments of `ArgumentParser.add_function_arguments`.
            linked_targets: Arguments that other options set; jsonargparse passes them to the parsers
                of classes, and would fail for functions.
            kwargs: Further arguments of `ArgumentParser.add_function_arguments`.

        Returns:
            Names of the arguments.
        """
        return super().add_function_arguments(function, *args, **kwargs)
