"""Engines, which run actors in this process, in other processes, or on other machines."""

from .engine import Done as Done, Engine as Engine
from .in_process_engine import InProcessEngine as InProcessEngine
from .process_engine import ProcessEngine as ProcessEngine
from .ray_engine import RayEngine as RayEngine
