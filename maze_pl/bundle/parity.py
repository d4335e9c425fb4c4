"""Comparison of a bundle with the policy that it was made from, on recorded decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.head_outputs import magnitude_of
from maze_pl.bundle.recorded_decisions import RecordedDecision
from maze_pl.bundle.step_graph import StepGraph
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array
from maze_pl_runtime import Decision, Policy

TOLERANCE: Final = 1e-5
"""Largest difference of a number, relative to its size, or that of its bounds, where this is above 1."""


@dataclass
class Parity:
    """Result of a comparison.

    Attributes:
        episodes: Number of episodes.
        decisions: Number of decisions.
        largest_difference: Largest difference of parameters, continuous actions and policy states,
            relative to their size, or that of their bounds, where this is above 1.
        near_ties: Decisions in which the bundle took another option of a choice than the policy,
            which is as likely up to `TOLERANCE`.
        tolerance: The limit.
    """

    episodes: int
    decisions: int
    largest_difference: float = 0.0
    near_ties: int = 0
    tolerance: float = TOLERANCE


def require_parity(
    bundle: Policy, graphs: Mapping[StepKey, StepGraph], decisions: Sequence[RecordedDecision], seed: int
) -> Parity:
    """Compare each decision: most likely actions with those recorded, all numbers with those of torch.

    The bundle gets the recorded raw observations one after the other, and keeps its own policy
    state.

    Args:
        bundle: The bundle.
        graphs: The modules that its graphs were made from.
        decisions: Decisions of the policy in its environment.
        seed: Determines the uniform numbers of sampled actions.

    Raises:
        ExportError: A number or an action differs; the message names it.
    """
    parity = Parity(len({decision.episode for decision in decisions}), len(decisions))
    generator = np.random.default_rng(seed)
    states: dict[Any, dict[str, Array]] = {}
    for number, decision in enumerate(decisions):
        key, agent = decision.actor
        graph = graphs[key]
        actor = (decision.episode, key, agent)
        uniforms = generator.random(graph.n_uniforms)
        network = agent if graph.n_networks > 1 else 0
        decide = partial(
            bundle.decide,
            decision.observation,
            step_key=key,
            state=states.get(actor),
            agent_id=network,
            check_masks=False,
        )
        found = decide()
        sampled = decide(deterministic=False, uniforms=uniforms)
        expected = _by_torch(graph, decision, states.get(actor), network, uniforms)
        where = f"decision {number} of sub-step {key!r}"
        _compare_numbers(parity, graph, found, expected, where)
        ties = graph.near_ties(found.parameters, TOLERANCE)
        is_near_tie = False
        for head, space in graph.actions.items():
            what = f"{where}: action {head!r}"
            differs = _compare_actions(parity, found.action[head], decision.action[head], what, space, ties[head])
            is_near_tie = is_near_tie or differs
            _compare_actions(parity, sampled.action[head], expected[f"sample/{head}"], f"{what}, sampled", space)
        parity.near_ties += is_near_tie
        states[actor] = found.state
    return parity


def _compare_numbers(
    parity: Parity, graph: StepGraph, found: Decision, expected: Mapping[str, Array], where: str
) -> None:
    """Compare the parameters and policy states of a decision with the outputs of its module."""
    for head, parameters in found.parameters.items():
        outputs = graph.heads[head]
        numbers = expected[f"parameters/{head}"]
        if outputs.choices:  # the runtime returns minus infinity for impossible options
            numbers = np.where(numbers <= np.finfo(np.float32).min, -np.inf, numbers)
        _compare(parity, parameters, numbers, f"{where}: parameters of {head!r}", outputs.magnitude)
    for name, array in found.state.items():
        _compare(parity, array, expected[f"next_state/{name}"], f"{where}: policy state {name!r}")


@torch.inference_mode()
def _by_torch(
    graph: StepGraph, decision: RecordedDecision, state: dict[str, Array] | None, agent_id: int, uniforms: Array
) -> dict[str, Array]:
    """Outputs of the module for a decision, without batch dimension."""
    inputs = graph.example(1, torch.Generator())
    for name, value in decision.observation.items():
        if f"observation/{name}" in inputs:
            tensor = torch.from_numpy(np.array(value))
            inputs[f"observation/{name}"] = tensor.to(inputs[f"observation/{name}"].dtype)[None]
    for name, array in (state or {}).items():
        dtype, _ = graph.state[name]  # torch refuses ONNX Runtime's name of uint64, ulonglong
        inputs[f"state/{name}"] = torch.from_numpy(np.asarray(array).astype(dtype))[None]
    if "agent_id" in inputs:
        inputs["agent_id"] = torch.tensor([agent_id])
    if "uniforms" in inputs:
        inputs["uniforms"] = torch.from_numpy(uniforms)[None]
    return {name: tensor[0].numpy() for name, tensor in graph(inputs).items()}


def _compare(parity: Parity, found: Any, expected: Any, what: str, magnitude: Any = 1.0) -> None:
    """Note the largest difference, and refuse one above the tolerance.

    Args:
        parity: Result so far.
        found: Numbers of the bundle.
        expected: Those of the policy.
        what: Description of them.
        magnitude: Their sizes, to which differences are relative if the numbers are smaller.
    """
    found = np.asarray(found, np.float64)
    expected = np.asarray(expected, np.float64)
    with np.errstate(invalid="ignore"):  # differences of equal infinite numbers
        relative = np.abs(found - expected) / np.maximum(magnitude, np.abs(expected))
    difference = float(np.max(np.where(found == expected, 0.0, relative), initial=0.0))
    if not difference <= TOLERANCE:
        fault = f"{what} differs by {difference:.2g}, more than {TOLERANCE:g}: {found} instead of {expected}"
        raise ExportError(f"the bundle does not decide as the policy does: {fault}")
    parity.largest_difference = max(parity.largest_difference, difference)


def _compare_actions(
    parity: Parity, found: Any, expected: Any, what: str, space: Mapping[str, Any], ties: Any = False
) -> bool:
    """Compare numbers up to the tolerance, and integers exactly; entries in near ties may differ.

    In a type that is coarser than the tolerance, such as float16, numbers may be rounded to neighbours.

    Args:
        parity: Result so far.
        found: [*shape] action of the bundle.
        expected: [*shape] action of the policy.
        what: Description of it.
        space: Its space, as plain values.
        ties: [*shape] which entries are near ties.

    Returns:
        True if an entry in a near tie differs.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype.kind != "f":
        differs = found != expected
        if (differs & ~np.asarray(ties)).any():
            fault = f"{what} is {found} instead of {expected}"
            raise ExportError(f"the bundle does not decide as the policy does: {fault}")
        return bool(differs.any())
    magnitude = magnitude_of(space["low"], space["high"])
    step = np.spacing(np.maximum(np.abs(found), np.abs(expected))).astype(np.float64)
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    difference = np.abs(found - expected)
    differs = difference > TOLERANCE * np.maximum(magnitude, np.abs(expected))
    is_rounded = differs & (difference <= step)
    excused = differs & ~is_rounded & ties
    _compare(parity, np.where(excused | is_rounded, expected, found), expected, what, magnitude)
    return bool(excused.any())
