"""Collector that plays a policy in vectorised environments and stores the acts in rollouts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from maze_pl.collect.storage import ActorSlots, RolloutStorage, check_acts, check_now, from_tensors, tensors, to_tensors
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Final, Rollout, Rows, Segment, SegmentOf
from maze_pl.core.policy import Array, Policy, PolicyBatch
from maze_pl.envs.vector.vector_env import StepExtras, VectorEnv

_CollectedActs = tuple[SegmentOf[Array], tuple[Array, Array], Array]
"""Segment of a group of acts, their rows and columns in it, and their environments."""
Pending = list[list[tuple[int, int, int]]]
"""For each environment, the acts of its current step: index of the step key, row and slot."""


class Collector:
    """Collects rollouts of a fixed number of environment steps; see `maze_pl.core.batches` for what a row is.

    Environments may be at different actors at the same time: the policy is called once for each
    step key whose turn it is in any environment. An environment that has completed its steps waits
    for the others.

    Args:
        vector: The environments; reset by the first collection.
        n_rollout_steps: Environment steps per environment in a rollout.
        generator: Source of the policy's randomness.
    """

    def __init__(self, vector: VectorEnv, n_rollout_steps: int, generator: torch.Generator) -> None:
        self.vector, self.n_rollout_steps, self.generator = vector, n_rollout_steps, generator
        self.spec, self.n_envs = vector.spec, vector.n_envs
        self.storage = RolloutStorage(self.spec, self.n_envs, n_rollout_steps)
        self.started, self._starting = False, np.zeros(self.n_envs, np.bool_)
        self._keys: tuple[StepKey, ...] = self.spec.step_keys
        self._flat = self.spec.is_flat
        self.slots = ActorSlots(self.spec, self.n_envs)
        self._attributed: bool | None = None
        self._ends: dict[StepKey, list[Final]] = {}

    def collect(self, policy: Policy) -> Rollout:
        """Collect one rollout.

        Args:
            policy: Chooses the actions.

        Returns:
            The rollout, whose tensors are views of storage that the next call overwrites.

        Raises:
            ValueError: The environment broke its contract; the message says how.
        """
        if not self.started:
            self.start()
        self.storage.clear()
        self._ends = {key: [] for key in self._keys}
        row, completed = np.zeros((2, self.n_envs), np.int64)
        pending: Pending = [[] for _ in range(self.n_envs)]
        if self._flat:
            self._collect_in_lockstep(policy, row, completed, pending)
        lockstep = bool((completed == self.n_rollout_steps).all())
        if not lockstep:
            self._collect_acts(policy, row, completed, pending)
        n_rows = int(row.max())
        check_acts(self.spec, self.storage.segments, n_rows, self.vector.first_env_index)
        rollout = self._rollout(n_rows, row, self._flat and lockstep)
        rollout.summaries = self.vector.drain_summaries()
        return rollout

    def start(self, episodes: Sequence[int] | None = None) -> None:
        """Start environment i with episode `episodes[i]`, or with its first episode if None."""
        self.vector.reset(episodes=episodes)
        self.slots.find(np.arange(self.n_envs), self.vector.staging)
        self.started = self._starting[:] = True

    # -------------------------------------------------------------------- one actor per environment

    def _collect_in_lockstep(self, policy: Policy, row: Array, completed: Array, pending: Pending) -> None:
        """Collect from flat environments as long as every act completes an environment step."""
        key, staging, rows = self._keys[0], self.vector.staging, self.storage.rows
        segment = self.storage.segments[key]
        observed = [(name, array, segment.observation[name]) for name, array in staging.observation[key].items()]
        staged, acted = staging.action[key], segment.action
        batch = PolicyBatch(key, {}, staging.next_agent)
        act, generator, step_vector = self.slots.act, self.generator, self.vector.step
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
                self._keep_truncations(extras, row + t)
            if extras.actor_rewards or self._attributed is not False:
                for acts in pending:
                    acts.append((0, t, 0))
                over = (env_steps > 0) | terminated[t] | truncated[t]
                self._write_actor_rewards(extras, np.flatnonzero(over).tolist(), pending)
            if batch.policy_state is not None:
                segment.write_policy_state(t, batch.policy_state)
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
        for n in np.flatnonzero(completed <= t).tolist():  # the last act completed no environment step
            pending[n][:] = [(0, t, 0)]
        seen[:] = ~ends[-1]

    # ------------------------------------------------------------------------------------------ any actors

    def _collect_acts(self, policy: Policy, row: Array, completed: Array, pending: Pending) -> None:
        """Collect act by act from environments that may be at different actors."""
        staging, rows = self.vector.staging, self.storage.rows
        position = np.zeros(self.n_envs, np.int64)
        self.slots.acted.fill(False)
        envs = np.flatnonzero(completed < self.n_rollout_steps)
        while envs.size:
            if row[envs].max() >= self.storage.capacity:
                self.storage.grow()
            keys, slots = staging.next_key[envs], self.slots.next[envs]
            present = sorted(set(keys.tolist()))
            acts = [self._act(policy, key, envs[keys == key], row, position) for key in present]
            for n, key, slot in zip(envs.tolist(), keys.tolist(), slots.tolist(), strict=True):
                pending[n].append((key, int(row[n]), slot))
            extras = self.vector.step(envs.tolist())
            for segment, index, group in acts:
                segment.reward[index] = staging.reward[group]
                segment.actor_done[index] = staging.actor_done[group]
            terminated, truncated = staging.terminated[envs], staging.truncated[envs]
            ended, advanced = terminated | truncated, staging.env_steps[envs]
            self._keep_truncations(extras, row)
            step_ends = (advanced > 0) | ended
            self._write_actor_rewards(extras, envs[step_ends].tolist(), pending)
            self.slots.release(envs, keys, slots, staging.actor_done[envs], ended)
            self.slots.acted[envs[step_ends]] = False
            if self.slots.find(envs, staging):
                self.storage.widen(self.slots.n_slots)
            next_key, next_slot = staging.next_key[envs], self.slots.next[envs]
            row_ends = step_ends | self.slots.acted[envs, self.slots.offsets[next_key] + next_slot]
            closing, at = envs[row_ends], row[envs[row_ends]]
            rows.filled[at, closing] = True
            rows.terminated[at, closing] = terminated[row_ends]
            rows.truncated[at, closing] = truncated[row_ends]
            rows.env_steps[at, closing] = advanced[row_ends]
            rows.next_key[at, closing] = np.where(ended, -1, next_key)[row_ends]
            rows.next_slot[at, closing] = np.where(ended, -1, next_slot)[row_ends]
            row[closing] += 1
            position[closing] = 0
            self.slots.acted[closing] = False
            completed[envs] += step_ends
            envs = envs[completed[envs] < self.n_rollout_steps]

    def _act(self, policy: Policy, key: int, envs: Array, row: Array, position: Array) -> _CollectedActs:
        """Call the policy of one step key and store its observations and actions."""
        rows, segment, slots = self.storage.rows, self.storage.segments[self._keys[key]], self.slots.next[envs]
        index, actor = (row[envs], envs * self.slots.n_slots[key] + slots), self.slots.offsets[key] + slots
        batch = self.slots.batch(self.vector.staging, key, envs)
        step = self.slots.act(policy, batch, key, envs, slots, generator=self.generator)
        segment.write_policy_state(index, batch.policy_state)
        for name, values in batch.observation.items():
            segment.observation[name][index] = values
        for head, values in step.action.items():
            segment.action[head][index] = values
            self.vector.staging.action[batch.step_key][head][envs] = values
        segment.active[index] = True
        segment.position[index] = position[envs]
        segment.agent_id[index] = batch.agent_id
        segment.is_first[index] = batch.is_first
        opening = envs[position[envs] == 0]
        rows.first_key[row[opening], opening] = key
        rows.first_slot[row[opening], opening] = self.slots.next[opening]
        self.slots.seen[envs, actor] = self.slots.acted[envs, actor] = True
        position[envs] += 1
        return segment, index, envs

    def _write_actor_rewards(self, extras: StepExtras, finished: list[int], pending: Pending) -> None:
        """Store the rewards attributed to acts of finished environment steps; forget the acts."""
        rewards_of = dict(extras.actor_rewards)
        for n in finished:
            rewards, acts, pending[n] = rewards_of.get(n), pending[n], []
            if self._attributed is None:
                self._attributed = rewards is not None
            who = f"get_actor_rewards() of environment {n} returned"
            if self._attributed != (rewards is not None):
                came = f"{who} {'None' if rewards is None else 'an array'} after the opposite before"
                raise ValueError(f"{came}; attribute rewards in every environment step or in none")
            if rewards is None:
                continue
            if rewards.shape != (len(acts),):
                came = f"{who} shape {rewards.shape} for {len(acts)} acts"
                raise ValueError(f"{came}; return one reward for each act of the environment step, in order")
            for (key, t, slot), reward in zip(acts, rewards.tolist(), strict=True):
                column = n * int(self.slots.n_slots[key]) + slot
                self.storage.segments[self._keys[key]].actor_reward[t, column] = reward

    # ------------------------------------------------------------------------------------------------- result

    def _rollout(self, n_rows: int, row: Array, flat: bool) -> Rollout:
        rows, parts = self.storage.rows, self.storage.segments.values()
        if not self._flat:
            totals = [part.reward[:n_rows].reshape(n_rows, self.n_envs, -1).sum(-1) for part in parts]
            rows.reward[:n_rows] = np.sum(totals, axis=0)
        if not flat:
            for part in parts:
                part.blank(n_rows)
        last, envs = row - 1, np.arange(self.n_envs)
        running = envs[~(rows.terminated[last, envs] | rows.truncated[last, envs])]
        self._keep_last(row, running)
        none = {} if self._attributed else {"actor_reward": None}
        segments = {k: Segment(**tensors(vars(part) | none, n_rows)) for k, part in self.storage.segments.items()}
        finals = {key: Final.joined(ends) for key, ends in self._ends.items()}
        for final in finals.values():
            seen = {f"observation {name!r}": tensor.numpy() for name, tensor in final.observation.items()}
            check_now(seen, final.env.numpy(), final.row.numpy() + 1, "the rollout", self.vector.first_env_index)
        starting, self._starting = torch.from_numpy(self._starting), np.zeros(self.n_envs, np.bool_)
        return Rollout(Rows(**tensors(vars(rows), n_rows)), segments, finals, self.n_rollout_steps, flat, starting)

    def _keep_truncations(self, extras: StepExtras, row: Array) -> None:
        """Keep the final observations of truncated episodes."""
        for n, step_key, agent, seen in extras.finals:
            key = self._keys.index(step_key)
            slot = 0 if self._flat else self.slots.held(n, key, agent)
            staged = self.vector.staging.observation[step_key].items()
            shown = {name: np.asarray(seen[name], array.dtype)[None] for name, array in staged}
            self._keep(key, row[[n]], np.array([n]), np.array([slot]), np.array([agent]), shown)

    def _keep_last(self, row: Array, envs: Array) -> None:
        """Keep the observations that follow the last row."""
        staging = self.vector.staging
        for index, key in enumerate(self._keys):
            group = envs if self._flat else envs[staging.next_key[envs] == index]
            shown = {name: array[group] for name, array in staging.observation[key].items()}
            self._keep(index, row[group] - 1, group, self.slots.next[group], staging.next_agent[group], shown)

    def _keep(self, key: int, row: Array, envs: Array, slots: Array, agents: Array, shown: dict[str, Array]) -> None:
        """Keep the observations that follow rows, and the policy states for the next acts."""
        policy_state = self.slots.policy_state(key, envs, slots) or {}
        parts = {
            "row": row,
            "env": envs,
            "slot": slots,
            "agent_id": agents,
            "observation": shown,
            "policy_state": policy_state,
        }
        self._ends[self._keys[key]].append(Final(**tensors(parts)))

    # -------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """Return the state needed to continue exactly: tensors and primitives only."""
        state = {"generator": self.generator.get_state(), "started": self.started, "attributed": self._attributed}
        if not self.started:
            return state
        state["episodes"], state["histories"] = self.vector.episodes(), self.vector.histories()
        state["wrappers"] = self.vector.wrapper_states()
        state["slots"], state["memory"] = self.slots.state_dict(), self.slots.policy_states
        state["observation"] = self._shown()
        return dict(to_tensors(state))

    def _shown(self) -> dict[str, dict[str, Array]]:
        """Observation of the actor that acts next, for each environment."""
        trees = [self.vector.staging.observation[self._keys[index]] for index in self.vector.staging.next_key]
        return {str(n): {name: array[n] for name, array in tree.items()} for n, tree in enumerate(trees)}

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Continue where `state_dict` was taken, by replaying the running episodes.

        Returns:
            The environments that did not reach their saved observation, because they are not
            deterministic; they have started their next episode.
        """
        self.generator.set_state(state["generator"])
        self._attributed = state["attributed"]
        if not state["started"]:
            return []
        state = from_tensors(state)
        self.vector.replay(state["histories"], state["wrappers"])
        self.started = True
        self.slots.load_state_dict(state["slots"])
        self.storage.widen(self.slots.n_slots)
        self.slots.policy_states = state.get("memory", {})
        shown = self._shown()
        strayed = [n for n in range(self.n_envs) if not _is_same(state["observation"][str(n)], shown[str(n)])]
        self.vector.reset(strayed, [state["histories"][n]["episode"] + 1 for n in strayed])
        self._starting[strayed] = True
        for n in strayed:
            self.slots.forget(n)
        self.slots.find(np.arange(self.n_envs), self.vector.staging)
        return strayed


def _is_same(before: dict[str, Array], now: dict[str, Array]) -> bool:
    same = (np.array_equal(before[name], value, equal_nan=True) for name, value in now.items())
    return before.keys() == now.keys() and all(same)
