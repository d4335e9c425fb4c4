"""A copy of an environment, in which actions are tried."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

from maze_pl.core.actor_id import ActorID
from maze_pl.core.policy import Array
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import name_of
from maze_pl.envs.structured_env import Action
from maze_pl.search.search_error import SearchError

_NOTE: Final = "This happened in a copy of the environment, in which search tried an action."

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def is_of_simulation(error: Exception) -> bool:
    """True for an error of an environment in which search tried actions."""
    return _NOTE in getattr(error, "__notes__", ())


def _noted(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Add a note to the errors of an environment, by which `is_of_simulation` knows them."""

    @wraps(function)
    def noted(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except SearchError:
            raise
        except Exception as error:
            error.add_note(_NOTE)
            raise

    return noted


class Simulation:
    """A copy of an environment, in which actions are tried.

    Args:
        env: An environment that was made like the one to be copied.
        spec: Observations of the actors, to whose types those of the simulation are converted.

    Attributes:
        env: The environment.
        observation: Observation of the actor that acts next.
        is_over: Whether the episode has ended.
        is_terminated: Whether it was terminated, rather than truncated.
        total: Sum of the rewards since the start of the simulation.
        reward: Reward of the last act.
        env_steps: Environment steps that the last act completed.
        n_acts: Acts since the start of the simulation.
    """

    def __init__(self, env: Any, spec: Spec) -> None:
        self.env = env
        self._spec = spec
        self.observation: Mapping[str, Array] = {}
        self.is_over = self.is_terminated = False
        self.total = self.reward = 0.0
        self.env_steps = self.n_acts = 0

    @_noted
    def start(self, env: Any, observation: Mapping[str, Array], seed: int) -> None:
        """Start in the state of an environment; random events in its future are drawn again.

        Nothing that happens here reaches event logs or the files of recorders.

        Args:
            env: The environment.
            observation: Its present observation.
            seed: Seed of the future.

        Raises:
            SearchError: The environment cannot be copied.
        """
        try:
            self.env.clone_from(env)
        except (TypeError, NotImplementedError) as error:
            fault = str(error) or f"{name_of(env)} cannot be copied; define its clone_from"
            raise SearchError(f"search tries actions in copies of the environment, but {fault}") from error
        self.env.context.is_logged = False  # recorders and event logs keep only what was played
        self.env.reseed(seed)
        self.observation = observation
        self.is_over = self.is_terminated = False
        self.total = self.reward = 0.0
        self.env_steps = self.n_acts = 0

    @_noted
    def become(self, other: "Simulation") -> None:
        """Continue as another simulation, with the same future."""
        self.env.clone_from(other.env)
        for name, value in vars(other).items():
            if name not in ("env", "_spec"):
                setattr(self, name, value)

    @property
    def actor(self) -> ActorID:
        """The actor that acts next."""
        actor: ActorID = self.env.actor_id()
        return actor

    @property
    def is_between_env_steps(self) -> bool:
        """True if no environment step has begun that is not complete."""
        return bool(self.env.context.env_step_incremented) or not self.n_acts

    @_noted
    def step(self, action: Action) -> None:
        """Perform an act."""
        before = self.env.get_env_time()
        observation, reward, terminated, truncated, _ = self.env.step(action)
        self.reward = float(reward)
        self.total += self.reward
        self.env_steps = self.env.get_env_time() - before
        self.is_terminated = bool(terminated)
        self.is_over = bool(terminated or truncated)
        self.observation = observation if terminated else self._in_types_of_spaces(observation)
        self.n_acts += 1

    def _in_types_of_spaces(self, observation: Mapping[str, Any]) -> dict[str, Array]:
        """Convert an observation to the types in which a policy gets it when it is played."""
        parts = self._spec.steps[self.actor.step_key].observation_space.spaces
        return {name: np.asarray(observation[name], part.dtype) for name, part in parts.items()}
