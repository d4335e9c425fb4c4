"""Collector of rollouts whose environments, policy and storage share a device."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from maze_pl.collect.actor_slots import ActorSlots
from maze_pl.collect.state_tensors import from_tensors, to_tensors
from maze_pl.collect.tensors.action_bounds import ActionBounds
from maze_pl.collect.tensors.graph_checks import changing_tensors_of, differing_tensor
from maze_pl.collect.tensors.host_policy import HasDistributions, HostPolicy, why_on_host
from maze_pl.collect.tensors.recorded_policy import RecordedPolicy
from maze_pl.collect.tensors.running_tensors import RunningTensors
from maze_pl.collect.tensors.tensor_checks import TensorChecks
from maze_pl.collect.tensors.tensor_episodes import TensorEpisodes
from maze_pl.collect.tensors.tensor_statistics import TensorStatistics
from maze_pl.collect.tensors.tensor_storage import TensorStorage
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.batches import Rollout
from maze_pl.envs.tensors.tensor_streams import environment_seeds, episode_seeds
from maze_pl.envs.tensors.tensor_wrapper import faults_within
from maze_pl.system.device_graph import DeviceGraph, random_devices, uses_graphs

_LOGGER: Final = logging.getLogger(__name__)
MOST_RECORDINGS: Final = 5
"""Rollouts in a row before which the environment step may be recorded, as recording takes long."""


class TensorCollector:
    """Collects rollouts of a `TensorEnv`.

    The host waits for the device in the first rollout, to check what the environment returns, when
    a graph is recorded, in each act of a `HostPolicy`, and when statistics are fetched: as they are
    read, and earlier if those that wait take more than `MOST_PENDING_BYTES`.

    On a CUDA device, acting and stepping are recorded as one graph, which is compared with the same
    operations before. It is recorded again if the policy has other tensors or hooks, or if a number,
    text or function that is an attribute of one of its modules has changed. If it would be recorded
    before each rollout, no graph is used. Checking and recording leave the global random generators
    as they were.

    Args:
        vector: The environments.
        n_rollout_steps: Environment steps per environment in a rollout.
        generator: Source of the policy's randomness, on the device of the environments.
        records: Whether to record a graph; None does so on CUDA devices.

    Attributes:
        started: Whether the first episodes have begun.
    """

    def __init__(
        self,
        vector: TensorVector,
        n_rollout_steps: int,
        generator: torch.Generator,
        records: bool | None = None,
    ) -> None:
        self.vector = vector
        self.env = vector.env
        self.n_envs = vector.n_envs
        self.n_rollout_steps = n_rollout_steps
        self.generator = generator
        self.started = False
        self._spec = vector.spec
        self._first_key = vector.spec.step_keys[0]
        self._device = vector.device
        self._records = uses_graphs(vector.device) if records is None else records
        self._graph: DeviceGraph | None = None
        self._recorded = RecordedPolicy(vector.device)
        self._n_recordings = 0  # in a row
        self.env.device = vector.device
        self.env.note_given_arrays()
        self.env.allocate(vector.n_envs)
        self.env.fired.is_for_statistics = True
        self._checks = TensorChecks(self.env, self._spec)
        self._is_checked = False
        index = vector.first_env_index + torch.arange(self.n_envs, device=self._device)
        self._first_seeds = environment_seeds(vector.seed, index // vector.n_same_starts)
        self._must_restart = False
        may_truncate = self.env.max_episode_steps is not None
        self._storage = TensorStorage(
            self._spec, self.n_envs, n_rollout_steps, self._device, self.env.kpi_names, may_truncate
        )
        topics = self.env.array_events.topics
        self._statistics = TensorStatistics(self._spec, self.n_envs, vector.first_env_index, topics)
        self._has_begun = False  # whether episodes were started since the last rollout
        self._played = ActionBounds(self._spec, self._device).played
        full, shape = self._storage.full, (self.n_envs,)
        self._agent = full(shape, 0)
        self._row = full((1,), 0)
        # the running episodes
        self._episode = full(shape, 0)
        self._begins = full(shape, True)
        self._reward = full(shape, 0.0)
        self._starting = full(shape, True)
        of_collector = {"episode": self._episode, "begins": self._begins, "reward": self._reward}
        self._running = RunningTensors(self.env, of_collector)
        self._slots = ActorSlots(self._spec, self.n_envs)  # states of policies on the host

    # ------------------------------------------------------------------------------------- collecting

    def start(self, episodes: Sequence[int] | None = None) -> None:
        """Start environment i with episode `episodes[i]`, or with its first episode if None."""
        if episodes is not None:
            self._episode.copy_(torch.tensor(episodes))
        self._begin(torch.ones_like(self._begins), torch.zeros_like(self._row))
        self.started = True
        self._has_begun = True

    def _begin(self, which: Tensor, row: Tensor) -> None:
        """Begin episodes in environments [N] before a row [1]."""
        self.env.begin(which, episode_seeds(self._first_seeds, self._episode))
        self._storage.store_starts(row, self.env.fired.drain())

    @torch.no_grad()
    def collect(self, policy: Any) -> Rollout:
        """Collect one rollout.

        Args:
            policy: Chooses the actions, in evaluation mode: by `HasDistributions`, or, if
                `why_on_host` has a reason, by `act` on the host, which is not recorded.

        Returns:
            The rollout, whose tensors are views of storage that the next call overwrites.

        Raises:
            ValueError: The environment has replaced a tensor, or, in the first rollout, returned
                something of unexpected shape or type; on a CPU, also if any data is invalid.
        """
        is_first = not self._is_checked
        if not is_first:
            self._checks.check_attributes(since="between rollouts")
        if not self.started:
            self.start()
        elif self._must_restart:
            self._restart()
        if not self._has_begun:
            self._storage.forget_first_starts()
        restarted, self._has_begun = self._has_begun, False
        self._must_restart = self.vector.n_same_starts > 1
        starting, self._starting = self._starting, torch.zeros_like(self._starting)
        self._row.zero_()
        n_steps = self.n_rollout_steps
        acting: Any = policy
        if why_on_host(policy) is not None:
            acting = HostPolicy(policy, self._spec, self._slots, self._begins)
        if is_first:
            self._take_trial_step(acting)
        records = self._records and not isinstance(acting, HostPolicy)
        if records and self._prepare_graph(acting):
            n_steps -= 1
        for _ in range(n_steps):
            if records and self._graph is not None:
                self._graph.replay()
            else:
                self._step(acting)
        if is_first:
            self._checks.check_helpers()
        self._storage.store_last(self.env.observe(self._first_key))
        rollout = self._storage.rollout(starting)
        rollout.n_same_starts = self.vector.n_same_starts
        name, faults = type(self.env.unwrapped).__name__, faults_within(self.env)
        record = self._storage.record(self._played, restarted, self.vector.first_env_index, name, faults)
        episodes = TensorEpisodes(record, self._statistics)
        rollout.summaries = episodes.fetched() if self._device.type == "cpu" else episodes
        return rollout

    def _take_trial_step(self, policy: HasDistributions) -> None:
        """Take a step and undo it, to check what the environment returns, and to find its events.

        It is stored in the first row of the rollout, which the first step overwrites. Random
        actions take the place of a policy on the host, whose state may be out of reach.
        """
        if isinstance(policy, HostPolicy):
            policy = policy.with_random_actions()
        self._checks.check_attributes(since="before the first step")
        changed = {**self._running.tensors(), "row": self._row}
        changed |= self._storage.flags_out_of_range() | changing_tensors_of(policy)
        before = self._snapshot(changed)
        with torch.random.fork_rng(random_devices(self._device)), self._checks.within():
            self._step(policy, self._checks)
        self._checks.check_attributes(n_steps=1)
        self._checks.check_helpers()
        self._restore(changed, before)
        self._is_checked = True

    def _restart(self) -> None:
        """Begin new episodes, of the same index in all environments."""
        self._episode.copy_((self._episode.max() + 1).expand(self.n_envs))
        self._reward.zero_()
        self.env.n_steps.zero_()
        self._begins.fill_(True)
        self._starting = torch.ones_like(self._starting)
        self._begin(self._begins, torch.zeros_like(self._row))
        self._has_begun = True

    def _step(self, policy: HasDistributions, checks: TensorChecks | None = None) -> tuple[()]:
        """Act in one step of all environments, store it in row `_row`, and begin new episodes.

        Args:
            policy: Chooses the actions.
            checks: Checks what the environment returns; None for no checks.
        """
        env, row, storage = self.env, self._row, self._storage
        terminated: Tensor | None = None
        for key in self._spec.step_keys:
            observation = env.observe_to_act(key)
            if checks is not None:
                checks.check_observation(key, observation)
            observation = storage.in_types_of_spaces(key, observation)
            action = dict(policy.distribution(key, observation, self._agent).sample(self.generator))
            storage.store_act(key, row, observation, action, self._begins)
            outcome = env.act(key, self._played(key, action))
            if checks is not None:
                checks.check_outcome(key, outcome)
            reward, terminated, env_reward = outcome
            storage.store_reward(key, row, reward)
            if terminated is not None and key != self._spec.step_keys[-1]:
                storage.store_early_ends(key, row, terminated)
            storage.store_events(key, row, env.fired.drain())
            self._reward.add_(reward if env_reward is None else env_reward)
        if terminated is None:
            terminated = torch.zeros_like(self._begins)
        if checks is not None:
            checks.check_kpis(env.kpi_tensors())
            checks.check_observing(self._first_key)
        env.n_steps.add_(1)
        truncated = torch.zeros_like(terminated)
        if env.max_episode_steps is not None:
            truncated = (env.n_steps >= env.max_episode_steps) & ~terminated
            storage.store_following(row, env.observe(self._first_key))
        storage.store_ends(row, terminated, truncated, self._episode_numbers())
        row.add_(1)
        self._begin_episodes(terminated | truncated)
        return ()

    def _episode_numbers(self) -> dict[str, Tensor]:
        """Return the numbers [N] of the running episodes for their summaries, by name."""
        kpis = {f"kpi {name}": values for name, values in self.env.kpi_tensors().items()}
        return {"env_steps": self.env.n_steps, "reward": self._reward, "episode_index": self._episode, **kpis}

    def _begin_episodes(self, ended: Tensor) -> None:
        """Begin the next episodes of environments [N] whose episodes have ended."""
        self._episode.add_(ended)
        self._reward.masked_fill_(ended, 0.0)
        self.env.n_steps.masked_fill_(ended, 0)
        self._begin(ended, self._row)
        self._begins.copy_(ended)

    # ------------------------------------------------------------------------------------------ graph

    def _prepare_graph(self, policy: HasDistributions) -> bool:
        """Record the graph of a step, unless that was done; True if the first step was taken."""
        is_in_place, number = self._recorded.compare(policy)
        if is_in_place and (self._graph is None or number is None):
            self._n_recordings = 0
            return False
        if self._n_recordings == MOST_RECORDINGS:
            self._records = False
            cause = "the policy, its hooks, functions or the place of its tensors changes between rollouts"
            if number is not None:
                cause = f"the number {number!r} of the policy changes between rollouts; keep it in a buffer"
            self._do_without_graph(cause)
            return False
        self._n_recordings += 1
        self._recorded.note(policy)
        self._graph = None  # so that its memory is free for the next one
        written = self._written_by_first_step(policy)
        before = self._snapshot(written)
        try:
            step = partial(_step_of, weakref.ref(self), policy)  # so that the graph does not keep the collector
            with torch.random.fork_rng(random_devices(self._device)):
                self._graph = DeviceGraph(step, self._device, self.generator, self._row.zero_)
        except RuntimeError as error:  # of CUDA, for operations that a graph cannot have
            self.env.fired.drain()  # those of the act that failed
            self.generator = torch.Generator(self._device)  # as a failed graph makes its generator unusable
            self._restore(written, before)
            self._do_without_graph(f"recording it failed: {str(error).splitlines()[0]}")
            return False
        self._checks.check_attributes()
        self._restore(written, before)
        with torch.random.fork_rng(random_devices(self._device)):
            self._graph.replay()
        by_graph, _ = self._snapshot(written)
        self._restore(written, before)
        changed = self._recorded.take(policy, partial(self._step, policy))
        differing = differing_tensor(by_graph, written)
        if changed is not None:
            self._do_without_graph(changed)
        elif differing:
            self._do_without_graph(f"{differing} differs from the same operations before it was recorded")
        return True

    def _do_without_graph(self, reason: str) -> None:
        _LOGGER.warning(f"rollouts are collected without a graph of the device, which is slower: {reason}")
        self._graph = None

    def _written_by_first_step(self, policy: HasDistributions) -> dict[str, Tensor]:
        """Return what the first step of a rollout may change: tensors, or views of rows."""
        written = {**self._running.tensors(), "row": self._row}
        return written | self._storage.written_in(0) | changing_tensors_of(policy)

    def _snapshot(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """Copy tensors that a step changes, and the state of the generator."""
        return {name: tensor.clone() for name, tensor in tensors.items()}, self.generator.get_state()

    def _restore(self, tensors: Mapping[str, Tensor], snapshot: tuple[dict[str, Tensor], Tensor]) -> None:
        """Restore the result of `_snapshot`; what has not changed may be impossible to write."""
        copies, state = snapshot
        for name, tensor in tensors.items():
            if not torch.equal(tensor, copies[name]):
                tensor.copy_(copies[name])
        self.generator.set_state(state)

    def close(self) -> None:
        """Free the memory of the graph and of the storage, and close the environments; collect no more."""
        self._graph = None
        self._recorded.forget()
        vars(self).pop("_storage", None)  # absent in a second call
        self.vector.close()

    # ------------------------------------------------------------------------------------ checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Return the state needed to continue exactly: tensors and primitives only."""
        state: dict[str, Any] = {"generator": self.generator.get_state(), "started": self.started}
        if self.started:
            state |= self._running.state_dict()
            state["statistics"] = self._statistics.state_dict()
            state["memory"] = to_tensors(self._slots.policy_states)
            state["noise"] = to_tensors(self._slots.noise_states)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Continue where `state_dict` was taken.

        Returns:
            The environments that could not be continued: none.

        Raises:
            ValueError: The state is that of another kind of environments, or has other tensors.
        """
        if state["started"] and "tensors" not in state:
            fault = "the checkpoint holds the state of environments in arrays, not in tensors"
            raise ValueError(f"{fault}; start a new run from its weights with --warm-start")
        self._restore_generator(state["generator"].cpu())
        if not state["started"]:
            return []
        self._running.load_state_dict(state)
        if "statistics" in state:
            self._statistics.load_state_dict(state["statistics"])
        self._slots.policy_states = from_tensors(state.get("memory", {}))
        self._slots.noise_states = from_tensors(state.get("noise", {}))
        self.started, self._has_begun = True, False
        self._must_restart = self.vector.n_same_starts > 1
        self._starting.fill_(False)
        return []

    def _restore_generator(self, saved: Tensor) -> None:
        """Restore the generator; start it again from its seed if the state is of another device."""
        if saved.shape == self.generator.get_state().shape:
            self.generator.set_state(saved)
            return
        self.generator.manual_seed(self.generator.initial_seed())
        came = "the checkpoint was written on another kind of device, whose random numbers cannot be continued"
        _LOGGER.warning(f"{came}: those of the policy start again from the seed of the run")


def _step_of(collector: weakref.ref[TensorCollector], policy: HasDistributions) -> tuple[()]:
    """Take a step of a collector."""
    owner = collector()
    assert owner is not None
    return owner._step(policy)
