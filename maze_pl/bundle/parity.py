"""Comparison of a bundle with the policy that it was made from, on recorded decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from maze_pl.agents import TorchPolicy
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
        near_ties: Decisions whose most likely action has another option of a choice than that of the
            policy, which is as likely up to `TOLERANCE`.
        tolerance: The limit.
        untested: Sub-steps, and agents with separate networks, that made no decision.
    """

    episodes: int
    decisions: int
    largest_difference: float = 0.0
    near_ties: int = 0
    tolerance: float = TOLERANCE
    untested: list[str] = field(default_factory=list)


def require_parity(
    bundle: Policy,
    policy: TorchPolicy,
    graphs: Mapping[StepKey, StepGraph],
    decisions: Sequence[RecordedDecision],
    seed: int,
) -> Parity:
    """Compare each decision: most likely actions with those recorded, all other outputs with those of the policy.

    The bundle gets the recorded raw observations one after the other, and keeps its own policy
    state. The policy gets the observations that it saw, from the wrappers themselves, and the state of
    the bundle, so that rounding errors do not add up.

    Args:
        bundle: The bundle.
        policy: The policy.
        graphs: Step key -> module that a graph of the bundle was made from, for its names and actions.
        decisions: Decisions of the policy in its environment.
        seed: Determines the uniform numbers of sampled actions.

    Raises:
        ExportError: A number or an action differs, or the bundle refuses to decide; the message names it.
    """
    parity = Parity(len({decision.episode for decision in decisions}), len(decisions))
    parity.untested = _untested(graphs, decisions)
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
        where = f"decision {number} of sub-step {key!r}"
        try:
            found = decide()
            sampled = decide(deterministic=False, uniforms=uniforms)
        except ValueError as error:
            raise ExportError(f"{where}: the policy decides, but the bundle refuses: {error}") from error
        expected = _by_policy(policy, graph, decision, states.get(actor), uniforms)
        compare_numbers(parity, graph, found, expected, where)
        parameters = {head: expected[f"parameters/{head}"] for head in graph.heads}
        ties = graph.near_ties(parameters, TOLERANCE)
        sampled_ties = graph.near_ties(parameters, TOLERANCE, uniforms)
        is_near_tie = False
        for head, space in graph.actions.items():
            what = f"{where}: action {head!r}"
            differs = compare_actions(parity, found.action[head], decision.action[head], what, space, ties[head])
            is_near_tie = is_near_tie or differs
            wanted = expected[f"sample/{head}"]
            compare_actions(parity, sampled.action[head], wanted, f"{what}, sampled", space, sampled_ties[head])
        parity.near_ties += is_near_tie
        states[actor] = found.state
    return parity


def _untested(graphs: Mapping[StepKey, StepGraph], decisions: Sequence[RecordedDecision]) -> list[str]:
    """Describe the networks that made no decision."""
    actors = {decision.actor for decision in decisions}
    keys = {actor.step_key for actor in actors}
    found = []
    for key, graph in graphs.items():
        if key not in keys:
            found.append(f"sub-step {key!r}")
        elif graph.n_networks > 1:
            agents = [agent for agent in range(graph.n_networks) if (key, agent) not in actors]
            found += [f"agent {agent} of sub-step {key!r}" for agent in agents]
    return found


def compare_numbers(
    parity: Parity, graph: StepGraph, found: Decision, expected: Mapping[str, Array], where: str
) -> None:
    """Compare the parameters and the networks' state of a decision with those of the policy.

    Histories of observations, the other entries of a policy state, are compared by their effect: the
    policy saw those of its wrappers.
    """
    for head, parameters in found.parameters.items():
        outputs = graph.heads[head]
        numbers = expected[f"parameters/{head}"]
        if outputs.choices:  # the runtime returns minus infinity for impossible options
            numbers = np.where(numbers <= np.finfo(np.float32).min, -np.inf, numbers)
        _compare(parity, parameters, numbers, f"{where}: parameters of {head!r}", outputs.magnitude)
    for name, array in found.state.items():
        if f"next_state/{name}" in expected:
            _compare(parity, array, expected[f"next_state/{name}"], f"{where}: policy state {name!r}")


@torch.inference_mode()
def _by_policy(
    policy: TorchPolicy,
    graph: StepGraph,
    decision: RecordedDecision,
    state: Mapping[str, Array] | None,
    uniforms: Array,
) -> dict[str, Array]:
    """Outputs of the policy for what it saw, by the names of its graph's outputs, without batch dimension."""
    key, agent = decision.actor
    tensors: dict[str, Tensor] = {}
    for name, space in policy.spec.steps[key].observation_space.spaces.items():
        tensors[name] = torch.from_numpy(np.array(decision.seen[name], space.dtype))[None]
    network_state = policy.parts_of(key).state_shapes
    for name, shape in network_state.items():
        array = np.zeros(shape) if state is None else state[name]
        tensors[name] = torch.from_numpy(np.array(array, np.float32))[None]
    agent_id = torch.tensor([agent]) if graph.n_networks > 1 else None
    joint = policy.distribution(key, tensors, agent_id)
    outputs = graph.decisions(joint, torch.from_numpy(uniforms)[None])
    if network_state:
        of_networks = policy.action_logits(key, tensors, agent_id)
        for name in network_state:
            outputs[f"next_state/{name}"] = of_networks[name].float()
    return {name: tensor[0].numpy() for name, tensor in outputs.items()}


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


def compare_actions(
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
