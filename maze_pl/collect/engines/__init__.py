"""Where actors work: in this process, in other processes, or on other machines."""

from maze_pl.collect.engines.engine import Done as Done
from maze_pl.collect.engines.engine import Engine as Engine
from maze_pl.collect.engines.engine import InProcessEngine as InProcessEngine
from maze_pl.collect.engines.process_engine import ProcessEngine as ProcessEngine
from maze_pl.collect.engines.ray_engine import RayEngine as RayEngine
