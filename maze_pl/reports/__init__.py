"""Reading of files that commands have written, without running any of them: descriptions, curves, the page of a run.

Nothing here imports torch or the classes that a run names, and nothing here plays or trains.
"""
