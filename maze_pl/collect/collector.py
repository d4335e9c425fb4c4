"""Collector that plays a policy in vectorised environments and stores the acts in rollouts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from maze_pl.collect.act_rewards import ActRewards
from maze_pl.collect.actor_slots import ActorSlots
from maze_pl.collect.content_checks import check_acts
from maze_pl.collect.final_storage import FinalStorage
from maze_pl.collect.progress import ActPlaces, CollectedActs, Progress
from maze_pl.collect.state_tensors import from_tensors, tensor_views, to_tensors
from maze_pl.collect.storage import RolloutStorage
from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.policy import Array, Policy, PolicyBatch
from maze_pl.core.rows import Rows, Segment
from maze_pl.envs.vector.vector_env import VectorEnv


class Collector:
    """Collects rollouts of a fixed number of environment steps.

    Rows are defined in `maze_pl.core.rows`. Environments may be at different actors at the same
    time: the policy is called once for each step key whose turn it is in any environment. An
    environment that has completed its steps waits for the others. One that waits for its next
    episode (`VectorEnv.waiting`) does nothing in a step, and has one row fewer.

    Args:
        vector: The environments; reset by the first collection.
        n_rollout_steps: Environment steps per environment in a rollout, without those that a wrapper skips.
        generator: Source of the policy's randomness.
        n_same_starts: Number of consecutive environments that play each start. With several, each
            rollout begins with new episodes; those that are running are dropped.
    """

    def __init__(
        self, vector: VectorEnv, n_rollout_steps: int, generator: torch.Generator, n_same_starts: int = 1
    ) -> None:
        self.vector = vector
        self.n_rollout_steps = n_rollout_steps
        self.generator = generator
        self.n_same_starts = n_same_starts
        self._next_episode = 0  # index that no environment has played, if rollouts begin with new episodes
        self._must_restart = False
        self.spec = vector.spec
        self.n_envs = vector.n_envs
        self.storage = RolloutStorage(self.spec, self.n_envs, n_rollout_steps)
        self.slots = ActorSlots(self.spec, self.n_envs)
        self.started = False
        self._starting = np.zeros(self.n_envs, np.bool_)
        self._keys: tuple[StepKey, ...] = self.spec.step_keys
        self._flat = self.spec.is_flat
        self._act_rewards = ActRewards(self.storage, self.slots, self.spec.step_keys)
        self._finals = FinalStorage(vector, self.slots)

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
        elif self._must_restart:
            self.start([self._next_episode] * self.n_envs)
        self.storage.clear()
        self._finals.clear()
        progress = Progress(
            row=np.zeros(self.n_envs, np.int64),
            position=np.zeros(self.n_envs, np.int64),
            completed=np.zeros(self.n_envs, np.int64),
            places=ActPlaces(self.n_envs),
        )
        if self._flat and self.vector.waiting is None:
            self._collect_in_lockstep(policy, progress)
        was_lockstep = bool((progress.completed == self.n_rollout_steps).all())
        if not was_lockstep:
            self._collect_acts(policy, progress)
        n_rows = int(progress.row.max())
        check_acts(self.spec, self.storage.segments, n_rows, self.vector.first_env_index)
        rollout = self._rollout(n_rows, progress.row, self._flat and was_lockstep)
        rollout.summaries = self.vector.drain_summaries()
        if self.n_same_starts > 1:
            rollout.n_same_starts = self.n_same_starts
            n_ended = int((rollout.rows.terminated | rollout.rows.truncated).sum(0).max())
            self._next_episode += n_ended + 1
            self._must_restart = True
        return rollout

    def start(self, episodes: Sequence[int] | None = None) -> None:
        """Start environment i with episode `episodes[i]`, or with its first episode if None."""
        everyone = np.arange(self.n_envs)
        self._next_episode = episodes[0] if episodes else 0
        self._must_restart = False
        if self.started:
            self.slots.forget_episodes(everyone)
        self.vector.reset(episodes=episodes)
        self.slots.assign(everyone, self.vector.staging)
        self.started = True
        self._starting[:] = True

    # -------------------------------------------------------------------- one actor per environment

    def _collect_in_lockstep(self, policy: Policy, progress: Progress) -> None:
        """Collect from flat environments as long as every act completes an environment step."""
        key = self._keys[0]
        slots = self.slots
        staging = self.vector.staging
        rows = self.storage.rows
        segment = self.storage.segments[key]
        staged_action = staging.action[key]
        always_advances = self.vector.always_advances
        everyone = np.arange(self.n_envs)
        acted_in_episode = slots.acted_in_episode[:, 0]
        zeros = np.zeros(self.n_envs, np.int64)
        is_first = ~acted_in_episode
        observations = [(name, array, segment.observation[name]) for name, array in staging.observation[key].items()]
        batch = PolicyBatch(key, {}, staging.next_agent, is_first=is_first)
        for t in range(self.n_rollout_steps):
            views = {}
            for name, staged, stored in observations:
                view = views[name] = stored[t]
                view[...] = staged
            batch.observation = views
            step = slots.act(policy, batch, 0, everyone, slots.next_slot, generator=self.generator)
            for head, values in step.action.items():
                segment.action[head][t] = staged_action[head][...] = values
            extras = self.vector.step()
            rows.reward[t] = staging.reward
            rows.terminated[t] = staging.terminated
            rows.truncated[t] = staging.truncated
            batch.is_first = staging.terminated | staging.truncated
            if extras.finals:
                self._finals.keep_truncations(extras, progress.row + t)
            if extras.actor_rewards is not None or self._act_rewards.is_attributed is not False:
                progress.places.add(everyone, zeros, progress.row + t, zeros)
                completes = (staging.env_steps > 0) | rows.terminated[t] | rows.truncated[t]
                self._act_rewards.write(extras.actor_rewards, np.flatnonzero(completes), progress.places)
            if batch.policy_state is not None:
                segment.write_policy_state(t, batch.policy_state)
            if batch.policy_state is not None or step.noise_state is not None:
                acted_in_episode[:] = ~batch.is_first
            if always_advances:
                continue
            rows.env_steps[t] = staging.env_steps
            if np.count_nonzero(staging.env_steps) < self.n_envs:
                completes = (staging.env_steps > 0) | rows.terminated[t] | rows.truncated[t]
                if not completes.all():
                    break
        n_rows = t + 1
        if always_advances:
            rows.env_steps[:n_rows] = 1
        progress.row[:] = n_rows
        ends = self.storage.complete_flat(n_rows, is_first, staging.next_agent)
        progress.completed[:] = ((rows.env_steps[:n_rows] > 0) | ends).sum(0)
        # where the last act completed no environment step
        pending = np.flatnonzero(progress.completed < n_rows)
        progress.places.n_acts[pending] = 0
        progress.places.add(pending, zeros[pending], zeros[pending] + t, zeros[pending])
        acted_in_episode[:] = ~ends[-1]

    # ---------------------------------------------------------------------------------- any actors

    def _collect_acts(self, policy: Policy, progress: Progress) -> None:
        """Collect act by act from environments that may be at different actors."""
        staging = self.vector.staging
        slots = self.slots
        slots.acted_in_row.fill(False)
        envs = np.flatnonzero(progress.completed < self.n_rollout_steps)
        while envs.size:
            late = envs[:0]
            if self.vector.waiting is not None:
                late = envs[self.vector.waiting[envs]]
                envs = envs[~self.vector.waiting[envs]]
            if progress.row[envs].max() >= self.storage.capacity:
                self.storage.grow()
            acting_key = staging.next_key[envs]
            acting_slot = slots.next_slot[envs]
            keys = np.flatnonzero(np.bincount(acting_key)).tolist()
            acts = [self._act(policy, key, envs[acting_key == key], progress) for key in keys]
            progress.places.add(envs, acting_key, progress.row[envs], acting_slot)
            extras = self.vector.step(None if len(envs) == self.n_envs else envs)
            for segment, places, group in acts:
                segment.reward[places] = staging.reward[group]
                segment.actor_done[places] = staging.actor_done[group]
            self._finals.keep_truncations(extras, progress.row)
            ended = staging.terminated[envs] | staging.truncated[envs]
            step_ends = (staging.env_steps[envs] > 0) | ended
            if extras.done_actors:
                self._mark_done(extras.done_actors, progress.places)
            self._act_rewards.write(extras.actor_rewards, envs[step_ends], progress.places)
            slots.release(envs, acting_key, acting_slot, staging.actor_done[envs], ended)
            slots.end_actors(extras.done_actors, staging)
            slots.acted_in_row[envs[step_ends]] = False
            if slots.assign(envs, staging):
                self.storage.widen(slots.n_slots)
            self._end_rows(envs, ended, step_ends, progress)
            progress.completed[envs] += step_ends
            if late.size:
                progress.completed[late] += 1
                envs = np.sort(np.concatenate([envs, late]))
            envs = envs[progress.completed[envs] < self.n_rollout_steps]

    def _act(self, policy: Policy, key: int, envs: Array, progress: Progress) -> CollectedActs:
        """Call the policy of one step key and store its observations and actions."""
        rows = self.storage.rows
        segment = self.storage.segments[self._keys[key]]
        slots = self.slots.next_slot[envs]
        position = progress.position[envs]
        index = (progress.row[envs], envs * self.slots.n_slots[key] + slots)
        batch = self.slots.batch(self.vector.staging, key, envs)
        step = self.slots.act(policy, batch, key, envs, slots, generator=self.generator)
        segment.write_policy_state(index, batch.policy_state)
        for name, values in batch.observation.items():
            segment.observation[name][index] = values
        for head, values in step.action.items():
            segment.action[head][index] = values
            self.vector.staging.action[batch.step_key][head][envs] = values
        segment.active[index] = True
        segment.position[index] = position
        segment.agent_id[index] = batch.agent_id
        segment.is_first[index] = batch.is_first
        opening = envs[position == 0]
        rows.first_key[progress.row[opening], opening] = key
        rows.first_slot[progress.row[opening], opening] = self.slots.next_slot[opening]
        actors = self.slots.offsets[key] + slots
        self.slots.acted_in_episode[envs, actors] = True
        self.slots.acted_in_row[envs, actors] = True
        progress.position[envs] += 1
        return CollectedActs(segment, index, envs)

    def _mark_done(self, done_actors: Mapping[int, Sequence[ActorID]], places: ActPlaces) -> None:
        """Mark the latest acts of actors that are done since their environment steps have ended.

        Args:
            done_actors: Environment -> actors, as in `StepExtras`.
            places: For each environment, the acts of its environment step.

        Raises:
            ValueError: An actor has not acted in the step.
        """
        for env, actors in done_actors.items():
            for step_key, agent in actors:
                key = self._keys.index(step_key) if step_key in self._keys else -1
                acts = np.flatnonzero(places.key[env, : places.n_acts[env]] == key)
                if acts.size:
                    slot = int(self.slots.slots_of(np.array([env]), key, np.array([agent]))[0])
                    acts = acts[places.slot[env, acts] == slot]
                if not acts.size:
                    came = f"environment {env}: get_done_actors() names agent {agent} of sub-step {step_key!r}"
                    remedy = "it may only name actors that have, and that is_actor_done() has not told of"
                    raise ValueError(f"{came}, which has not acted in the environment step; {remedy}")
                segment = self.storage.segments[step_key]
                segment.actor_done[places.row[env, acts[-1]], env * int(self.slots.n_slots[key]) + slot] = True

    def _end_rows(self, envs: Array, ended: Array, step_ends: Array, progress: Progress) -> None:
        """End the rows of environments whose step ended, or whose next actor has acted in the row.

        Args:
            envs: [n] the environments that stepped.
            ended: [n] bool, whether their episodes ended.
            step_ends: [n] bool, whether their environment steps ended.
            progress: Gets the next rows.
        """
        staging = self.vector.staging
        rows = self.storage.rows
        next_key = staging.next_key[envs]
        next_slot = self.slots.next_slot[envs]
        has_acted = self.slots.acted_in_row[envs, self.slots.offsets[next_key] + next_slot]
        row_ends = step_ends | has_acted
        closing = envs[row_ends]
        index = (progress.row[closing], closing)
        rows.filled[index] = True
        rows.terminated[index] = staging.terminated[closing]
        rows.truncated[index] = staging.truncated[closing]
        rows.env_steps[index] = staging.env_steps[closing]
        rows.next_key[index] = np.where(ended, -1, next_key)[row_ends]
        rows.next_slot[index] = np.where(ended, -1, next_slot)[row_ends]
        progress.row[closing] += 1
        progress.position[closing] = 0
        self.slots.acted_in_row[closing] = False

    # -------------------------------------------------------------------------------------- result

    def _rollout(self, n_rows: int, row: Array, flat: bool) -> Rollout:
        """Make a rollout of the first rows.

        Args:
            n_rows: Rows of the environment that has the most.
            row: [N] rows of each environment.
            flat: Whether one actor acts exactly once in each row and every row is filled.
        """
        rows = self.storage.rows
        segments = self.storage.segments
        if not self._flat:
            shape = (n_rows, self.n_envs, -1)  # [T, N * n_slots] -> [T, N, n_slots]
            totals = [part.reward[:n_rows].reshape(shape).sum(-1) for part in segments.values()]
            rows.reward[:n_rows] = np.sum(totals, axis=0)
        if not flat:
            for part in segments.values():
                part.blank(n_rows)
        envs = np.arange(self.n_envs)
        ended = rows.terminated[row - 1, envs] | rows.truncated[row - 1, envs]
        self._finals.keep_last(row, envs[~ended & (row > 0)])
        starting = torch.from_numpy(self._starting)
        self._starting = np.zeros(self.n_envs, np.bool_)
        return Rollout(
            Rows(**tensor_views(vars(rows), n_rows)),
            {key: Segment(**tensor_views(vars(part), n_rows)) for key, part in segments.items()},
            self._finals.joined(),
            self.n_rollout_steps,
            flat,
            starting,
        )

    # --------------------------------------------------------------------------------- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Return the state needed to continue exactly: tensors and primitives only."""
        state: dict[str, Any] = {
            "generator": self.generator.get_state(),
            "started": self.started,
            "attributed": self._act_rewards.is_attributed,
            "next_episode": self._next_episode,
            "must_restart": self._must_restart,
        }
        if not self.started:
            return state
        state |= self.vector.state_dict() | {"starting": self._starting}
        state["slots"] = self.slots.state_dict()
        state["memory"] = self.slots.policy_states
        state["noise"] = self.slots.noise_states
        return dict(to_tensors(state))

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Continue where `state_dict` was taken.

        Returns:
            The environments that did not reach their saved observation, because they are not deterministic or depend
            on a state that was not saved; they have started their next episode.
        """
        self.generator.set_state(state["generator"])
        self._act_rewards.is_attributed = state["attributed"]
        self._next_episode = state.get("next_episode", 0)
        self._must_restart = state.get("must_restart", False)
        if not state["started"]:
            return []
        state = from_tensors(state)
        strayed = self.vector.load_state_dict(state)
        self.started = True
        self.slots.load_state_dict(state["slots"])
        self.storage.widen(self.slots.n_slots)
        self.slots.policy_states = state.get("memory", {})
        self.slots.noise_states = state.get("noise", {})
        self._starting = np.array(state.get("starting", self._starting))  # not in checkpoints of earlier versions
        self._starting[strayed] = True
        self.slots.forget_episodes(np.array(strayed, np.int64))
        self.slots.assign(np.arange(self.n_envs), self.vector.staging)
        return strayed
