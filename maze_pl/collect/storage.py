"""Preallocated arrays that a collector writes a rollout into, who holds which of their slots, and what may be in them.

Observations and rewards that are not numbers, and empty masks, are refused: no algorithm could learn from them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from lightning_utilities.core.apply_func import apply_to_collection

from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array, Policy, PolicyBatch, PolicyStep
from maze_pl.core.rollout import RowsOf, SegmentOf
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.vector.vector_env import Staging, allocate_tree


def tensors(arrays: Any, n_rows: int | None = None) -> Any:
    """Tensors on the first rows of the arrays in nested dicts, on all of them if None."""
    return mapped(lambda array: torch.from_numpy(array[:n_rows]), arrays)


class SegmentArrays(SegmentOf[Array]):
    """Arrays behind `Segment`, [capacity, N * n_slots].

    Args:
        step: The sub-step whose acts these are.
        capacity: Rows to begin with.
        n_envs: Number of environments.
    """

    actor_reward: Array

    def __init__(self, step: StepSpec, capacity: int, n_envs: int) -> None:
        shape = capacity, n_envs * step.n_slots
        seen, done = (allocate_tree(space, shape) for space in (step.observation_space, step.action_space))
        others: list[Any] = [np.zeros(shape, kind) for kind in "?qqd??d"]  # flags, integers, numbers
        super().__init__(seen, done, *others)

    def remember(self, index: Any, state: Mapping[str, Array] | None) -> None:
        """Write the policy's state before acts, if it has one.

        Args:
            index: Row, or rows and columns of the acts.
            state: Name -> [n, ...].
        """
        for name, values in (state or {}).items():
            if name not in self.state:
                self.state[name] = np.zeros((*self.active.shape, *values.shape[1:]), values.dtype)
            self.state[name][index] = values

    def blank(self, n_rows: int) -> None:
        """Overwrite what earlier rollouts left where no act was made in the first rows."""
        nothing = ~self.active[:n_rows]
        trees = [*self.observation.values(), *self.action.values(), *self.state.values()]
        for array in (*trees, self.position, self.agent_id):
            array[:n_rows][nothing] = 0


class RolloutStorage:
    """Arrays for rollouts of N environments, of which there can be more when an environment needs more rows.

    In a flat environment the acts are the rows, so that the segment's reward and the mask of its acts are those of
    the rows.

    Args:
        spec: What agents see and do.
        n_envs: Number of environments.
        capacity: Rows to begin with.
    """

    def __init__(self, spec: Spec, n_envs: int, capacity: int) -> None:
        self.spec, self.n_envs, self.capacity = spec, n_envs, capacity
        self.rows: RowsOf[Array] = RowsOf(*(np.zeros((capacity, n_envs), kind) for kind in "?d??qqqqq"))
        self.segments = {key: SegmentArrays(step, capacity, n_envs) for key, step in spec.steps.items()}
        self._share()

    def _share(self) -> None:
        for segment in self.segments.values() if self.spec.is_flat else ():
            segment.reward, segment.active = self.rows.reward, self.rows.filled

    def clear(self) -> None:
        """Forget which rows and acts exist."""
        rows = self.rows
        for array in (rows.filled, rows.terminated, rows.truncated, rows.env_steps, rows.reward):
            array.fill(0)
        for array in (rows.first_key, rows.next_key):
            array.fill(-1)
        for part in self.segments.values():
            for array in (part.active, part.reward, part.actor_reward, part.is_first, part.actor_done):
                array.fill(0)

    def complete_flat(self, n_rows: int, is_first: Array, agent_id: Array) -> Array:
        """Write into rows of flat environments what follows from where episodes ended.

        Args:
            n_rows: Rows of each environment, T.
            is_first: [N] whether the first row begins an episode.
            agent_id: [N] who acts.

        Returns:
            [T, N] whether an episode ended.
        """
        rows, (segment,) = self.rows, self.segments.values()
        ends: Array = rows.terminated[:n_rows] | rows.truncated[:n_rows]
        rows.filled[:n_rows] = True
        rows.first_key[:n_rows] = 0
        rows.next_key[:n_rows] = rows.next_slot[:n_rows] = np.where(ends, -1, 0)
        segment.is_first[0] = is_first
        segment.is_first[1:n_rows] = ends[:-1]
        segment.agent_id[:n_rows] = agent_id
        return ends

    def grow(self) -> None:
        """Make room for twice as many rows."""
        for part in (self.rows, *self.segments.values()):
            vars(part).update(mapped(lambda array: np.concatenate([array, np.zeros_like(array)]), vars(part)))
        self._share()
        self.rows.first_key[self.capacity :] = self.rows.next_key[self.capacity :] = -1
        self.capacity *= 2


class ActorSlots:
    """Slots of the agents of N environments, numbered over all step keys.

    An agent of a fixed number has the slot of its id. Where agents come and go, one takes the first free slot when it
    is first at turn and gives it back when it is done.

    Of policies that remember, the state of each actor after its last act is kept. Nothing is kept before a policy
    returns a state, and nothing has to be erased when an episode ends: who has not acted in it gets zeros.

    Args:
        spec: What agents see and do.
        n_envs: Number of environments.

    Attributes:
        n_slots: [number of step keys] slots of each step key.
        offsets: [number of step keys + 1] number of the first slot of each step key.
        seen: [N, number of slots] bool, whether the holder has acted in the running episode.
        next: [N] slot, within its step key, of the actor that acts next.
        carried: By position of the step key, name -> [N, n_slots, ...] the policy's states.
    """

    def __init__(self, spec: Spec, n_envs: int) -> None:
        self._spec, self._keys = spec, spec.step_keys
        self.n_slots = np.array([step.n_slots for step in spec.steps.values()])
        self.offsets = np.concatenate([[0], np.cumsum(self.n_slots)])
        self.seen = np.zeros((n_envs, int(self.offsets[-1])), np.bool_)
        self.next = np.zeros(n_envs, np.int64)
        self.carried: dict[int, dict[str, Array]] = {}
        self._dynamic = np.array([step.n_agents < 0 for step in spec.steps.values()])
        self._occupant = np.full(self.seen.shape, -1, np.int64)  # agent id that holds a dynamic slot
        self._finished: list[set[tuple[int, int]]] = [set() for _ in range(n_envs)]  # (key, id) of dynamic agents

    def release(self, envs: Array, keys: Array, slots: Array, done: Array, ended: Array) -> None:
        """Free the slots of actors that are done and forget episodes that ended.

        Args:
            envs: [n] the environments that stepped.
            keys: [n] position among the step keys of the actors that acted in them.
            slots: [n] their slots.
            done: [n] bool, whether these actors are done.
            ended: [n] bool, whether the episodes ended.
        """
        for i in np.flatnonzero(done & self._dynamic[keys] & ~ended).tolist() if self._dynamic.any() else ():
            n, key, actor = int(envs[i]), int(keys[i]), int(self.offsets[keys[i]] + slots[i])
            self._finished[n].add((key, int(self._occupant[n, actor])))
            self._occupant[n, actor] = -1
            self.seen[n, actor] = False
        for n in envs[ended].tolist():
            self.forget(n)

    def forget(self, n: int) -> None:
        """An environment starts another episode."""
        self.seen[n] = False
        self._occupant[n] = -1
        self._finished[n].clear()

    def find(self, envs: Array, staging: Staging) -> None:
        """Find the slots of the actors that act next.

        Args:
            envs: [n] environments.
            staging: Says who these are.

        Raises:
            ValueError: An agent acts that was not declared, that was done, or that is one too many.
        """
        if self._spec.is_flat:
            return
        keys, agents = staging.next_key[envs], staging.next_agent[envs]
        outside = ~self._dynamic[keys] & ((agents < 0) | (agents >= self.n_slots[keys]))
        if outside.any():
            key, agent = self._keys[keys[outside][0]], int(agents[outside][0])
            count = self._spec.steps[key].n_agents
            raise ValueError(f"agent {agent} of sub-step {key!r} acts, but agent_counts_dict declares {count}")
        self.next[envs] = agents
        for i in np.flatnonzero(self._dynamic[keys]).tolist():
            self.next[envs[i]] = self._take(int(envs[i]), int(keys[i]), int(agents[i]))

    def _take(self, n: int, key: int, agent: int) -> int:
        """The slot that a dynamic agent holds, or a free one."""
        slot, free = self.held(n, key, agent), self.held(n, key, -1)
        who = f"agent {agent} of sub-step {self._keys[key]!r}"
        if slot >= 0:
            return slot
        if (key, agent) in self._finished[n]:
            raise ValueError(f"{who} acts after it was done; ids are not used again")
        if free < 0:
            n_slots = self.n_slots[key]
            raise ValueError(f"{who} would be number {n_slots + 1} alive at once; max_agents allows {n_slots}")
        self._occupant[n, self.offsets[key] + free] = agent
        return free

    def held(self, n: int, key: int, agent: int) -> int:
        """Slot of an agent, -1 if agents come and go and this one holds none; agent -1 holds those that are free."""
        if not self._dynamic[key]:
            return agent
        places = np.flatnonzero(self._occupant[n, self.offsets[key] : self.offsets[key + 1]] == agent)
        return int(places[0]) if places.size else -1

    def batch(self, staging: Staging, key: int, envs: Array) -> PolicyBatch:
        """What the actors see that act next in some environments.

        Args:
            staging: What the environments show.
            key: Position of the actors' sub-step among the step keys.
            envs: [n]
        """
        seen = {name: array[envs] for name, array in staging.observation[self._keys[key]].items()}
        is_first = ~self.seen[envs, self.offsets[key] + self.next[envs]]
        return PolicyBatch(self._keys[key], seen, staging.next_agent[envs], is_first=is_first)

    def recall(self, key: int, envs: Any, slots: Any) -> dict[str, Array] | None:
        """States with which actors act next, None if no actor of their sub-step has ever had one.

        Args:
            key: Position of the actors' sub-step among the step keys.
            envs: [n] their environments, or the one.
            slots: [n] their slots, or the one; -1 for agents that hold none.

        Returns:
            Name -> [n, ...], new arrays.
        """
        if key not in self.carried:
            return None
        has_acted = self.seen[envs, self.offsets[key] + slots] & (slots >= 0)
        state = {}
        for name, carried in self.carried[key].items():
            mask = np.reshape(has_acted, (*np.shape(has_acted), *[1] * (carried.ndim - 2)))
            state[name] = np.where(mask, carried[envs, slots], carried.dtype.type(0))
        return state

    def act(
        self, policy: Policy, batch: PolicyBatch, key: int, envs: Array, slots: Array, **options: Any
    ) -> PolicyStep:
        """Let actors act with what they carry, and keep what they carry then; who has any is noted to have acted.

        Args:
            policy: Chooses the actions.
            batch: The actors; gets their states before the act, if the policy has any.
            key: As for `recall`.
            envs: [n]
            slots: [n]
            options: For the policy.
        """
        batch.state = self.recall(key, envs, slots)
        step = policy.act(batch, **options)
        if step.state is not None:
            self.seen[envs, self.offsets[key] + slots] = True
            if key not in self.carried:
                shape = len(self.seen), int(self.n_slots[key])
                self.carried[key] = {name: np.zeros((*shape, *x.shape[1:]), x.dtype) for name, x in step.state.items()}
                batch.state = {name: np.zeros_like(array) for name, array in step.state.items()}
            for name, array in step.state.items():
                self.carried[key][name][envs, slots] = array
        return step

    def state_dict(self) -> dict[str, Any]:
        """Who holds which slot: views of arrays, and primitives."""
        finished = [sorted(finished) for finished in self._finished]
        return {"seen": self.seen, "occupant": self._occupant, "finished": finished}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the result of `state_dict`."""
        self.seen[...] = state["seen"]
        self._occupant[...] = state["occupant"]
        self._finished = [{(key, agent) for key, agent in finished} for finished in state["finished"]]


