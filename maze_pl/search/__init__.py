"""Search at decision time: trying actions in copies of the environment before one is taken.

Each method is a class in a file. Playing episodes, and loading policies and critics, belong to `maze_pl.runs`.
"""

from .search_error import SearchError as SearchError
from .search_options import SearchOptions as SearchOptions
from .search_policy import SearchPolicy as SearchPolicy
