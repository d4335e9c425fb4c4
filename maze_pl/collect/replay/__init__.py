"""Replay: the buffer, the storage of transitions, its sum tree, and the conversion of rollouts to transitions.

Filling it, and saving it with checkpoints, belongs to `maze_pl.datamodules`.
"""