def check_acts(spec: Spec, segments: Mapping[StepKey, SegmentArrays], n_rows: int, first_env_index: int) -> None:
    """Look at the acts of a whole rollout at once.

    Args:
        spec: What agents see and do.
        segments: The acts, by step key.
        n_rows: Rows of the rollout.
        first_env_index: Number of the first environment, for the message.

    Raises:
        EnvContractError: Something is not finite, or a mask allows nothing; says in which environment and step.
    """
    for key, segment in segments.items():
        trees = {f"observation {name!r}": array for name, array in segment.observation.items()}
        trees |= {"the reward": segment.reward, "the actor's reward": segment.actor_reward}
        findings = [(what, "is not finite", _finite(array[:n_rows], 2)) for what, array in trees.items()]
        for head, name in spec.steps[key].masks.items():
            space = spec.steps[key].action_space.spaces[head]
            if isinstance(space, spaces.MultiBinary):
                continue
            mask = segment.observation[name][:n_rows] != 0
            ends = np.cumsum(space.nvec)[:-1].tolist() if isinstance(space, spaces.MultiDiscrete) else []
            for part in np.split(mask, ends, axis=-1):
                findings.append((f"mask {name!r}", f"allows no action for head {head!r}", np.any(part, axis=-1)))
        for what, fault, good in findings:
            bad = None if good is None else segment.active[:n_rows] & ~good
            if bad is not None and bad.any():
                t, actor = np.argwhere(bad)[0].tolist()
                who = f"environment {first_env_index + actor // spec.steps[key].n_slots}, sub-step {key!r}"
                raise EnvContractError(f"{what} of {who}, {fault} (step {t} of the rollout)")


