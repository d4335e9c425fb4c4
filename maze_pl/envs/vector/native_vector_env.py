"""Environments that gymnasium implements as a vector: one object whose step is one computation for all of them."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import EnvContractError, describe
from maze_pl.envs.gym_env import GymActionConversion, GymMazeEnv, GymObservationConversion
from maze_pl.envs.structured_env import Observation
from maze_pl.envs.vector.vector_env import Array, History, StepExtras, Tree, VectorEnv, readers_of
from maze_pl.events.episode_statistics import action_keys, detached, flat_summary

_ROWS_IN_A_LOT = 1024
"""How many rows of ended episodes are forgotten at once."""


_INSTEAD = "use vectorization=sequential or subprocess"


class NativeVectorEnv(VectorEnv):
    """Steps environments by gymnasium's own vector implementation, with the statistics that all others have.

    There is one random generator for all environments: one seed is derived for the vector, and episodes have none of
    their own. The state of the environments cannot be taken either, so that a resumed run starts new episodes, by
    another seed. Nothing can be wrapped around single environments.

    Some implementations reset an environment only in the step after the one that ended its episode, whatever action
    they are given for it. Such a step is no act; `resetting` says which environments it awaits.

    Args:
        name: Name under which gymnasium makes the environment.
        n_envs: Number of environments.
        seed: The run's seed.
        first_env_index: Index of the first environment among those of all ranks.
        spec: What agents see and do; read from a single environment if None.
        kwargs: Passed to `gymnasium.make_vec`.

    Raises:
        ValueError: Gymnasium has no vector implementation of this environment, or one with other spaces.
    """

    can_replay = False

    def __init__(
        self, name: str, n_envs: int, seed: int = 0, first_env_index: int = 0, spec: Spec | None = None, **kwargs: Any
    ) -> None:
        if gymnasium.spec(name).vector_entry_point is None:
            raise ValueError(f"gymnasium has no vector implementation of {name} (vector_entry_point); {_INSTEAD}")
        super().__init__(spec or Spec.of(GymMazeEnv(name, **kwargs)), [{}] * n_envs, seed, first_env_index, None)
        self.name = name
        ((self._key, step),) = self.spec.steps.items()
        self.env = gymnasium.make_vec(name, n_envs, vectorization_mode="vector_entry_point", **kwargs)
        conversion = GymObservationConversion(self.env.single_observation_space)
        self._actions = GymActionConversion(self.env.single_action_space)
        single, native = (step.observation_space, step.action_space), (conversion.space(), self._actions.space())
        self._mode = self.env.metadata.get("autoreset_mode")
        if single != native or not isinstance(self._mode, AutoresetMode):
            fault = f"does not say how it resets, autoreset_mode={self._mode!r}"
            if single != native:
                fault = " ".join(f"has the spaces {native}, a single one has {single}".split())
            raise ValueError(f"gymnasium's vector implementation of {name} {fault}; {_INSTEAD}")
        self._convert = conversion.maze_to_space  # of one observation, and as well of all at once
        self._readers = readers_of(step.action_space)
        self._stat_keys = action_keys(self._key, step.action_space)
        self.staging.env_steps.fill(1)
        self.always_advances = self._mode != AutoresetMode.NEXT_STEP
        self.resetting = None if self.always_advances else np.zeros(n_envs, np.bool_)
        self._rows: list[tuple[Tree, Array]] = []  # actions and rewards of the steps that running episodes consist of
        self._first_row = np.zeros(n_envs, np.int64)

    def reset(self, envs: Sequence[int] | None = None, episodes: Sequence[int] | None = None) -> None:
        """Start new episodes, in all environments at once.

        Args:
            envs: All environments, or None.
            episodes: Index of the episode that each of them starts, 0 if None; decides the seed.

        Raises:
            ValueError: Only some of the environments are meant.
        """
        self._require_all(envs)
        self._episode = [0] * self.n_envs if episodes is None else list(episodes)
        result = self.env.reset(seed=derive_seed(self.seed, "native", self.first_env_index, *self._episode))
        if not isinstance(result, tuple) or len(result) != 2:
            raise EnvContractError(f"reset of the vector {self.name} returned {describe(result)}; expected two values")
        self._rows = []
        self._first_row.fill(0)
        if self.resetting is not None:
            self.resetting.fill(False)
        self._stage(self._observation(result[0]))

    def step(self, envs: Sequence[int] | None = None) -> StepExtras:
        """Perform the staged actions of all environments; see `VectorEnv.step`.

        Raises:
            ValueError: Only some of the environments are meant.
            EnvContractError: The environments returned what none may.
        """
        self._require_all(envs)
        staging, extras = self.staging, StepExtras([], [])
        staged = staging.action[self._key]
        actions = {head: read(staged[head]) for head, read in self._readers.items()}
        kept = {head: values.copy() for head, values in actions.items()}
        result: Any = self.env.step(self._actions.joined(actions))
        self._check(result)
        seen, reward, terminated, truncated, info = result
        staging.reward[...] = reward
        staging.terminated[...] = terminated
        staging.truncated[...] = truncated
        self._rows.append((kept, staging.reward.copy()))
        if self.resetting is not None:
            staging.env_steps[...] = ~self.resetting
            self._first_row[self.resetting] = len(self._rows)
        ended = staging.terminated | staging.truncated
        observation = self._observation(seen)
        if ended.any():
            for n in np.flatnonzero(ended).tolist():
                self._sum_up(n)
                if staging.truncated[n] and not staging.terminated[n]:
                    final = {name: values[n] for name, values in observation.items()}
                    if self._mode == AutoresetMode.SAME_STEP:
                        final = self._convert(info["final_obs"][n])
                    extras.finals.append((n, self._key, 0, final))
            if self._mode == AutoresetMode.DISABLED:
                observation = self._observation(self.env.reset(options={"reset_mask": ended})[0])
        if self.resetting is not None:
            self.resetting[...] = ended
        self._stage(observation)
        return extras

    def _require_all(self, envs: Sequence[int] | None) -> None:
        if envs is not None and len(envs) != self.n_envs:
            raise ValueError(f"native vector environments go all at once, not {list(envs)} of {self.n_envs}")

    def _check(self, result: Any) -> None:
        """Refuse what a step of a vector may not return, apart from the observations."""
        if not isinstance(result, tuple) or len(result) != 5:
            raise EnvContractError(f"step of the vector {self.name} returned {describe(result)}; expected five values")
        for what, array in zip(("reward", "terminated", "truncated"), result[1:4], strict=True):
            kinds, expected = ("biuf", "numbers") if what == "reward" else ("b", "booleans")
            if not isinstance(array, np.ndarray) or array.shape != (self.n_envs,) or array.dtype.kind not in kinds:
                came = f"step of the vector {self.name} returned {what} as {describe(array)}"
                raise EnvContractError(f"{came}; expected an array of shape ({self.n_envs},) of {expected}")

    def _observation(self, seen: Any) -> Observation:
        """Observations of all environments by name, as they are declared."""
        try:
            observation = self._convert(seen)
            for name, values in self.staging.observation[self._key].items():
                if observation[name].shape != values.shape:
                    raise ValueError(f"observation {name!r} has shape {observation[name].shape}, not {values.shape}")
        except (KeyError, TypeError, ValueError) as error:
            came = f"the vector {self.name} returned as observations {describe(seen)}"
            raise EnvContractError(f"{came}, which does not fit: {error}") from error
        return observation

    def _stage(self, observation: Observation) -> None:
        """Show what the environments show."""
        for name, values in self.staging.observation[self._key].items():
            values[...] = observation[name]

    def _sum_up(self, n: int) -> None:
        """Sum up the episode of an environment, which the last row has ended."""
        rows = self._rows[self._first_row[n] :]
        actions = {head: [detached(taken[head][n]) for taken, _ in rows] for head in self._stat_keys}
        self._finish(n, flat_summary(self._stat_keys, actions, [float(reward[n]) for _, reward in rows]))
        self._episode[n] += 1
        self._first_row[n] = len(self._rows)
        n_over = int(self._first_row.min())
        if n_over >= _ROWS_IN_A_LOT:
            del self._rows[:n_over]
            self._first_row -= n_over

    def replay(self, histories: Sequence[History], wrapper_states: Sequence[dict[str, Any]]) -> None:
        """Refuse: episodes have no seeds of their own, so that none can be played again.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(f"the vector {self.name} cannot play an episode again; reset it instead")

    def close(self) -> None:
        """Close the vector."""
        self.env.close()
