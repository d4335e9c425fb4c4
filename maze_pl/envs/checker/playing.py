"""Checks of spaces and observations, for which the environment is made and played."""

from collections.abc import Iterator
from itertools import pairwise

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
