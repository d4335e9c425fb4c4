"""Final observations of a rollout: those after truncated episodes and after the last rows."""

import numpy as np

from maze_pl.collect.actor_slots import ActorSlots
from maze_pl.collect.content_checks import check_current_values
from maze_pl.collect.state_tensors import tensor_views
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array
from maze_pl.core.rows import FinalObservations
from maze_pl.core.spec import Spec
from maze_pl.envs.vector.vector_env import StepExtras, VectorEnv


class FinalStorage:
    """Gathers the final observations of a rollout, with the policy states for the next acts.

    Args:
        vector: The environments.
        slots: Slots of their agents.
    """

    def __init__(self, vector: VectorEnv, slots: ActorSlots) -> None:
        self._vector = vector
        self._slots = slots
        self._spec: Spec = vector.spec
        self._parts: dict[StepKey, list[FinalObservations]] = {}

    def clear(self) -> None:
        """Forget the observations of earlier rollouts."""
        self._parts = {key: [] for key in self._spec.step_keys}

    def keep_truncations(self, extras: StepExtras, row: Array) -> None:
        """Keep the final observations of truncated episodes.

        Args:
            extras: Results of the step.
            row: [N] rows that the environments were in.
        """
        for group in extras.finals:
            key = self._spec.step_keys.index(group.key)
            slots = np.zeros(len(group.envs), np.int64)
            if not self._spec.is_flat:
                slots = self._slots.slots_of(group.envs, key, group.agent_ids)
            self._keep(key, row[group.envs], group.envs, slots, group.agent_ids, group.observation)

    def keep_last(self, row: Array, envs: Array) -> None:
        """Keep the observations that follow the last row.

        Args:
            row: [N] rows of each environment.
            envs: Environments whose episodes continue.
        """
        staging = self._vector.staging
        for key, step_key in enumerate(self._spec.step_keys):
            group = envs
            if not self._spec.is_flat:
                group = envs[staging.next_key[envs] == key]
            arrays = {name: array[group] for name, array in staging.observation[step_key].items()}
            slots = self._slots.next_slot[group]
            agents = staging.next_agent[group]
            self._keep(key, row[group] - 1, group, slots, agents, arrays)

    def _keep(
        self,
        key: int,
        row: Array,
        envs: Array,
        slots: Array,
        agents: Array,
        observation: dict[str, Array],
    ) -> None:
        """Keep observations [F, ...] that follow rows [F] of environments [F]."""
        fields = {
            "row": row,
            "env": envs,
            "slot": slots,
            "agent_id": agents,
            "observation": observation,
            "policy_state": self._slots.policy_state(key, envs, slots) or {},
        }
        self._parts[self._spec.step_keys[key]].append(FinalObservations(**tensor_views(fields)))

    def joined(self) -> dict[StepKey, FinalObservations]:
        """Return all observations by step key.

        Raises:
            EnvContractError: A value is not finite.
        """
        finals = {key: FinalObservations.joined(parts) for key, parts in self._parts.items()}
        for final in finals.values():
            arrays = {}
            for name, tensor in final.observation.items():
                arrays[f"observation {name!r}"] = tensor.numpy()
            steps = final.row.numpy() + 1
            first = self._vector.first_env_index
            check_current_values(arrays, final.env.numpy(), steps, "the rollout", first)
        return finals
