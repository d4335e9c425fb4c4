"""Plays a policy in a vector of environments and writes what happens into rollouts."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from maze_pl.collect.checks import check_acts, check_now
from maze_pl.collect.history import Histories
from maze_pl.collect.memory import Memory
from maze_pl.collect.serialization import from_tensors, to_tensors
from maze_pl.collect.slots import ActorSlots
from maze_pl.collect.storage import Array, RolloutStorage, tensors
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Policy, PolicyBatch
from maze_pl.core.rollout import Final, Rollout
from maze_pl.envs.vector.vector_env import StepExtras, VectorEnv

MAX_ACTS_PER_ENV_STEP = 10_000

Trees = dict[StepKey, dict[str, Array]]
Truncation = tuple[int, int, StepKey, int, dict[str, Array], int]
"""After a truncated row: row, environment, step key, agent id, observation with state, and slot (-1: holds none)."""


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
        self.vector, self.n_rollout_steps, self.generator = vector, n_rollout_steps, generator
        self.spec, self.n_envs = vector.spec, vector.n_envs
        self.storage = RolloutStorage(self.spec, self.n_envs, n_rollout_steps)
        self.histories = Histories(self.spec, self.n_envs)
        self.started = False
        self._keys: tuple[StepKey, ...] = self.spec.step_keys
        self._flat = self.spec.is_flat
        self.slots = ActorSlots(self.spec, self.n_envs)
        self.memory = Memory(self.slots)
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
        last_seen = self.vector.staging.observation
        if self.vector.resetting is not None:
            last_seen = self._collect_around_resets(policy, self.vector.resetting, row, truncations)
            completed[:] = row
        elif self._flat:
            self._collect_in_lockstep(policy, row, completed, truncations)
        lockstep = bool((completed == self.n_rollout_steps).all())
        if not lockstep:
            self._collect_acts(policy, row, completed, truncations)
        n_rows = int(row.max())
        check_acts(self.spec, self.storage.segments, n_rows, self.vector.first_env_index)
        rollout = self._rollout(n_rows, row, truncations, last_seen, self._flat and lockstep)
        if self.vector.can_replay:
            self.histories.extend(self.storage, row)
        rollout.summaries = self.vector.drain_summaries()
        rollout.seconds = time.perf_counter() - began
        return rollout

    def start(self, episodes: Sequence[int] | None = None) -> None:
        """Start every environment with the episode of its index, with the first one if None."""
        self.vector.reset(episodes=episodes)
        self._find_slots(np.arange(self.n_envs))
        self.started = True

    # ------------------------------------------------------------------------------------------- one actor each

    def _collect_in_lockstep(self, policy: Policy, row: Array, completed: Array, truncations: list[Truncation]) -> None:
        """Collect from flat environments for as long as every act completes an environment step."""
        key, staging, rows = self._keys[0], self.vector.staging, self.storage.rows
        segment = self.storage.segments[key]
        observed = [(name, array, segment.observation[name]) for name, array in staging.observation[key].items()]
        staged, acted = staging.action[key], segment.action
        batch = PolicyBatch(key, {}, staging.next_agent)
        act, generator, step_vector = self.memory.act, self.generator, self.vector.step
        advances, env_steps, n_envs = self.vector.always_advances, staging.env_steps, self.n_envs
        rewards, terminated, truncated = rows.reward, rows.terminated, rows.truncated
        everyone, seen = np.arange(n_envs), self.slots.seen[:, 0]
        is_first = ~seen
        for t in range(self.n_rollout_steps):
            views = {}
            for name, array, kept in observed:
                view = views[name] = kept[t]
                view[...] = array
            batch.observation = views
            for head, values in act(policy, batch, 0, everyone, self.slots.next, generator=generator).action.items():
                acted[head][t] = staged[head][...] = values
            extras = step_vector()
            rewards[t] = staging.reward
            terminated[t] = staging.terminated
            truncated[t] = staging.truncated
            if extras.finals:
                truncations += [self._truncation(t, *final) for final in extras.finals]
            if batch.state is not None:
                segment.remember(t, batch.state)
                seen[:] = ~(terminated[t] | truncated[t])
            if not advances:
                rows.env_steps[t] = env_steps
                if np.count_nonzero(env_steps) < n_envs and not ((env_steps > 0) | terminated[t] | truncated[t]).all():
                    break
        if advances:
            rows.env_steps[: t + 1] = 1
        row[:] = t + 1
        ends = self.storage.complete_flat(t + 1, is_first, staging.next_agent)
        completed[:] = ((rows.env_steps[: t + 1] > 0) | ends).sum(0)
        seen[:] = ~ends[-1]

    def _collect_around_resets(
        self, policy: Policy, resetting: Array, row: Array, truncations: list[Truncation]
    ) -> Trees:
        """Collect from flat environments of which each step may only reset some.

        Those that lose no step to resets are ahead of the others. They go on until the last one is done, but what they
        do beyond the rollout belongs to none, so that all rollouts are full and made by one policy.

        Returns:
            What each environment showed after its last row, and the state with which its actor would have acted.
        """
        (key,) = self._keys
        staging, n_rows = self.vector.staging, self.n_rollout_steps
        rows, segment = self.storage.rows, self.storage.segments[key]
        batch, seen = PolicyBatch(key, {}, staging.next_agent), self.slots.seen[:, 0]
        is_first, actors = ~seen, (0, np.arange(self.n_envs), self.slots.next)
        last_seen = {name: array.copy() for name, array in staging.observation[key].items()}
        while (row < n_rows).any():
            acting = ~resetting
            envs = np.flatnonzero(acting & (row < n_rows))
            at = row[envs]
            batch.observation = {name: array.copy() for name, array in staging.observation[key].items()}
            for name, array in batch.observation.items():
                segment.observation[name][at, envs] = array[envs]
            step = self.memory.act(policy, batch, *actors, generator=self.generator)
            segment.remember((at, envs), {name: array[envs] for name, array in (batch.state or {}).items()})
            for head, values in step.action.items():
                segment.action[head][at, envs] = values[envs]
                staging.action[key][head][...] = values
            extras = self.vector.step()
            rows.reward[at, envs] = staging.reward[envs]
            rows.terminated[at, envs] = staging.terminated[envs]
            rows.truncated[at, envs] = staging.truncated[envs]
            truncations += [self._truncation(int(row[f[0]]), *f) for f in extras.finals if row[f[0]] < n_rows]
            seen[:] = acting & ~(staging.terminated | staging.truncated)  # those that were only reset have not acted
            row[envs] += 1
            done = envs[row[envs] == n_rows]
            shown = staging.observation[key] | (self.memory.recall(*actors) or {})
            for name, array in shown.items():
                last_seen.setdefault(name, np.zeros_like(array))[done] = array[done]
        rows.env_steps[:n_rows] = 1
        self.storage.complete_flat(n_rows, is_first, staging.next_agent)
        return {key: last_seen}

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
                self.storage = self.storage.grown()
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
                truncations.append(self._truncation(int(row[n]), n, step_key, agent, seen))
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

    def _truncation(self, row: int, n: int, step_key: StepKey, agent: int, seen: dict[str, Array]) -> Truncation:
        key = self._keys.index(step_key)
        slot = 0 if self._flat else self.slots.held(n, key, agent)
        return row, n, step_key, agent, seen | (self.memory.recall(key, n, slot) or {}), slot

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
        batch = PolicyBatch(step_key, observation, agents, is_first=is_first)
        step = self.memory.act(policy, batch, key, envs, slots, generator=self.generator)
        segment.remember(index, batch.state)
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
        self.slots.seen[envs, actor] = acted[envs, actor] = True
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

    def _rollout(self, n_rows: int, row: Array, truncations: list[Truncation], last_seen: Trees, flat: bool) -> Rollout:
        storage = self.storage
        if not self._flat:
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
            finals=self._finals(row, truncations, last_seen),
            n_rollout_steps=self.n_rollout_steps,
            flat=flat,
        )

    def _finals(self, row: Array, truncations: list[Truncation], last_seen: Trees) -> dict[StepKey, Final]:
        """Observations after truncated rows and after each environment's last row, unless its episode ended there."""
        staging, rows = self.vector.staging, self.storage.rows
        all_envs = np.arange(self.n_envs)
        last = row - 1
        running = all_envs[~(rows.terminated[last, all_envs] | rows.truncated[last, all_envs])]
        finals = {}
        for index, key in enumerate(self._keys):
            envs = running if self._flat else running[staging.next_key[running] == index]
            cut = [truncation for truncation in truncations if truncation[2] == key]
            numbers = [last[envs], envs, self.slots.next[envs], staging.next_agent[envs]]
            observation = self.memory.recall(index, envs, self.slots.next[envs]) or {}
            observation |= {name: array[envs] for name, array in last_seen[key].items()}
            if cut:
                before = zip(*((t, n, slot, agent) for t, n, _, agent, _, slot in cut), strict=True)
                numbers = [np.concatenate([b, after]) for b, after in zip(before, numbers, strict=True)]
                for name, after in observation.items():
                    zero = np.zeros(after.shape[1:])  # no actor of the sub-step had a state yet
                    arrays = [np.asarray(truncation[4].get(name, zero), after.dtype)[None] for truncation in cut]
                    observation[name] = np.concatenate([*arrays, after])
            seen = {f"observation {name!r}": array for name, array in observation.items()}
            check_now(seen, numbers[1], numbers[0] + 1, "the rollout", self.vector.first_env_index)
            after_row, env, slot, agent_id = map(torch.from_numpy, numbers)
            state = {name: observation.pop(name) for name in [*observation] if name not in staging.observation[key]}
            finals[key] = Final(after_row, env, slot, agent_id, tensors(observation), tensors(state))
        return finals

    # -------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to continue exactly: tensors and primitives only."""
        state = {"generator": self.generator.get_state(), "started": self.started, "attributed": self._attributed}
        if not self.started:
            return state
        episodes = self.vector.episodes()
        if not self.vector.can_replay:
            return state | {"episodes": episodes}
        state |= {
            "histories": self.histories.state_dict(episodes),
            "wrappers": self.vector.wrapper_states(),
            "observation": self._shown(),
            "slots": self.slots.state_dict(),
            "memory": self.memory.carried,
        }
        return dict(to_tensors(state))

    def _shown(self) -> dict[str, dict[str, Array]]:
        """What each environment shows the actor that acts next in it."""
        staging = self.vector.staging
        keys = [self._keys[index] for index in staging.next_key]
        return {
            str(n): {name: array[n] for name, array in staging.observation[key].items()} for n, key in enumerate(keys)
        }

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Continue where `state_dict` was taken, by playing the running episodes again.

        Returns:
            The environments that did not come out where they were, because they are not deterministic or cannot be
            played again; they have started their next episode.
        """
        self.generator.set_state(state["generator"])
        self._attributed = state["attributed"]
        if not state["started"]:
            return []
        if not self.vector.can_replay or "histories" not in state:
            episodes = state.get("episodes") or [history["episode"] for history in state["histories"]]
            self.start([episode + 1 for episode in episodes])
            return list(range(self.n_envs))
        state = from_tensors(state)
        histories = self.histories.load_state_dict(state["histories"])
        self.vector.replay(histories, state["wrappers"])
        self.started = True
        self.slots.load_state_dict(state["slots"])
        self.memory.carried = state.get("memory", {})
        shown = self._shown()
        strayed = [n for n in range(self.n_envs) if not _is_same(state["observation"][str(n)], shown[str(n)])]
        self.vector.reset(strayed, [histories[n].episode + 1 for n in strayed])
        for n in strayed:
            self.histories.forget(n)
            self.slots.forget(n)
        self._find_slots(np.arange(self.n_envs))
        return strayed


def _is_same(before: dict[str, Array], now: dict[str, Array]) -> bool:
    return before.keys() == now.keys() and all(
        np.array_equal(before[name], value, equal_nan=value.dtype.kind == "f") for name, value in now.items()
    )
