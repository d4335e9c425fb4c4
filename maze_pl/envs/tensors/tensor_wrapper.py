"""Base of wrappers of environments in tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import ArrayStep, EnvIndex
from maze_pl.envs.arrays.passed_on_declarations import PassedOnDeclarations
from maze_pl.envs.tensors.tensor_env import Outcome, TensorEnv, Tensors, tensor_type

NARROW_INTEGERS: Final = (torch.uint8, torch.int8, torch.int16, torch.int32)
"""Types that may be too narrow for the integers that an environment computes with."""


class TensorWrapper(PassedOnDeclarations, TensorEnv):
    """Environment in tensors around another one; forwards all that a subclass does not change.

    A subclass makes its tensors in `make_tensors` and changes them in place, as an environment
    does; they are saved with those of the environment. `observation` changes observations and
    leaves all tensors as they are, since it is also called for observations by which nothing is
    chosen; `learn` gets those that are acted upon. A subclass that changes rewards overrides `act`
    and returns `Outcome.with_reward`. One that gathers statistics defines `shared_state`,
    `load_shared_state` and `merge`.

    Where the innermost environment returns a reward that is not finite, or an observation that the
    type of its space cannot hold, flags say so, since wrappers may hide it: they are read with the
    statistics of the rollout.

    Args:
        env: The environment to wrap.

    Raises:
        TypeError: It is not an environment in tensors.

    Attributes:
        env: The wrapped environment.
        statistics_name: Name under which its statistics and tensors are saved; by default, its
            class path, numbered from the innermost if the class occurs several times.
        not_finite: Reward -> [N] bool, whether it was NaN or infinite.
        out_of_range: Observation -> [N] bool, whether the type of its space cannot hold it.
    """

    env: TensorEnv

    def __init__(self, env: TensorEnv) -> None:
        if not isinstance(env, TensorEnv):
            raise TypeError(f"{type(self).__name__} wraps environments in tensors; got {env!r}")
        super().__init__()
        self.env = env
        self.array_events, self.fired = env.array_events, env.fired
        self.heuristic_policy = env.heuristic_policy
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        number = 1 + sum(type(inner) is type(self) for inner in tensor_wrappers_of(env))
        self.statistics_name = path if number == 1 else f"{path} {number}"
        self.not_finite: dict[str, Tensor] = {}
        self.out_of_range: dict[str, Tensor] = {}
        self._types: dict[StepKey, dict[str, torch.dtype]] = {}  # of the observations inside

    # --------------------------------------------------------------------------------- to change

    def make_tensors(self, n_envs: int) -> None:
        """Make the tensors of this wrapper on `device`; none by default."""

    def observation(self, step_key: StepKey, observation: Tensors) -> Tensors:
        """Return changed observations of the actors of a sub-step; the same ones by default.

        Args:
            step_key: The sub-step.
            observation: Name -> [N, ...], in the types of the spaces.
        """
        return observation

    def learn(self, step_key: StepKey, observation: Tensors) -> None:
        """Take note of observations that are acted upon, as `observation` gets them."""

    def shared_state(self) -> dict[str, Any]:
        """Return the statistics at the last merge, and those gathered since; none by default.

        They have the form of `Wrapper.shared_state`, with tensors in place of arrays and numbers.
        """
        return {}

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Take over statistics in place, in the form of `shared_state` here or of `Wrapper`."""

    def merge(self) -> None:
        """Add what was gathered since the last merge to the statistics, in place."""

    # ---------------------------------------------------------------------------- passing on

    def kpi_tensors(self) -> Tensors:
        """Return the KPIs of the running episodes."""
        return self.env.kpi_tensors()

    def limit_steps(self, max_episode_steps: int) -> None:
        """Lower the time limit of the environment."""
        self.env.limit_steps(max_episode_steps)

    def note_given_arrays(self) -> None:
        """Leave the tensors that exist now out of the state, also those of the environment."""
        super().note_given_arrays()
        self.env.note_given_arrays()

    def options(self) -> list[str]:
        """Return the names of the tensors that are options, as in `tensors`."""
        own = [f"{self.statistics_name} {name}" for name in super().options()]
        return [*self.env.options(), *own]

    def allocate(self, n_envs: int) -> None:
        """Make the tensors of the environment, and those of this wrapper."""
        self.env.device = self.device
        self.env.allocate(n_envs)
        for key, space in self.env.observation_spaces_dict.items():
            self._types[key] = {name: tensor_type(part) for name, part in space.spaces.items()}
        super().allocate(n_envs)
        self.n_steps, self.max_episode_steps = self.env.n_steps, self.env.max_episode_steps
        if not isinstance(self.env, TensorWrapper):
            self._make_flags()

    def _make_flags(self) -> None:
        """Make the flags of what the innermost environment returns."""
        for key, types in self._types.items():
            self.not_finite[f"reward of sub-step {key!r}"] = self._no_flags()
            for name, dtype in types.items():
                if dtype in NARROW_INTEGERS:
                    self.out_of_range[name_of_observation(key, name)] = self._no_flags()

    def _no_flags(self) -> Tensor:
        return torch.zeros(self.n_envs, dtype=torch.bool, device=self.device)

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        """Start an episode in some environments."""
        self.env.begin(which, seeds)

    def observe(self, step_key: StepKey) -> Tensors:
        """Return the changed observations of the actors of a sub-step."""
        return self.observation(step_key, self.inner_observation(step_key))

    def inner_observation(self, step_key: StepKey) -> dict[str, Tensor]:
        """Return observations before this wrapper changes them, in the types of their spaces."""
        return self._converted(step_key, self.env.observe(step_key))

    def observe_to_act(self, step_key: StepKey) -> Tensors:
        """Return the changed observations by which the next act is chosen."""
        observation = self._converted(step_key, self.env.observe_to_act(step_key))
        changed = self.observation(step_key, observation)
        self.learn(step_key, observation)
        return changed

    def act(self, step_key: StepKey, action: Tensors) -> Outcome:
        """Perform an act of a sub-step in all environments."""
        outcome = self.env.act(step_key, action)
        if self.not_finite:
            flags = self.not_finite[f"reward of sub-step {step_key!r}"]
            flags.logical_or_(~outcome.reward.isfinite())
        return outcome

    def _converted(self, step_key: StepKey, given: Tensors) -> dict[str, Tensor]:
        """Return observations in the types of their spaces; note where these cannot hold them."""
        converted = {name: given[name].to(dtype) for name, dtype in self._types[step_key].items()}
        for name, values in converted.items():
            flags = self.out_of_range.get(name_of_observation(step_key, name))
            if flags is not None:
                flag_changes(flags, given[name], values)
        return converted

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        """Refuse to be stepped in arrays.

        Raises:
            TypeError: Always.
        """
        raise self._only_on_device()

    def step(self, actions: Mapping[StepKey, Mapping[str, Any]], which: EnvIndex) -> ArrayStep:
        """Refuse to be stepped in arrays.

        Raises:
            TypeError: Always.
        """
        raise self._only_on_device()

    def _only_on_device(self) -> TypeError:
        reason = f"{type(self).__name__} is stepped in tensors only, by training on their device"
        remedy = "put the wrapper for single episodes in wrappers of the data module"
        return TypeError(f"{reason}: {remedy}")

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the environment, and those of this wrapper after its name."""
        tensors = self.env.tensors()
        for name, tensor in self.own_tensors().items():
            tensors[f"{self.statistics_name} {name}"] = tensor
        return tensors

    def own_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of this wrapper."""
        own = super().own_tensors()
        return {name: tensor for name, tensor in own.items() if tensor is not self.n_steps}

    @property
    def unwrapped(self) -> ArrayEnv:
        """The innermost environment, without wrappers."""
        return self.env.unwrapped

    def close(self) -> None:
        """Release resources; safe to call twice."""
        self.env.close()


