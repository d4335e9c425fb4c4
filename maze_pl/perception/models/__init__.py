"""Model composers and built-in models.

The blocks that they consist of belong to `maze_pl.perception.blocks`.
"""
