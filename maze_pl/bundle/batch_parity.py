"""Comparison of decisions that a bundle makes together with those that it makes one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.parity import TOLERANCE, Parity, compare_actions, compare_numbers
from maze_pl.bundle.recorded_decisions import RecordedDecision
from maze_pl.bundle.step_graph import StepGraph
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array
from maze_pl_runtime import Decision, Policy

_MOST_ROWS: Final = 32


@dataclass(frozen=True)
class _Row:
    """A decision that was made alone.

    Attributes:
        observation: Name -> observation.
        state: Policy state before it; None at the start of an episode.
        network: Number of the network that decided.
        found: The decision.
    """

    observation: Mapping[str, Any]
    state: Mapping[str, Array] | None
    network: int
    found: Decision


def require_equal_batches(
    parity: Parity, bundle: Policy, graphs: Mapping[StepKey, StepGraph], decisions: Sequence[RecordedDecision]
) -> None:
    """Compare a batch of the first decisions of each sub-step with the single ones, as servers decide on batches.

    Args:
        parity: Result of the comparison of single decisions; takes up differences.
        bundle: The bundle.
        graphs: Step key -> module that a graph of the bundle was made from.
        decisions: Decisions of the policy in its environment.

    Raises:
        ExportError: A number or an action differs, or the bundle refuses the batch.
    """
    rows: dict[StepKey, list[_Row]] = {key: [] for key in graphs}
    states: dict[Any, dict[str, Array]] = {}
    for decision in decisions:
        key, agent = decision.actor
        if len(rows[key]) == _MOST_ROWS:
            continue
        actor = (decision.episode, key, agent)
        network = agent if graphs[key].n_networks > 1 else 0
        before = states.get(actor)
        found = bundle.decide(decision.observation, key, before, agent_id=network, check_masks=False)
        states[actor] = found.state
        rows[key].append(_Row(decision.observation, before, network, found))
    for key, of_step in rows.items():
        if of_step:
            _compare_batch(parity, bundle, key, graphs[key], of_step)


def _compare_batch(parity: Parity, bundle: Policy, key: StepKey, graph: StepGraph, rows: Sequence[_Row]) -> None:
    """Compare the decisions of a sub-step.

    Args:
        parity: Takes up differences.
        bundle: The bundle.
        key: The sub-step.
        graph: Module that its graph was made from.
        rows: The decisions.
    """
    step = bundle.spec[key]
    observations: dict[str, Array] = {}
    for name in step["observations"]:
        observations[name] = np.stack([np.asarray(row.observation[name]) for row in rows])
    state: dict[str, Array] = {}
    for name, described in step["state"].items():
        zeros = np.zeros(described["shape"], described["dtype"])
        state[name] = np.stack([zeros if row.state is None else row.state[name] for row in rows])
    networks = np.array([row.network for row in rows])
    where = f"a batch of {len(rows)} decisions of sub-step {key!r}"
    try:
        together = bundle.decide(observations, key, state or None, agent_id=networks, check_masks=False)
    except ValueError as error:
        raise ExportError(f"{where}: the bundle decides one by one, but refuses the batch: {error}") from error
    for place, row in enumerate(rows):
        expected = {f"parameters/{head}": values for head, values in row.found.parameters.items()}
        expected |= {f"next_state/{name}": values for name, values in row.found.state.items()}
        parameters = {name: values[place] for name, values in together.parameters.items()}
        one = Decision({}, {name: values[place] for name, values in together.state.items()}, parameters)
        compare_numbers(parity, graph, one, expected, f"{where}, row {place}")
        ties = graph.near_ties(row.found.parameters, TOLERANCE)
        for head, space in graph.actions.items():
            what = f"{where}, row {place}: action {head!r}"
            compare_actions(parity, together.action[head][place], row.found.action[head], what, space, ties[head])
