"""Collecting experience."""

from maze_pl.collect.collector import Collector as Collector
from maze_pl.collect.in_memory_dataset import InMemoryDataset as InMemoryDataset
from maze_pl.collect.in_memory_dataset import ReplayRecordedActionsPolicy as ReplayRecordedActionsPolicy
