"""Gymnasium's vector environments as array environments."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.core.episode_batch import StatColumn
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import ArrayStep, EnvIndex
from maze_pl.envs.arrays.closed_attributes import ClosedAttributes
from maze_pl.envs.arrays.gym_vector_processes import end_if_silent, separate_from_group
from maze_pl.envs.arrays.gym_vector_seeds import reset_with
from maze_pl.envs.arrays.idle_actions import IdleActions
from maze_pl.envs.contract import EnvContractError, describe
from maze_pl.envs.gym_action_conversion import GymActionConversion
from maze_pl.envs.gym_observation_conversion import GymObservationConversion
from maze_pl.envs.structured_env import Array

_MODES = [f"AutoresetMode.{mode.name}" for mode in AutoresetMode]
_Tree = dict[str, Array]
_SEQUENTIAL: Final = "use vectorization=sequential"


class GymVectorArrayEnv(ClosedAttributes, ArrayEnv):
    """A `gymnasium.vector.VectorEnv` in any of its three autoreset modes, with the numbers of its episodes unchanged.

    Transitions that only restart an environment (next-step) are not returned, and final observations come from
    `final_obs` (same-step), which a `SyncVectorEnv` may overwrite, so that it is switched to `DISABLED`. Where
    `reset(options={"reset_mask": ...})` is possible, each episode starts with its own seed in every mode.
    Elsewhere environments start their next episodes from the generator seeded at the first reset.

    The state of a vector environment cannot be saved; a resumed run starts new episodes.

    Args:
        env: Name of an environment for `gymnasium.make_vec`, or a function that makes a vector environment
            of a given number of environments. In a configuration, `{class_path: my_envs.make_vector}` names
            one whose parameter has a default, as in `make_vector(n_envs: int = 1)`, or no annotation.
        vectorization_mode: Used with a name: the environment's vector entry point, or gymnasium's
            vectors of single environments in this process or in others.
        reset_mask: Whether `reset` can start chosen environments; None means yes for gymnasium's own
            vectors of single environments and in mode `DISABLED`, which requires it.
        seed_each: Whether `reset` takes a list of seeds; None means yes for these vectors of gymnasium.
        kwargs: Passed to `gymnasium.make_vec`, if a name was given.

    Raises:
        TypeError: A function was given together with keyword arguments, or a space is not supported.
        ValueError: Gymnasium cannot make the environment, or mode `DISABLED` comes with reset_mask=False.
        EnvContractError: It is not a vector environment, or declares no autoreset mode.

    Attributes:
        seeds_each: Whether each environment gets its own seed when all are reset.
        seeds_all_episodes: Whether each episode gets its own seed, also while other environments run.

    Example:
        >>> env = GymVectorArrayEnv("CartPole-v1")
        >>> env.allocate(3)
        >>> env.reset(np.arange(3), seeds=np.array([5, 6, 7])).observation[0]["observation"].shape
        (3, 4)
    """

    saves_state = False
    attribute_remedy = "pass arguments of the environment, or use its form for single episodes"

    def __init__(
        self,
        env: str | Callable[[int], VectorEnv[Any, Any, Any]],
        vectorization_mode: Literal["vector_entry_point", "sync", "async"] = "vector_entry_point",
        reset_mask: bool | None = None,
        seed_each: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if not isinstance(env, str) and kwargs:
            raise TypeError(f"{sorted(kwargs)} are arguments for making an environment by name, but {env!r} was given")
        self._env, self._kwargs = env, kwargs
        self._vectorization_mode = vectorization_mode
        self._takes_mask = reset_mask
        self._vector = self._made(1)
        is_of_singles = type(self._vector.unwrapped) in (SyncVectorEnv, AsyncVectorEnv)  # gymnasium's own
        self._mode = self._vector.metadata["autoreset_mode"]
        is_disabled = self._mode is AutoresetMode.DISABLED
        self._can_mask = (is_of_singles or is_disabled) if reset_mask is None else reset_mask
        self.seeds_each = is_of_singles if seed_each is None else seed_each
        self.seeds_all_episodes = self.seeds_each and self._can_mask
        if is_disabled and not self._can_mask:
            raise ValueError(f"{self._name} has AutoresetMode.DISABLED, which needs reset_mask; leave reset_mask out")
        self._observation_conversion = GymObservationConversion(self._vector.single_observation_space)
        self._action_conversion = GymActionConversion(self._vector.single_action_space)
        self._idle_actions = IdleActions(self._action_conversion.space())
        self.starts_late = self._mode is AutoresetMode.NEXT_STEP and not self._can_mask

    def _made(self, n_envs: int) -> VectorEnv[Any, Any, Any]:
        """Make the vector environment, check what it declares, and adapt gymnasium's own ones."""
        if isinstance(self._env, str):
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", ".*[aA]utoreset_?[mM]ode.*")  # which is refused below
                    vector = gymnasium.make_vec(self._env, n_envs, self._vectorization_mode, **self._kwargs)
            except gymnasium.error.Error as error:
                if "vector entry point" not in str(error):  # an unknown name, for example
                    is_path = "." in self._env.rpartition(":")[2]
                    hint = f" To name a function, write {{class_path: {self._env}}}." if is_path else ""
                    raise ValueError(f"{error}{hint}") from error
                remedy = "choose vectorization_mode=sync, or the form for single episodes"
                raise ValueError(f"{self._env} has no vector form ({error}); {remedy}") from error
        else:
            vector = self._env(n_envs)
        if not isinstance(vector, VectorEnv):
            raise EnvContractError(f"{self._env!r} made {describe(vector)}; expected a gymnasium.vector.VectorEnv")
        self._name = type(vector.unwrapped).__name__
        mode = self._mode_of(vector)
        if vector.num_envs != n_envs:
            raise EnvContractError(f"{self._name} has num_envs={vector.num_envs}; expected {n_envs}")
        if isinstance(vector.unwrapped, AsyncVectorEnv):
            separate_from_group(vector.unwrapped)
        sync = vector.unwrapped
        if type(sync) is SyncVectorEnv and mode is AutoresetMode.SAME_STEP and self._takes_mask is not False:
            sync.autoreset_mode = AutoresetMode.DISABLED
            sync.metadata = {**sync.metadata, "autoreset_mode": AutoresetMode.DISABLED}
        return vector

    def _mode_of(self, vector: VectorEnv[Any, Any, Any]) -> AutoresetMode:
        """Return the autoreset mode that a vector environment declares; refuse one that declares none."""
        mode = vector.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            came = "declares no autoreset mode" if mode is None else f"declares the autoreset mode {mode!r}"
            raise EnvContractError(f"{self._name} {came}; set metadata['autoreset_mode'] to one of {_MODES}")
        return mode

    @property
    def observation_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """The space of one environment, with the names that `GymMazeEnv` gives to its parts."""
        return {0: self._observation_conversion.space()}

    @property
    def action_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """The space of one environment, with the names that `GymMazeEnv` gives to its parts."""
        return {0: self._action_conversion.space()}

    def allocate(self, n_envs: int) -> None:
        """Make the vector environment."""
        super().allocate(n_envs)
        if n_envs > 1:
            self._vector.close()
            self._vector = self._made(n_envs)
        self._runs = np.zeros(n_envs, np.bool_)  # whether an episode was started and has not ended
        self._ended = np.zeros(n_envs, np.bool_)  # whether the episode in the vector environment has ended
        self._begun = np.zeros(n_envs, np.bool_)  # whether the last step started an episode
        self._first: _Tree = {}  # [N, ...] observations of the episodes that the last step started
        self._latest: _Tree = {}  # [N, ...] observations in the vector environment
        self.close_attributes(GymVectorArrayEnv)

    def use_masks(self, masks: Mapping[str, str]) -> None:
        """Keep environments that step along after their episodes within masks, action head -> observation."""
        self._idle_actions.masks = masks

    # ---------------------------------------------------------------------------------------------- reset

    def reset(self, which: Array, seeds: Array) -> ArrayStep:
        """Start an episode in some environments, or take over those that started themselves."""
        others = np.ones(self.n_envs, np.bool_)
        others[which] = False
        if not (self._runs & others).any():
            observation = self._reset_all(which, seeds)
        elif self._can_mask:
            observation = self._reset_some(which, seeds)
        elif self._begun[which].all():
            observation = self._first
        else:
            n = self.first_env_index + int(which[np.argmin(self._begun[which])])
            fault = f"{self._name} cannot start environment {n} while others run, as after the end of a time limit"
            limit = "use the environment's own max_episode_steps, not a time limit around it"
            mask = "make its reset take options={'reset_mask': ...} and pass reset_mask=True"
            raise EnvContractError(f"{fault}; {limit}, or {mask}")
        self._runs[which] = True
        self._begun[which] = False
        self._latest = observation
        return ArrayStep({0: observation})

    def _reset_all(self, which: Array, seeds: Array) -> _Tree:
        """Reset the whole vector environment."""
        seed: Any = int(seeds[0])
        if self.seeds_each:
            every = np.full(self.n_envs, seed)
            every[which] = seeds
            seed = every.tolist()
        self._ended[:] = self._begun[:] = False
        return self._parts(self._require_pair(reset_with(self._vector, seed)))

    def _reset_some(self, which: Array, seeds: Array) -> _Tree:
        """Reset some environments with a mask."""
        mask = np.zeros(self.n_envs, np.bool_)
        mask[which] = True
        seed = None
        if self.seeds_each:
            every = np.full(self.n_envs, None, object)
            every[which] = seeds.tolist()
            seed = every.tolist()
        self._ended[which] = False
        try:
            result = reset_with(self._vector, seed, options={"reset_mask": mask})
        except ValueError as error:
            if self._vector is self._vector.unwrapped:
                raise
            fault = f"{type(self._vector).__name__} around {self._name} cannot reset some environments ({error})"
            raise EnvContractError(f"{fault}; pass reset_mask=False, or leave the wrapper out") from error
        return self._parts(self._require_pair(result))

    def _require_pair(self, result: Any) -> Any:
        """Return the observation of a result of `reset`."""
        if not isinstance(result, tuple) or len(result) != 2:
            raise EnvContractError(f"reset of {self._name} returned {describe(result)}; expected (observation, infos)")
        return result[0]

    def _parts(self, observation: Any, role: str = "observations") -> _Tree:
        """Return the parts of observations, which have a role in messages, by name."""
        try:
            return {name: np.asarray(part) for name, part in self._observation_conversion.divided(observation).items()}
        except (IndexError, KeyError, TypeError, ValueError) as error:
            expected = f"expected observations of {self._vector.single_observation_space}"
            raise EnvContractError(f"{self._name} returned {role} {describe(observation)}; {expected}") from error

    # ----------------------------------------------------------------------------------------------- step

    def step(self, actions: Mapping[StepKey, Mapping[str, Any]], which: EnvIndex) -> ArrayStep:
        """Step the vector environment; environments whose episodes have ended step along."""
        acting = np.zeros(self.n_envs, np.bool_)
        acting[which] = True
        if (self._runs & ~acting).any():
            n = self._number_of(self._runs & ~acting)
            raise EnvContractError(f"{self._name} steps all environments, but environment {n} must not be stepped")
        idle = self._ended & ~acting
        if self._mode is AutoresetMode.DISABLED and idle.any():
            self._latest = self._parts(self._require_pair(self._vector.reset(options={"reset_mask": idle.copy()})))
            self._ended[idle] = False
        result = self._vector.step(self._joined(actions[0], acting))
        if not isinstance(result, tuple) or len(result) != 5:
            expected = "expected (observations, rewards, terminations, truncations, infos)"
            raise EnvContractError(f"step of {self._name} returned {describe(result)}; {expected}")
        observation, reward, terminated, truncated, infos = result
        parts = self._latest = self._parts(observation)
        ends = self._flags(terminated, "terminations") | self._flags(truncated, "truncations")
        self._begun[:] = False
        if self._mode is AutoresetMode.SAME_STEP:
            parts = self._with_finals(parts, infos, ends)
        elif isinstance(infos, Mapping) and "final_obs" in infos:
            declared = f"declares AutoresetMode.{self._mode.name}, but its step returned final_obs as in SAME_STEP"
            raise EnvContractError(f"{self._name} {declared}; declare the mode that it has")
        elif self._mode is AutoresetMode.NEXT_STEP and self._ended.any():
            self._check_restarts(np.asarray(reward), ends)
            self._begun[:] = self._ended
            self._first = parts
        self._ended[:] = ends & (self._mode is not AutoresetMode.SAME_STEP)
        self._runs &= ~ends
        return ArrayStep({0: parts}, reward=reward, terminated=terminated, truncated=truncated)

    def _joined(self, heads: Mapping[str, Any], acting: Array) -> Any:
        """Copy actions in the format of the vector environment, with allowed ones in idle environments."""
        copied = {head: np.array(values) for head, values in heads.items()}
        if not acting.all():
            self._idle_actions.put_into(copied, ~acting, self._latest)
        return self._action_conversion.joined(copied)

    def _flags(self, flags: Any, name: str) -> Array:
        """Require flags [N]."""
        array = np.asarray(flags)
        if array.shape != (self.n_envs,) or array.dtype != np.bool_:
            came = f"{name} of {self._name} is {describe(array)}"
            raise EnvContractError(f"{came}; expected booleans of shape ({self.n_envs},)")
        return array

    def _with_finals(self, parts: _Tree, infos: Mapping[str, Any], ends: Array) -> _Tree:
        """Keep the first observations of new episodes, and return the final ones in their place."""
        ended = np.flatnonzero(ends)
        if not len(ended):
            return parts
        if not isinstance(infos, Mapping):
            fault = f"step of {self._name} returned infos that are {describe(infos)}; expected a dict with final_obs"
            raise EnvContractError(f"{fault}: leave out wrappers such as DictInfoToList")
        finals = infos.get("final_obs")
        is_given = np.asarray(infos.get("_final_obs", np.full(self.n_envs, finals is not None)))
        if not is_given[ended].all():
            fault = f"environment {self._number_of(ends & ~is_given)} of {self._name} ended without final_obs"
            is_old = "final_observation" in infos
            remedy = "rename final_observation in infos" if is_old else "declare the mode that it has"
            raise EnvContractError(f"{fault}, which AutoresetMode.SAME_STEP requires; {remedy}")
        self._first = {name: array.copy() for name, array in parts.items()}
        self._begun[ended] = True
        if isinstance(finals, np.ndarray) and finals.dtype == object and finals.ndim == 1:
            final_parts = []
            for n, final in zip(ended.tolist(), finals[ended], strict=True):
                final_parts.append(self._parts(final, f"final_obs of environment {self.first_env_index + n}"))
            rows = {}
            for name in parts:
                rows[name] = np.stack([part[name] for part in final_parts])
        else:
            final_parts = [self._parts(finals, "final_obs")]
            rows = {name: array[ended] for name, array in final_parts[0].items()}
        self._refuse_views(final_parts, parts)
        merged = {name: array.copy() for name, array in parts.items()}
        for name, values in rows.items():
            merged[name][ended] = values
        return merged

    def _refuse_views(self, finals: Iterable[_Tree], observation: _Tree) -> None:
        """Refuse final observations in the memory of the next ones, which have overwritten them."""
        for final in finals:
            for name, array in final.items():
                if np.may_share_memory(array, observation[name]) and np.shares_memory(array, observation[name]):
                    fault = f"final_obs of {self._name} is a view of the observations that step returned"
                    lost = "the first observations of the next episodes have overwritten it"
                    raise EnvContractError(f"{fault}: {lost}; put a copy into infos before episodes start")

    def _check_restarts(self, reward: Array, ends: Array) -> None:
        """Require that environments which restarted did nothing else."""
        is_wrong = self._ended & (ends | (reward != 0))
        if is_wrong.any():
            n = int(is_wrong.argmax())
            ending = "an" if ends[n] else "no"
            fault = f"environment {self._number_of(is_wrong)} gave reward {reward[n]} and {ending} end of an episode"
            wanted = f"in the step in which AutoresetMode.NEXT_STEP of {self._name} requires a restart with reward 0"
            raise EnvContractError(f"{fault} {wanted}; declare the mode that it has")

    def _number_of(self, chosen: Array) -> int:
        """Return the number of the first chosen environment, for messages."""
        return self.first_env_index + int(chosen.argmax())

    # ---------------------------------------------------------------------------------------------- others

    def end_episodes(self, which: Array) -> Mapping[StatKey, StatColumn]:
        """Note that episodes have ended, some of them by a wrapper."""
        self._runs[which] = False
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return nothing, as a vector environment cannot be saved."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing; episodes start again with `reset`."""

    def maze_state(self, env: int) -> Any:
        """Return nothing, as vector environments do not tell their state."""
        return {}

    def close(self) -> None:
        """Close the vector environment; safe to call twice, and after processes of it have ended."""
        vector = self._vector.unwrapped
        if isinstance(vector, AsyncVectorEnv):
            end_if_silent(vector)
        self._vector.close()


def require_seeds(env: ArrayEnv, needed_by: str, all_episodes: bool = False) -> None:
    """Refuse a vector environment of gymnasium that does not give equal starts to environments with equal seeds.

    Args:
        env: The array environment with its wrappers.
        needed_by: What starts several environments with the same seed, for the message.
        all_episodes: Whether episodes that start while other environments run must have their own seeds, too.

    Raises:
        ValueError: The environment takes one seed for all, or episodes start without one.
    """
    vector = env.unwrapped
    if not isinstance(vector, GymVectorArrayEnv):
        return
    if vector.seeds_all_episodes or (vector.seeds_each and not all_episodes):
        return
    options = "reset_mask=True and seed_each=True" if all_episodes else "seed_each=True"
    what = "episode" if vector.seeds_each else "environment"
    fault = f"{needed_by} needs a seed for each {what}, which {vector._name} does not take"
    remedy = f"{_SEQUENTIAL}, the form for single episodes, an ArrayEnv, or {options} if its reset takes them"
    raise ValueError(f"{fault}; {remedy}")
