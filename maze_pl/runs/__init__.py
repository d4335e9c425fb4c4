"""Runs: their directories, checkpoints and provenance, and rollouts of trained agents, searches and bundles.

Training with several seeds, the intervals and tables of their results, and logged statistics, also of
hand-written loops, belong here. What callbacks write during training belongs to `maze_pl.callbacks`.
"""
