"""Two sub-steps whose reward depends on the agreement of their actions and comes three environment steps later.

Both actors see a cue; the second one also hears what the first has chosen. If both choose the cue, a deal is made and
pays `DEAL` at the end of the third environment step after this one. If both choose `GRAB`, that pays 1 at once.
Everything else pays nothing, and so does everything in the last environment steps, when a deal would come too late: no
cue is shown then.

A deal is worth more with `GAMMA` for each environment step, as gamma**3 * DEAL > 1, but less with it for each sub-step,
as 1 > gamma**6 * DEAL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs import MazeEnv
from maze_pl.envs.wrappers import TimeLimitWrapper
from tests.structured.tabular import Observe, Outcome, TabularCoreEnv, conversions, one_hot

N_STEPS = 24
DELAY = 3
N_CUES = 2
GRAB = 2
DEAL = 3.2
GAMMA = 0.8
OPTIMUM = (N_STEPS - DELAY) * DEAL


class State(NamedTuple):
    """Time, the cue (-1: none), what the first actor chose (-1: its turn), and deals to be paid, soonest first."""

    time: int
    cue: int
    heard: int
    due: tuple[bool, ...]


class AgreementCoreEnv(TabularCoreEnv):
    n_actions = N_CUES + 1

    @property
    def agent_counts_dict(self) -> dict[StepKey, int]:
        return {0: 1, 1: 1}

    @staticmethod
    def actor(state: State) -> ActorID:
        return ActorID(0 if state.heard == -1 else 1, 0)

    @staticmethod
    def first_states() -> list[Outcome]:
        return _begin(0, (False,) * DELAY)

    @staticmethod
    def outcomes(state: State, action: int) -> list[Outcome]:
        if state.heard == -1:
            return [Outcome(1.0, state._replace(heard=action))]
        agreed = state.cue != -1 and state.heard == action
        reward = DEAL * state.due[0] + float(agreed and action == GRAB)
        due = (*state.due[1:], agreed and action == state.cue)
        return [outcome._replace(rewards=(reward,)) for outcome in _begin(state.time + 1, due)]


def _begin(time: int, due: tuple[bool, ...]) -> list[Outcome]:
    cues = range(N_CUES) if time < N_STEPS - DELAY else (-1,)
    return [Outcome(1.0 / len(cues), State(time, cue, -1, due)) for cue in cues]


class ObserveCue(Observe):
    """What the first actor sees."""

    def observe(self, state: State) -> dict[str, Sequence[float]]:
        return {"cue": one_hot(state.cue, N_CUES), "due": state.due}


class ObserveChoice(Observe):
    """What the second actor sees."""

    def observe(self, state: State) -> dict[str, Sequence[float]]:
        return {"cue": one_hot(state.cue, N_CUES), "due": state.due, "heard": one_hot(state.heard, N_CUES + 1)}


def make_env() -> TimeLimitWrapper:
    """The environment with its time limit."""
    observations = {0: ObserveCue(cue=N_CUES, due=DELAY), 1: ObserveChoice(cue=N_CUES, due=DELAY, heard=N_CUES + 1)}
    env = MazeEnv(AgreementCoreEnv(), *conversions(AgreementCoreEnv.n_actions, observations))
    return TimeLimitWrapper(env, N_STEPS)
