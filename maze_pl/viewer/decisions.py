"""Distributions and values of an agent in the acts of a recorded episode.

Networks are evaluated on the recorded observations, all acts of a sub-step at once, so that nothing
has to be recorded while episodes are played. Recurrent networks process the acts of each actor as
a sequence from its first act on.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents import StateCritic, TorchActorCritic, TorchPolicy
from maze_pl.agents.acting import HasProbabilities
from maze_pl.agents.network_io import state_shapes
from maze_pl.agents.torch_state_critic import name_in_row
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Policy, PolicyBatch, evaluation_mode
from maze_pl.distributions.dict_probability_distribution import DictProbabilityDistribution
from maze_pl.distributions.probability_distribution import MaskableProbabilityDistribution, ProbabilityDistribution
from maze_pl.modules import AlgorithmModule
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.compatibility import require_same_spaces
from maze_pl.runs.other_sizes import in_sizes_of
from maze_pl.viewer.arrays import Array
from maze_pl.viewer.densities import densities_of
from maze_pl.viewer.episode import Decisions, HeadDecisions

_MOST_ELEMENTS: Final = 2**23
"""Maximum number of observation elements evaluated at once: 32 MiB as float32."""
Tensors = Mapping[str, Tensor]


def decisions_of(agent: Any, record: SpacesTrajectoryRecord, temperature: float = 1.0) -> Decisions | None:
    """Compute an agent's distributions and values in a recorded episode.

    Args:
        agent: An algorithm, a policy with its critic, or a policy.
        record: The episode.
        temperature: Temperature with which actions were sampled.

    Returns:
        None if the agent has neither distributions nor values, as heuristics.

    Raises:
        ConfigurationError: The episode has other spaces than the agent.
    """
    agent = in_sizes_of(agent, record.spec)
    networks = agent.networks if isinstance(agent, AlgorithmModule) else agent
    policy = networks.policy if isinstance(networks, TorchActorCritic) else networks
    if isinstance(policy, TorchPolicy):
        require_same_spaces(policy.spec.to_dict(), record.spec.to_dict(), "the agent")
    with evaluation_mode(agent), torch.inference_mode():
        if isinstance(policy, TorchPolicy):
            heads = {key: _of_policy(policy, key, record, temperature) for key in record.spec.step_keys}
        elif isinstance(policy, HasProbabilities):
            heads = {key: _of_custom_policy(policy, key, record, temperature) for key in record.spec.step_keys}
        else:
            return None
        critic = networks.critic if isinstance(networks, TorchActorCritic) else None
        value = _values(critic, record) if isinstance(critic, StateCritic) else None
    return Decisions(heads, value)


def acts_of(record: SpacesTrajectoryRecord, key: StepKey) -> Array:
    """Return the indices of the acts of a step key among all acts."""
    return np.flatnonzero(record.key_index == record.spec.step_keys.index(key))


# ------------------------------------------------------------------------------------------------------------- policy


def _of_policy(
    policy: TorchPolicy, key: StepKey, record: SpacesTrajectoryRecord, temperature: float
) -> dict[str, HeadDecisions]:
    """Return the distributions of all heads of a sub-step."""

    def evaluate(observation: Tensors, agent_id: Tensor) -> dict[str, HeadDecisions]:
        joint = policy.distribution(key, observation, agent_id, temperature)
        return _described(joint, len(agent_id))

    return _joined(_in_parts(evaluate, policy.modules_of(key), key, record))


def _described(joint: DictProbabilityDistribution, n_acts: int) -> dict[str, HeadDecisions]:
    """Return the most likely actions, and probabilities or densities, by head."""
    described: dict[str, HeadDecisions] = {}
    for head, distribution in joint.distributions.items():
        most_likely = distribution.deterministic_sample().float().cpu().numpy()
        family = type(distribution).__name__.removesuffix("ProbabilityDistribution")
        decisions = HeadDecisions(family, most_likely.reshape(n_acts, *(distribution.action_space.shape or ())))
        if isinstance(distribution, MaskableProbabilityDistribution):
            decisions.probabilities = distribution.probabilities()[0].float().cpu().numpy()
        elif isinstance(distribution, ProbabilityDistribution):
            decisions.density_x, decisions.density = densities_of(distribution, n_acts)
        described[head] = decisions
    return described


def _of_custom_policy(
    policy: HasProbabilities, key: StepKey, record: SpacesTrajectoryRecord, temperature: float
) -> dict[str, HeadDecisions]:
    """Return the probabilities of all heads of a sub-step for other policies than `TorchPolicy`."""
    n_acts = len(acts_of(record, key))
    if not n_acts:
        return {}
    described: dict[str, HeadDecisions] = {}
    for head, probabilities in _probabilities(policy, key, record, temperature).items():
        space = record.spec.steps[key].action_space[head]
        described[head] = _of_custom_head(type(policy).__name__, space, probabilities, n_acts)
    return described


def _of_custom_head(family: str, space: spaces.Space[Any], probabilities: Any, n_acts: int) -> HeadDecisions:
    """Return the most likely actions of a discrete head, and the probabilities of its options.

    Args:
        family: Name of the distributions.
        space: Action space of the head.
        probabilities: As `TorchPolicy.probabilities` returns them: [acts, options]; for bits,
            [acts, *shape] probabilities of being set; or a list of [acts, options], one a choice.
        n_acts: Number of acts.
    """
    shape = (n_acts, *(space.shape or ()))
    if not isinstance(probabilities, list) and np.shape(probabilities) == shape:  # of bits
        is_set = np.asarray(probabilities)
        bits = is_set.reshape(n_acts, -1)
        of_options = np.stack((1.0 - bits, bits), axis=-1).reshape(n_acts, -1)
        return HeadDecisions(family, (is_set > 0.5).astype(np.float32), of_options)
    choices = probabilities if isinstance(probabilities, list) else [np.asarray(probabilities)]
    indices = np.stack([choice.argmax(axis=1) for choice in choices], axis=-1)
    most_likely = indices.reshape(shape) + getattr(space, "start", 0)
    return HeadDecisions(family, most_likely.astype(np.float32), np.concatenate(choices, axis=1))


def _probabilities(
    policy: HasProbabilities, key: StepKey, record: SpacesTrajectoryRecord, temperature: float
) -> dict[str, Any]:
    """Return the probabilities of all acts of a sub-step by head, as a custom policy computes them.

    A policy without a state gets all acts at once. One with a state gets the first acts of all
    agents, then the second acts of those that act again with the states after the first, and so on.
    """
    agents = record.agent_id[acts_of(record, key)]
    observation = record.observation[key]
    # rows of the acts of each agent
    sequences = [np.flatnonzero(agents == agent) for agent in np.unique(agents)]
    answers: list[dict[str, Any]] = []
    asked: list[Array] = []
    state: dict[str, Array] | None = None
    for turn in range(max(len(sequence) for sequence in sequences)):
        still_acts = [len(sequence) > turn for sequence in sequences]
        if state is not None:
            state = {name: values[still_acts] for name, values in state.items()}
        sequences = [sequence for sequence in sequences if len(sequence) > turn]
        rows = np.array([sequence[turn] for sequence in sequences])
        seen = {name: values[rows] for name, values in observation.items()}
        batch = PolicyBatch(key, seen, agents[rows], state, np.full(len(rows), turn == 0))
        state = _state_after(policy, batch)
        if turn == 0 and state is None:
            return policy.probabilities(PolicyBatch(key, observation, agents), temperature)
        answers.append(policy.probabilities(batch, temperature))
        asked.append(rows)
    order = np.argsort(np.concatenate(asked))
    return {head: _in_order([answer[head] for answer in answers], order) for head in answers[0]}


def _state_after(policy: HasProbabilities, batch: PolicyBatch) -> dict[str, Array] | None:
    """Return the policy state after an act; None for a policy without one."""
    return policy.act(batch, deterministic=True).policy_state if isinstance(policy, Policy) else None


def _in_order(parts: list[Any], order: Array) -> Any:
    """Join the probabilities of a head, which are an array, or a list with one for each choice."""
    if isinstance(parts[0], list):
        return [np.concatenate(choice)[order] for choice in zip(*parts, strict=True)]
    return np.concatenate(parts)[order]


# ------------------------------------------------------------------------------------------------------------- values


def _values(critic: StateCritic, record: SpacesTrajectoryRecord) -> Array:
    """[acts] values of the states; NaN where the critic estimates none."""
    value = np.full(len(record), np.nan, np.float32)
    first_of_row = _first_of_rows(record)
    for key in record.spec.step_keys:
        acts = acts_of(record, key)
        if not len(acts):
            continue

        def evaluate(observation: Tensors, agent_id: Tensor, key: StepKey = key) -> Tensor:
            return critic.value(key, observation, agent_id)

        earlier = _earlier_observations(record, key, len(acts)) if critic.kind == "delta" else {}
        network = critic.recurrent.get(key, nn.Identity())
        parts = _in_parts(evaluate, network, key, record, earlier, like=critic)
        found = np.full(len(acts), np.nan, np.float32)
        for rows, values in parts:
            found[rows] = values.float().cpu().numpy()
        if critic.kind == "shared":  # trained on the first act of each row only
            found[~first_of_row[acts]] = np.nan
        value[acts] = found
    return value


def _first_of_rows(record: SpacesTrajectoryRecord) -> Array:
    """[acts] bool, True where a row of a rollout begins: a step, or an actor that acts again in it."""
    is_first = np.zeros(len(record), np.bool_)
    acted: set[tuple[int, int]] = set()
    for act, (time, key, agent) in enumerate(zip(record.env_time, record.key_index, record.agent_id, strict=True)):
        actor = (int(key), int(agent))
        if act == 0 or time != record.env_time[act - 1] or actor in acted:
            is_first[act] = True
            acted = set()
        acted.add(actor)
    return is_first


def _earlier_observations(record: SpacesTrajectoryRecord, step_key: StepKey, n_acts: int) -> dict[str, Array]:
    """Name -> [acts, ...] observations of earlier sub-steps in the same rows, for delta critics."""
    earlier: dict[str, Array] = {}
    for key in record.spec.step_keys:
        if key == step_key:
            break
        for name, array in record.observation[key].items():
            earlier[name_in_row(key, name)] = array[:n_acts]
    return earlier


# -------------------------------------------------------------------------------------------------------------- parts


def _in_parts(
    evaluate: Callable[[Tensors, Tensor], Any],
    network: nn.Module,
    key: StepKey,
    record: SpacesTrajectoryRecord,
    further: Mapping[str, Array] | None = None,
    like: nn.Module | None = None,
) -> list[tuple[Array, Any]]:
    """Evaluate the acts of a sub-step in parts: sequences of actors, or as many as fit in memory.

    Args:
        evaluate: Receives observations [n, ...], with a state [1, ...] for recurrent networks, and
            ids of agents [n].
        network: The network, to see whether it is recurrent.
        key: The step key.
        record: The episode.
        further: Further observations, [acts of the step key, ...].
        like: Module with parameters of the type of policy states; the network if None.

    Returns:
        For each part, the rows among the acts of the step key, and the result.
    """
    agents = record.agent_id[acts_of(record, key)]
    observation = {**record.observation[key], **(further or {})}
    shapes = state_shapes(network)
    state: dict[str, Tensor] = {}
    if shapes:
        example = next((like or network).parameters())
        state = {name: example.new_zeros(1, *shape) for name, shape in shapes.items()}
        parts = [np.flatnonzero(agents == agent) for agent in np.unique(agents)]
    else:
        elements = sum(array[:1].size for array in observation.values())
        size = max(1, _MOST_ELEMENTS // max(elements, 1))
        parts = [np.arange(start, min(start + size, len(agents))) for start in range(0, len(agents), size)]
    results: list[tuple[Array, Any]] = []
    for rows in parts:
        inputs = {name: torch.from_numpy(array[rows]) for name, array in observation.items()}
        results.append((rows, evaluate({**inputs, **state}, torch.from_numpy(agents[rows]))))
    return results


def _joined(parts: list[tuple[Array, dict[str, HeadDecisions]]]) -> dict[str, HeadDecisions]:
    """Join the distributions of parts of the acts, in the order of the acts."""
    if not parts:
        return {}
    order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
    joined: dict[str, HeadDecisions] = {}
    for head, first in parts[0][1].items():
        columns: dict[str, Any] = {}
        for name in ("most_likely", "probabilities", "density_x", "density"):
            arrays = [getattr(found[head], name) for _, found in parts]
            is_known = all(array is not None for array in arrays)
            columns[name] = np.concatenate(arrays)[order] if is_known else None
        joined[head] = HeadDecisions(first.family, **columns)
    return joined
