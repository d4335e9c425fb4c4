"""Preallocated arrays for rollouts, the assignment of their slots, and checks of their content.

Observations and rewards that are not finite, and empty masks, are refused: no algorithm could learn
from them.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from lightning_utilities.core.apply_func import apply_to_collection

from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import RowsOf, SegmentOf
from maze_pl.core.policy import Array, Policy, PolicyBatch, PolicyStep
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.vector.vector_env import Staging, allocate_tree


def tensors(arrays: Any, n_rows: int | None = None) -> Any:
    """Make tensors that share the first rows of arrays in nested dicts, or all rows if None."""
    return mapped(lambda array: torch.from_numpy(array[:n_rows]), arrays)


class SegmentArrays(SegmentOf[Array]):
    """Arrays behind `Segment`, [capacity, N * n_slots].

    Args:
        step: The sub-step of the acts.
        capacity: Initial number of rows.
        n_envs: Number of environments.
    """

    actor_reward: Array

    def __init__(self, step: StepSpec, capacity: int, n_envs: int) -> None:
        shape = capacity, n_envs * step.n_slots
        seen, done = (allocate_tree(space, shape) for space in (step.observation_space, step.action_space))
        others: list[Any] = [np.zeros(shape, kind) for kind in "?qqd??d"]  # flags, integers, numbers
        super().__init__(seen, done, *others)

    def write_policy_state(self, index: Any, policy_state: Mapping[str, Array] | None) -> None:
        """Store the policy state before acts, if there is one.

        Args:
            index: Row, or rows and columns of the acts.
            state: Name -> [n, ...].
        """
        for name, values in (policy_state or {}).items():
            if name not in self.policy_state:
                self.policy_state[name] = np.zeros((*self.active.shape, *values.shape[1:]), values.dtype)
            self.policy_state[name][index] = values

    def blank(self, n_rows: int) -> None:
        """Zero the data of earlier rollouts in the first rows, where no act was made."""
        nothing = ~self.active[:n_rows]
        trees = [*self.observation.values(), *self.action.values(), *self.policy_state.values()]
        for array in (*trees, self.position, self.agent_id):
            array[:n_rows][nothing] = 0


class RolloutStorage:
    """Arrays for rollouts of N environments, which grow when an environment needs more rows.

    In a flat environment the acts are the rows, so the segment shares the rows' reward and mask.

    Args:
        spec: Specification of observations and actions.
        n_envs: Number of environments.
        capacity: Initial number of rows.
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
        """Mark all rows and acts as missing."""
        rows = self.rows
        for array in (rows.filled, rows.terminated, rows.truncated, rows.env_steps, rows.reward):
            array.fill(0)
        for array in (rows.first_key, rows.next_key):
            array.fill(-1)
        for part in self.segments.values():
            for array in (part.active, part.reward, part.actor_reward, part.is_first, part.actor_done):
                array.fill(0)

    def complete_flat(self, n_rows: int, is_first: Array, agent_id: Array) -> Array:
        """Fill in the row fields of flat environments that follow from the ends of episodes.

        Args:
            n_rows: Rows of each environment, T.
            is_first: [N] whether the first row begins an episode.
            agent_id: [N] ids of the agents.

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

    def widen(self, n_slots: Array) -> None:
        """Make room for more slots.

        Args:
            n_slots: [number of step keys] slots of each step key, no fewer than before.
        """
        for part, wanted in zip(self.segments.values(), n_slots.tolist(), strict=True):
            n_more = wanted - part.active.shape[1] // self.n_envs
            if n_more:
                vars(part).update(mapped(partial(_widened, n_envs=self.n_envs, n_more=n_more), vars(part)))


def _widened(array: Array, n_envs: int, n_more: int) -> Array:
    """[T, N * n_slots, ...] -> [T, N * (n_slots + n_more), ...], with zeros in the new slots."""
    slots = array.reshape(len(array), n_envs, -1, *array.shape[2:])
    further = np.zeros_like(slots, shape=(*slots.shape[:2], n_more, *slots.shape[3:]))
    return np.concatenate([slots, further], 2).reshape(len(array), -1, *array.shape[2:])


class ActorSlots:
    """Slots of the agents of N environments, numbered over all step keys.

    In a sub-step with a fixed number of agents, an agent has the slot of its id. Where agents come
    and go, an agent takes a free slot on its first turn and frees it when it is done. It takes the
    first free slot in which nobody has acted in the row, since a row has at most one act of each
    slot. If no such slot is left, slots are added.

    For recurrent policies, the policy state of each actor after its last act is kept. Nothing is
    kept before a policy returns a state, and nothing has to be erased when an episode ends: an
    actor that has not acted in its episode gets zeros.

    Args:
        spec: Specification of observations and actions.
        n_envs: Number of environments.

    Attributes:
        n_slots: [number of step keys] slots of each step key.
        offsets: [number of step keys + 1] number of the first slot of each step key.
        seen: [N, number of slots] bool, whether the holder has acted in the running episode.
        acted: [N, number of slots] bool, whether somebody has acted in the slot in the current row.
        next: [N] slot, within its step key, of the actor that acts next.
        policy_states: By index of the step key, name -> [N, n_slots, ...] policy states.
    """

    def __init__(self, spec: Spec, n_envs: int) -> None:
        self._spec, self._keys = spec, spec.step_keys
        self.n_slots = np.array([step.n_slots for step in spec.steps.values()])
        self.offsets = np.concatenate([[0], np.cumsum(self.n_slots)])
        self.seen = np.zeros((n_envs, int(self.offsets[-1])), np.bool_)
        self.acted = np.zeros_like(self.seen)
        self.next = np.zeros(n_envs, np.int64)
        self.policy_states: dict[int, dict[str, Array]] = {}
        self._dynamic = np.array([step.n_agents < 0 for step in spec.steps.values()])
        self._occupant = np.full(self.seen.shape, -1, np.int64)  # id of the agent in a dynamic slot
        self._finished: list[set[tuple[int, int]]] = [set() for _ in range(n_envs)]  # (key, id) of dynamic agents

    def release(self, envs: Array, keys: Array, slots: Array, done: Array, ended: Array) -> None:
        """Free the slots of actors that are done and forget episodes that ended.

        Args:
            envs: [n] the environments that stepped.
            keys: [n] step key index of the actors that acted in them.
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
        """Reset the slots of an environment that starts another episode."""
        self.seen[n] = False
        self._occupant[n] = -1
        self._finished[n].clear()

    def find(self, envs: Array, staging: Staging) -> bool:
        """Find the slots of the actors that act next.

        Args:
            envs: [n] environments.
            staging: Names these actors.

        Returns:
            Whether slots were added.

        Raises:
            ValueError: An agent acts that was not declared or was already done, or too many are
                alive.
        """
        if self._spec.is_flat:
            return False
        before, keys = len(self.seen[0]), staging.next_key[envs]
        agents = staging.next_agent[envs]
        outside = ~self._dynamic[keys] & ((agents < 0) | (agents >= self.n_slots[keys]))
        if outside.any():
            key, agent = self._keys[keys[outside][0]], int(agents[outside][0])
            count = self._spec.steps[key].n_agents
            raise ValueError(f"agent {agent} of sub-step {key!r} acts, but agent_counts_dict declares {count}")
        self.next[envs] = agents
        for i in np.flatnonzero(self._dynamic[keys]).tolist():
            self.next[envs[i]] = self._take(int(envs[i]), int(keys[i]), int(agents[i]))
        return len(self.seen[0]) > before

    def _take(self, n: int, key: int, agent: int) -> int:
        """Return the slot of a dynamic agent; it takes a free one if it has none."""
        slot, who = self.held(n, key, agent), f"agent {agent} of sub-step {self._keys[key]!r}"
        if agent < 0:
            raise ValueError(f"{who} acts; ids of agents are numbers from 0 on")
        if slot >= 0:
            return slot
        if (key, agent) in self._finished[n]:
            raise ValueError(f"{who} acts after it was done; ids are not used again")
        most, own = self._spec.steps[self._keys[key]].n_slots, slice(self.offsets[key], self.offsets[key + 1])
        is_free = self._occupant[n, own] < 0
        if np.count_nonzero(~is_free) == most:
            raise ValueError(f"{who} would be number {most + 1} alive at once; max_agents allows {most}")
        free = np.flatnonzero(is_free & ~self.acted[n, own])
        slot = int(free[0]) if free.size else int(self.n_slots[key])
        if not free.size:
            self._widen(key, 1 + slot // 4)  # more than needed, as growing copies all stored arrays
        self._occupant[n, self.offsets[key] + slot] = agent
        return slot

    def _widen(self, key: int, n_more: int) -> None:
        """Add free slots to a step key."""
        places = [int(self.offsets[key + 1])] * n_more
        self.seen, self.acted = np.insert(self.seen, places, False, 1), np.insert(self.acted, places, False, 1)
        self._occupant = np.insert(self._occupant, places, -1, 1)
        for name, states in self.policy_states.get(key, {}).items():
            self.policy_states[key][name] = np.insert(states, [states.shape[1]] * n_more, 0, 1)
        self.n_slots[key] += n_more
        self.offsets[key + 1 :] += n_more

    def held(self, n: int, key: int, agent: int) -> int:
        """Slot of an agent; -1 for a dynamic agent without a slot."""
        if not self._dynamic[key]:
            return agent
        places = np.flatnonzero(self._occupant[n, self.offsets[key] : self.offsets[key + 1]] == agent)
        return int(places[0]) if places.size else -1

    def batch(self, staging: Staging, key: int, envs: Array) -> PolicyBatch:
        """Make the policy batch of the actors that act next in some environments.

        Args:
            staging: Current observations of the environments.
            key: Step key index of the actors.
            envs: [n] their environments.
        """
        seen = {name: array[envs] for name, array in staging.observation[self._keys[key]].items()}
        is_first = ~self.seen[envs, self.offsets[key] + self.next[envs]]
        return PolicyBatch(self._keys[key], seen, staging.next_agent[envs], is_first=is_first)

    def policy_state(self, key: int, envs: Any, slots: Any) -> dict[str, Array] | None:
        """Policy states for the next acts; None if no actor of the sub-step has ever had one.

        Args:
            key: Step key index of the actors.
            envs: [n] their environments, or a single one.
            slots: [n] their slots, or a single one; -1 for agents without a slot.

        Returns:
            Name -> [n, ...], new arrays.
        """
        if key not in self.policy_states:
            return None
        has_acted = self.seen[envs, self.offsets[key] + slots] & (slots >= 0)
        state = {}
        for name, carried in self.policy_states[key].items():
            mask = np.reshape(has_acted, (*np.shape(has_acted), *[1] * (carried.ndim - 2)))
            state[name] = np.where(mask, carried[envs, slots], carried.dtype.type(0))
        return state

    def act(
        self, policy: Policy, batch: PolicyBatch, key: int, envs: Array, slots: Array, **options: Any
    ) -> PolicyStep:
        """Run the policy on recurrent states and store the new ones; mark these actors as seen.

        Args:
            policy: Chooses the actions.
            batch: The actors; gets their policy states before the act, if the policy has any.
            key: As for `policy_state`.
            envs: [n] environments of the actors.
            slots: [n] slots of the actors.
            options: Keyword arguments of `policy.act`.
        """
        batch.policy_state = self.policy_state(key, envs, slots)
        step = policy.act(batch, **options)
        if step.policy_state is not None:
            self.seen[envs, self.offsets[key] + slots] = True
            if key not in self.policy_states:
                shape = len(self.seen), int(self.n_slots[key])
                self.policy_states[key] = {
                    name: np.zeros((*shape, *x.shape[1:]), x.dtype) for name, x in step.policy_state.items()
                }
                batch.policy_state = {name: np.zeros_like(array) for name, array in step.policy_state.items()}
            for name, array in step.policy_state.items():
                self.policy_states[key][name][envs, slots] = array
        return step

    def state_dict(self) -> dict[str, Any]:
        """Return the assignment of slots: views of arrays, and primitives."""
        finished = [sorted(finished) for finished in self._finished]
        return {"n_slots": self.n_slots, "seen": self.seen, "occupant": self._occupant, "finished": finished}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`."""
        for key, n_slots in enumerate(state.get("n_slots", self.n_slots).tolist()):
            self._widen(key, n_slots - int(self.n_slots[key]))
        self.seen[...] = state["seen"]
        self._occupant[...] = state["occupant"]
        self._finished = [{(key, agent) for key, agent in finished} for finished in state["finished"]]


def check_acts(spec: Spec, segments: Mapping[StepKey, SegmentArrays], n_rows: int, first_env_index: int) -> None:
    """Check all acts of a rollout at once.

    Args:
        spec: Specification of observations and actions.
        segments: The acts, by step key.
        n_rows: Rows of the rollout.
        first_env_index: Number of the first environment, for the message.

    Raises:
        EnvContractError: A value is not finite, or a mask allows no action; the message names the
            environment and step.
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
    """Check the current values of some environments.

    Args:
        arrays: Description of the values -> [n, ...].
        envs: [n] the environments.
        steps: [n] the current step of each.
        where: Name of the unit in which steps are counted, such as "an episode".
        first_env_index: Number of the first environment, for the message.

    Raises:
        EnvContractError: A value is not finite.
    """
    for what, array in arrays.items():
        finite = _finite(array, 1)
        if finite is not None:
            n, step = first_env_index + int(envs[~finite][0]), int(steps[~finite][0])
            raise EnvContractError(f"{what} of environment {n} is not finite (step {step} of {where})")


def _finite(array: Array, n_dimensions: int) -> Array | None:
    """Tell, over the first dimensions, if all numbers below are finite; None if all numbers are."""
    if array.dtype.kind != "f" or (finite := np.isfinite(array)).all():
        return None
    below: Array = np.all(finite.reshape(*array.shape[:n_dimensions], -1), axis=-1)
    return below


def to_tensors(state: Any) -> Any:
    """Replace arrays by tensors and NumPy's numbers by Python's, in nested dicts and lists.

    Raises:
        TypeError: The state holds another type, which a weights-only checkpoint cannot hold.
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
