"""Actions for single observations or batches, as environments return them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, overload, runtime_checkable

import numpy as np
import torch
from gymnasium import spaces

from maze_pl.agents.input_range import unreadable
from maze_pl.agents.needed_observations import needed_observations
from maze_pl.core.actor_id import StepKey
from maze_pl.core.allowed_options import forbidden_choice
from maze_pl.core.exact_numbers import first_changed
from maze_pl.core.policy import Array, Policy, PolicyBatch
from maze_pl.core.spaces import environment_action, environment_actions
from maze_pl.core.spec import Spec


class SpecifiedPolicy(Policy, Protocol):
    """A policy that knows what its agents observe and do.

    Attributes:
        spec: Sub-steps with their observation and action spaces.
    """

    spec: Spec


@runtime_checkable
class HasProbabilities(Protocol):
    """A policy that can compute the probabilities of the options of discrete heads."""

    def probabilities(self, batch: PolicyBatch, temperature: float = 1.0) -> dict[str, Any]:
        """Return them by head, as `TorchPolicy.probabilities` does."""
        ...


class ActsOnObservations(ABC):
    """Base of policies and algorithms that gives them the method `act_on`."""

    @abstractmethod
    def acting_policy(self) -> SpecifiedPolicy:
        """Return the policy that chooses the actions."""

    @overload
    def act_on(
        self,
        observation: Mapping[str, Any],
        step_key: StepKey | None = None,
        agent_id: int | Sequence[int] = 0,
        *,
        deterministic: bool = True,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        policy_state: dict[Any, Any] | None = None,
        with_probabilities: Literal[False] = False,
    ) -> dict[str, Any]: ...

    @overload
    def act_on(
        self,
        observation: Mapping[str, Any],
        step_key: StepKey | None = None,
        agent_id: int | Sequence[int] = 0,
        *,
        deterministic: bool = True,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        policy_state: dict[Any, Any] | None = None,
        with_probabilities: Literal[True],
    ) -> tuple[dict[str, Any], dict[str, Any]]: ...

    def act_on(
        self,
        observation: Mapping[str, Any],
        step_key: StepKey | None = None,
        agent_id: int | Sequence[int] = 0,
        *,
        deterministic: bool = True,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        policy_state: dict[Any, Any] | None = None,
        with_probabilities: bool = False,
    ) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        """Compute the action for one observation, as `env.step` takes it, or actions for a batch.

        Args:
            observation: Name -> array [*shape], as returned by the wrapped environment, or
                [B, *shape] for a batch. Observations that no network of the policy reads may be
                missing, such as those that a template hides from it.
            step_key: Sub-step of the actor; optional if there is only one. An environment's
                `*env.actor_id()` gives it and the agent.
            agent_id: Id of the agent that acts; for a batch, one id for all rows or one per row.
            deterministic: Take the most likely action instead of sampling.
            temperature: Values above 1 flatten the distributions, values below 1 sharpen them.
            generator: Random generator for sampling.
            policy_state: Needed for recurrent networks: a dict that is empty at the start of an
                episode, and the same dict in each call, which updates it in place. Each row of a
                batch is a separate actor and must keep its position.
            with_probabilities: Also return the probabilities of discrete heads.

        Returns:
            Head -> action, [B, ...] for a batch. With probabilities, also head -> the options'
            probabilities, [n] for a Discrete space, a list with an array for each choice of a
            MultiDiscrete space, and the probability of a 1 for each bit of a MultiBinary space,
            [*shape]; for a batch, [B, ...]. Continuous heads have no entry.

        Raises:
            ValueError: There are several sub-steps and none was named, an observation is missing,
                has the wrong shape, a NaN or a number that the type of its space or of the networks cannot
                hold, a mask allows no option of a choice, the policy state is missing or belongs to a batch of another
                size, or the policy has no probabilities.
        """
        policy = self.acting_policy()
        key = _step_key(policy.spec, step_key)
        step = policy.spec.steps[key]
        needed = needed_observations(policy, key, step)
        arrays, is_batch = _arrays(observation, step.observation_space, key, needed)
        if fault := _not_a_number(key, arrays) or unreadable(policy, key, arrays):
            raise ValueError(fault)
        if forbidden := forbidden_choice(step, arrays, is_batch):
            raise ValueError(forbidden)
        size = len(next(iter(arrays.values())))
        agents = _agents(agent_id, size)
        ids = agents.tolist()
        actor = (key, ids[0] if len(set(ids)) == 1 else tuple(ids))
        state = None if policy_state is None else _state_of(actor, policy_state, size)
        batch = PolicyBatch(key, arrays, agents, state)
        decision = policy.act(
            batch,
            deterministic=deterministic,
            temperature=temperature,
            generator=generator,
        )
        if policy_state is None and decision.policy_state is not None:
            remedy = "pass policy_state={}, the same dict for a whole episode"
            raise ValueError(f"sub-step {key!r} is recurrent: {remedy}")
        action: dict[str, Any] = {}
        for head, value in decision.action.items():
            space = step.action_space[head]
            if is_batch:
                action[head] = environment_actions(space, value)
            else:
                action[head] = environment_action(space, value[0])
        result: dict[str, Any] | tuple[dict[str, Any], dict[str, Any]] = action
        if with_probabilities:
            result = action, _probabilities(policy, batch, temperature, is_batch)
        if policy_state is not None:
            policy_state[actor] = decision.policy_state
        return result


def _not_a_number(step_key: StepKey, arrays: Mapping[str, Array]) -> str | None:
    """Describe an observation with a NaN; None if there is none."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            return f"observation {name!r} of sub-step {step_key!r} has values that are not a number (NaN)"
    return None


