"""Schedules: coefficients that change in the course of a run, as functions of its progress.

This folder holds the functions and the definition of progress. Algorithms and data modules decide
which of their options may follow a schedule. Learning-rate schedulers of torch belong to
`maze_pl.modules.schedulers`.
"""

from .coefficient import Coefficient as Coefficient, described as described, value_at as value_at
from .constant import Constant as Constant
from .cosine import Cosine as Cosine
from .linear import Linear as Linear
from .piecewise import Piecewise as Piecewise
from .progress import require_length as require_length, run_progress as run_progress
from .schedule import Schedule as Schedule
