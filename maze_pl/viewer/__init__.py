"""The episode viewer: documents that hold recorded episodes, and the page that shows them.

Playing episodes belongs to `maze_pl.runs`, the format of their files to `maze_pl.records`.
"""
