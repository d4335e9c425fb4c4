"""The operating system: ranks, worker processes, forked children, signals, atomic files.

Nothing here knows of reinforcement learning, and nothing here imports another part of maze_pl.
"""
