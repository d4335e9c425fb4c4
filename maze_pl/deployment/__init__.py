"""Deployment of trained agents in real systems, which ask for actions instead of being stepped.

This package keeps conversions and wrappers in step with states from outside, and monitors them. The simulation
and its wrappers are in `maze_pl.envs`; nothing here trains.
"""

from .agent_deployment import AgentDeployment as AgentDeployment
from .candidates import Candidate as Candidate
from .drift import ObservationDrift as ObservationDrift
from maze_pl.core.observation_sample import ObservationSample as ObservationSample
