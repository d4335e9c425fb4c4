"""Plays a policy in a vector of environments and writes what happens into rollouts."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from maze_pl.collect.history import Histories
from maze_pl.collect.serialization import from_tensors, to_tensors
from maze_pl.collect.slots import ActorSlots
from maze_pl.collect.storage import Array, RolloutStorage
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Policy, PolicyBatch
from maze_pl.core.rollout import Final, Rollout
from maze_pl.envs.vector.vector_env import StepExtras, VectorEnv

MAX_ACTS_PER_ENV_STEP = 10_000

Truncation = tuple[int, int, StepKey, int, dict[str, Array], int]
"""Row, environment, step key, agent id, observation and slot (-1 if the agent holds none) after a truncated row."""


class Collector:
    """Collects rollouts of a fixed number of environment steps; see `maze_pl.core.rollout` for what a row is.

    Environments may be at different actors at the same time: the policy is asked once for each step key that is at
    turn anywhere. An environment that has made its steps waits for the others.

    Args:
        vector: The environments; reset by the first collection.
        n_rollout_steps: Environment steps of each environment in a rollout.
        generator: Source of the policy's randomness.
    """

    def __init__(self, vector: VectorEnv, n_rollout_steps: int, generator: torch.Generator) -> None:
        if n_rollout_steps < 1:
            raise ValueError(f"n_rollout_steps={n_rollout_steps} must be at least 1")
        self.vector, self.n_rollout_steps, self.generator = vector, n_rollout_steps, generator
        self.spec, self.n_envs = vector.spec, vector.n_envs
        self.storage = RolloutStorage(self.spec, self.n_envs, n_rollout_steps)
        self.histories = Histories(self.spec, self.n_envs)
        self.started = False
        self._keys: tuple[StepKey, ...] = self.spec.step_keys
        self.slots = ActorSlots(self.spec, self.n_envs)
        self._attributed: bool | None = None

    def collect(self, policy: Policy) -> Rollout:
        """Collect one rollout.

        Args:
            policy: Chooses the actions.

        Returns:
            The rollout, whose tensors are views of storage that the next call overwrites.

        Raises:
            ValueError: The environment broke its contract; the message says how.
        """
        began = time.perf_counter()
        if not self.started:
            self.start()
        self.storage.clear()
        row = np.zeros(self.n_envs, np.int64)
        completed = np.zeros(self.n_envs, np.int64)
        truncations: list[Truncation] = []
        if self.spec.is_flat:
            self._collect_in_lockstep(policy, row, completed, truncations)
        lockstep = bool((completed == self.n_rollout_steps).all())
        if not lockstep:
            self._collect_acts(policy, row, completed, truncations)
        n_rows = int(row.max())
        self._check(n_rows)
        rollout = self._rollout(n_rows, row, truncations, self.spec.is_flat and lockstep)
        self.histories.extend(self.storage, row)
        rollout.summaries = self.vector.drain_summaries()
        rollout.seconds = time.perf_counter() - began
        return rollout

    def start(self) -> None:
        """Start the first episode of every environment."""
        self.vector.reset()
        self._find_slots(np.arange(self.n_envs))
        self.started = True

    # ------------------------------------------------------------------------------------------- one actor each

    def _collect_in_lockstep(self, policy: Policy, row: Array, completed: Array, truncations: list[Truncation]) -> None:
        """Collect from flat environments for as long as every act completes an environment step."""
        key, staging, rows = self._keys[0], self.vector.staging, self.storage.rows
        segment = self.storage.segments[key]
        observed, seen = staging.observation[key], segment.observation
        staged, acted = staging.action[key], segment.action
        batch = PolicyBatch(key, {}, staging.next_agent)
        generator, step_vector = self.generator, self.vector.step
        for t in range(self.n_rollout_steps):
            views = {}
            for name, array in observed.items():
                view = views[name] = seen[name][t]
                view[...] = array
            batch.observation = views
            action = policy.act(batch, generator=generator).action
            for head, values in action.items():
                acted[head][t] = values
                staged[head][...] = values
            extras = step_vector()
            rows.reward[t] = staging.reward
            rows.terminated[t] = staging.terminated
            rows.truncated[t] = staging.truncated
            rows.env_steps[t] = staging.env_steps
            if extras.finals:
                truncations += [(t, *final, 0) for final in extras.finals]
            if not staging.env_steps.all() and not (staging.env_steps.astype(bool) | rows.ends(t)).all():
                break
        n_rows = t + 1
        row[:] = n_rows
        ends = rows.terminated[:n_rows] | rows.truncated[:n_rows]
        completed[:] = ((rows.env_steps[:n_rows] > 0) | ends).sum(0)
        rows.filled[:n_rows] = True
        rows.first_key[:n_rows] = 0
        rows.next_key[:n_rows] = np.where(ends, -1, 0)
        rows.next_slot[:n_rows] = np.where(ends, -1, 0)
        segment.is_first[0] = ~self.slots.seen[:, 0]
        segment.is_first[1:n_rows] = ends[:-1]
        segment.agent_id[:n_rows] = staging.next_agent
        self.slots.seen[:, 0] = ~ends[-1]

    # ------------------------------------------------------------------------------------------ any actors

    def _collect_acts(self, policy: Policy, row: Array, completed: Array, truncations: list[Truncation]) -> None:
        """Collect act by act from environments that may be at different actors."""
        staging, rows = self.vector.staging, self.storage.rows
        position = np.zeros(self.n_envs, np.int64)
        acted = np.zeros(self.slots.seen.shape, np.bool_)  # in the row
        pending: list[list[tuple[int, int, int]]] = [[] for _ in range(self.n_envs)]  # acts of the environment step
        envs = np.flatnonzero(completed < self.n_rollout_steps)
        while envs.size:
            if row[envs].max() >= self.storage.capacity:
                self.storage.grow()
                rows = self.storage.rows
            keys, slots = staging.next_key[envs], self.slots.next[envs]
            groups = [(int(key), envs[keys == key], slots[keys == key]) for key in np.unique(keys)]
            for key, group, group_slots in groups:
                self._act(policy, key, group, group_slots, row, position, acted)
            for n, key, slot in zip(envs.tolist(), keys.tolist(), slots.tolist(), strict=True):
                pending[n].append((key, int(row[n]), n * int(self.slots.n_slots[key]) + slot))
                if len(pending[n]) > MAX_ACTS_PER_ENV_STEP:
                    raise ValueError(
                        f"environment {n} has made {MAX_ACTS_PER_ENV_STEP} acts without environment time advancing; "
                        "call context.increment_env_step() in the act that completes an environment step"
                    )
            extras = self.vector.step(envs.tolist())
            for key, group, group_slots in groups:
                segment = self.storage.segments[self._keys[key]]
                index = row[group], group * self.slots.n_slots[key] + group_slots
                segment.reward[index] = staging.reward[group]
                segment.actor_done[index] = staging.actor_done[group]
            terminated, truncated = staging.terminated[envs], staging.truncated[envs]
            ended, advanced = terminated | truncated, staging.env_steps[envs]
            for n, step_key, agent, seen in extras.finals:
                truncations.append(
                    (int(row[n]), n, step_key, agent, seen, self.slots.held(n, self._keys.index(step_key), agent))
                )
            step_ends = (advanced > 0) | ended
            self._write_actor_rewards(extras, envs[step_ends].tolist(), pending)
            self.slots.release(envs, keys, slots, staging.actor_done[envs], ended)
            self._find_slots(envs)
            next_key, next_slot = staging.next_key[envs], self.slots.next[envs]
            row_ends = step_ends | acted[envs, self.slots.offsets[next_key] + next_slot]
            closing, at = envs[row_ends], row[envs[row_ends]]
            rows.filled[at, closing] = True
            rows.terminated[at, closing] = terminated[row_ends]
            rows.truncated[at, closing] = truncated[row_ends]
            rows.env_steps[at, closing] = advanced[row_ends]
            rows.next_key[at, closing] = np.where(ended, -1, next_key)[row_ends]
            rows.next_slot[at, closing] = np.where(ended, -1, next_slot)[row_ends]
            row[closing] += 1
            position[closing] = 0
            acted[closing] = False
            completed[envs] += step_ends
            envs = envs[completed[envs] < self.n_rollout_steps]

    def _find_slots(self, envs: Array) -> None:
        staging = self.vector.staging
        self.slots.find(envs, staging.next_key[envs], staging.next_agent[envs])

    def _act(
        self, policy: Policy, key: int, envs: Array, slots: Array, row: Array, position: Array, acted: Array
    ) -> None:
        """Ask the policy of one step key and store what it saw and did."""
        staging, step_key = self.vector.staging, self._keys[key]
        segment = self.storage.segments[step_key]
        agents = staging.next_agent[envs]
        observation = {name: array[envs] for name, array in staging.observation[step_key].items()}
        index = row[envs], envs * self.slots.n_slots[key] + slots
        actor = self.slots.offsets[key] + slots
        is_first = ~self.slots.seen[envs, actor]
        step = policy.act(PolicyBatch(step_key, observation, agents, is_first=is_first), generator=self.generator)
        for name, values in observation.items():
            segment.observation[name][index] = values
        for head, values in step.action.items():
            segment.action[head][index] = values
            staging.action[step_key][head][envs] = values
        segment.active[index] = True
        segment.position[index] = position[envs]
        segment.agent_id[index] = agents
        segment.is_first[index] = is_first
        opens = position[envs] == 0
        self.storage.rows.first_key[index[0][opens], envs[opens]] = key
        self.storage.rows.first_slot[index[0][opens], envs[opens]] = slots[opens]
        self.slots.seen[envs, actor] = True
        acted[envs, actor] = True
        position[envs] += 1

    def _write_actor_rewards(self, extras: StepExtras, finished: list[int], pending: list[Any]) -> None:
        """Credit the acts of finished environment steps with the rewards attributed to them."""
        rewards_of = dict(extras.actor_rewards)
        for n in finished:
            rewards = rewards_of.get(n)
            if self._attributed is None:
                self._attributed = rewards is not None
            if self._attributed != (rewards is not None):
                raise ValueError(
                    f"get_actor_rewards() of environment {n} returned {'an array' if rewards is not None else 'None'} "
                    "after the opposite before; attribute rewards in every environment step or in none"
                )
            if rewards is not None:
                if rewards.shape != (len(pending[n]),):
                    raise ValueError(
                        f"get_actor_rewards() of environment {n} returned shape {rewards.shape} for "
                        f"{len(pending[n])} acts; return one reward for each act of the environment step, in order"
                    )
                for (key, t, b), reward in zip(pending[n], rewards.tolist(), strict=True):
                    self.storage.segments[self._keys[key]].actor_reward[t, b] = reward
            pending[n].clear()

    # ------------------------------------------------------------------------------------------------- result

    def _check(self, n_rows: int) -> None:
        """Refuse observations that are not numbers and masks that allow nothing."""
        for key, segment in self.storage.segments.items():
            active = segment.active[:n_rows]
            for name, array in segment.observation.items():
                if array.dtype.kind == "f" and not np.isfinite(array[:n_rows]).all():
                    bad = ~np.isfinite(array[:n_rows]).reshape(*active.shape, -1).all(-1) & active
                    if bad.any():
                        n = int(np.argwhere(bad)[0, 1]) // self.spec.steps[key].n_slots
                        raise ValueError(f"observation {name!r} of environment {n}, sub-step {key!r}, is not finite")
            for head, name in self.spec.steps[key].masks.items():
                space = self.spec.steps[key].action_space.spaces[head]
                if isinstance(space, spaces.MultiBinary):
                    continue
                mask = segment.observation[name][:n_rows] != 0
                parts = [mask]
                if isinstance(space, spaces.MultiDiscrete):
                    parts = np.split(mask, np.cumsum(space.nvec)[:-1], axis=-1)
                if any((~part.any(-1) & active).any() for part in parts):
                    raise ValueError(f"mask {name!r} of sub-step {key!r} allows no action for head {head!r}")

    def _rollout(self, n_rows: int, row: Array, truncations: list[Truncation], flat: bool) -> Rollout:
        storage = self.storage
        if not self.spec.is_flat:
            shape = n_rows, self.n_envs, -1
            totals = [part.reward[:n_rows].reshape(shape).sum(-1) for part in storage.segments.values()]
            storage.rows.reward[:n_rows] = np.sum(totals, axis=0)
        if not flat:
            for part in storage.segments.values():
                part.blank(n_rows)
        attributed = bool(self._attributed)
        return Rollout(
            rows=storage.rows.rows(n_rows),
            segments={key: segment.segment(n_rows, attributed) for key, segment in storage.segments.items()},
            finals=self._finals(row, truncations),
            n_rollout_steps=self.n_rollout_steps,
            flat=flat,
        )

    def _finals(self, row: Array, truncations: list[Truncation]) -> dict[StepKey, Final]:
        """Observations after truncated rows and after each environment's last row, unless its episode ended there."""
        staging, rows = self.vector.staging, self.storage.rows
        all_envs = np.arange(self.n_envs)
        last = row - 1
        running = all_envs[~(rows.terminated[last, all_envs] | rows.truncated[last, all_envs])]
        finals = {}
        for index, key in enumerate(self._keys):
            envs = running[staging.next_key[running] == index]
            cut = [truncation for truncation in truncations if truncation[2] == key]
            numbers = np.array([(t, n, slot, agent) for t, n, _, agent, _, slot in cut], np.int64).reshape(-1, 4)
            after = np.stack([last[envs], envs, self.slots.next[envs], staging.next_agent[envs]], axis=-1)
            columns = torch.from_numpy(np.concatenate([numbers, after]))
            observation = {}
            for name, array in staging.observation[key].items():
                cut_arrays = [np.asarray(truncation[4][name], array.dtype)[None] for truncation in cut]
                observation[name] = torch.from_numpy(np.concatenate([*cut_arrays, array[envs]]))
            after_row, env, slot, agent_id = columns.unbind(-1)
            finals[key] = Final(after_row, env, slot, agent_id, observation)
        return finals

    # -------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to continue exactly: tensors and primitives only."""
        staging = self.vector.staging
        observation = {
            str(n): {name: array[n] for name, array in staging.observation[self._keys[staging.next_key[n]]].items()}
            for n in range(self.n_envs)
        }
        state = {
            "generator": self.generator.get_state(),
            "started": self.started,
            "attributed": self._attributed,
        }
        if self.started:
            state |= {
                "histories": self.histories.state_dict(self.vector.episodes()),
                "wrappers": to_tensors(self.vector.wrapper_states()),
                "observation": to_tensors(observation),
                "slots": self.slots.state_dict(),
            }
        return state

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Continue where `state_dict` was taken, by playing the running episodes again.

        Returns:
            The environments that did not come out where they were, because they are not deterministic; they have
            started their next episode.
        """
        self.generator.set_state(state["generator"])
        self._attributed = state["attributed"]
        if not state["started"]:
            return []
        histories = self.histories.load_state_dict(state["histories"])
        self.vector.replay(histories, from_tensors(state["wrappers"]))
        self.started = True
        self.slots.load_state_dict(state["slots"])
        expected, strayed = from_tensors(state["observation"]), []
        staging = self.vector.staging
        for n in range(self.n_envs):
            now = staging.observation[self._keys[staging.next_key[n]]]
            before = expected[str(n)]
            same = before.keys() == now.keys() and all(
                np.array_equal(before[name], now[name][n], equal_nan=now[name].dtype.kind == "f") for name in now
            )
            if not same:
                strayed.append(n)
        if strayed:
            self.vector.reset(strayed, [histories[n].episode + 1 for n in strayed])
            self.vector.drain_summaries()
            for n in strayed:
                self.histories.forget(n)
                self.slots.forget(n)
        self._find_slots(np.arange(self.n_envs))
        return strayed
