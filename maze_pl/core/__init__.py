"""Types and small tools that everything else is built from.

Nothing here knows of environments, networks or training; it imports only `maze_pl.system`.
"""
