"""An environment of two sub-steps, of which only one acts: the seed of the episode decides which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.seeding import derive_seed
from maze_pl.envs import MazeEnv
from tests.structured.tabular import Observe, Outcome, TabularCoreEnv, conversions, one_hot

SIDES: tuple[StepKey, StepKey] = ("left", "right")


def side(seed: int) -> StepKey:
    """Who acts in an episode with this seed."""
    return SIDES[seed % 2]


def seed_with_a_side_for_each(n_envs: int) -> int:
    """Seed of a run in which each environment's first episode belongs to one side, even ones to the left."""

    def fits(seed: int) -> bool:
        return all(side(derive_seed(seed, "env", index, 0)) == SIDES[index % 2] for index in range(n_envs))

    return next(seed for seed in range(10_000) if fits(seed))


class State(NamedTuple):
    """Time, the cue, and who acts."""

    time: int
    cue: int
    side: StepKey


class SidesCoreEnv(TabularCoreEnv):
    n_actions = 2

    def __init__(self) -> None:
        self._side = SIDES[0]
        super().__init__()

    def seed(self, seed: int) -> None:
        super().seed(seed)
        self._side = side(seed)

    @property
    def agent_counts_dict(self) -> dict[StepKey, int]:
        return dict.fromkeys(SIDES, 1)

    @staticmethod
    def actor(state: State) -> ActorID:
        return ActorID(state.side, 0)

    def first_states(self) -> list[Outcome]:  # type: ignore[override]
        return [Outcome(0.5, State(0, cue, self._side)) for cue in range(2)]

    @staticmethod
    def outcomes(state: State, action: int) -> list[Outcome]:
        reward = float(action == state.cue)
        return [Outcome(0.5, State(state.time + 1, cue, state.side), (reward,)) for cue in range(2)]


class ObserveCue(Observe):
    def observe(self, state: State) -> dict[str, Sequence[float]]:
        return {"cue": one_hot(state.cue, 2)}


def make_env() -> MazeEnv:
    """The environment, whose episodes never end."""
    observations: dict[StepKey, Observe] = {key: ObserveCue(cue=2) for key in SIDES}
    return MazeEnv(SidesCoreEnv(), *conversions(SidesCoreEnv.n_actions, observations))
