"""Collecting experience."""

from maze_pl.collect.collector import Collector

__all__ = ["Collector"]