def tensor_wrappers_of(env: TensorEnv) -> Iterator[TensorWrapper]:
    """Yield the wrappers around an environment in tensors, from the outermost inwards."""
    while isinstance(env, TensorWrapper):
        yield env
        env = env.env


def faults_within(env: TensorEnv) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return `not_finite` and `out_of_range` of the innermost wrapper; none without wrappers."""
    for wrapper in tensor_wrappers_of(env):
        if wrapper.not_finite:
            return wrapper.not_finite, wrapper.out_of_range
    return {}, {}


def name_of_observation(step_key: StepKey, name: str) -> str:
    """Return the name of an observation in messages."""
    return f"observation {name!r} of sub-step {step_key!r}"


def of_each_env(flags: Tensor, values: Tensor) -> Tensor:
    """Return flags [N] in a shape that is broadcast against values [N, ...]."""
    return flags.view(-1, *[1] * (values.dim() - 1))


def flag_changes(flags: Tensor, given: Tensor, converted: Tensor) -> None:
    """Raise flags where conversion to another type has changed a value.

    Args:
        flags: [N] bool.
        given: [N, ...] the values.
        converted: [N, ...] the same in another type.
    """
    if given.dtype != converted.dtype:
        flags.logical_or_((given != converted).unsqueeze(-1).flatten(1).any(1))
