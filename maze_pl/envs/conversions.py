"""Between a simulation's own objects and the arrays that agents see and choose."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from maze_pl.envs.structured_env import Action, Observation


class ObservationConversionInterface(ABC):
    """Turns the states of a simulation into observations, for one sub-step."""

    @abstractmethod
    def space(self) -> spaces.Dict:
        """Space of the observations: a Dict of Box, Discrete, MultiDiscrete and MultiBinary."""

    @abstractmethod
    def maze_to_space(self, maze_state: Any) -> Observation:
        """Observation of a state; made of arrays that nobody changes later, and without changing the state."""

    def space_to_maze(self, observation: Observation) -> Any:
        """State that an observation shows, where observations show all of it.

        Raises:
            TypeError: This conversion has no inverse.
        """
        raise TypeError(f"{type(self).__name__} cannot turn observations into states; define its space_to_maze")


class ActionConversionInterface(ABC):
    """Turns the actions of an agent into those of a simulation, for one sub-step."""

    @abstractmethod
    def space(self) -> spaces.Dict:
        """Space of the actions: a Dict whose entries are called heads."""

    @abstractmethod
    def space_to_maze(self, action: Action, maze_state: Any) -> Any:
        """The simulation's form of an action.

        Args:
            action: Head -> an int for `Discrete`, an array otherwise.
            maze_state: The state in which it is taken.
        """

    def maze_to_space(self, maze_action: Any) -> Action:
        """Agent's form of a simulation's action, needed to learn from recorded simulations.

        Raises:
            TypeError: This conversion has no inverse.
        """
        raise TypeError(f"{type(self).__name__} cannot turn simulation actions back; define its maze_to_space")

    def noop_action(self) -> Action:
        """The action that does nothing, where there is one.

        Raises:
            TypeError: There is none.
        """
        raise TypeError(f"{type(self).__name__} knows no action that does nothing; define its noop_action")

    @property
    def action_masks(self) -> Mapping[str, str]:
        """Head -> name of the observation whose nonzero entries are allowed; no masks by default."""
        return {}
