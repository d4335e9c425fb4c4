"""Decisions of a policy in its environment, as the caller of a bundle would see them."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from maze_pl.agents import TorchPolicy
from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.wrapper_roles import WrapperRoles
from maze_pl.core.actor_id import ActorID
from maze_pl.core.allowed_options import forbidden_choice
from maze_pl.core.seeding import derive_seed
from maze_pl.envs.structured_env import Action, Observation, ResetResult, StepResult
from maze_pl.envs.wrapper import Wrapper


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A decision.

    Attributes:
        episode: Number of the episode.
        actor: The actor that acted.
        observation: Name -> observation, before the wrappers that a bundle contains.
        seen: Name -> observation as the policy saw it, after all wrappers.
        action: Head -> action, as these wrappers pass it on.
    """

    episode: int
    actor: ActorID
    observation: dict[str, Any]
    seen: dict[str, Any]
    action: dict[str, Any]


class _Tap(Wrapper):
    """Notes what passes between the wrappers that a bundle contains and those that it does not."""

    observation: Any = None

    def step(self, action: Action) -> StepResult:
        self.actions.append(copy.deepcopy(action))
        result = self.env.step(action)
        self.observation = copy.deepcopy(result[0])
        return result

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        self.actions: list[Action] = []
        result = self.env.reset(seed=seed, options=options)
        self.observation = copy.deepcopy(result[0])
        return result


def recorded_decisions(
    env: Wrapper, policy: TorchPolicy, roles: WrapperRoles, n_episodes: int, n_acts: int, seed: int
) -> list[RecordedDecision]:
    """Play episodes with the most likely actions, up to masks that allow no option of a choice.

    Args:
        env: The environment, with all its wrappers and frozen statistics; it keeps the wrapper that records.
        policy: The policy.
        roles: Roles of its wrappers.
        n_episodes: Number of episodes.
        n_acts: Acts after which an episode is abandoned.
        seed: Determines the episodes.

    Raises:
        ExportError: The masks allow no option in the first act of all episodes.
    """
    tap = _Tap(roles.outside)
    roles.parent.env = tap
    decisions: list[RecordedDecision] = []
    for episode in range(n_episodes):
        observation, _ = env.reset(seed=derive_seed(seed, "export", episode))
        state: dict[Any, Any] = {}
        for _ in range(n_acts):
            actor = env.actor_id()
            step = policy.spec.steps[actor.step_key]
            masks = {name: np.asarray(observation[name])[None] for name in step.masks.values()}
            if forbidden_choice(step, masks):
                break  # a bundle refuses it, too
            raw: Observation = tap.observation
            seen = copy.deepcopy(dict(observation))
            tap.actions.clear()
            action = policy.act_on(observation, actor.step_key, actor.agent_id, policy_state=state)
            observation, _, terminated, truncated, _ = env.step(action)
            decisions.append(RecordedDecision(episode, actor, dict(raw), seen, dict(tap.actions[0])))
            if terminated or truncated:
                break
    if not decisions:
        raise ExportError("no decision can be tested: in the first act of all episodes, masks allow no option")
    return decisions
