"""States of recurrent critics that do not share the policy state, computed along the streams of a rollout."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from maze_pl.agents import StateCritic, TorchActorCritic
from maze_pl.agents.network_io import StateShapes
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.rows import Tree


@dataclass(frozen=True)
class StatesOfRollout:
    """States of the critic of one step key in a rollout.

    Attributes:
        acts: Name -> [T, B, ...], state before each act, 0 where there is no act.
        finals: Name -> [F, ...], state before the acts that would follow the final observations.
    """

    acts: Tree = field(default_factory=dict)
    finals: Tree = field(default_factory=dict)


class CriticStates:
    """Carries the states of a critic from act to act of each actor, and from rollout to rollout.

    A state is zero at the first act of an episode. It is computed with the weights that the critic
    has when its rollout is learned from; earlier acts of the episode were processed with earlier
    weights.
    """

    def __init__(self) -> None:
        # step key -> name -> [number of environments, n_slots, ...] after each actor's latest act
        self._latest: dict[StepKey, Tree] = {}

    def advance(self, actor_critic: TorchActorCritic, rollout: Rollout) -> dict[StepKey, StatesOfRollout]:
        """Compute the states of a rollout, which continues the previous ones of its environments.

        Args:
            actor_critic: Networks, in evaluation mode; only those with `critic_state_shapes` run.
            rollout: The rollout, given once.

        Returns:
            By step key, without step keys whose critic has no separate state.
        """
        critic = actor_critic.critic
        if not isinstance(critic, StateCritic):
            return {}
        found = {}
        for key, shapes in actor_critic.critic_state_shapes.items():
            found[key] = self._advance(critic, key, shapes, rollout)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the states after the latest acts, for checkpoints."""
        return {"latest": {key: dict(states) for key, states in self._latest.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `state_dict`."""
        self._latest = {key: dict(states) for key, states in state["latest"].items()}

    def _advance(self, critic: StateCritic, key: StepKey, shapes: StateShapes, rollout: Rollout) -> StatesOfRollout:
        """Compute the states of one step key; arguments as for `advance`."""
        active = rollout.segments[key].active
        n_slots = rollout.n_slots(key)
        like = next(critic.parameters())
        if rollout.env_index is None:
            env_index = torch.arange(rollout.n_envs)
            parts = [env_index]
        else:
            env_index = rollout.env_index.cpu()
            parts = _consecutive_parts(env_index)
        latest = self._resized(key, shapes, int(env_index.max()) + 1, n_slots, like)
        before = {name: like.new_zeros(*active.shape, *shape) for name, shape in shapes.items()}
        after = {name: torch.zeros_like(tensor) for name, tensor in before.items()}
        for envs in parts:
            indices = env_index[envs].to(like.device, non_blocking=True)
            part = _Columns(rollout, key, envs.to(like.device, non_blocking=True))
            state = {name: tensor[indices, :n_slots].flatten(0, 1) for name, tensor in latest.items()}
            state = _cleared(state, part.starting)
            for t in range(len(active)):
                state = part.step(critic, t, state, before, after)
            for name, tensor in state.items():
                latest[name][indices, :n_slots] = tensor.reshape(len(envs), n_slots, *tensor.shape[1:])
        return StatesOfRollout(before, _final_states(after, rollout, key))

    def _resized(self, key: StepKey, shapes: StateShapes, n_envs: int, n_slots: int, like: Tensor) -> Tree:
        """Latest states of a step key, with zeros for new environments and slots."""
        latest: Tree = {}
        for name, shape in shapes.items():
            old = self._latest.get(key, {}).get(name, like.new_zeros(0, 0, *shape)).to(like)
            size = max(n_envs, old.shape[0]), max(n_slots, old.shape[1])
            latest[name] = like.new_zeros(*size, *shape)
            latest[name][: old.shape[0], : old.shape[1]] = old
        self._latest[key] = latest
        return latest


class _Columns:
    """Some environments of a rollout, with the acts of one step key in them.

    Args:
        rollout: The rollout.
        key: The step key.
        envs: [n] positions of the environments in the rollout.
    """

    def __init__(self, rollout: Rollout, key: StepKey, envs: Tensor) -> None:
        n_slots = rollout.n_slots(key)
        ends = rollout.rows.terminated | rollout.rows.truncated
        self._key = key
        self._segment = rollout.segments[key]
        self._is_full = rollout.flat or rollout.dense  # every entry of the segment is an act
        self._ends = ends[:, envs].repeat_interleave(n_slots, 1)  # [T, C]
        slots = torch.arange(n_slots, device=envs.device)
        self._columns = (envs[:, None] * n_slots + slots).flatten()  # [C]
        starting = torch.zeros(rollout.n_envs, dtype=torch.bool) if rollout.starting is None else rollout.starting
        self.starting = starting.to(envs.device)[envs].repeat_interleave(n_slots)  # [C]

    def step(self, critic: StateCritic, t: int, state: Tree, before: Tree, after: Tree) -> Tree:
        """Advance the states by the acts of a row.

        Args:
            critic: Computes the states.
            t: The row.
            state: Name -> [C, ...] before it.
            before: Gets the states before the acts, name -> [T, B, ...].
            after: Gets the states of all actors after the row, name -> [T, B, ...].

        Returns:
            The states before the next row.
        """
        segment = self._segment
        columns = self._columns
        state = _cleared(state, segment.is_first[t, columns])
        acting = None if self._is_full else segment.active[t, columns].nonzero().squeeze(1)
        if acting is None or len(acting):
            of_acts = columns if acting is None else columns[acting]
            inputs = {name: tensor[t, of_acts] for name, tensor in segment.observation.items()}
            inputs |= {name: tensor[t, of_acts] for name, tensor in segment.policy_state.items()}
            for name, tensor in state.items():
                inputs[name] = tensor if acting is None else tensor[acting]
                before[name][t, of_acts] = inputs[name]
            following = critic.next_state(self._key, inputs)
            for name, tensor in state.items():
                new = following[name].to(tensor)
                state[name] = new if acting is None else tensor.index_copy(0, acting, new)
        ends = self._ends[t]
        state = _cleared(state, segment.actor_done[t, columns] & ~ends)
        for name, tensor in state.items():
            after[name][t, columns] = tensor
        return _cleared(state, ends)


def _cleared(state: Tree, where: Tensor) -> Tree:
    """Name -> [C, ...] states, 0 where a mask [C] is true."""
    if where.device.type == "cpu" and not bool(where.any()):  # looking would wait for other devices
        return state
    return {name: torch.where(where.view(-1, *[1] * (tensor.dim() - 1)), 0.0, tensor) for name, tensor in state.items()}


def _consecutive_parts(env_index: Tensor) -> list[Tensor]:
    """Divide the positions of a rollout's environments so that none is twice in a part.

    The parts of an environment that is there several times follow one another in time.

    Example:
        >>> [part.tolist() for part in _consecutive_parts(torch.tensor([0, 1, 0, 0]))]
        [[0, 1], [2], [3]]
    """
    counts: dict[int, int] = {}
    parts: list[list[int]] = []
    for position, env in enumerate(env_index.tolist()):
        number = counts.get(env, 0)
        counts[env] = number + 1
        if number == len(parts):
            parts.append([])
        parts[number].append(position)
    return [torch.tensor(part) for part in parts]


def _final_states(after: Tree, rollout: Rollout, key: StepKey) -> Tree:
    """Name -> [F, ...] states of the actors of the final observations; 0 for actors without a slot."""
    if key not in rollout.finals:
        return {}
    final = rollout.finals[key]
    column = final.env * rollout.n_slots(key) + final.slot.clamp(min=0)
    return _cleared({name: tensor[final.row, column] for name, tensor in after.items()}, final.slot < 0)
