"""Which slot of a rollout's storage an agent holds, and whether it has acted in the running episode."""

from typing import Any

import numpy as np

from maze_pl.collect.storage import Array
from maze_pl.core.spec import Spec


class ActorSlots:
    """Slots of the agents of N environments, numbered over all step keys.

    An agent of a fixed number has the slot of its id. Where agents come and go, one takes the first free slot when it
    is first at turn and gives it back when it is done.

    Args:
        spec: What agents see and do.
        n_envs: Number of environments.

    Attributes:
        n_slots: [number of step keys] slots of each step key.
        offsets: [number of step keys + 1] number of the first slot of each step key.
        seen: [N, number of slots] bool, whether the holder has acted in the running episode.
        next: [N] slot, within its step key, of the actor that acts next.
    """

    def __init__(self, spec: Spec, n_envs: int) -> None:
        self._spec, self._keys = spec, spec.step_keys
        self.n_slots = np.array([step.n_slots for step in spec.steps.values()])
        self.offsets = np.concatenate([[0], np.cumsum(self.n_slots)])
        self.seen = np.zeros((n_envs, int(self.offsets[-1])), np.bool_)
        self.next = np.zeros(n_envs, np.int64)
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
        for i in np.flatnonzero(done & self._dynamic[keys] & ~ended).tolist():
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

    def find(self, envs: Array, keys: Array, agents: Array) -> None:
        """Find the slots of the actors that act next.

        Args:
            envs: [n] environments.
            keys: [n] position among the step keys of their next actors.
            agents: [n] ids of these.

        Raises:
            ValueError: An agent acts that was not declared, that was done, or that is one too many.
        """
        if self._spec.is_flat:
            return
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
        held = self.held(n, key, agent)
        if held >= 0:
            return held
        occupants, step_key = self._occupants(n, key), self._keys[key]
        if (key, agent) in self._finished[n]:
            raise ValueError(f"agent {agent} of sub-step {step_key!r} acts after it was done; ids are not used again")
        free = np.flatnonzero(occupants == -1)
        if not free.size:
            raise ValueError(
                f"agent {agent} of sub-step {step_key!r} would be number {len(occupants) + 1} alive at once; "
                f"max_agents allows {len(occupants)}"
            )
        occupants[free[0]] = agent
        return int(free[0])

    def held(self, n: int, key: int, agent: int) -> int:
        """Slot of an agent, -1 if agents come and go and this one holds none."""
        if not self._dynamic[key]:
            return agent
        places = np.flatnonzero(self._occupants(n, key) == agent)
        return int(places[0]) if places.size else -1

    def _occupants(self, n: int, key: int) -> Array:
        occupants: Array = self._occupant[n, self.offsets[key] : self.offsets[key + 1]]
        return occupants

    def state_dict(self) -> dict[str, Any]:
        """Who holds which slot: views of arrays, and primitives."""
        finished = [sorted(finished) for finished in self._finished]
        return {"seen": self.seen, "occupant": self._occupant, "finished": finished}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the result of `state_dict`."""
        self.seen[...] = state["seen"]
        self._occupant[...] = state["occupant"]
        self._finished = [{(key, agent) for key, agent in finished} for finished in state["finished"]]
