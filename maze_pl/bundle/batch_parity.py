"""Comparison of decisions that a bundle makes together with those that it makes one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from maze_pl.bundle.differences import difference_of_decisions
from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.parity import Parity, SingleDecision
from maze_pl.bundle.step_graph import StepGraph
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array
from maze_pl_runtime import Decision, Policy


def require_equal_batches(
    parity: Parity,
    bundle: Policy,
    graphs: Mapping[StepKey, StepGraph],
    decisions: Mapping[StepKey, Sequence[SingleDecision]],
) -> None:
    """Compare batches of decisions of each sub-step with the single ones, as servers decide on batches.

    Args:
        parity: Result of the comparison of single decisions; takes up differences.
        bundle: The bundle.
        graphs: Step key -> module that a graph of the bundle was made from.
        decisions: Step key -> decisions that the bundle made one by one.

    Raises:
        ExportError: A number or an action differs, or the bundle refuses the batch.
    """
    for key, of_step in decisions.items():
        if of_step:
            for deterministic in (True, False):
                _compare_batch(parity, bundle, graphs[key], of_step, deterministic)


def _compare_batch(
    parity: Parity,
    bundle: Policy,
    graph: StepGraph,
    decisions: Sequence[SingleDecision],
    deterministic: bool,
) -> None:
    """Compare the decisions of a sub-step.

    Args:
        parity: Takes up differences.
        bundle: The bundle.
        graph: Module that the graph of the sub-step was made from.
        decisions: The decisions.
        deterministic: Compare the most likely actions instead of sampled ones.
    """
    step = bundle.spec[graph.key]
    observations: dict[str, Array] = {}
    for name in step["observations"]:
        arrays = [np.asarray(single.observation[name]) for single in decisions]
        observations[name] = np.stack(arrays)
    state: dict[str, Array] = {}
    for name, described in step["state"].items():
        zeros = np.zeros(described["shape"], described["dtype"])
        rows = [zeros if single.state is None else single.state[name] for single in decisions]
        state[name] = np.stack(rows)
    kind = "decisions" if deterministic else "sampled decisions"
    batch = f"a batch of {len(decisions)} {kind} of sub-step {graph.key!r}"
    try:
        together = bundle.decide(
            observations,
            graph.key,
            state or None,
            deterministic,
            uniforms=np.stack([single.uniforms for single in decisions]),
            agent_id=np.array([single.network for single in decisions]),
            check_masks=False,
        )
    except ValueError as error:
        fault = "the bundle decides one by one, but refuses the batch"
        raise ExportError(f"{batch}: {fault}: {error}") from error
    for place, single in enumerate(decisions):
        alone = single.most_likely if deterministic else single.sampled
        expected = {f"parameters/{head}": values for head, values in alone.parameters.items()}
        expected |= {f"next_state/{name}": values for name, values in alone.state.items()}
        found = Decision(*[_row(part, place) for part in together])
        where = f"the bundle does not decide in a batch as it does one by one: {batch}, row {place}"
        uniforms = None if deterministic else single.uniforms
        difference = difference_of_decisions(graph, found, expected, alone.action, where, uniforms)
        parity.largest_difference = max(parity.largest_difference, difference.largest)


def _row(arrays: Mapping[str, Array], place: int) -> dict[str, Array]:
    """Return a row of a batch."""
    return {name: values[place] for name, values in arrays.items()}
