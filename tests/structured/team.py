"""Three agents with one policy, of which one ends early, and rewards for each agent that come at its next act.

In its act an agent sees a cue. Choosing it makes an order, which is filled in the next environment step: it pays the
agent 1, if it still acts, and costs each other agent that acts then `COST`. Choosing `GRAB` pays the agent `BITE` at
once. In an agent's last act nothing can be had any more: no cue is shown then. Agent `LEAVER` leaves after
`LEAVES_AFTER` environment steps.

An order is worth more than a grab with `GAMMA` for each environment step, to the agent itself (gamma) and to the team
(gamma * (1 - 2 * COST)), but less with gamma for each sub-step (gamma**3). If an agent gets the reward of another, all
that it sees of its orders is what they cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs import MazeEnv
from maze_pl.envs.wrappers import TimeLimitWrapper
from tests.structured.tabular import Observe, Outcome, TabularCoreEnv, conversions, one_hot

N_STEPS = 24
N_AGENTS = 3
LEAVER = 1
LEAVES_AFTER = 10
N_CUES = 2
GRAB = 2
BITE = 0.31
COST = 0.12
GAMMA = 0.5
OPTIMUM = (LEAVES_AFTER - 1) * 3 * (1 - 2 * COST) + (N_STEPS - LEAVES_AFTER) * 2 * (1 - COST)


class State(NamedTuple):
    """Time, who acts, its cue (-1: none), and by agent: orders to be filled, and orders made and grabs of this step."""

    time: int
    agent: int
    cue: int
    orders: tuple[bool, ...]
    made: tuple[bool, ...]
    grabs: tuple[bool, ...]


NONE = (False,) * N_AGENTS


class TeamCoreEnv(TabularCoreEnv):
    n_actions = N_CUES + 1
    attributed = True

    @property
    def agent_counts_dict(self) -> dict[StepKey, int]:
        return {"member": N_AGENTS}

    @staticmethod
    def actor(state: State) -> ActorID:
        return ActorID("member", state.agent)

    @staticmethod
    def first_states() -> list[Outcome]:
        return _turn(0, 0, NONE, NONE, NONE)

    @staticmethod
    def outcomes(state: State, action: int) -> list[Outcome]:
        time, agent = state.time, state.agent
        made, grabs = list(state.made), list(state.grabs)
        made[agent] = state.cue != -1 and action == state.cue
        grabs[agent] = state.cue != -1 and action == GRAB
        members = present(time)
        if agent != members[-1]:
            following = members[members.index(agent) + 1]
            outcomes = _turn(time, following, state.orders, tuple(made), tuple(grabs))
        else:
            filled = [state.orders[member] and member in members for member in range(N_AGENTS)]
            rewards = tuple(
                (filled[member] + BITE * grabs[member] - COST * (sum(filled) - filled[member])) * (member in members)
                for member in range(N_AGENTS)
            )
            outcomes = [outcome._replace(rewards=rewards) for outcome in _turn(time + 1, 0, tuple(made), NONE, NONE)]
        done = agent == LEAVER and time == LEAVES_AFTER - 1
        return [outcome._replace(actor_done=done) for outcome in outcomes]


def present(time: int) -> list[int]:
    """The agents that act in an environment step."""
    return [agent for agent in range(N_AGENTS) if agent != LEAVER or time < LEAVES_AFTER]


def _turn(
    time: int, agent: int, orders: tuple[bool, ...], made: tuple[bool, ...], grabs: tuple[bool, ...]
) -> list[Outcome]:
    acts_again = agent in present(time + 1) and time < N_STEPS - 1
    cues = range(N_CUES) if acts_again else (-1,)
    return [Outcome(1.0 / len(cues), State(time, agent, cue, orders, made, grabs)) for cue in cues]


class ObserveOwnCue(Observe):
    """The cue, and whose orders are to be filled and who is there, the agent itself first."""

    def observe(self, state: State) -> dict[str, Sequence[float]]:
        members = present(state.time)
        seats = [(state.agent + offset) % N_AGENTS for offset in range(N_AGENTS)]
        return {
            "cue": one_hot(state.cue, N_CUES),
            "orders": [state.orders[seat] and seat in members for seat in seats],
            "present": [seat in members for seat in seats],
        }


def make_env() -> TimeLimitWrapper:
    """The environment with its time limit."""
    observations: dict[StepKey, Observe] = {"member": ObserveOwnCue(cue=N_CUES, orders=N_AGENTS, present=N_AGENTS)}
    env = MazeEnv(TeamCoreEnv(), *conversions(TeamCoreEnv.n_actions, observations))
    return TimeLimitWrapper(env, N_STEPS)
