"""Collecting experience: collectors, storage of rollouts, engines, replay.

Learning belongs to `maze_pl.modules`, recorded episodes to `maze_pl.records` and
`maze_pl.datasets`.
"""

from .collector import Collector as Collector
