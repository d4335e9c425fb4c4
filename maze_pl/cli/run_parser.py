"""Parser of the options of a run, also for functions in place of classes."""

from collections.abc import Callable, Collection
from typing import Any, Final

from pytorch_lightning.cli import LightningArgumentParser

from maze_pl.config.texts import TextKeepingParser

_HELP: Final = {  # in place of Lightning's texts
    "config": "Name or file of a configuration; `maze-pl list configs` lists the names.",
    "ckpt_path": "Checkpoint to load instead of that of the run directory.",
}


class RunParser(TextKeepingParser, LightningArgumentParser):
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

    def add_method_arguments(self, *args: Any, **kwargs: Any) -> list[str]:
        """Add the arguments of a method without the heading that its docstring would be.

        Args:
            args: Arguments of `ArgumentParser.add_method_arguments`.
            kwargs: Further arguments of `ArgumentParser.add_method_arguments`.

        Returns:
            Names of the arguments.
        """
        names: list[str] = super().add_method_arguments(*args, **{**kwargs, "as_group": False})
        for action in self._actions:
            action.help = _HELP.get(action.dest, action.help)
        return names
