"""The flat cutting environment over arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maze_pl.envs.arrays.array_form_env import ArrayFormEnv
from maze_pl.envs.arrays.array_step import ArrayStep, EnvIndex
from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.cutting_2d.array_core_environment import ArrayCutting2DCoreEnvironment
from maze_pl.envs.cutting_2d.demand import Demand
from maze_pl.envs.cutting_2d.environment import maze_env_factory
from maze_pl.envs.cutting_2d.objects import Cutting2DMazeState, Piece
from maze_pl.envs.cutting_2d.renderer import Cutting2DRenderer
from maze_pl.envs.structured_env import Array


class Cutting2DArrayEnvironment(ArrayFormEnv):
    """Flat cutting environments over arrays, each equal to a `Cutting2DEnvironment`.

    Args:
        max_pieces_in_inventory: Maximum number of pieces in stock.
        raw_piece_size: Size of a raw piece.
        static_demand: The piece that is always ordered, several pieces that are ordered in a cycle,
            or a generator of other orders that has an array form.
        reward_aggregator: Computes rewards; `DefaultRewardAggregator()` if None.
    """

    def __init__(
        self,
        max_pieces_in_inventory: int,
        raw_piece_size: Piece,
        static_demand: Demand,
        reward_aggregator: RewardAggregatorInterface | None = None,
    ) -> None:
        settings = (max_pieces_in_inventory, raw_piece_size, static_demand)
        super().__init__(maze_env_factory(*settings))
        self.core_env = ArrayCutting2DCoreEnvironment(*settings, reward_aggregator, self.array_events)

    @property
    def kpi_names(self) -> tuple[str, ...]:
        """Names of the KPIs."""
        return self.core_env.kpi_names

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self.core_env.allocate(n_envs)

    def reset(self, which: Array, seeds: Array) -> ArrayStep:
        """Start episodes."""
        self.core_env.reset(which, seeds)
        return ArrayStep({0: self.core_env.observation()}, env_time=self.core_env.env_time)

    def step(self, actions: Mapping[Any, Mapping[str, Array]], which: EnvIndex) -> ArrayStep:
        """Try to cut the current orders."""
        heads = actions[0]
        numbers = self.numbers_of(which)
        rotate, reverse = heads["cut_rotation"][numbers] > 0, heads["cut_order"][numbers] > 0
        reward = self.core_env.step(numbers, heads["piece_idx"][numbers], rotate, reverse)
        return ArrayStep({0: self.core_env.observation()}, reward, env_time=self.core_env.env_time)

    def reseed(self, which: Array, seeds: Array) -> None:
        """Draw again the orders that no agent can know; see `ReseededArrays`."""
        self.core_env.reseed(which, seeds)

    def kpis(self, which: Array) -> Mapping[str, Array]:
        """Raw pieces per step and per order served."""
        return self.core_env.kpis(which)

    def get_renderer(self) -> Cutting2DRenderer:
        """Return the renderer of the chosen piece, its cuts and the stock."""
        return Cutting2DRenderer()

    def maze_state(self, env: int) -> Cutting2DMazeState:
        """Return the state of one environment."""
        return self.core_env.maze_state(env)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all episodes."""
        return self.core_env.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.core_env.load_state_dict(state)
