"""The environment doctor: finds faults that make training fail or silently prevent learning.

This folder holds its checks, one file for each subject, and the report. Checks that run in every
step of an environment in use belong in `maze_pl.envs.contract`.
"""

from .check_env import check_env as check_env
from .report import CheckLine as CheckLine, CheckReport as CheckReport
from .same_as import Comparison as Comparison, compare_envs as compare_envs
