"""Contract of environments that keep the state of many episodes in torch tensors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_events import ArrayEvent, ArrayEvents
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep, EnvIndex
from maze_pl.envs.arrays.nested_arrays import attributes_of
from maze_pl.envs.contract import EnvContractError

Tensors = Mapping[str, Tensor]
Topic = TypeVar("Topic")


class Outcome(NamedTuple):
    """Results of an act of all environments.

    Attributes:
        reward: [N] reward of the act.
        terminated: [N] bool, whether the simulation ended the episode; None if it did in no
            environment. Only the last act of an environment step may end episodes; flags of another
            one are refused.
        env_reward: [N] reward as the environment gave it, for statistics; None if no wrapper changed it.
    """

    reward: Tensor
    terminated: Tensor | None = None
    env_reward: Tensor | None = None

    def with_reward(self, reward: Tensor) -> Outcome:
        """Return the outcome with a changed reward [N]."""
        env_reward = self.reward if self.env_reward is None else self.env_reward
        return self._replace(reward=reward, env_reward=env_reward)


class TensorEnv(ArrayEnv):
    """N episodes of one problem in torch tensors, which a device steps without waiting for the host.

    In training with `RolloutDataModule`, the policy, the environment and the storage of rollouts
    stay on the device of the algorithm. Everywhere else it is an `ArrayEnv` like any other. An
    environment step consists of one act of each sub-step, in the order of the spaces, so that all
    environments are at the same sub-step.

    A subclass implements the two spaces, `make_tensors`, `begin`, `observe` and `act`. These
    compute all N environments by the same operations: branches are `torch.where`, nothing depends
    on values of tensors in Python, and tensors that are attributes are changed in place, so that
    the operations can be recorded as a graph of the device. Tensors may also lie in lists, tuples
    and dicts that are attributes. All are made in `make_tensors`. All random numbers follow from
    the seeds of the episodes; see `tensor_streams`.

    Args:
        max_episode_steps: Environment steps after which an episode is truncated; None for no limit.

    Attributes:
        device: Device of the tensors; set before `allocate`.
        fired: Events since they were last drained, in all environments; see `create_event_topic`.
        n_steps: [N] int64, environment steps that are complete in the running episodes.

    Raises:
        ValueError: The limit is below 1.

    Example:
        >>> from maze_pl.envs.tensors import CartPoleTensorEnv
        >>> env = CartPoleTensorEnv()
        >>> env.allocate(3)
        >>> env.begin(torch.ones(3, dtype=torch.bool), seeds=torch.tensor([5, 6, 7]))
        >>> env.act(0, {"action": torch.tensor([0, 1, 1])}).reward.tolist()
        [1.0, 1.0, 1.0]
    """

    n_steps: Tensor

    def __init__(self, max_episode_steps: int | None = None) -> None:
        super().__init__()
        if max_episode_steps is not None and max_episode_steps < 1:
            raise ValueError(f"max_episode_steps={max_episode_steps} must be at least 1")
        self.max_episode_steps = max_episode_steps
        self.device = torch.device("cpu")
        self.fired = ArrayEvents()

    def limit_steps(self, max_episode_steps: int) -> None:
        """Lower the time limit, if it is higher; call it before `allocate`.

        Args:
            max_episode_steps: Environment steps after which an episode is truncated.
        """
        self.max_episode_steps = min(max_episode_steps, self.max_episode_steps or max_episode_steps)

    # --------------------------------------------------------------------------------- to implement

    @abstractmethod
    def make_tensors(self, n_envs: int) -> None:
        """Make the tensors of the state on `device`, with the environments on their first axis.

        They are attributes, or lie in lists, tuples or dicts that are attributes. Tensors in other
        objects are not saved; they must never change.
        """

    @abstractmethod
    def begin(self, which: Tensor, seeds: Tensor) -> None:
        """Start an episode in some environments; the others stay as they are.

        `n_steps` is 0 already where an episode starts.

        Args:
            which: [N] bool, the environments.
            seeds: [N] int64, seeds of the episodes.
        """

    @abstractmethod
    def observe(self, step_key: StepKey) -> Tensors:
        """Return the observations of the actors of a sub-step, name -> [N, ...], with masks.

        They are copied before the next act.
        """

    @abstractmethod
    def act(self, step_key: StepKey, action: Tensors) -> Outcome:
        """Perform an act of a sub-step in all environments.

        Args:
            step_key: The sub-step.
            action: Head -> [N, ...]; bounded actions lie within their bounds.
        """

    def observe_to_act(self, step_key: StepKey) -> Tensors:
        """Return the observations by which the next act is chosen; called once for each act.

        Args:
            step_key: The sub-step.
        """
        return self.observe(step_key)

    def kpi_tensors(self) -> Tensors:
        """Return the KPIs of the running episodes as if they ended now, name -> [N]; none by default."""
        return {}

    def create_event_topic(self, topic: type[Topic]) -> Topic:
        """Return an object that fires the events of a topic, for `begin` and `act`.

        Its methods are those of the topic, with [N] bool as an additional first argument: whether
        the event happens in each environment. Values are tensors [N, ...], or single values that
        count for all. The same events are fired in each act of a sub-step and in each start, in the
        same order, since nothing may depend on values of tensors. Events of a start count in the first step.

        Args:
            topic: The topic class.
        """
        self.array_events.create_event_topic(topic)
        return self.fired.create_event_topic(topic)

    # -------------------------------------------------------------------------------- an array environment

    @property
    def kpi_names(self) -> tuple[str, ...]:
        """Names of the KPIs; override it together with `kpi_tensors`."""
        return ()

    def allocate(self, n_envs: int) -> None:
        """Make the tensors.

        Raises:
            EnvContractError: A sub-step has several agents, or entries of a tensor share memory.
        """
        for key, n_agents in self.agent_counts_dict.items():
            if n_agents != 1:
                came = f"agent_counts_dict of {type(self).__name__} has {n_agents} agents for sub-step {key!r}"
                expected = "an environment in tensors has one agent in each sub-step"
                raise EnvContractError(f"{came}; {expected}: give each agent its own sub-step, or use an ArrayEnv")
        super().allocate(n_envs)
        self.n_steps = torch.zeros(n_envs, dtype=torch.int64, device=self.device)
        self._next_key = np.zeros(n_envs, np.int64)
        self.make_tensors(n_envs)
        own = self.own_tensors()
        for name, given in self._given_arrays.items():
            if name in own and _is_moved(given, own[name]):
                self._given_arrays[name] = own[name]
        for name, tensor in self.state_tensors().items():
            if _shares_entries(tensor):
                came = f"entries of the tensor {name!r} of {type(self).__name__} share memory"
                remedy = "add .clone() in make_tensors, as after expand"
                raise EnvContractError(f"{came}, so that it cannot be changed in place: {remedy}")

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        """Start an episode in some environments; see `ArrayEnv.reset`."""
        mask = np.zeros(self.n_envs, np.bool_)
        mask[which] = True
        every = np.zeros(self.n_envs, np.int64)
        every[which] = seeds
        chosen = torch.from_numpy(mask).to(self.device)
        self.n_steps.masked_fill_(chosen, 0)
        self.begin(chosen, torch.from_numpy(every).to(self.device))
        self._hand_on_events(chosen)
        self._next_key[which] = 0
        return self._result()

    def step(self, actions: Mapping[StepKey, Mapping[str, Any]], which: EnvIndex) -> ArrayStep:
        """Perform one act in some environments; see `ArrayEnv.step`."""
        acting = np.zeros(self.n_envs, np.bool_)
        acting[which] = True
        keys = list(self.observation_spaces_dict)
        result = ArrayStep({}, reward=torch.zeros(self.n_envs, dtype=torch.float64, device=self.device))
        result.terminated = torch.zeros(self.n_envs, dtype=torch.bool, device=self.device)
        is_last = self._next_key == len(keys) - 1
        for place, key in enumerate(keys):
            chosen = acting & (self._next_key == place)
            if chosen.any():
                heads = {head: torch.as_tensor(values).to(self.device) for head, values in actions[key].items()}
                self._act_of_some(key, heads, torch.from_numpy(chosen).to(self.device), result)
        completing = torch.from_numpy(acting & is_last).to(self.device)
        self.n_steps += completing
        self._next_key[acting] = np.where(is_last, 0, self._next_key + 1)[acting]
        if self.max_episode_steps is not None:
            result.truncated = completing & (self.n_steps >= self.max_episode_steps) & ~result.terminated
        own = self._result()
        result.observation, result.env_time, result.next_key = own.observation, own.env_time, own.next_key
        return result

    def _act_of_some(self, key: StepKey, heads: Tensors, chosen: Tensor, result: ArrayStep) -> None:
        """Perform an act in some environments, all of which are at this sub-step, and note its results."""
        before = {name: tensor.clone() for name, tensor in self.tensors().items()}
        outcome = self.act(key, heads)
        self._hand_on_events(chosen)
        for name, tensor in self.tensors().items():
            if tensor.shape[:1] == (self.n_envs,):
                of_env = chosen.view(-1, *[1] * (tensor.dim() - 1))
                tensor.copy_(torch.where(of_env, tensor, before[name]))
        result.reward = torch.where(chosen, outcome.reward.double(), result.reward)
        if outcome.terminated is not None:
            terminated = outcome.terminated & chosen
            if key != list(self.observation_spaces_dict)[-1]:
                refuse_early_ends(terminated, type(self).__name__, key, self.first_env_index)
            result.terminated |= terminated

    def _hand_on_events(self, chosen: Tensor) -> None:
        """Fire the events of some environments as those of an array environment."""
        for event in self.fired.drain():
            which = (event.which & chosen).nonzero().flatten()
            attributes = {name: values_of(value, which) for name, value in event.attributes.items()}
            if len(which):
                self.array_events.fire(ArrayEvent(event.declaration, which.cpu().numpy(), attributes))

    def _result(self) -> ArrayStep:
        """Return the next actors with their observations."""
        keys = list(self.observation_spaces_dict)
        present = [keys[place] for place in np.unique(self._next_key)]
        observation = {key: self.observe(key) for key in present}
        if len(keys) == 1:
            return ArrayStep(observation)
        return ArrayStep(observation, env_time=self.n_steps, next_key=self._next_key)

    def kpis(self, which: Any) -> Mapping[str, Any]:
        """Return the KPIs of episodes that have just ended; see `ArrayEnv.kpis`."""
        return {name: values.double().cpu().numpy()[which] for name, values in self.kpi_tensors().items()}

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors that are attributes of this object, by name, and those in its lists, tuples and dicts.

        The names of the latter have dots, such as `levels.0` for the first entry of a list `levels`.
        """
        return self.own_tensors()

    def own_tensors(self) -> dict[str, Tensor]:
        """Return the same, without the tensors of an environment inside of this one."""
        return dict(named_tensors(attributes_of(self)))

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of `tensors` that may change: without options, wherever these lie."""
        tensors = self.tensors()
        options = {id(tensors[name]) for name in self.options() if name in tensors}
        return {name: tensor for name, tensor in tensors.items() if id(tensor) not in options}


def named_tensors(values: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors among some values and in their lists, tuples and dicts, with their names.

    Args:
        values: Values by name, index or key.
        prefix: Beginning of the names.
    """
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, dict):
            yield from named_tensors(value, f"{name}.")
        elif isinstance(value, list | tuple):
            yield from named_tensors(dict(enumerate(value)), f"{name}.")


