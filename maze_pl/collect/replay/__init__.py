"""Replay: the storage of transitions, its sum tree, and the conversion of rollouts to transitions.

Drawing batches from it belongs to `maze_pl.datamodules`.
"""
