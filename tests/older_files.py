"""Decisions of the agents that `tests/data` holds, as numbers that `tests/data/make.py` writes and tests compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import maze_pl
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.rollout import rollout
from maze_pl.viewer.decisions import decisions_of
from maze_pl_runtime import Policy

Numbers = dict[str, Any]
"""Names -> lists of numbers."""
POLES = [[0.02, 0.3, -0.04, -0.2], [0.03, 0.1, -0.03, 0.1], [0.03, -0.1, -0.02, 0.4], [0.0, 0.2, 0.01, 0.1]]
"""Observations of CartPole, one after the other."""


def decisions_on(agent: Any, record: SpacesTrajectoryRecord) -> Numbers:
    """Return an agent's most likely actions, probabilities and values in all acts of an episode."""
    decisions = decisions_of(agent, record)
    assert decisions is not None
    numbers: Numbers = {}
    for key, heads in decisions.heads.items():
        for head, decision in heads.items():
            numbers[f"{key}/{head}/most likely"] = decision.most_likely.tolist()
            if decision.probabilities is not None:
                numbers[f"{key}/{head}/probabilities"] = decision.probabilities.tolist()
    if decisions.value is not None:
        numbers["value"] = decisions.value.tolist()
    return numbers


def decisions_of_run(folder: Path) -> Numbers:
    """Play an episode with the agent of a run, leave it beside the run, and return the decisions in it."""
    agent = maze_pl.load(folder)
    (trajectory,) = rollout(maze_pl.load_env(folder), agent, max_steps=6)
    assert trajectory.spaces is not None
    trajectory.spaces.save(folder / "episode.spaces")
    return decisions_on(agent, trajectory.spaces)


def decisions_of_bundle(path: Path) -> Numbers:
    """Return the decisions of a bundle for CartPole in the steps of an episode."""
    policy, state = Policy.load(path), None
    parameters, actions = [], []
    for pole in POLES:
        decision = policy.decide({"observation": np.array(pole, np.float32)}, state=state)
        state = decision.state or None
        actions.append(int(decision.action["action"]))
        parameters.append(np.asarray(decision.parameters["action"]).tolist())
    return {"action": actions, "parameters": parameters}
