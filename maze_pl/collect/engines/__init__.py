"""Engines, which run players in this process, in other processes, or on other machines.

What a player does belongs to `maze_pl.collect`, starting processes to `maze_pl.system`.
"""

from maze_pl.envs.contract import portable_error as portable_error

from .engine import Done as Done, Engine as Engine, Host as Host, Job as Job, MakePlayer as MakePlayer
from .engine import not_started as not_started
from .in_process_engine import InProcessEngine as InProcessEngine
from .process_engine import ProcessEngine as ProcessEngine
from .ray_engine import RayEngine as RayEngine
from .worker_engine import (
    Outcome as Outcome,
    WorkerEngine as WorkerEngine,
    WorkerHost as WorkerHost,
)
