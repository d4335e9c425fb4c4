"""Block that applies a function to tensors."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from maze_pl.core.class_path import import_object
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes


class FunctionalBlock(PerceptionBlock):
    """Applies a function to tensors.

    Args:
        in_keys: Names of the inputs. Several inputs are passed by keyword, in any order, so their
            names must be the function's argument names; a single input is passed by position.
        out_keys: Names of the results. With one name the function returns a tensor, otherwise a
            sequence of tensors.
        in_shapes: Shapes of the inputs.
        func: The function or its path, such as "torch.tanh". It must keep leading dimensions, of
            which there may be any number.

    Raises:
        ImportError: There is no such function.
        ValueError: The function does not take arguments of these names, or does not return one
            tensor for each of `out_keys`.

    Example:
        >>> def scaled(image, brightness):
        ...     return image * brightness
        >>> FunctionalBlock(["brightness", "image"], "scaled", [[1], [8]], func=scaled).out_shapes()
        [(8,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, func: Callable[..., Any] | str) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.func = import_object(func) if isinstance(func, str) else func
        self.require(callable(self.func), f"func to be a function or its path, not {func!r}")
        self._check_arguments()

    def _check_arguments(self) -> None:
        """Refuse a function whose signature, if it has one, does not accept the keys."""
        function = self.func.forward if isinstance(self.func, nn.Module) else self.func
        try:
            signature = inspect.signature(function)
        except ValueError:  # functions written in C, such as most of torch, have none
            return
        try:
            if len(self.in_keys) == 1:
                signature.bind(None)
            else:
                signature.bind(**dict.fromkeys(self.in_keys))
        except TypeError as error:
            takes = "one argument" if len(self.in_keys) == 1 else f"the arguments {self.in_keys}, by name"
            self.require(False, f"func to take {takes}, not {signature}: {error}")

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the results of the function by the names in `out_keys`."""
        arguments = {key: block_input[key] for key in self.in_keys}
        output = self.func(**arguments) if len(arguments) > 1 else self.func(*arguments.values())
        tensors = [output] if len(self.out_keys) == 1 else list(output)
        good = len(tensors) == len(self.out_keys) and all(isinstance(tensor, Tensor) for tensor in tensors)
        self.require(
            good,
            f"func to return one tensor for each of {self.out_keys}, not {type(output).__name__}",
        )
        return dict(zip(self.out_keys, tensors, strict=True))
