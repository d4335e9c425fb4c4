"""Which slot of a rollout's storage an agent holds, whether it has acted in its episode, and what it carries."""

from typing import Any

import numpy as np

from maze_pl.collect.storage import Array
from maze_pl.core.policy import Policy, PolicyBatch, PolicyStep
from maze_pl.core.spec import Spec
from maze_pl.envs.vector.vector_env import Staging


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
