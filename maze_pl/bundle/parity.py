"""Test of a bundle: comparison with the policy that it was made from, on recorded decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from maze_pl.agents import TorchPolicy
from maze_pl.bundle.differences import TOLERANCE, difference_of_decisions
from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.recorded_decisions import RecordedDecision
from maze_pl.bundle.step_graph import StepGraph
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array
from maze_pl_runtime import Decision, Policy

_MOST_KEPT: Final = 32  # decisions of a sub-step that are also made as a batch


@dataclass
class Parity:
    """Result of a test of a bundle, for its manifest.

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


@dataclass(frozen=True)
class SingleDecision:
    """Decisions that a bundle made on one observation.

    Attributes:
        observation: Name -> observation.
        state: Policy state before it; None at the start of an episode.
        network: Number of the network that decided.
        uniforms: [n_uniforms] numbers that determined the sampled action.
        most_likely: Decision with the most likely action.
        sampled: Decision with a sampled action.
    """

    observation: Mapping[str, Any]
    state: Mapping[str, Array] | None
    network: int
    uniforms: Array
    most_likely: Decision
    sampled: Decision


def require_parity(
    bundle: Policy,
    policy: TorchPolicy,
    graphs: Mapping[StepKey, StepGraph],
    decisions: Sequence[RecordedDecision],
    seed: int,
) -> tuple[Parity, dict[StepKey, list[SingleDecision]]]:
    """Compare each decision: most likely actions with those recorded, all other outputs with those of the policy.

    The bundle gets the recorded raw observations one after the other, and keeps its own policy
    state. The policy gets the observations that it saw, from the wrappers themselves, and the state of
    the bundle, so that rounding errors do not add up. Histories of observations in this state are compared
    by their effect, since those of the policy are in its wrappers.

    Args:
        bundle: The bundle.
        policy: The policy.
        graphs: Step key -> module that a graph of the bundle was made from, for its names and actions.
        decisions: Decisions of the policy in its environment.
        seed: Determines the uniform numbers of sampled actions.

    Returns:
        The result, and step key -> the first decisions of the bundle, at most 32.

    Raises:
        ExportError: A number or an action differs, or the bundle refuses to decide; the message names it.
    """
    parity = Parity(len({decision.episode for decision in decisions}), len(decisions))
    parity.untested = _untested(graphs, decisions)
    generator = np.random.default_rng(seed)
    states: dict[Any, dict[str, Array]] = {}
    first: dict[StepKey, list[SingleDecision]] = {key: [] for key in graphs}
    for number, decision in enumerate(decisions):
        key, agent = decision.actor
        graph = graphs[key]
        actor = (decision.episode, key, agent)
        uniforms = generator.random(graph.n_uniforms)
        place = f"decision {number} of sub-step {key!r}"
        try:
            single = _decided(bundle, graph, decision, states.get(actor), uniforms)
        except ValueError as error:
            fault = "the policy decides, but the bundle refuses"
            raise ExportError(f"{place}: {fault}: {error}") from error
        expected = _by_policy(policy, graph, decision, states.get(actor), uniforms)
        sample = {head: expected[f"sample/{head}"] for head in graph.actions}
        where = f"the bundle does not decide as the policy does: {place}"
        most_likely = difference_of_decisions(graph, single.most_likely, expected, decision.action, where)
        sampled = difference_of_decisions(graph, single.sampled, expected, sample, f"{where}, sampled", uniforms)
        parity.near_ties += most_likely.has_near_tie
        parity.largest_difference = max(parity.largest_difference, most_likely.largest, sampled.largest)
        states[actor] = single.most_likely.state
        if len(first[key]) < _MOST_KEPT:
            first[key].append(single)
    return parity, first


def _decided(
    bundle: Policy,
    graph: StepGraph,
    decision: RecordedDecision,
    state: Mapping[str, Array] | None,
    uniforms: Array,
) -> SingleDecision:
    """Let the bundle decide on a recorded observation; raises ValueError if it refuses."""
    key, agent = decision.actor
    network = agent if graph.n_networks > 1 else 0
    decide = partial(
        bundle.decide,
        decision.observation,
        step_key=key,
        state=state,
        agent_id=network,
        check_masks=False,
    )
    return SingleDecision(
        observation=decision.observation,
        state=state,
        network=network,
        uniforms=uniforms,
        most_likely=decide(),
        sampled=decide(deterministic=False, uniforms=uniforms),
    )


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
