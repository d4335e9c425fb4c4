"""The server of `maze-pl serve`: decisions of a bundle over HTTP.

This package turns requests into decisions: reading and checking them, batching, episodes on the
server, metrics and the application. Decisions themselves are made by `maze_pl_runtime`.
"""
