"""State of an environment in mid-episode, for episodes that are too long to replay."""

import copy
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.core.object_state import arrays_of, give_state, is_same_state, take_state
from maze_pl.core.state_rules import Rules, StateError
from maze_pl.envs.vector.vector_env import VectorEnv
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.events import RunningKpiCalculator, StepEventLog
from maze_pl.events.episode_statistics import EventGroup
from maze_pl.events.pubsub import EventRecord, EventTopic
from maze_pl.events.topics import EventDeclaration

MOST_REPLAYED_ACTS: Final = 10_000
"""Maximum number of acts to replay; longer episodes are saved as a state if possible."""
ACTS_BEFORE_STATE: Final = 10
"""Acts that are always replayed, as environments create some objects in their first steps only."""
_OTHER_ACTS_BEFORE_STATE: Final = 60
_ACTS_OF_CHECK: Final = 20
_MOST_BYTES: Final = 2**26
_RULES: Final = Rules(
    stateless={EventDeclaration: lambda one: f"{one.topic.__module__}:{one.topic.__qualname__}.{one.name}"},
    attributes={EventTopic: ("_pubsub", "_topic", "_events")},
    anywhere={EventDeclaration: lambda one: (one.topic, one.event)},
    classes=(EventRecord, ActorID, EventGroup, StepEventLog),
)


def take_episode(env: LogStatsWrapper, bookkeeping: dict[str, Any]) -> Any:
    """Return the state of an environment and its wrappers, including the vector's bookkeeping data on it.

    Raises:
        StateError: The state cannot be taken or is too large; the message gives the reason.
    """
    calculator = env.get_kpi_calculator()
    if calculator is not None and not isinstance(calculator, RunningKpiCalculator):
        reason = "its KPIs are computed from all events of the episode"
        raise StateError(f"{reason}; a RunningKpiCalculator needs only those of the current step")
    state = take_state([env, bookkeeping], _RULES, "envs")
    n_bytes = sum(array.nbytes for array in arrays_of(state))
    if n_bytes > _MOST_BYTES:
        raise StateError(f"it has {n_bytes / 2**20:.0f} MiB")
    return state


def give_episode(env: LogStatsWrapper, bookkeeping: dict[str, Any], state: Any) -> dict[str, Any]:
    """Restore a saved state in an environment that was made in the same way.

    Args:
        env: The environment, in the same episode.
        bookkeeping: The vector's current data on the environment; updated in place.
        state: Result of `take_episode`.

    Returns:
        `bookkeeping`, with the saved data.

    Raises:
        StateError: The state belongs to another kind of environment.
    """
    give_state([env, bookkeeping], state, _RULES, "envs")
    return bookkeeping


def check_episode(state: Any, copies: "list[Any]", history: dict[str, Any]) -> None:
    """Verify that a state is complete: an environment's future depends on nothing else.

    The state is restored in two new environments with different pasts, which must then continue identically.

    Args:
        state: Result of `take_episode`.
        copies: Two vectors with one such environment each, not yet reset.
        history: The acts that led to the state.

    Raises:
        StateError: The environments differ; the message says how.
    """
    for vector, n_acts in zip(copies, (ACTS_BEFORE_STATE, _OTHER_ACTS_BEFORE_STATE), strict=True):
        vector.replay([first_acts(history, n_acts) | {"state": state, "n_before": n_acts}], [{}])
        if not is_same_state(vector.episode_state(0), state):
            raise StateError("a new environment differs from the state that was just restored in it")
        vector.envs[0].context.is_logged = False
    generator = np.random.default_rng(0)
    for _ in range(_ACTS_OF_CHECK):
        action = _random_action(copies[0], generator)
        ends = [_step(vector, action) for vector in copies]
        if ends[0] != ends[1] or not is_same_state(copies[0].episode_state(0), copies[1].episode_state(0)):
            raise StateError("two new environments with the same restored state behave differently")
        if ends[0]:
            return


def first_acts(history: dict[str, Any], n_acts: int) -> dict[str, Any]:
    """Return a history with only its first acts; see `VectorEnv.histories`."""
    keys = history["keys"][:n_acts]
    actions = {}
    for index, (key, heads) in enumerate(history["actions"].items()):
        n_of_key = int(np.count_nonzero(keys == index))
        actions[key] = {head: values[:n_of_key] for head, values in heads.items()}
    return history | {"keys": keys, "actions": actions}


def _random_action(vector: VectorEnv, generator: np.random.Generator) -> dict[str, Any]:
    """Sample an action for the only environment of a vector; discrete heads respect their masks."""
    key = vector.spec.step_keys[vector.staging.next_key[0]]
    step, action = vector.spec.steps[key], {}
    for head, one in step.action_space.spaces.items():
        space = copy.deepcopy(one)
        space.seed(int(generator.integers(2**31)))
        mask = None
        if head in step.masks and isinstance(space, spaces.Discrete):
            mask = (vector.staging.observation[key][step.masks[head]][0] != 0).astype(np.int8)
        action[head] = space.sample(mask)
    return action


def _step(vector: VectorEnv, action: dict[str, Any]) -> str:
    """Perform an action and return how it ends the episode; empty if the episode continues.

    The result is the reward of a final step or the name of an exception.
    """
    staging = vector.staging
    key = vector.spec.step_keys[staging.next_key[0]]
    for head, value in action.items():
        staging.action[key][head][0] = value
    try:
        vector.step()
    except Exception as error:  # a random action may fail, but then in both
        return type(error).__name__
    ended = bool(staging.terminated[0] or staging.truncated[0])
    return f"{staging.reward[0]}" if ended else ""