def _step_key(spec: Spec, step_key: StepKey | None) -> StepKey:
    """Return the sub-step that acts, which must be named if there are several."""
    if step_key is None and len(spec.steps) > 1:
        raise ValueError(f"several sub-steps may act: name one of {list(spec.steps)} as step_key")
    key = next(iter(spec.steps)) if step_key is None else step_key
    if key not in spec.steps:
        raise ValueError(f"unknown sub-step {key!r}; sub-steps: {list(spec.steps)}")
    return key


def _agents(agent_id: int | Sequence[int], size: int) -> Array:
    """Return the ids of the agents of all observations, [size].

    Raises:
        ValueError: There is neither one agent nor one for each observation.
    """
    agents = np.asarray(agent_id)
    if agents.shape not in ((), (size,)):
        expected = f"one agent or {size}, one for each observation"
        raise ValueError(f"agent_id={agent_id!r}: expected {expected}")
    return np.full(size, agents)


def _state_of(actor: Any, policy_state: Mapping[Any, Any], size: int) -> dict[str, Array] | None:
    """Return the state before the acts of some actors, name -> [size, ...]; None if there is none.

    Args:
        actor: Sub-step and agent, or agents if they are different ones.
        policy_state: States by these.
        size: Number of observations.

    Raises:
        ValueError: The state is that of another number of actors.
    """
    state: dict[str, Array] | None = policy_state.get(actor)
    if state is not None and any(len(array) != size for array in state.values()):
        n_actors = len(next(iter(state.values())))
        found = f"policy_state is that of {n_actors} actors"
        raise ValueError(f"{found}, but there are {size} observations")
    return state


def _probabilities(policy: Policy, batch: PolicyBatch, temperature: float, is_batch: bool) -> dict[str, Any]:
    """Return the probabilities of discrete heads, with a batch dimension if it is a batch."""
    if not isinstance(policy, HasProbabilities):
        raise ValueError(f"a {type(policy).__name__} has no distributions, and so no probabilities")
    probabilities = policy.probabilities(batch, temperature)
    if is_batch:
        return probabilities
    return {head: _first(array) for head, array in probabilities.items()}


def _arrays(
    observation: Mapping[str, Any], space: spaces.Dict, step_key: StepKey, needed: set[str]
) -> tuple[dict[str, Array], bool]:
    """Return name -> [B, *shape] for one observation or a batch, and whether it is a batch.

    Raises:
        ValueError: An observation is missing, cannot be read as numbers of its space, or has the
            wrong shape, or a batch is empty or its entries differ in size.
    """
    if not isinstance(observation, Mapping):
        expected = f"needs a dict with the observations {list(space.spaces)}"
        raise ValueError(f"sub-step {step_key!r} {expected}, not {type(observation).__name__}")
    missing = sorted(needed - set(observation))
    if missing:
        found = f"got {sorted(observation)}"
        raise ValueError(f"sub-step {step_key!r} also observes {missing}; {found}")
    arrays: dict[str, Array] = {}
    sizes: dict[str, int | None] = {}
    for name, child in space.spaces.items():
        if name not in observation:
            continue
        array = _array(observation[name], child, name)
        is_batch = array.shape != (child.shape or ())
        sizes[name] = len(array) if is_batch else None
        # A copy has the layout of a rollout's batch, on which rounding depends; here the stride may be 0.
        arrays[name] = (array if is_batch else array[None]).copy()
    if len(set(sizes.values())) > 1:
        described = {name: "no batch" if size is None else f"a batch of {size}" for name, size in sizes.items()}
        raise ValueError(f"observations are of different sizes: {described}")
    size = next(iter(sizes.values()))
    if size == 0:
        raise ValueError("the batch of observations is empty")
    return arrays, size is not None


def _array(value: Any, space: spaces.Space[Any], name: str) -> Array:
    """Convert an observation, or a batch of it, to an array [*shape] or [B, *shape].

    Raises:
        ValueError: It cannot be read as numbers, holds a number that the space's type cannot hold,
            or has the wrong shape.
    """
    shape, dtype = space.shape or (), np.dtype(space.dtype)
    refused = f"observation {name!r} cannot be read as {dtype} of shape {shape}"
    try:
        given = np.asarray(value)
        number = first_changed(given, dtype)
        array = given if number is not None else given.astype(dtype, copy=False)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{refused}: {error}") from error
    if number is not None:
        raise ValueError(f"{refused}: it holds {number}")
    if array.shape not in (shape, array.shape[:1] + shape):
        batch_shape = f"({', '.join(map(str, ('B', *shape)))}{',' if not shape else ''})"
        expected = f"{shape}, or {batch_shape} for a batch"
        raise ValueError(f"observation {name!r} has shape {array.shape}, expected {expected}")
    return array


def _first(probability: Any) -> Any:
    """Probabilities of the only entry of a batch; a list of them for several choices."""
    return [part[0] for part in probability] if isinstance(probability, list) else probability[0]
