"""The episode viewer: documents that hold recorded episodes, and the page that shows them.

How episodes are played and stored does not belong here, see `maze_pl.runs` and `maze_pl.records`.
"""
