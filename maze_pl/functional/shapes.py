"""Shape and range checks of the arguments of this package's functions."""

from torch import Tensor

from maze_pl.core.checks import check_fraction


def check_same_shape(**tensors: Tensor) -> None:
    """Raise unless all tensors have the shape of the first one.

    Raises:
        TypeError: An argument is not a tensor.
        ValueError: Shapes differ.
    """
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
    (first, expected), *others = tensors.items()
    for name, tensor in others:
        if tensor.shape != expected.shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(expected.shape)} as {first} has")


def check_time_major(reward: Tensor, gamma: float | Tensor, **tensors: Tensor) -> None:
    """Raise unless all tensors are `[T, B]` like `reward` and `gamma` is one discount or `[T, B]`.

    Raises:
        TypeError: An argument is not a tensor.
        ValueError: Shapes differ, there is no time dimension or no step, or the discount is a
            number outside [0, 1]. Tensors are not checked, as reading them waits for the device.
    """
    check_same_shape(reward=reward, **tensors)
    if reward.ndim < 1 or reward.shape[0] == 0:
        raise ValueError(f"reward has shape {tuple(reward.shape)}, expected [T, B] with at least one step")
    if isinstance(gamma, Tensor):
        if gamma.ndim > 0:
            check_same_shape(reward=reward, gamma=gamma)
    else:
        check_fraction(gamma=gamma)
