"""From rollouts to transitions: every act with what came of it until its actor acted again.

Rewards and discounts between two acts of an actor are those of `maze_pl.core.streams`. A transition is made as soon as
its successor is known, which may be several rollouts later: until then the act is open and carried on, with what came
of it so far. One whose successor never comes, because somebody else sees the end of a truncated episode, or because the
episode is lost with its worker, is dropped.
"""

from collections import defaultdict
from typing import Any

import numpy as np
from torch import Tensor

from maze_pl.collect.storage import from_tensors, to_tensors
from maze_pl.collect.trajectory_processors import Columns, taken
from maze_pl.core.actor_id import StepKey
from maze_pl.core.rollout import Rollout
from maze_pl.core.spaces import mapped

Array = np.ndarray[Any, np.dtype[Any]]
_PARTS = "observation", "action", "agent_id", "is_first"


class Transitions:
    """Makes transitions of consecutive rollouts of the same environments.

    Args:
        n_envs: Number of environments.
        gamma: Discount of one unit of environment time.
    """

    def __init__(self, n_envs: int, gamma: float) -> None:
        self._gamma = gamma
        self._open: list[dict[tuple[Any, ...], Columns]] = [{} for _ in range(n_envs)]  # by step key and column

    def of(self, rollout: Rollout) -> dict[StepKey, Columns]:
        """The transitions that a rollout completes, in the order in which their successors became known.

        Args:
            rollout: What was collected next.

        Returns:
            By step key, for those that have any, arrays [n, ...]: `observation`, `action`, `agent_id`, `reward`,
            `discount` and `next_observation` as in `Acts`; `stream`, which is the same for all acts of a slot of an
            environment, and `is_first`, whether the act is the actor's first one in its episode, so that it does not
            continue the stream's transition before. They may be views of the rollout.
        """
        return self._of_flat(rollout) if rollout.flat else self._of_acts(rollout)

    def _of_flat(self, rollout: Rollout) -> dict[StepKey, Columns]:
        """Those of a rollout in which each row is an act with a known successor, which are all."""
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
        columns["reward"] = rows.reward.numpy()
        columns["discount"] = np.where(terminated, 0.0, self._gamma ** rows.env_steps.numpy())
        columns["stream"] = np.broadcast_to(np.arange(rollout.n_envs), terminated.shape)
        return {key: mapped(lambda array: array.reshape(-1, *array.shape[2:]), columns)}

    def _of_acts(self, rollout: Rollout) -> dict[StepKey, Columns]:
        """Walk through a rollout act by act."""
        rows, segments, finals = (
            mapped(Tensor.numpy, part) for part in (rollout.rows, rollout.segments, rollout.finals)
        )
        acts, followers, completed = (defaultdict[Any, Any](list) for _ in range(3))
        for key, segment in segments.items():
            for t, b in np.argwhere(segment.active).tolist():
                acts[t, b // rollout.n_slots(key)].append((int(segment.position[t, b]), key, b))
            final = finals[key]
            for n, (t, env) in enumerate(zip(final.row.tolist(), final.env.tolist(), strict=True)):
                actor = key, env * rollout.n_slots(key) + int(final.slot[n])
                followers[t, env] = actor, taken(final.observation, n)

        def complete(key: StepKey, act: Columns, following: Columns | None = None) -> None:
            """With the next observation, or, where there is none, as terminal."""
            end = {"next_observation": act["observation"], "discount": 0.0}
            completed[key].append(act | (end if following is None else {"next_observation": following}))

        for env in np.flatnonzero(() if rollout.starting is None else rollout.starting.numpy()).tolist():
            self._open[env].clear()  # what was open belongs to an episode that was lost
        for t, env in np.argwhere(rows.filled).tolist():
            own = self._open[env]
            for _, key, b in sorted(acts[t, env]):
                act, segment = _act(segments[key], t, b), segments[key]
                before, own[key, b] = own.pop((key, b), None), act
                if before is not None and not act["is_first"]:
                    complete(key, before, act["observation"])
                for waiting in own.values() if segment.actor_reward is None else ():
                    waiting["reward"] += waiting["discount"] * float(segment.reward[t, b])
                if segment.actor_done[t, b]:  # what comes until the end of the environment step still counts
                    own[key, b, t] = own.pop((key, b))
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

    def state_dict(self) -> list[Any]:
        """The open acts: tensors and primitives only."""
        return [[[*actor, to_tensors(act)] for actor, act in own.items()] for own in self._open]

    def load_state_dict(self, state: list[Any]) -> None:
        """Go on from the result of `state_dict`."""
        self._open = [{(key, b): from_tensors(act) for key, b, act in own} for own in state]


def _act(segment: Any, t: int, b: int) -> Columns:
    """A copy of an act that has just been made."""
    act: Columns = {name: mapped(lambda array: np.array(array[t, b]), getattr(segment, name)) for name in _PARTS}
    reward = 0.0 if segment.actor_reward is None else float(segment.actor_reward[t, b])
    return act | {"stream": b, "reward": reward, "discount": 1.0}
