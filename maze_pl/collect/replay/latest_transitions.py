"""Number of the latest transition of each stream."""

from collections.abc import Mapping

import numpy as np

from maze_pl.core.policy import Array


class LatestTransitions:
    """Numbers of the latest transitions of streams, in arrays.

    Args:
        latest: Stream -> number of its latest transition.

    Example:
        >>> latest = LatestTransitions({7: 3})
        >>> latest.put(np.array([7, -2, 7]), np.array([4, 5, 6])).tolist()
        [3, -1, 4]
        >>> latest.state_dict()
        {-2: 5, 7: 6}
    """

    def __init__(self, latest: Mapping[int, int] | None = None) -> None:
        pairs = sorted((latest or {}).items())
        self._streams = np.array([stream for stream, _ in pairs], np.int64)
        self._numbers = np.array([number for _, number in pairs], np.int64)

    def put(self, streams: Array, numbers: Array) -> Array:
        """Set the latest transitions of streams, which may occur several times.

        Args:
            streams: [n] stream of each new transition.
            numbers: [n] their numbers, ascending.

        Returns:
            [n] numbers of the previous transitions of these streams; -1 if there is none.
        """
        order = np.argsort(streams, kind="stable")
        in_order = streams[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = in_order[1:] != in_order[:-1]
        previous = np.full(len(order), -1)
        previous[1:] = numbers[order[:-1]]
        present = in_order[begins]
        places = self._places(present)
        previous[begins] = self._numbers[places]
        is_last = np.append(begins[1:], True)[: len(order)]
        self._numbers[places] = numbers[order[is_last]]
        result = np.empty_like(previous)
        result[order] = previous
        return result

    def _places(self, streams: Array) -> Array:
        """Return the places of streams [n], which are sorted; new ones are added without a transition."""
        places = self._streams.searchsorted(streams)
        known = np.zeros(len(streams), np.bool_)
        if len(self._streams):
            known = self._streams.take(places, mode="clip") == streams
        if known.all():
            return places
        self._streams = np.insert(self._streams, places[~known], streams[~known])
        self._numbers = np.insert(self._numbers, places[~known], -1)
        return self._streams.searchsorted(streams)

    def state_dict(self) -> dict[int, int]:
        """Return the number of the latest transition of each stream."""
        return dict(zip(self._streams.tolist(), self._numbers.tolist(), strict=True))
