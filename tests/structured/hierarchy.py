"""A manager sets a goal for the next four environment steps, in which a worker acts once or twice each.

With the goal `QUICK` the worker's acts of the first of these environment steps are paid at its end, with `THOROUGH`
those of all four at the end of the last. What is paid is the share of them that was right: the shown cue under `QUICK`,
the other one under `THOROUGH`. How often the worker acts in an environment step is drawn, so that environment steps
have one or two rows, and the environment decides whose turn it is.

A thorough job pays `PAY`, a quick one 1. It is worth more with `GAMMA` for each environment step, as
gamma**3 * PAY > 1, but less with gamma for each act, as 1 > E[gamma**acts]**3 * PAY.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs import MazeEnv
from maze_pl.envs.wrappers import TimeLimitWrapper
from tests.structured.tabular import Observe, Outcome, TabularCoreEnv, conversions, one_hot

N_STEPS = 24
JOB_STEPS = 4
N_CUES = 2
QUICK, THOROUGH = 0, 1
PAY = 7.0
AGAIN = 0.75
"""Probability that the worker acts twice in an environment step."""
GAMMA = 0.6
OPTIMUM = N_STEPS // JOB_STEPS * PAY


class State(NamedTuple):
    """The job's goal (-1: the manager's turn), its environment step, the cue, acts left in this environment step, acts
    of the job so far and right ones among them.
    """

    goal: int = -1
    step: int = 0
    cue: int = 0
    left: int = 0
    acts: int = 0
    right: int = 0


class HierarchyCoreEnv(TabularCoreEnv):
    n_actions = 2

    @property
    def agent_counts_dict(self) -> dict[StepKey, int]:
        return {"manager": 1, "worker": 1}

    @staticmethod
    def actor(state: State) -> ActorID:
        return ActorID("manager" if state.goal == -1 else "worker", 0)

    @staticmethod
    def first_states() -> list[Outcome]:
        return [Outcome(1.0, State())]

    @staticmethod
    def outcomes(state: State, action: int) -> list[Outcome]:
        if state.goal == -1:
            return _begin(State(action))
        right = state.cue if state.goal == QUICK else 1 - state.cue
        state = state._replace(left=state.left - 1, acts=state.acts + 1, right=state.right + (action == right))
        if state.left:
            return _cues(state)
        reward = 0.0
        if state.goal == QUICK and state.step == 0:
            reward = state.right / state.acts
        if state.goal == THOROUGH and state.step == JOB_STEPS - 1:
            reward = PAY * state.right / state.acts
        last = state.step == JOB_STEPS - 1
        following = [Outcome(1.0, State())] if last else _begin(state._replace(step=state.step + 1))
        return [outcome._replace(rewards=(reward,)) for outcome in following]


def _begin(state: State) -> list[Outcome]:
    """Begin the worker's acts of an environment step."""
    return [
        outcome._replace(probability=outcome.probability * probability)
        for left, probability in ((1, 1.0 - AGAIN), (2, AGAIN))
        for outcome in _cues(state._replace(left=left))
    ]


def _cues(state: State) -> list[Outcome]:
    return [Outcome(1.0 / N_CUES, state._replace(cue=cue)) for cue in range(N_CUES)]


class ObserveNothing(Observe):
    """The manager decides anew when a job is done, and all jobs are alike."""

    def observe(self, state: State) -> dict[str, Sequence[float]]:
        return {"idle": [1.0]}


class ObserveJob(Observe):
    """What the worker sees."""

    def observe(self, state: State) -> dict[str, Sequence[float]]:
        most = 2 * JOB_STEPS
        return {
            "goal": one_hot(state.goal, 2),
            "cue": one_hot(state.cue, N_CUES),
            "step": one_hot(state.step, JOB_STEPS),
            "progress": [state.left / 2, state.acts / most, state.right / most],
        }


def make_env() -> TimeLimitWrapper:
    """The environment with its time limit."""
    observations: dict[StepKey, Observe] = {
        "manager": ObserveNothing(idle=1),
        "worker": ObserveJob(goal=2, cue=N_CUES, step=JOB_STEPS, progress=3),
    }
    env = MazeEnv(HierarchyCoreEnv(), *conversions(HierarchyCoreEnv.n_actions, observations))
    return TimeLimitWrapper(env, N_STEPS)