def _is_moved(given: AnyArray, current: Tensor) -> bool:
    """True if a tensor is another one on another device, as far as shapes and types tell."""
    if not isinstance(given, Tensor) or given.device == current.device:
        return False
    return given.shape == current.shape and given.dtype == current.dtype


def _shares_entries(tensor: Tensor) -> bool:
    """True if several entries of a tensor are one number in memory."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return any(size > 1 and stride == 0 for size, stride in sizes)


def tensor_type(space: spaces.Space[Any]) -> torch.dtype:
    """Return the type of the tensors of an observation."""
    return torch.from_numpy(np.zeros(0, space.dtype)).dtype


def refuse_early_ends(terminated: Tensor, name: str, key: StepKey, first_env_index: int) -> None:
    """Raise an error if a sub-step other than the last one ended episodes.

    Args:
        terminated: [N] bool, whether the act of the sub-step ended the episode.
        name: Name of the environment.
        key: The sub-step.
        first_env_index: Number of the first environment, for the message.

    Raises:
        EnvContractError: It did in some environment.
    """
    ended = terminated.nonzero().flatten()
    if len(ended):
        came = f"sub-step {key!r} of {name} ended the episode of environment {first_env_index + int(ended[0])}"
        rule = "only the last sub-step of an environment step may end episodes"
        raise EnvContractError(f"{came}; {rule}: keep the flag in a tensor, and return it there")


def values_of(value: Any, which: tuple[Tensor, ...] | Tensor) -> Any:
    """Return the values of an attribute in some places, in an array; a single value stays as it is.

    Args:
        value: [N, ...] a tensor, or a single value.
        which: Index of the places.
    """
    if not isinstance(value, Tensor):
        return value
    return value[which].cpu().numpy() if value.dim() else value.item()
