"""The environment doctor: finds faults that make training fail, or silently learn nothing.

Here belong its checks, one file for each subject, and the report. Checks that run while an
environment is used, in every step, belong in `maze_pl.envs.contract`.
"""

from .check_env import check_env as check_env
from .report import CheckLine as CheckLine, CheckReport as CheckReport