def check_now(arrays: Mapping[str, Array], envs: Array, steps: Array, where: str, first_env_index: int) -> None:
    """Look at one entry of each of some environments.

    Args:
        arrays: What it is -> [n, ...].
        envs: [n] the environments.
        steps: [n] the step that each of them is in.
        where: What the steps are counted in.
        first_env_index: Number of the first environment, for the message.

    Raises:
        EnvContractError: Something is not finite.
    """
    for what, array in arrays.items():
        finite = _finite(array, 1)
        if finite is not None:
            n, step = first_env_index + int(envs[~finite][0]), int(steps[~finite][0])
            raise EnvContractError(f"{what} of environment {n} is not finite (step {step} of {where})")


def _finite(array: Array, n_dimensions: int) -> Array | None:
    """Whether all numbers below the first dimensions are finite; None if all are in the whole array."""
    if array.dtype.kind != "f" or (finite := np.isfinite(array)).all():
        return None
    below: Array = np.all(finite.reshape(*array.shape[:n_dimensions], -1), axis=-1)
    return below


def to_tensors(state: Any) -> Any:
    """Replace arrays by tensors and NumPy's numbers by Python's, in nested dicts and lists.

    Raises:
        TypeError: Something else is in it, which a checkpoint that loads safely cannot hold.
    """
    if isinstance(state, dict):
        return {key: to_tensors(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [to_tensors(value) for value in state]
    if isinstance(state, np.ndarray):
        return torch.from_numpy(np.array(state, copy=True))
    if isinstance(state, np.generic):
        return state.item()
    if state is None or isinstance(state, bool | int | float | str | torch.Tensor):
        return state
    raise TypeError(f"state of type {type(state).__name__} cannot be saved; use arrays, numbers, strings, lists, dicts")


def from_tensors(state: Any) -> Any:
    """Replace tensors by arrays, in nested dicts and lists."""
    return apply_to_collection(state, torch.Tensor, lambda tensor: tensor.cpu().numpy().copy())
