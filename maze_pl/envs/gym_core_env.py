"""Gymnasium environments as simulations, whose states are the observations."""

from typing import Any

import gymnasium
from gymnasium.utils import EzPickle

from maze_pl.envs.contract import NO_RESULT, check_observation, check_reset, explain_reset, explain_step, name_of
from maze_pl.envs.core_env import CoreEnv, take_over
from maze_pl.envs.reseeding import reseed_layers


class GymCoreEnv(CoreEnv):
    """A gymnasium environment as a simulation: states are its observations, actions its actions.

    Args:
        env: The environment, possibly with gymnasium's wrappers.

    Attributes:
        reset_options: Options for the gymnasium environment at the next `reset`.
        reset_info: Info that the gymnasium environment returned at the last `reset`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__()
        self.env = env
        self.reset_options: dict[str, Any] | None = None
        self.reset_info: dict[str, Any] = {}
        self._maze_state: Any = None
        self._seed: int | None = None
        self._is_known = False  # True once a first observation was checked

    def step(self, maze_action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the gymnasium environment.

        Raises:
            EnvContractError: The environment did not return five values.
        """
        result: Any = NO_RESULT
        try:
            result = self.env.step(maze_action)
            self._maze_state = result[0]
        except Exception as error:
            explain_step(error, result, self.env)
            raise
        return result  # type: ignore[no-any-return]

    def reset(self) -> Any:
        """Reset the gymnasium environment, with the seed set since the last reset, if any.

        Raises:
            EnvContractError: The environment takes no seed or no options, or did not return an
                observation of its space and a dict.
        """
        seed = self._seed
        self._seed = None
        if seed is not None:
            self.env.action_space.seed(seed)  # some environments sample actions themselves
        try:
            result = self.env.reset(seed=seed, options=self.reset_options)
        except TypeError as error:
            explain_reset(error, self.env)
            raise
        check_reset(result, self.env)
        self._maze_state, self.reset_info = result
        if not self._is_known:
            name = f"the observation that reset of {name_of(self.env)} returned"
            check_observation(self._maze_state, self.env.observation_space, name)
            self._is_known = True
        return self._maze_state

    def seed(self, seed: int) -> None:
        """Set the seed of the next `reset`."""
        self._seed = seed

    def reseed(self, seed: int) -> None:
        """Make the rest of the running episode depend on a seed; see `reseed_layers`."""
        layers: list[Any] = [self.env]
        while isinstance(layers[-1], gymnasium.Wrapper):
            layers.append(layers[-1].env)
        reseed_layers(layers, seed)

    def close(self) -> None:
        """Close the gymnasium environment."""
        self.env.close()

    def clone_from(self, env: CoreEnv) -> None:
        """Copy the state of another gymnasium environment.

        Raises:
            TypeError: The environment cannot be copied, because it holds something other than
                Python objects, such as a window or Box2D's world.
        """
        inner = vars(env)["env"]
        if isinstance(inner.unwrapped, EzPickle):
            reason = "its copies start from the beginning (gymnasium.utils.EzPickle)"
            raise TypeError(f"{name_of(inner)} cannot be copied: {reason}")
        take_over(self.env, inner, (self, env))  # in place, since other objects may refer to it
        take_over(self, env, (self.env, inner))

    def get_maze_state(self) -> Any:
        """Return the last observation, as the gymnasium environment returned it."""
        return self._maze_state
