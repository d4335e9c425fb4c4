"""Reading of what commands have written, without running any of it: descriptions, curves, the page of a run.

Nothing here imports torch or the classes that a run names, and nothing here plays or trains.
"""
