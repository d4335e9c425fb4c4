"""The version of maze_pl, which checkpoints and other files name."""

__version__ = "0.2.0"
