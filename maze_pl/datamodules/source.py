"""Dataloader of batches that are made on demand."""

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Source(Generic[T]):
    """A sized iterable of batches that are made on demand.

    Args:
        make: Makes one batch: collects a rollout, or plays the episodes of an evaluator.
        length: Batches per epoch.
    """

    def __init__(self, make: Callable[[], T], length: int = 1) -> None:
        self._make, self._length = make, length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        for _ in range(self._length):
            yield self._make()

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state, for Lightning; the data module saves the environments."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Do nothing; see `state_dict`."""
