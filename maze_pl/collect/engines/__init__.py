"""Where actors work: in this process, in other processes, or on other machines."""

from .engine import Done as Done, Engine as Engine, InProcessEngine as InProcessEngine
from .worker_engines import ProcessEngine as ProcessEngine, RayEngine as RayEngine
