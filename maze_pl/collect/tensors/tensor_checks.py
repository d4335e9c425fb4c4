"""Checks of what an environment in tensors returns and changes, in the first rollout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.envs.arrays.nested_arrays import VALUES, attributes_of, parts_of
from maze_pl.envs.arrays.nested_numbers import changed_nested_numbers, nested_numbers
from maze_pl.envs.arrays.unsaved_state import changed_numbers, plain_numbers
from maze_pl.envs.contract import EnvContractError, describe
from maze_pl.envs.tensors.tensor_env import Outcome, TensorEnv, tensor_type
from maze_pl.envs.tensors.tensor_wrapper import TensorWrapper
from maze_pl.events.topics import StatisticsError

_REMEDY: Final = "change it in place, by copy_"
_CHANGES_OF_COUNT: Final = 2  # of `n_steps` in an environment step: it is raised, and set to 0 in episodes that begin


class TensorChecks:
    """Checks of a `TensorEnv` that read no values, so that they do not wait for the device.

    Args:
        env: The environment, just allocated.
        spec: Observation and action spaces of the agents.
    """

    def __init__(self, env: TensorEnv, spec: Spec) -> None:
        self._env = env
        self._spec = spec
        self._name = type(env).__name__
        self._tensors = {name: (tensor, tensor.data_ptr()) for name, tensor in env.tensors().items()}
        self._of_helpers = self._find_in_helpers()
        options = self._tensors.keys() & env.options()
        self._options = {name: _n_changes(self._tensors[name][0]) for name in sorted(options)}
        self._n_steps_changes = 0  # of `n_steps`, at the latest observation
        self._n_steps_changes_before = 0  # at the latest check of attributes
        # the reward of the environment in the latest act, and how often it was changed by then
        self._env_reward: tuple[Tensor, int] | None = None
        self._numbers = plain_numbers(env)
        self._nested_numbers = nested_numbers(attributes_of(env))
        self._inner = TensorChecks(env.env, Spec.of(env.env)) if isinstance(env, TensorWrapper) else None

    @contextmanager
    def within(self) -> Iterator[None]:
        """Check also what is returned inside of wrappers, while the context lasts."""
        env = self._env
        if self._inner is None or not isinstance(env, TensorWrapper):
            yield
            return
        inner = env.env
        env.env = cast(TensorEnv, _Checked(inner, self._inner))
        try:
            with self._inner.within():
                yield
        finally:
            env.env = inner

    # ----------------------------------------------------------------------------------------- tensors

    def check_attributes(self, n_steps: int = 0, since: str = "in begin, observe or act") -> None:
        """Check that tensors are those of `make_tensors`; others, and numbers, must stay as they are.

        Args:
            n_steps: Environment steps since the latest check.
            since: The time since the latest check, for messages.

        Raises:
            EnvContractError: One was replaced, removed, or made later, or one that the constructor
                made was changed, or a number of Python or NumPy, or `n_steps`.
        """
        if self._inner is not None:
            self._inner.check_attributes(n_steps, since)
        tensors = self._env.tensors()
        for name, tensor in tensors.items():
            if name not in self._tensors:
                came = f"{self._name} made its tensor {name!r} {since}"
                raise EnvContractError(f"{came}: make it in make_tensors, and {_REMEDY}")
            first, address = self._tensors[name]
            if tensor is not first or tensor.data_ptr() != address:
                came = f"{self._name} replaced its tensor {name!r} {since}"
                raise EnvContractError(f"{came}: {_REMEDY}")
        for name in self._tensors:
            if name not in tensors:
                came = f"{self._name} removed its tensor {name!r} {since}"
                raise EnvContractError(f"{came}: keep it, and {_REMEDY}")

        for name, earlier in self._options.items():
            if _n_changes(tensors[name]) != earlier:
                came = f"{self._name} changes its tensor {name!r}, which its constructor made"
                remedy = "make it in make_tensors"
                raise EnvContractError(f"{came}, so that checkpoints do not hold it: {remedy}")
        self._check_counts(n_steps)
        for name in changed_numbers(self._numbers, plain_numbers(self._env)):
            raise self._number_changed(f"its number {name!r} {since}")

    def _check_counts(self, n_steps: int) -> None:
        """Check that the environment did not change `n_steps` in some steps since the latest check."""
        n_changes = _n_changes(self._env.n_steps)
        if n_steps and n_changes - self._n_steps_changes_before != n_steps * _CHANGES_OF_COUNT:
            came = f"begin or observe of {self._name} changes n_steps, in which its steps are counted already"
            raise EnvContractError(f"{came}: count in another tensor")
        self._n_steps_changes_before = n_changes

    def _number_changed(self, what: str) -> EnvContractError:
        """Return the error for a number that has changed."""
        came = f"{self._name} changes {what}"
        why = "which checkpoints do not hold and graphs do not change"
        return EnvContractError(f"{came}, {why}: make it a tensor in make_tensors, and change it in place")

    def check_helpers(self) -> None:
        """Check that tensors in other objects, and numbers in containers and objects, do not change.

        Raises:
            EnvContractError: One was changed or replaced since it was first seen, and is not saved.
        """
        if self._inner is not None:
            self._inner.check_helpers()
        found = self._find_in_helpers()
        for name in self._of_helpers.keys() & found.keys():
            tensor, n_changes = found[name]
            first, earlier = self._of_helpers[name]
            if tensor is not first or n_changes != earlier:
                came = f"{self._name} changes the tensor {name!r}, which is not saved in checkpoints"
                container = "a list, tuple, dict or deque that is one"
                expected = f"make it an attribute of the environment, or keep it in {container}"
                raise EnvContractError(f"{came}: {expected}")
        self._of_helpers = found
        numbers = nested_numbers(attributes_of(self._env))
        for name in changed_nested_numbers(self._nested_numbers, numbers):
            raise self._number_changed(f"a number or text in {name!r} in begin, observe or act")
        self._nested_numbers = numbers  # with those that did not exist before

    def _find_in_helpers(self) -> dict[str, tuple[Tensor, int]]:
        """Return tensors in objects that are attributes, and how often each was changed, by name."""
        own = {id(tensor) for tensor in self._env.tensors().values()}
        found = {}
        for name, tensor in _tensors_below(self._env):
            if id(tensor) not in own:
                found[name] = (tensor, _n_changes(tensor))
        return found

    # ----------------------------------------------------------------------------------------- results

    def check_observation(self, key: StepKey, observation: Any) -> None:
        """Check the observations of a sub-step.

        Raises:
            EnvContractError: One is missing or not declared, or has another shape, or a type that cannot be
                converted.
        """
        self._n_steps_changes = _n_changes(self._env.n_steps)
        expected = self._spec.steps[key].observation_space.spaces
        where = f"sub-step {key!r} of {self._name}"
        if not isinstance(observation, Mapping) or observation.keys() != expected.keys():
            came = str(sorted(observation)) if isinstance(observation, Mapping) else describe(observation)
            raise EnvContractError(f"the observations of {where} are {came}; expected {sorted(expected)} by name")
        for name, space in expected.items():
            what, shape = f"observation {name!r} of {where}", tuple(space.shape or ())
            self._require(observation[name], what, shape, tensor_type(space))

    def check_outcome(self, key: StepKey, outcome: Any) -> None:
        """Check the result of an act.

        Raises:
            EnvContractError: It is not an `Outcome`, one of its tensors has another shape or type, or
                `n_steps` has changed since `check_observation`.
        """
        if _n_changes(self._env.n_steps) != self._n_steps_changes:
            came = f"act of {self._name} changes n_steps, in which its steps are counted already"
            raise EnvContractError(f"{came}: count in another tensor")
        where = f"sub-step {key!r} of {self._name}"
        if not isinstance(outcome, Outcome):
            raise EnvContractError(f"act in {where} returned {describe(outcome)}; expected an Outcome")
        reward, terminated = outcome.reward, outcome.terminated
        self._require(reward, f"the reward of {where}", (), torch.float64)
        if terminated is not None:
            self._require(terminated, f"terminated of {where}", (), torch.bool)
        self._check_env_reward(outcome, where)

    def _check_env_reward(self, outcome: Outcome, where: str) -> None:
        """Check that a wrapper that changes the reward keeps that of the environment."""
        env_reward = outcome.reward if outcome.env_reward is None else outcome.env_reward
        if self._inner is not None and self._inner._env_reward is not None:
            given, n_changes = self._inner._env_reward
            self._inner._env_reward = None
            if env_reward is not given or _n_changes(given) != n_changes:
                came = f"act in {where} changes the reward, and statistics lack that of the environment"
                remedy = "return outcome.with_reward(changed), with the outcome of super().act"
                raise EnvContractError(f"{came}: {remedy}")
        self._env_reward = env_reward, _n_changes(env_reward)

    def check_observing(self, key: StepKey) -> None:
        """Check that `observation` of wrappers, which also gets final ones, changes no tensor.

        Args:
            key: The sub-step that all environments are at.

        Raises:
            EnvContractError: It changes one in place.
        """
        env = self._env
        if self._inner is None or not isinstance(env, TensorWrapper):
            return
        self._inner.check_observing(key)
        observation = env.inner_observation(key)
        tensors = env.tensors()
        before = {name: _n_changes(tensor) for name, tensor in tensors.items()}
        env.observation(key, observation)
        for name, tensor in tensors.items():
            if _n_changes(tensor) != before[name]:
                came = f"observation of {self._name} changes the tensor {name!r}"
                why = "it also gets observations by which nothing is chosen"
                raise EnvContractError(f"{came}, but {why}: use learn")

    def check_kpis(self, kpis: Any) -> None:
        """Check the KPIs of the running episodes.

        Raises:
            StatisticsError: One is not declared, or a declared one is missing.
            EnvContractError: One has another shape or type.
        """
        declared = self._env.kpi_names
        if not isinstance(kpis, Mapping):
            raise EnvContractError(f"kpi_tensors of {self._name} returned {describe(kpis)}; expected tensors by name")
        for name, values in kpis.items():
            if name not in declared:
                remedy = f"add it to kpi_names, which has {declared}"
                raise StatisticsError(f"{self._name} computes the KPI {name!r}: {remedy}")
            self._require(values, f"KPI {name!r} of {self._name}", (), torch.float64)
        missing = [name for name in declared if name not in kpis]
        if missing:
            fault = f"{self._name} declares the KPIs {missing} in kpi_names, but kpi_tensors does not compute them"
            raise StatisticsError(f"{fault}: return a tensor [N] for each, NaN for no value")

    def _require(self, value: Any, what: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        """Require a tensor [N, *shape] on the device that can be converted to a type."""
        shape = (self._env.n_envs, *shape)
        device = self._env.device.type
        is_fitting = isinstance(value, Tensor) and tuple(value.shape) == shape and value.device.type == device
        if not is_fitting or not _can_convert(value.dtype, dtype):
            came = describe(value)
            if isinstance(value, Tensor):
                came = f"a tensor of shape {tuple(value.shape)} and type {value.dtype} on {value.device.type}"
            can_convert = isinstance(value, Tensor) and _can_convert(value.dtype, dtype)
            expected_type = "" if can_convert else f" and type {dtype}"
            expected = f"expected a tensor of shape {shape}{expected_type} on {device}"
            raise EnvContractError(f"{what} is {came}; {expected}, with the environments on its first axis")


class _Checked:
    """An environment whose results are checked before the wrapper around it gets them.

    Args:
        env: The environment.
        checks: Its checks.
    """

    def __init__(self, env: TensorEnv, checks: TensorChecks) -> None:
        self._env, self._checks = env, checks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def observe_to_act(self, step_key: StepKey) -> Any:
        """Return the observations, if they are valid."""
        observation = self._env.observe_to_act(step_key)
        self._checks.check_observation(step_key, observation)
        return observation

    def act(self, step_key: StepKey, action: Mapping[str, Tensor]) -> Any:
        """Return the results of an act, if they are valid."""
        outcome = self._env.act(step_key, action)
        self._checks.check_outcome(step_key, outcome)
        return outcome


def _can_convert(came: torch.dtype, dtype: torch.dtype) -> bool:
    """True if values of a type can be converted to another one, as with `same_kind` of NumPy."""
    loses_sign = came.is_signed and not dtype.is_signed and dtype != torch.bool
    return torch.can_cast(came, dtype) and not loses_sign


def _n_changes(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place; 0 for one that does not count it."""
    return 0 if tensor.is_inference() else tensor._version


def _tensors_below(env: TensorEnv) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in all objects that are reached from an environment's attributes, with their names."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", env)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Tensor):
            yield name, value
        elif id(value) not in seen:
            seen.add(id(value))
            prefix = f"{name}." if name else ""
            parts = parts_of(value).items()
            waiting.extend((f"{prefix}{part}", child) for part, child in parts if not isinstance(child, VALUES))
