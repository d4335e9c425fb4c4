"""Runs: their directory, their checkpoints, rollouts of trained agents, statistics of hand-written loops.

What is written during training by callbacks belongs to `maze_pl.callbacks`.
"""
