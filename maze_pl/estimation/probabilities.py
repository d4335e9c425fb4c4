"""Probabilities of recorded acts under a policy."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from maze_pl.agents import TorchPolicy
from maze_pl.agents.acting import HasProbabilities
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import MazeStatePolicy, Policy, PolicyBatch, evaluation_mode
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spaces import allowed_entries
from maze_pl.core.spec import StepSpec
from maze_pl.estimation.recorded_acts import RecordedActs, Situations
from maze_pl.estimation.weighted_episodes import Array
from maze_pl.runs.bundle_policy import BundlePolicy

BATCH_SIZE = 4096
"""Situations of one call of a network."""


def require_memoryless(policy: Policy, name: str) -> None:
    """Refuse a policy whose probabilities depend on more than one observation.

    Raises:
        ValueError: It is recurrent, or a bundle with a memory.
    """
    consequence = "only policies without memory can be evaluated off-policy"
    if isinstance(policy, TorchPolicy) and any(policy.parts_of(key).state_shapes for key in policy.spec.step_keys):
        raise ValueError(f"{name} is recurrent: {consequence}")
    if isinstance(policy, BundlePolicy) and policy.has_state:
        raise ValueError(f"{name} has a memory, as it is recurrent or stacks observations: {consequence}")


def log_probs(policy: Policy, acts: RecordedActs, name: str) -> Array:
    """[A] log-probability of each recorded act, in nats; -inf for acts that the policy never takes.

    Acts are recorded as environments receive them: components that were clipped to a bound have
    the probability of everything that is clipped to it, other continuous ones a density.

    Args:
        policy: A `TorchPolicy`, a `RandomPolicy`, or a policy of discrete actions with a method
            `probabilities` that needs observations only.
        acts: The acts.
        name: Name of the policy for messages.

    Raises:
        ValueError: The policy has no probabilities, not even of its samples, or is recurrent; or
            networks return NaN.
    """
    require_memoryless(policy, name)
    found = np.zeros(len(acts.reward))
    for place, (key, situations) in enumerate(acts.situations.items()):
        if not situations.n_acts:
            continue
        if isinstance(policy, TorchPolicy):
            values = _of_networks(policy, key, situations, name)
        elif isinstance(policy, RandomPolicy):
            values = _uniform(acts.spec.steps[key], situations)
        else:
            values = _of_options(_with_probabilities(policy, name), acts.spec.steps[key], key, situations, name)
        chosen = acts.key_index == place
        found[chosen] = values[acts.row[chosen]]
    n_invalid = int(np.count_nonzero(~(found < math.inf)))
    if n_invalid:
        remedy = "check its weights, and whether the recorded observations are those that it was trained on"
        raise ValueError(f"{n_invalid:,} recorded acts have no finite probability under {name}: {remedy}")
    return found


def _with_probabilities(policy: Policy, name: str) -> HasProbabilities:
    """Return a policy that can say from observations how likely its actions are.

    Raises:
        ValueError: It has no method for it, needs the states of the simulation, or is a bundle with
            wrappers, which would change recorded observations a second time.
    """
    remedy = "name a trained agent or random, or have the recorded actions cloned with clone"
    if isinstance(policy, MazeStatePolicy):
        fault = "it needs the states of the simulation, and recorded acts have observations only"
        raise ValueError(f"{name} has no probabilities of recorded actions: {fault}; {remedy}")
    if not isinstance(policy, HasProbabilities):
        fault = f"{name} has no probabilities of actions, since {type(policy).__name__} has no such method"
        method = "define probabilities(batch, temperature=1.0) like that of TorchPolicy"
        raise ValueError(f"{fault}: {method}, {remedy}")
    if isinstance(policy, BundlePolicy) and policy.included:
        wrappers = " and ".join(wrapper.rpartition(".")[2] for wrapper in policy.included)
        fault = f"the bundle contains {wrappers}, after which observations may have been recorded"
        raise ValueError(f"{name} has no probabilities of recorded actions: {fault}; {remedy}")
    return policy


def batches(key: StepKey, situations: Situations, n_rows: int) -> Iterator[tuple[slice, PolicyBatch]]:
    """Yield the first situations of a sub-step in parts that fit into one call of a network, with their rows."""
    for start in range(0, n_rows, BATCH_SIZE):
        rows = slice(start, min(start + BATCH_SIZE, n_rows))
        observation = {name: array[rows] for name, array in situations.observation.items()}
        yield rows, PolicyBatch(key, observation, situations.agent_id[rows])


def _of_options(policy: HasProbabilities, step: StepSpec, key: StepKey, situations: Situations, name: str) -> Array:
    """[n_acts] log-probabilities of acts by the probabilities of all options.

    Raises:
        ValueError: Probabilities are missing, as for continuous heads, or do not fit the options.
    """
    parts = []
    with torch.no_grad(), evaluation_mode(policy):
        for rows, batch in batches(key, situations, situations.n_acts):
            action = {head: values[rows] for head, values in situations.action.items()}
            parts.append(_of_recorded(policy.probabilities(batch), step, f"sub-step {key!r}", action, name))
    return np.concatenate(parts)


def _of_recorded(
    found: Mapping[str, Any], step: StepSpec, sub_step: str, action: Mapping[str, Array], name: str
) -> Array:
    """[n] log-probabilities of the actions of a batch, given the probabilities of all options by head."""
    n_acts = len(next(iter(action.values())))
    total = np.zeros(n_acts)
    for head, space in step.action_space.spaces.items():
        where = f"head {head!r} of {sub_step}"
        if head not in found:
            raise ValueError(f"{name} gives no probabilities of {where}, {space}: have it cloned with clone")
        of_choices, chosen = _choices(space, found[head], action[head])
        if [part.shape for part in of_choices] != [(n_acts, size) for size in _sizes(space)]:
            shapes = [part.shape for part in of_choices]
            expected = f"those of {n_acts} actors and the options of {space}"
            raise ValueError(f"{name} gives probabilities of {where} of shapes {shapes}: expected {expected}")
        for place, part in enumerate(of_choices):
            if (part < 0.0).any() or not np.allclose(part.sum(1), 1.0, atol=1e-3):
                raise ValueError(f"{name} gives probabilities of {where} that are negative or do not add up to 1")
            with np.errstate(divide="ignore"):
                total += np.log(part[np.arange(n_acts), chosen[:, place]])
    return total


def _choices(space: spaces.Space[Any], probabilities: Any, action: Array) -> tuple[list[Array], Array]:
    """Return the [n, options] probabilities of each choice of a head, and the [n, choices] recorded ones."""
    n = len(action)
    if isinstance(space, spaces.Discrete):
        return [np.asarray(probabilities, np.float64)], (action.reshape(n, 1) - space.start).astype(np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        parts = [np.asarray(part, np.float64) for part in probabilities]
        return parts, (action - space.start).reshape(n, -1).astype(np.int64)
    ones = np.asarray(probabilities, np.float64).reshape(n, -1)
    return [np.stack([1 - one, one], 1) for one in ones.T], action.reshape(n, -1).astype(np.int64)


@torch.no_grad()
def _of_networks(policy: TorchPolicy, key: Any, situations: Situations, name: str) -> Array:
    """[n_acts] log-probabilities of the acts of a sub-step.

    Raises:
        ValueError: Continuous actions have no noise.
    """
    parts = []
    with evaluation_mode(policy):
        for start in range(0, situations.n_acts, BATCH_SIZE):
            rows = slice(start, min(start + BATCH_SIZE, situations.n_acts))
            observation = tensors(situations.observation, rows)
            agent_id = torch.from_numpy(np.array(situations.agent_id[rows]))
            joint = policy.distribution(key, observation, agent_id)
            for head, part in joint.distributions.items():
                is_continuous = isinstance(part.action_space, spaces.Box)
                if is_continuous and part.has_exploration_scale and float(part.exploration) == 0.0:
                    fault = f"{name} acts without noise in head {head!r} of sub-step {key!r}"
                    remedy = "ask for fitted_q only, or name a policy that samples its actions"
                    raise ValueError(f"{fault}: deterministic actions have no probabilities to weight by: {remedy}")
            found = joint.environment_log_prob(tensors(situations.action, rows))
            parts.append(found.double().cpu().numpy())
    return np.concatenate(parts)


def tensors(arrays: Mapping[str, Array], rows: Any) -> dict[str, torch.Tensor]:
    """Rows of arrays as tensors."""
    return {name: torch.from_numpy(np.array(array[rows])) for name, array in arrays.items()}


def _uniform(step: StepSpec, situations: Situations) -> Array:
    """[n_acts] log-probabilities of acts that are drawn uniformly from what the masks allow."""
    n_acts = situations.n_acts
    total = np.zeros(n_acts)
    for head, space in step.action_space.spaces.items():
        if isinstance(space, spaces.Box):
            extents = np.asarray(space.high, np.float64) - space.low
            if not np.isfinite(extents).all() or (extents <= 0.0).any():
                raise ValueError(f"random actions of head {head!r} have no density, since {space} has no finite size")
            if np.issubdtype(space.dtype, np.floating):
                total += _log_uniform(space, situations.action[head])
            else:
                total -= np.log(extents + 1).sum()
            continue
        n_entries = spaces.flatdim(space)
        allowed = np.ones((n_acts, n_entries), bool)
        if head in step.masks:
            name = step.masks[head]
            mask = situations.observation[name][:n_acts]
            allowed = np.asarray(allowed_entries(mask, (n_acts, n_entries), name, head))
        total -= _log_options(space, allowed)
    return total


def _log_uniform(space: spaces.Box, action: Array) -> Array:
    """[n] log-densities of uniform actions of a box of floats.

    A bound has the probability of all samples that are rounded to it: half a step to the next float.

    Args:
        space: Space of the head.
        action: [n, *shape] recorded actions.
    """
    low, high = space.low, space.high
    step_at_low = np.log(np.nextafter(low, high) - low, dtype=np.float64) - math.log(2.0)
    step_at_high = np.log(high - np.nextafter(high, low), dtype=np.float64) - math.log(2.0)
    steps = np.where(action <= low.astype(action.dtype), step_at_low, 0.0)
    steps = np.where(action >= high.astype(action.dtype), step_at_high, steps)
    terms = steps - np.log(np.subtract(high, low, dtype=np.float64))
    total: Array = terms.reshape(len(action), -1).sum(1)
    return total


def _log_options(space: spaces.Space[Any], allowed: Array) -> Array:
    """[n] log of the number of actions of a discrete head that are allowed; a choice without any allows all.

    Args:
        space: Space of the head.
        allowed: [n, entries] whether each entry is allowed.
    """
    if isinstance(space, spaces.MultiBinary):
        n_free = allowed.sum(1)  # a bit that is not allowed is 0
        return np.asarray(n_free * math.log(2.0))
    total = np.zeros(len(allowed))
    for choice in np.split(allowed, np.cumsum(_sizes(space))[:-1], axis=1):
        n_allowed = choice.sum(1)
        total += np.log(np.where(n_allowed == 0, choice.shape[1], n_allowed))
    return total


def _sizes(space: spaces.Space[Any]) -> list[int]:
    """Return the numbers of options of the choices of a discrete head."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(size) for size in space.nvec.ravel()]
    return [2] * spaces.flatdim(space)
