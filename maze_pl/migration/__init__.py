"""Names and options of Maze's documentation, translated into options of `maze-pl`.

`maze_pl.maze_run` translates command lines with it, `maze_pl.run_context` arguments in Python. Options of
maze_pl itself belong to `maze_pl.config`.
"""
