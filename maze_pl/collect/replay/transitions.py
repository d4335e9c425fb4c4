"""Conversion of rollouts to transitions: every act with its outcome until its actor acts again.

Rewards and discounts between two acts of an actor are defined as in `maze_pl.core.streams`. A
transition is made as soon as its successor is known, which may be several rollouts later. Until
then the act is *open* and kept with its outcome so far. An open act is dropped if its successor
never comes: because another actor gets the last observation of a truncated episode, or because the
episode is lost with its worker.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from maze_pl.collect.storage import from_tensors, to_tensors
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.spaces import mapped
from maze_pl.records.columns import Columns, taken

Array = np.ndarray[Any, np.dtype[Any]]
_PARTS = "observation", "action", "agent_id", "is_first"


class Transitions:
    """Makes transitions from consecutive rollouts of the same environments.

    Args:
        n_envs: Number of environments.
        gamma: Discount of one unit of environment time.
        n_slots: By step key, number of agents that may be alive at once.
    """

    def __init__(self, n_envs: int, gamma: float, n_slots: Mapping[StepKey, int]) -> None:
        self._gamma, self._n_slots = gamma, n_slots
        self._open: list[dict[tuple[Any, ...], Columns]] = [{} for _ in range(n_envs)]  # by step key and agent id

    def of(self, rollout: Rollout) -> dict[StepKey, Columns]:
        """Return the transitions that a rollout completes.

        They are in the order in which their successors became known.

        Args:
            rollout: The next rollout.

        Returns:
            By step key, if it has transitions, arrays [n, ...]: `observation`, `action`,
            `agent_id`, `reward`, `discount` and `next_observation` as in `TransitionBatch`; `stream`, a number
            that is the same for all acts of a slot of an environment; and `is_first`, whether the
            act is the actor's first in its episode, so that it does not continue the stream's
            previous transition. Arrays may be views of the rollout.
        """
        return self._of_flat(rollout) if rollout.flat else self._of_acts(rollout)

    def _of_flat(self, rollout: Rollout) -> dict[StepKey, Columns]:
        """Convert a flat rollout, in which each row is an act with a known successor."""
        ((key, segment),) = rollout.segments.items()
        final, rows = rollout.finals[key], rollout.rows
        terminated, followed = rows.terminated.numpy(), (final.row.numpy(), final.env.numpy())
        columns: Columns = {name: mapped(Tensor.numpy, getattr(segment, name)) for name in _PARTS}
        columns["next_observation"] = {}
        for name, seen in columns["observation"].items():  # [T, N, ...]
            following = np.empty_like(seen)
            following[:-1] = seen[1:]
            following[followed] = final.observation[name].numpy()
            np.copyto(following, seen, where=terminated.reshape(*terminated.shape, *[1] * (seen.ndim - 2)))
            columns["next_observation"][name] = following
        columns["reward"] = (rows.reward if segment.actor_reward is None else segment.actor_reward).numpy()
        columns["discount"] = np.where(terminated, 0.0, self._gamma ** rows.env_steps.numpy())
        columns["stream"] = np.broadcast_to(np.arange(rollout.n_envs), terminated.shape)
        return {key: mapped(lambda array: array.reshape(-1, *array.shape[2:]), columns)}

    def _of_acts(self, rollout: Rollout) -> dict[StepKey, Columns]:
        """Convert a rollout act by act."""
        rows, segments, finals = (
            mapped(Tensor.numpy, part) for part in (rollout.rows, rollout.segments, rollout.finals)
        )
        acts, followers, completed = (defaultdict[Any, Any](list) for _ in range(3))
        for key, segment in segments.items():
            for t, b in np.argwhere(segment.active).tolist():
                acts[t, b // rollout.n_slots(key)].append((int(segment.position[t, b]), key, b))
            final = finals[key]
            for n, (t, env) in enumerate(zip(final.row.tolist(), final.env.tolist(), strict=True)):
                followers[t, env] = (key, int(final.agent_id[n])), taken(final.observation, n)

        def complete(key: StepKey, act: Columns, following: Columns | None = None) -> None:
            """Complete an act with its next observation, or as terminal if there is none."""
            end = {"next_observation": act["observation"], "discount": 0.0}
            completed[key].append(act | (end if following is None else {"next_observation": following}))

        for env in np.flatnonzero(() if rollout.starting is None else rollout.starting.numpy()).tolist():
            self._open[env].clear()  # open acts belong to an episode that was lost
        for t, env in np.argwhere(rows.filled).tolist():
            own = self._open[env]
            for _, key, b in sorted(acts[t, env]):
                act, segment = _act(segments[key], t, b), segments[key]
                act["stream"] = self._stream(key, env, b % rollout.n_slots(key))
                actor = key, int(act["agent_id"])
                before, own[actor] = own.pop(actor, None), act
                if before is not None and not act["is_first"]:
                    complete(key, before, act["observation"])
                for waiting in own.values() if segment.actor_reward is None else ():
                    waiting["reward"] += waiting["discount"] * float(segment.reward[t, b])
                if segment.actor_done[t, b]:  # rewards until the end of the environment step still count
                    own[*actor, t] = own.pop(actor)
            env_steps, terminated, truncated = rows.env_steps[t, env], rows.terminated[t, env], rows.truncated[t, env]
            for waiting in own.values():
                waiting["discount"] *= float(self._gamma**env_steps)
            for actor in list(own) if env_steps or terminated or truncated else ():
                if terminated or len(actor) == 3:
                    complete(actor[0], own.pop(actor))
            actor, following = followers.get((t, env), (None, None))
            if actor in own:
                complete(actor[0], own.pop(actor), following)
            if truncated:
                own.clear()
        return {key: mapped(lambda *leaves: np.stack(leaves), *found) for key, found in completed.items()}

    def _stream(self, key: StepKey, env: int, slot: int) -> int:
        """Number of a slot of an environment, which stays the same when slots are added."""
        n_slots, n_envs = self._n_slots[key], len(self._open)
        return env * n_slots + slot if slot < n_slots else slot * n_envs + env

    def state_dict(self) -> list[Any]:
        """Return the open acts: tensors and primitives only."""
        return [[[*actor, to_tensors(act)] for actor, act in own.items()] for own in self._open]

    def load_state_dict(self, state: list[Any]) -> None:
        """Continue from the result of `state_dict`."""
        acts = [[(key, from_tensors(act)) for key, _, act in own] for own in state]
        self._open = [{(key, int(act["agent_id"])): act for key, act in own} for own in acts]


def _act(segment: Any, t: int, b: int) -> Columns:
    """Copy an act as a transition without an outcome after it."""
    act: Columns = {name: mapped(lambda array: np.array(array[t, b]), getattr(segment, name)) for name in _PARTS}
    reward = 0.0 if segment.actor_reward is None else float(segment.actor_reward[t, b])
    return act | {"reward": reward, "discount": 1.0}
