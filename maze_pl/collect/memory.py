"""What the actors of running episodes carry from act to act, for policies that remember."""

from typing import Any

import numpy as np

from maze_pl.collect.slots import ActorSlots
from maze_pl.collect.storage import Array
from maze_pl.core.policy import Policy, PolicyBatch, PolicyStep


class Memory:
    """The policy's state of each actor after its last act; zero for actors that have not acted in their episode.

    Nothing is kept before a policy returns a state, and nothing has to be erased when an episode ends: `ActorSlots`
    knows who has acted.

    Args:
        slots: Who holds which slot.

    Attributes:
        carried: By position of the step key, name -> [N, n_slots, ...]; what a checkpoint keeps.
    """

    def __init__(self, slots: ActorSlots) -> None:
        self._slots = slots
        self.carried: dict[int, dict[str, Array]] = {}

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
        has_acted = self._slots.seen[envs, self._slots.offsets[key] + slots] & (slots >= 0)
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
            self._slots.seen[envs, self._slots.offsets[key] + slots] = True
            if key not in self.carried:
                shape = len(self._slots.seen), int(self._slots.n_slots[key])
                self.carried[key] = {name: np.zeros((*shape, *x.shape[1:]), x.dtype) for name, x in step.state.items()}
                batch.state = {name: np.zeros_like(array) for name, array in step.state.items()}
            for name, array in step.state.items():
                self.carried[key][name][envs, slots] = array
        return step
