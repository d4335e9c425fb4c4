"""Storage of rollouts on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.collect.tensors.event_storage import EventStorage
from maze_pl.collect.tensors.tensor_faults import flags_of_invalid, join_flags, refuse_flagged, take_flags
from maze_pl.collect.tensors.tensor_statistics import RolloutRecord
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.rows import FinalObservations, Rows, Segment
from maze_pl.core.spec import Spec
from maze_pl.envs.arrays.array_events import ArrayEvent
from maze_pl.envs.tensors.tensor_env import refuse_early_ends, tensor_type
from maze_pl.envs.tensors.tensor_wrapper import NARROW_INTEGERS, flag_changes, name_of_observation

_INTEGERS: Final = (torch.int8, torch.int16, torch.int32)
_DTYPES: Final = {bool: torch.bool, int: torch.int64, float: torch.float64}


class TensorStorage:
    """Tensors of a rollout in which all environments act together, once for each step key in a row.

    Args:
        spec: Observation and action spaces of the agents.
        n_envs: Number of environments.
        n_rows: Environment steps of a rollout.
        device: Device of the tensors.
        kpi_names: Names of the KPIs of an episode.
        may_truncate: Whether episodes may be truncated, so that the observations that follow are
            kept for all rows instead of the last one.

    Attributes:
        segments: The acts, by step key.
    """

    def __init__(
        self,
        spec: Spec,
        n_envs: int,
        n_rows: int,
        device: torch.device,
        kpi_names: Iterable[str],
        may_truncate: bool,
    ) -> None:
        self._spec = spec
        self._device = device
        self._shape = n_rows, n_envs
        self._may_truncate = may_truncate
        self._filled = self.full(self._shape, True)
        self._zeros = self.full(self._shape, 0)
        self._ones = self.full(self._shape, 1)
        self._terminated = self.full(self._shape, False)
        self._truncated = self.full(self._shape, False)
        self._early_ends: dict[StepKey, Tensor] = {}  # [T, N] of sub-steps that return flags, but are not the last one
        for key in spec.step_keys[:-1]:
            self._early_ends[key] = self.full(self._shape, False)
        self.segments: dict[StepKey, Segment] = {}
        for position, (key, step) in enumerate(spec.steps.items()):
            self.segments[key] = Segment(
                observation=self._tree(step.observation_space, self._shape),
                action=self._tree(step.action_space, self._shape),
                active=self._filled,
                position=self.full(self._shape, position),
                agent_id=self._zeros,
                reward=self.full(self._shape, 0.0),
                actor_done=self.full(self._shape, False),
                is_first=self.full(self._shape, False),
            )
        self._numbers = {
            "env_steps": self.full(self._shape, 0),
            "reward": self.full(self._shape, 0.0),
            "episode_index": self.full(self._shape, 0),
            **{f"kpi {name}": self.full(self._shape, 0.0) for name in kpi_names},
        }
        self._finals = self._make_finals()
        self._out_of_range = self._make_flags_out_of_range()
        self._starts = EventStorage(n_rows + 1, n_envs, "a start of episodes")
        self._acts = {key: EventStorage(n_rows, n_envs, f"an act of sub-step {key!r}") for key in spec.steps}

    def full(self, shape: tuple[int, ...], value: bool | float) -> Tensor:
        """Make a tensor of bool, int64 or float64, as the type of the value says."""
        return torch.full(shape, value, dtype=_DTYPES[type(value)], device=self._device)

    def _tree(self, space: spaces.Dict, leading: tuple[int, ...]) -> dict[str, Tensor]:
        tree = {}
        for name, part in space.spaces.items():
            shape = (*leading, *(part.shape or ()))
            tree[name] = torch.zeros(shape, dtype=tensor_type(part), device=self._device)
        return tree

    def _make_finals(self) -> dict[StepKey, FinalObservations]:
        """Make room for observations of the first sub-step that follow each row, or the last one."""
        n_rows, n_envs = self._shape
        row = torch.arange(n_rows, device=self._device).repeat_interleave(n_envs)
        env = torch.arange(n_envs, device=self._device).repeat(n_rows)
        finals = {}
        for place, (key, step) in enumerate(self._spec.steps.items()):
            first = 0 if self._may_truncate else len(row) - n_envs
            kept = slice(first, None) if place == 0 else slice(0, 0)
            shape = (len(row[kept]),)
            none = self.full(shape, 0)
            finals[key] = FinalObservations(row[kept], env[kept], none, none, self._tree(step.observation_space, shape))
        return finals

    def _make_flags_out_of_range(self) -> dict[str, Tensor]:
        """Make the tensors of `flags_out_of_range`."""
        flags = {}
        for key, segment in self.segments.items():
            for name, tensor in segment.observation.items():
                if tensor.dtype in NARROW_INTEGERS:
                    flags[name_of_observation(key, name)] = self.full((self._shape[1],), False)
        return flags

    # ---------------------------------------------------------------------------------------- writing

    def store_act(
        self,
        key: StepKey,
        row: Tensor,
        observation: Mapping[str, Tensor],
        action: Mapping[str, Tensor],
        is_first: Tensor,
    ) -> None:
        """Store the acts of a sub-step.

        Args:
            key: The sub-step.
            row: [1] int64, the row.
            observation: Name -> [N, ...], as `in_types_of_spaces` returns it.
            action: Head -> [N, ...], as sampled.
            is_first: [N] bool, whether the act is the first one of its actor in the episode.
        """
        segment = self.segments[key]
        _store_tree(segment.observation, row, observation)
        _store_tree(segment.action, row, action)
        _store(segment.is_first, row, is_first)

    def in_types_of_spaces(self, key: StepKey, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return observations [N, ...] in the types of their spaces; note where these cannot hold them."""
        self._note_out_of_range(key, observation)
        return {name: observation[name].to(rows.dtype) for name, rows in self.segments[key].observation.items()}

    def _note_out_of_range(self, key: StepKey, observation: Mapping[str, Tensor]) -> None:
        """Note where types of spaces cannot hold observed integers [N, ...], to refuse them later."""
        for name, rows in self.segments[key].observation.items():
            flags = self._out_of_range.get(name_of_observation(key, name))
            if flags is not None:
                flag_changes(flags, observation[name], observation[name].to(rows.dtype))

    def store_reward(self, key: StepKey, row: Tensor, reward: Tensor) -> None:
        """Store the rewards [N] of the acts of a sub-step."""
        _store(self.segments[key].reward, row, reward)

    def store_early_ends(self, key: StepKey, row: Tensor, terminated: Tensor) -> None:
        """Store which episodes [N] an act ended that is not the last one of its step; refused later."""
        _store(self._early_ends[key], row, terminated)

    def store_events(self, key: StepKey, row: Tensor, fired: Sequence[ArrayEvent]) -> None:
        """Store the events of the acts of a sub-step, [N]."""
        self._acts[key].store(row, fired)

    def store_starts(self, row: Tensor, fired: Sequence[ArrayEvent]) -> None:
        """Store the events of starts before a row, which may be that after the last one."""
        self._starts.store(row, fired)

    def forget_first_starts(self) -> None:
        """Record that no episode starts before the first row: those of the last rollout continue."""
        for event in self._starts.events:
            event.fired[0].fill_(False)

    def store_ends(self, row: Tensor, terminated: Tensor, truncated: Tensor, numbers: Mapping[str, Tensor]) -> None:
        """Store which episodes ended, and the numbers [N] of all running episodes, by name."""
        _store(self._terminated, row, terminated)
        _store(self._truncated, row, truncated)
        _store_tree(self._numbers, row, numbers)

    def store_following(self, row: Tensor, observation: Mapping[str, Tensor]) -> None:
        """Store the observations [N, ...] that follow a row, if episodes may be truncated."""
        if self._may_truncate:
            self._note_out_of_range(self._spec.step_keys[0], observation)
            _store_tree(self._following(), row, observation)

    def _following(self) -> dict[str, Tensor]:
        """Return views [T, N, ...] of the observations after each row; none without time limits."""
        if not self._may_truncate:
            return {}
        finals = self._finals[self._spec.step_keys[0]].observation
        return {name: tensor.view(*self._shape, *tensor.shape[1:]) for name, tensor in finals.items()}

    def store_last(self, observation: Mapping[str, Tensor]) -> None:
        """Store observations [N, ...] that follow the rollout, if those of no other row are kept."""
        if not self._may_truncate:
            self._note_out_of_range(self._spec.step_keys[0], observation)
            for name, tensor in self._finals[self._spec.step_keys[0]].observation.items():
                tensor.copy_(observation[name])

    def flags_out_of_range(self) -> dict[str, Tensor]:
        """Return [N] bool, whether observed integers do not fit the type of their space."""
        return {f"out of range {name}": flags for name, flags in self._out_of_range.items()}

    def written_in(self, row: int) -> dict[str, Tensor]:
        """Return what a step in a row writes, by name: flags [N], and views [N, ...] of the row.

        Starts of episodes are those before the next row.
        """
        columns = {"terminated": self._terminated, "truncated": self._truncated}
        columns |= {f"ends of {key}": tensor for key, tensor in self._early_ends.items()}
        columns |= {f"number {name}": tensor for name, tensor in self._numbers.items()}
        for key, segment in self.segments.items():
            columns |= {f"observation {key} {name}": tensor for name, tensor in segment.observation.items()}
            columns |= {f"action {key} {name}": tensor for name, tensor in segment.action.items()}
            columns |= {f"reward {key}": segment.reward, f"is_first {key}": segment.is_first}
        columns |= {f"following observation {name}": tensor for name, tensor in self._following().items()}
        for events in self._acts.values():
            columns |= events.tensors()
        written = {name: tensor[row] for name, tensor in columns.items()}
        written |= {name: tensor[row + 1] for name, tensor in self._starts.tensors().items()}
        return written | self.flags_out_of_range()

    # ---------------------------------------------------------------------------------------- reading

    def rollout(self, starting: Tensor) -> Rollout:
        """Make a rollout of what is stored.

        Args:
            starting: See `Rollout`.
        """
        ended = self._terminated | self._truncated
        following = torch.where(ended, -1, 0)
        reward = torch.stack([segment.reward for segment in self.segments.values()]).sum(0)
        rows = Rows(
            filled=self._filled,
            reward=reward,
            terminated=self._terminated,
            truncated=self._truncated,
            env_steps=self._ones,
            first_key=self._zeros,
            first_slot=self._zeros,
            next_key=following,
            next_slot=following,
        )
        n_rows, n_envs = self._shape
        return Rollout(
            rows,
            dict(self.segments),
            dict(self._finals),
            n_rows,
            self._spec.is_flat,
            starting,
            n_env_steps=n_rows * n_envs,
            dense=True,
        )

    def record(
        self,
        play: Callable[[StepKey, Mapping[str, Tensor]], Mapping[str, Tensor]],
        restarted: bool,
        first_env_index: int,
        env_name: str,
        faults: tuple[Mapping[str, Tensor], Mapping[str, Tensor]] = ({}, {}),
    ) -> RolloutRecord:
        """Copy what statistics need.

        Args:
            play: Computes the actions that are played from those that are sampled, for a step key.
            restarted: See `RolloutRecord`.
            first_env_index: Index of the first environment across all ranks and workers.
            env_name: Name of the environment, for messages.
            faults: Result of `faults_within`.
        """
        is_invalid: dict[str, Tensor] = {}
        is_forbidding: dict[str, Tensor] = {}
        actions = {}
        for key, segment in self.segments.items():
            for head, name in self._spec.steps[key].masks.items():
                flags = self._flags_of_forbidding(key, head)
                is_forbidding[f"mask {name!r} of head {head!r} of sub-step {key!r}"] = flags
            for name, tensor in segment.observation.items():
                if tensor.is_floating_point():
                    is_invalid[name_of_observation(key, name)] = flags_of_invalid(tensor)
                    if key == self._spec.step_keys[0]:
                        is_invalid[name_of_observation(key, name)] |= self._flags_of_invalid_finals(name)
            is_invalid[f"reward of sub-step {key!r}"] = flags_of_invalid(segment.reward)
            actions[key] = self._copies_of_actions(key, play(key, segment.action))

        early_ends = {key: ends.any(0) for key, ends in self._early_ends.items()}
        is_invalid = join_flags(take_flags(faults[0]), is_invalid)
        is_out_of_range = join_flags(take_flags(faults[1]), take_flags(self._out_of_range))

        def check() -> None:
            refuse_flagged(is_invalid, "is NaN or infinite", first_env_index)
            fault = "has a value that the type of its space cannot hold; declare a space of a wider type"
            refuse_flagged(is_out_of_range, fault, first_env_index)
            refuse_flagged(is_forbidding, "allows no action", first_env_index)
            for key, ended in early_ends.items():
                refuse_early_ends(ended, env_name, key, first_env_index)

        return RolloutRecord(
            self._terminated | self._truncated,
            self._copies_of_numbers(),
            actions,
            [event.clone() for event in self._starts.events],
            [event.clone() for events in self._acts.values() for event in events.events],
            restarted,
            check,
        )

    def _copies_of_numbers(self) -> dict[str, Tensor]:
        """Copy the numbers of episodes, their lengths in half of the size; indices may exceed 32 bits."""
        copies = {name: tensor.clone() for name, tensor in self._numbers.items() if name != "env_steps"}
        return {"env_steps": self._numbers["env_steps"].to(torch.int32), **copies}

    def _copies_of_actions(self, key: StepKey, actions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copy actions [T, N, ...] of a sub-step, those of discrete heads in the smallest type."""
        copies = {}
        for head, space in self._spec.steps[key].action_space.spaces.items():
            dtype = smallest_type(space) or actions[head].dtype
            copies[head] = actions[head].to(dtype, copy=True)
        return copies

    def _flags_of_forbidding(self, key: StepKey, head: str) -> Tensor:
        """Return [N] bool, whether a mask of a head allows no option of a choice that needs one."""
        step = self._spec.steps[key]
        space = step.action_space.spaces[head]
        is_allowed = self.segments[key].observation[step.masks[head]] != 0  # [T, N, options]
        if isinstance(space, spaces.MultiBinary):
            return self.full((self._shape[1],), False)  # all of its bits may be 0
        sizes = [is_allowed.shape[-1]]
        if isinstance(space, spaces.MultiDiscrete):
            sizes = space.nvec.ravel().tolist()  # of all choices, row by row
        has_option = [choice.any(-1) for choice in torch.split(is_allowed, sizes, -1)]
        return ~torch.stack(has_option).all(0).all(0)

    def _flags_of_invalid_finals(self, name: str) -> Tensor:
        """Return [N] bool, whether a used observation that follows a row is NaN or infinite."""
        is_used = self._truncated.clone()
        is_used[-1] = ~self._terminated[-1]
        is_finite = torch.isfinite(self._finals[self._spec.step_keys[0]].observation[name])
        is_finite = is_finite.unsqueeze(-1).flatten(1).all(1).view(-1, self._shape[1])  # [T or 1, N]
        return (~is_finite & is_used[-len(is_finite) :]).any(0)


def smallest_type(space: spaces.Space[Any]) -> torch.dtype | None:
    """Return the smallest signed type that holds the actions of a discrete space; None for others."""
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return None
    counts = space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n
    lowest, highest = np.min(space.start), np.max(space.start + counts - 1)
    for dtype in _INTEGERS:
        limits = torch.iinfo(dtype)
        if limits.min <= lowest and highest <= limits.max:
            return dtype
    return None


def _store_tree(rows: Mapping[str, Tensor], row: Tensor, values: Mapping[str, Tensor]) -> None:
    """Write named values [N, ...] into a row of tensors [T, N, ...]."""
    for name, tensor in rows.items():
        _store(tensor, row, values[name])


def _store(rows: Tensor, row: Tensor, values: Tensor) -> None:
    rows.index_copy_(0, row, values.to(rows.dtype).unsqueeze(0))
