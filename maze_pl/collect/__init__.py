"""Collecting experience."""

from maze_pl.collect.collector import Collector as Collector
