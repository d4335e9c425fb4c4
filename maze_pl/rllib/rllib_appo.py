"""Asynchronous proximal policy optimisation by RLlib."""

from typing import ClassVar

from maze_pl.agents import StateCritic
from maze_pl.rllib.rllib_module import RLlibModule


class RLlibAPPO(RLlibModule):
    """RLlib's APPO on networks of maze_pl; see `RLlibModule` for the options."""

    rllib_config = "ray.rllib.algorithms.appo.APPOConfig"
    critic_type: ClassVar[type] = StateCritic
