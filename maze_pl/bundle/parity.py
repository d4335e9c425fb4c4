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
MOST_KEPT: Final = 32
"""Number of decisions of a sub-step that are also made as a batch."""


@dataclass
class Parity:
    """Result of a comparison so far.

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

    def compare_decision(
        self,
        graph: StepGraph,
        found: Decision,
        expected: Mapping[str, Array],
        action: Mapping[str, Any],
        where: str,
        uniforms: Array | None = None,
    ) -> bool:
        """Compare a decision of the bundle with an expected one.

        Args:
            graph: Module that the graph of the bundle was made from.
            found: The decision.
            expected: `parameters/<head>` and `next_state/<name>` -> expected numbers. Entries of the
                policy state that are missing are not compared.
            action: Head -> expected action.
            where: Beginning of messages.
            uniforms: [n_uniforms] numbers that determine a sampled action; None for the most likely one.

        Returns:
            True if a choice in a near tie differs.

        Raises:
            ExportError: A number or an action differs.
        """
        parameters = {head: expected[f"parameters/{head}"] for head in graph.heads}
        for head, outputs in graph.heads.items():
            numbers = parameters[head]
            if outputs.choices:  # the runtime returns minus infinity for impossible options
                numbers = np.where(numbers <= np.finfo(np.float32).min, -np.inf, numbers)
            what = f"{where}: parameters of {head!r}"
            self.compare_numbers(found.parameters[head], numbers, what, outputs.magnitude)
        for name, array in found.state.items():
            if f"next_state/{name}" in expected:
                what = f"{where}: policy state {name!r}"
                self.compare_numbers(array, expected[f"next_state/{name}"], what)
        ties = graph.near_ties(parameters, TOLERANCE, uniforms)
        is_near_tie = False
        for head, space in graph.actions.items():
            what = f"{where}: action {head!r}"
            differs = self.compare_action(found.action[head], action[head], what, space, ties[head])
            is_near_tie = is_near_tie or differs
        return is_near_tie

    def compare_numbers(self, found: Any, expected: Any, what: str, magnitude: Any = 1.0) -> None:
        """Note the largest difference, and refuse one above the tolerance.

        Args:
            found: Numbers of the bundle.
            expected: Expected ones.
            what: Description of them.
            magnitude: Their sizes, to which differences are relative if the numbers are smaller.

        Raises:
            ExportError: A number differs.
        """
        found = np.asarray(found, np.float64)
        expected = np.asarray(expected, np.float64)
        with np.errstate(invalid="ignore"):  # differences of equal infinite numbers
            relative = np.abs(found - expected) / np.maximum(magnitude, np.abs(expected))
        difference = float(np.max(np.where(found == expected, 0.0, relative), initial=0.0))
        if not difference <= TOLERANCE:
            fault = f"{what} differs by {difference:.2g}, more than {TOLERANCE:g}"
            raise ExportError(f"{fault}: {found} instead of {expected}")
        self.largest_difference = max(self.largest_difference, difference)

    def compare_action(
        self,
        found: Any,
        expected: Any,
        what: str,
        space: Mapping[str, Any],
        ties: Any = False,
    ) -> bool:
        """Compare numbers up to the tolerance, and integers exactly; entries in near ties may differ.

        In a type that is coarser than the tolerance, such as float16, numbers may be rounded to neighbours.

        Args:
            found: [*shape] action of the bundle.
            expected: [*shape] expected action.
            what: Description of it.
            space: Its space, as plain values.
            ties: [*shape] which entries are near ties.

        Returns:
            True if an entry in a near tie differs.

        Raises:
            ExportError: Another entry differs.
        """
        found, expected = np.asarray(found), np.asarray(expected)
        if found.dtype.kind != "f":
            differs = found != expected
            if (differs & ~np.asarray(ties)).any():
                raise ExportError(f"{what} is {found} instead of {expected}")
            return bool(differs.any())
        magnitude = magnitude_of(space["low"], space["high"])
        step = np.spacing(np.maximum(np.abs(found), np.abs(expected))).astype(np.float64)
        found, expected = found.astype(np.float64), expected.astype(np.float64)
        difference = np.abs(found - expected)
        differs = difference > TOLERANCE * np.maximum(magnitude, np.abs(expected))
        is_rounded = differs & (difference <= step)
        excused = differs & ~is_rounded & ties
        found = np.where(excused | is_rounded, expected, found)
        self.compare_numbers(found, expected, what, magnitude)
        return bool(excused.any())


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
        The result, and step key -> the first decisions of the bundle, at most `MOST_KEPT`.

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
        most_likely = single.most_likely
        differs = parity.compare_decision(graph, most_likely, expected, decision.action, where)
        parity.near_ties += differs
        parity.compare_decision(graph, single.sampled, expected, sample, f"{where}, sampled", uniforms)
        states[actor] = most_likely.state
        if len(first[key]) < MOST_KEPT:
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
