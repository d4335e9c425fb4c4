"""Checks of spaces and observations, for which the environment is made and played."""

from collections.abc import Iterator
from itertools import pairwise

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs.checker.examination import Examination, ObservationHistory
from maze_pl.envs.checker.report import ERROR, WARNING, Finding
from maze_pl.envs.contract import EnvContractError, check_observation
from maze_pl.envs.wrappers.action_masks_wrapper import require_used


def check_spaces(examination: Examination) -> Iterator[Finding]:
    """Make the environment; raise if there are no networks or distributions for its spaces."""
    examination.env = examination.make()
    require_used(examination.env, examination.masks)
    examination.acts = examination.env.acts
    yield from ()


def check_steps(examination: Examination) -> Iterator[Finding]:
    """Play the environment, and find observations outside of their spaces."""
    examination.play()
    env = examination.env
    acting = {before.actor.step_key for before, act in pairwise(examination.acts) if act.action is not None}
    for key in env.sub_steps:
        if acting and key not in acting:
            yield WARNING, f"sub-step {key!r} never acted: check which actor acts next, or play more acts"
    yield from _vanished_agents(examination)
    for key, step in env.sub_steps.items():
        acts = [act for act in examination.acts if act.actor.step_key == key]
        if not acts:
            continue
        for name, space in step.observation_space.items():
            history = ObservationHistory(
                what=f"{name!r} of sub-step {key!r} by {env.makers(key)}",
                space=space,
                is_mask=name in step.masks.values(),
                kept=[act.kept[name] for act in acts],
                returned=[act.returned[name] for act in acts],
            )
            examination.observations.append(history)
            try:
                for array in history.kept:
                    check_observation(array, space, history.what, exactly=True)
            except EnvContractError as error:
                yield ERROR, str(error)


def _vanished_agents(examination: Examination) -> Iterator[Finding]:
    """Find agents that come and go, but are never done.

    Two or more have not acted for longer, when their episodes ended, than any agent of the sub-step
    between two acts.
    """
    changing = {key for key, step in examination.env.sub_steps.items() if step.n_agents < 0}
    changing -= {before.actor.step_key for before, act in pairwise(examination.acts) if act.is_actor_done}
    changing -= {actor.step_key for act in examination.acts for actor in act.done_actors}
    last: dict[ActorID, int] = {}  # environment time of their last acts in this episode
    gaps: dict[StepKey, int] = {}
    silences: dict[StepKey, list[int]] = {}
    for before, act in pairwise(examination.acts):
        if act.action is None:
            last = {}
            continue
        actor, now = before.actor, before.env_time
        if actor.step_key in changing:
            gaps[actor.step_key] = max(gaps.get(actor.step_key, 1), now - last.get(actor, now))
            last[actor] = now
        if act.terminated or act.truncated:
            for other, time in last.items():
                silences.setdefault(other.step_key, []).append(act.env_time - time)
    for key, times in silences.items():
        n_silent = sum(time > gaps[key] for time in times)
        if n_silent > 1:
            fault = f"{n_silent} of {len(times)} agents of sub-step {key!r} stop acting before their episodes end"
            remedy = "is_actor_done() must be true after the last act of an agent"
            yield WARNING, f"{fault}, and none is ever done: {remedy}"
