"""Assignment of agents to the slots of arrays, and the policy states of their actors."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.policy import Array, Policy, PolicyBatch, PolicyStep
from maze_pl.core.spec import Spec
from maze_pl.envs.vector.vector_env import Staging

_FREE: Final = -1  # of `_occupant`
_DONE: Final = -2

States = dict[int, dict[str, Array]]
"""By index of the step key, name -> [N, n_slots, ...] states of actors."""


class ActorSlots:
    """Slots of the agents of N environments, numbered over all step keys.

    In a sub-step with a fixed number of agents, an agent has the slot of its id. Where agents come
    and go, an agent takes a free slot on its first turn and frees it when it is done. It takes the
    first free slot in which no agent has acted in the row, since a row has at most one act of each
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
        acted_in_episode: [N, number of slots] bool, whether the holder has acted in the running
            episode.
        acted_in_row: [N, number of slots] bool, whether an agent has acted in the slot in the current row.
        next_slot: [N] slot, within its step key, of the actor that acts next.
        policy_states: By index of the step key, name -> [N, n_slots, ...] policy states.
        noise_states: The same for exploration noise.
    """

    def __init__(self, spec: Spec, n_envs: int) -> None:
        self._spec = spec
        self._keys = spec.step_keys
        self.n_slots = np.array([step.n_slots for step in spec.steps.values()])
        self.offsets = np.concatenate([[0], np.cumsum(self.n_slots)])
        self.acted_in_episode = np.zeros((n_envs, int(self.offsets[-1])), np.bool_)
        self.acted_in_row = np.zeros_like(self.acted_in_episode)
        self.next_slot = np.zeros(n_envs, np.int64)
        self.policy_states: States = {}
        self.noise_states: States = {}
        self._dynamic = np.array([step.n_agents < 0 for step in spec.steps.values()])
        # id of the agent in a dynamic slot, if it is not free; whether the agent of a fixed one is done
        self._occupant = np.full(self.acted_in_episode.shape, _FREE, np.int64)
        self._has_done = False  # whether a fixed agent was ever done before the end of its episode
        # step key index and id of the dynamic agents of each environment that are done, [N, F, 2]
        self._finished = np.zeros((n_envs, 0, 2), np.int64)
        self._n_finished = np.zeros(n_envs, np.int64)

    # ------------------------------------------------------------------------- assignment of slots

    def release(self, envs: Array, keys: Array, slots: Array, done: Array, ended: Array) -> None:
        """Free the slots of actors that are done, or mark those of fixed agents, and forget episodes that ended.

        Args:
            envs: [n] the environments that stepped.
            keys: [n] step key index of the actors that acted in them.
            slots: [n] their slots.
            done: [n] bool, whether these actors are done.
            ended: [n] bool, whether the episodes ended.
        """
        leaves = done & ~ended
        if leaves.any():
            is_dynamic = self._dynamic[keys]
            for_good = leaves & ~is_dynamic
            if for_good.any():
                self._occupant[envs[for_good], self.offsets[keys[for_good]] + slots[for_good]] = _DONE
                self._has_done = True
            leaves &= is_dynamic
            if leaves.any():
                self._free(envs[leaves], keys[leaves], slots[leaves])
        if ended.any():
            self.forget_episodes(envs[ended])

    def end_actors(self, done_actors: Mapping[int, Sequence[ActorID]], staging: Staging) -> None:
        """Release actors that are done since their environment steps have ended, but for those of ended episodes.

        Args:
            done_actors: Environment -> actors, as in `StepExtras`.
            staging: Results of the step.

        Raises:
            ValueError: There is no such actor.
        """
        for env, actors in done_actors.items():
            if staging.terminated[env] or staging.truncated[env]:
                continue
            for step_key, agent in actors:
                if not self._is_declared(step_key, agent):
                    named = f"environment {env}: get_done_actors() names agent {agent} of sub-step {step_key!r}"
                    raise ValueError(f"{named}, which agent_counts_dict does not declare")
                where, key = np.array([env]), np.array([self._keys.index(step_key)])
                slot = self.slots_of(where, int(key[0]), np.array([agent]))
                if slot[0] >= 0:  # otherwise it is released already
                    self.release(where, key, slot, np.array([True]), np.array([False]))

    def _is_declared(self, step_key: StepKey, agent: int) -> bool:
        """True if there is such an actor, or may be one where agents come and go."""
        if step_key not in self._keys or agent < 0:
            return False
        count = self._spec.steps[step_key].n_agents
        return count < 0 or agent < count

    def _free(self, envs: Array, keys: Array, slots: Array) -> None:
        """Free the slots of dynamic agents that are done, one in each of some environments."""
        actors = self.offsets[keys] + slots
        places = self._n_finished[envs]
        n_missing = int(places.max()) + 1 - self._finished.shape[1]
        if n_missing > 0:
            more = np.zeros((len(self._finished), n_missing + self._finished.shape[1], 2), np.int64)
            self._finished = np.concatenate([self._finished, more], 1)
        self._finished[envs, places] = np.stack([keys, self._occupant[envs, actors]], -1)
        self._n_finished[envs] += 1
        self._occupant[envs, actors] = _FREE
        self.acted_in_episode[envs, actors] = False

    def forget_episodes(self, envs: Array) -> None:
        """Reset the slots of environments that start another episode."""
        self.acted_in_episode[envs] = False
        self._occupant[envs] = _FREE
        self._n_finished[envs] = 0

    def assign(self, envs: Array, staging: Staging) -> bool:
        """Find the slots of the actors that act next, and store them in `next_slot`.

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
        n_slots_before = self._occupant.shape[1]
        keys = staging.next_key[envs]
        agents = staging.next_agent[envs]
        self._require_declared(envs, keys, agents)
        self.next_slot[envs] = agents
        for key in np.flatnonzero(self._dynamic).tolist():
            group = keys == key
            if group.any():
                self.next_slot[envs[group]] = self._dynamic_slots(envs[group], key, agents[group])
        return self._occupant.shape[1] > n_slots_before

    def _require_declared(self, envs: Array, keys: Array, agents: Array) -> None:
        """Raise ValueError if an agent of a sub-step with a fixed number of them is not one of these, or was done."""
        is_fixed = ~self._dynamic[keys]
        is_unknown = is_fixed & ((agents < 0) | (agents >= self.n_slots[keys]))
        if is_unknown.any():
            key = self._keys[keys[is_unknown][0]]
            agent = int(agents[is_unknown][0])
            count = self._spec.steps[key].n_agents
            declared = f"agent_counts_dict declares {count}"
            where = f"environment {envs[is_unknown][0]}"
            raise ValueError(f"{where}: agent {agent} of sub-step {key!r} acts, but {declared}")
        if not self._has_done:
            return
        # the ids of dynamic agents are not the numbers of their slots
        was_done = is_fixed & (self._occupant[envs, self.offsets[keys] + np.where(is_fixed, agents, 0)] == _DONE)
        if was_done.any():
            name = self._name(envs[was_done][0], keys[was_done][0], agents[was_done][0])
            fault = "is_actor_done or get_done_actors has told of its last act in the episode"
            raise ValueError(f"{name} acts after it was done; {fault}")

    def _dynamic_slots(self, envs: Array, key: int, agents: Array) -> Array:
        """Return the slots of dynamic agents, one in each environment; those without one take a free one."""
        is_negative = agents < 0
        if is_negative.any():
            name = self._name(envs[is_negative][0], key, agents[is_negative][0])
            raise ValueError(f"{name} acts; ids of agents must be at least 0")
        slots = self.slots_of(envs, key, agents)
        is_new = slots < 0
        if not is_new.any():
            return slots
        arriving, ids = envs[is_new], agents[is_new]
        self._require_admissible(arriving, key, ids)
        slots[is_new] = self._free_slots(arriving, key)
        self._occupant[arriving, self.offsets[key] + slots[is_new]] = ids
        return slots

    def _require_admissible(self, envs: Array, key: int, agents: Array) -> None:
        """Raise ValueError if an arriving agent was done before, or if too many are alive."""
        finished = self._finished[envs]
        is_known = np.arange(finished.shape[1]) < self._n_finished[envs, np.newaxis]
        is_same = (finished[..., 0] == key) & (finished[..., 1] == agents[:, np.newaxis])
        was_done = (is_known & is_same).any(axis=1)
        if was_done.any():
            name = self._name(envs[was_done][0], key, agents[was_done][0])
            raise ValueError(f"{name} acts after it was done; ids must not be reused in an episode")
        limit = self._spec.steps[self._keys[key]].n_slots
        occupants = self._occupant[envs, self.offsets[key] : self.offsets[key + 1]]
        is_full = np.count_nonzero(occupants >= 0, axis=1) == limit
        if is_full.any():
            name = self._name(envs[is_full][0], key, agents[is_full][0])
            fault = f"{name} would be number {limit + 1} alive at once; max_agents allows {limit}"
            raise ValueError(f"{fault}, or is_actor_done() does not report those that have left")

    def _free_slots(self, envs: Array, key: int) -> Array:
        """Return a slot for an arriving agent in each environment; slots are added if necessary."""
        slots_of_key = slice(self.offsets[key], self.offsets[key + 1])
        is_free = (self._occupant[envs, slots_of_key] < 0) & ~self.acted_in_row[envs, slots_of_key]
        n_slots = int(self.n_slots[key])
        slots: Array = np.where(is_free.any(axis=1), is_free.argmax(axis=1), n_slots)
        if (slots == n_slots).any():
            # more than needed, as growing copies all stored arrays
            self._add_slots(key, 1 + n_slots // 4)
        return slots

    def _name(self, env: int, key: int, agent: int) -> str:
        """Name of an agent in messages, after the number of its environment."""
        return f"environment {env}: agent {agent} of sub-step {self._keys[key]!r}"

    def _add_slots(self, key: int, n_more: int) -> None:
        """Add free slots to a step key."""
        places = [int(self.offsets[key + 1])] * n_more
        self.acted_in_episode = np.insert(self.acted_in_episode, places, False, 1)
        self.acted_in_row = np.insert(self.acted_in_row, places, False, 1)
        self._occupant = np.insert(self._occupant, places, _FREE, 1)
        for states_of_keys in (self.policy_states, self.noise_states):
            for name, states in states_of_keys.get(key, {}).items():
                after_last = [states.shape[1]] * n_more
                states_of_keys[key][name] = np.insert(states, after_last, 0, 1)
        self.n_slots[key] += n_more
        self.offsets[key + 1 :] += n_more

    def slots_of(self, envs: Array, key: int, agents: Array) -> Array:
        """Slots [n] of agents, one in each environment; -1 for dynamic agents without a slot."""
        if not self._dynamic[key]:
            return agents
        occupants = self._occupant[envs, self.offsets[key] : self.offsets[key + 1]]
        is_holder = occupants == agents[:, np.newaxis]
        return np.where(is_holder.any(axis=1), is_holder.argmax(axis=1), -1)

    # -------------------------------------------------------------------------------------- acting

    def batch(self, staging: Staging, key: int, envs: Array) -> PolicyBatch:
        """Make the policy batch of the actors that act next in some environments.

        Args:
            staging: Current observations of the environments.
            key: Step key index of the actors.
            envs: [n] their environments.
        """
        step_key = self._keys[key]
        observation = {name: array[envs] for name, array in staging.observation[step_key].items()}
        actors = self.offsets[key] + self.next_slot[envs]
        is_first = ~self.acted_in_episode[envs, actors]
        return PolicyBatch(step_key, observation, staging.next_agent[envs], is_first=is_first)

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
        return self._states_of(self.policy_states, key, envs, slots)

    def _states_of(self, states_of_keys: States, key: int, envs: Any, slots: Any) -> dict[str, Array]:
        """Return name -> [n, ...], new arrays; zero for actors that have not acted in their episode."""
        has_acted = self.acted_in_episode[envs, self.offsets[key] + slots] & (slots >= 0)
        found = {}
        for name, states in states_of_keys[key].items():  # [N, n_slots, ...]
            further_dimensions = [1] * (states.ndim - 2)
            mask = np.reshape(has_acted, (*np.shape(has_acted), *further_dimensions))
            found[name] = np.where(mask, states[envs, slots], states.dtype.type(0))
        return found

    def act(
        self,
        policy: Policy,
        batch: PolicyBatch,
        key: int,
        envs: Array,
        slots: Array,
        **options: Any,
    ) -> PolicyStep:
        """Run the policy on its states and exploration noise, and store the new ones.

        Actors of a policy with such states count as having acted in their episode from now on.

        Args:
            policy: Chooses the actions.
            batch: The actors; gets their policy states before the act, if the policy has any.
            key: As for `policy_state`.
            envs: [n] environments of the actors.
            slots: [n] slots of the actors.
            options: Keyword arguments of `policy.act`.
        """
        batch.policy_state = None
        batch.noise_state = {}
        if key in self.policy_states:
            batch.policy_state = self._states_of(self.policy_states, key, envs, slots)
        if key in self.noise_states:
            batch.noise_state = self._states_of(self.noise_states, key, envs, slots)
        step = policy.act(batch, **options)
        if step.policy_state is not None:
            if key not in self.policy_states:
                batch.policy_state = {name: np.zeros_like(array) for name, array in step.policy_state.items()}
            self._keep(self.policy_states, step.policy_state, key, envs, slots)
        if step.noise_state is not None:
            self._keep(self.noise_states, step.noise_state, key, envs, slots)
        return step

    def _keep(self, states_of_keys: States, states: dict[str, Array], key: int, envs: Array, slots: Array) -> None:
        """Keep the states of actors after their acts."""
        self.acted_in_episode[envs, self.offsets[key] + slots] = True
        if key not in states_of_keys:
            states_of_keys[key] = self._zero_states(key, states)
        for name, array in states.items():
            states_of_keys[key][name][envs, slots] = array

    def _zero_states(self, key: int, policy_state: dict[str, Array]) -> dict[str, Array]:
        """Allocate policy states [N, n_slots, ...] like those of some actors, [n, ...]."""
        leading = (len(self.acted_in_episode), int(self.n_slots[key]))
        return {name: np.zeros((*leading, *array.shape[1:]), array.dtype) for name, array in policy_state.items()}

    # --------------------------------------------------------------------------------- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Return the assignment of slots: views of arrays, and primitives."""
        is_dynamic = bool(self._dynamic.any())
        finished = zip(self._finished, self._n_finished.tolist(), strict=True) if is_dynamic else ()
        return {
            "n_slots": self.n_slots,
            "seen": self.acted_in_episode,
            "occupant": self._occupant,
            "finished": [sorted(map(tuple, ids[:n].tolist())) for ids, n in finished],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`."""
        for key, n_slots in enumerate(state.get("n_slots", self.n_slots).tolist()):
            self._add_slots(key, n_slots - int(self.n_slots[key]))
        self.acted_in_episode[...] = state["seen"]
        self._occupant[...] = state["occupant"]
        self._has_done = bool((self._occupant == _DONE).any())
        most = max(map(len, state["finished"]), default=0)
        self._finished = np.zeros((len(self._finished), most, 2), np.int64)
        self._n_finished[...] = 0
        for n, finished in enumerate(state["finished"]):
            self._n_finished[n] = len(finished)
            for place, actor in enumerate(finished):
                self._finished[n, place] = actor
