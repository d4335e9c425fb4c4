"""Comparison of a bundle with the policy that it was made from, on recorded decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.recorded_decisions import RecordedDecision
from maze_pl.bundle.step_graph import StepGraph
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array
from maze_pl_runtime import Policy

TOLERANCE: Final = 1e-5
"""Largest difference of a number, relative to its size where that is above 1."""


@dataclass
class Parity:
    """Result of a comparison.

    Attributes:
        episodes: Number of episodes.
        decisions: Number of decisions.
        largest_difference: Largest difference of parameters, continuous actions and policy states,
            relative to their size where that is above 1.
        near_ties: Decisions in which the bundle took another option than the policy, which is as
            likely up to `TOLERANCE`.
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
        own = agent if graph.n_networks > 1 else 0
        arguments: Any = {"step_key": key, "state": states.get(actor), "agent_id": own}
        found = bundle.decide(decision.observation, **arguments)
        sampled = bundle.decide(decision.observation, deterministic=False, uniforms=uniforms, **arguments)
        expected = _by_torch(graph, decision, states.get(actor), own, uniforms)
        where = f"decision {number} of sub-step {key!r}"
        for name, array in found.parameters.items():
            _compare(parity, array, expected[f"parameters/{name}"], f"{where}: parameters of {name!r}")
        for name, array in found.state.items():
            _compare(parity, array, expected[f"next_state/{name}"], f"{where}: policy state {name!r}")
        is_near_tie = _is_near_tie(graph, found.parameters)
        for head in graph.actions:
            what = f"{where}: action {head!r}"
            _compare_actions(parity, found.action[head], decision.action[head], what, is_near_tie)
            _compare_actions(parity, sampled.action[head], expected[f"sample/{head}"], f"{what}, sampled", False)
        states[actor] = found.state
    return parity


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
        inputs[f"state/{name}"] = torch.from_numpy(np.array(array))[None]
    if "agent_id" in inputs:
        inputs["agent_id"] = torch.tensor([agent_id])
    if "uniforms" in inputs:
        inputs["uniforms"] = torch.from_numpy(uniforms)[None]
    return {name: tensor[0].numpy() for name, tensor in graph(inputs).items()}


def _compare(parity: Parity, found: Any, expected: Any, what: str) -> None:
    """Note the largest difference, and refuse one above the tolerance."""
    found = np.asarray(found, np.float64)
    expected = np.asarray(expected, np.float64)
    difference = float(np.max(np.abs(found - expected) / np.maximum(1.0, np.abs(expected)), initial=0.0))
    if not difference <= TOLERANCE:
        fault = f"{what} differs by {difference:.2g}, more than {TOLERANCE:g}: {found} instead of {expected}"
        raise ExportError(f"the bundle does not decide as the policy does: {fault}")
    parity.largest_difference = max(parity.largest_difference, difference)


def _compare_actions(parity: Parity, found: Any, expected: Any, what: str, is_near_tie: bool) -> None:
    """Compare numbers up to the tolerance, and integers exactly but in near ties."""
    if np.asarray(found).dtype.kind == "f":
        _compare(parity, found, expected, what)
    elif not np.array_equal(found, expected):
        if not is_near_tie:
            fault = f"{what} is {found} instead of {expected}"
            raise ExportError(f"the bundle does not decide as the policy does: {fault}")
        parity.near_ties += 1


def _is_near_tie(graph: StepGraph, parameters: Mapping[str, Array]) -> bool:
    """True if the two best options of a choice are equally likely up to the tolerance."""
    for head, outputs in graph.heads.items():
        first = 0
        for n_options in outputs.choices:
            options = np.sort(parameters[head][first : first + n_options])
            if n_options > 1 and options[-1] - options[-2] <= TOLERANCE:
                return True
            first += n_options
    return False
