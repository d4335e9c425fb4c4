"""The structured cutting environment over arrays: one actor chooses the piece, a second one the cuts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from maze_pl.envs.arrays.array_form_env import ArrayFormEnv
from maze_pl.envs.arrays.array_step import ArrayStep, EnvIndex
from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.cutting_2d.array_core_environment import ArrayCutting2DCoreEnvironment
from maze_pl.envs.cutting_2d.demand import Demand
from maze_pl.envs.cutting_2d.masked_structured_environment import masked_struct_env_factory
from maze_pl.envs.cutting_2d.objects import Cutting2DMazeState, Piece
from maze_pl.envs.cutting_2d.renderer import Cutting2DRenderer
from maze_pl.envs.cutting_2d.structured_environment import struct_env_factory
from maze_pl.envs.structured_env import Array

_ACTS = 2  # in an environment step


class StructuredCutting2DArrayEnvironment(ArrayFormEnv):
    """Structured cutting environments over arrays.

    Each is equal to a `StructuredCutting2DEnvironment` or, with masks, to a
    `MaskedStructuredCutting2DEnvironment`.

    Args:
        max_pieces_in_inventory: Maximum number of pieces in stock.
        raw_piece_size: Size of a raw piece.
        static_demand: The piece that is always ordered, several pieces that are ordered in a cycle,
            or a generator of other orders that has an array form.
        reward_aggregator: Computes rewards; `DefaultRewardAggregator()` if None.
        masked: Whether masks allow valid cuts only, so that an episode terminates if the order fits
            into no piece.
    """

    def __init__(
        self,
        max_pieces_in_inventory: int,
        raw_piece_size: Piece,
        static_demand: Demand,
        reward_aggregator: RewardAggregatorInterface | None = None,
        masked: bool = True,
    ) -> None:
        settings = (max_pieces_in_inventory, raw_piece_size, static_demand)
        make: Callable[..., Any] = masked_struct_env_factory if masked else struct_env_factory
        super().__init__(make(*settings))
        self.core_env = ArrayCutting2DCoreEnvironment(*settings, reward_aggregator, self.array_events)
        self.masked = masked

    @property
    def kpi_names(self) -> tuple[str, ...]:
        """Names of the KPIs."""
        return self.core_env.kpi_names

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self.core_env.allocate(n_envs)
        self._next_key = np.zeros(n_envs, np.int64)
        self._piece_idx = np.zeros(n_envs, np.int64)  # chosen in sub-step 0
        self._selected = np.zeros((n_envs, 2), np.float32)
        self._inventory_mask = np.zeros((n_envs, self.core_env.max_pieces_in_inventory), np.float32)
        self._cutting_mask = np.zeros((n_envs, 2), np.float32)

    def reset(self, which: Array, seeds: Array) -> ArrayStep:
        """Start episodes with the choice of a piece."""
        self.core_env.reset(which, seeds)
        self._next_key[which] = 0
        self._update_inventory_mask(which)
        return ArrayStep(self._observations(), env_time=self.core_env.env_time, next_key=self._next_key)

    def step(self, actions: Mapping[Any, Mapping[str, Array]], which: EnvIndex) -> ArrayStep:
        """Choose a piece (sub-step 0), or cut it (sub-step 1)."""
        numbers = self.numbers_of(which)
        is_cutting = self._next_key[numbers] == 1
        result = ArrayStep({}, np.zeros(self.n_envs), env_time=self.core_env.env_time, next_key=self._next_key)
        cutting, selecting = numbers[is_cutting], numbers[~is_cutting]
        if len(selecting):
            self._select(selecting, actions[0]["piece_idx"][selecting])
        if len(cutting):
            self._cut(cutting, actions[1], result)
        result.observation = self._observations()
        return result

    def _select(self, which: Array, piece_idx: Array) -> None:
        """Choose a piece; an empty slot gives a piece of extent 0."""
        self._piece_idx[which] = piece_idx
        pieces = self.core_env.stock.pieces[which, piece_idx]
        self._selected[which] = pieces
        self._next_key[which] = 1
        if self.masked:
            orders = self.core_env.orders.current[which]
            self._cutting_mask[which, 0] = (orders <= pieces).all(axis=1)
            self._cutting_mask[which, 1] = (orders[:, ::-1] <= pieces).all(axis=1)

    def _cut(self, which: Array, heads: Mapping[str, Array], result: ArrayStep) -> None:
        """Cut the chosen pieces and complete the environment steps.

        Args:
            which: [n] numbers of the environments.
            heads: Head -> [N] the cuts.
            result: Gets the results.
        """
        rotate, reverse = heads["cut_rotation"][which] > 0, heads["cut_order"][which] > 0
        result.reward = self.core_env.step(which, self._piece_idx[which], rotate, reverse)
        result.actor_rewards = np.repeat(result.reward[:, np.newaxis] / _ACTS, _ACTS, axis=1)
        self._next_key[which] = 0
        self._update_inventory_mask(which)
        if self.masked:
            stuck = ~self._inventory_mask[which].any(axis=1)
            if stuck.any():
                self.core_env.end_without_fitting_piece(which[stuck])
                result.terminated = np.zeros(self.n_envs, np.bool_)
                result.terminated[which[stuck]] = True

    def _update_inventory_mask(self, which: Array) -> None:
        """Find the pieces that the order fits into, upright or turned."""
        if not self.masked:
            return
        pieces = self.core_env.stock.pieces[which]
        orders = self.core_env.orders.current[which, np.newaxis]
        x, y = pieces[..., 0], pieces[..., 1]
        width, height = orders[..., 0], orders[..., 1]
        self._inventory_mask[which] = ((x >= width) & (y >= height)) | ((x >= height) & (y >= width))

    def _observations(self) -> dict[Any, dict[str, Array]]:
        """Stock and order in sub-step 0, the chosen piece and the order in sub-step 1."""
        selection = self.core_env.observation()
        cutting = {"selected_piece": self._selected, "ordered_piece": self.core_env.orders.current}
        if self.masked:
            selection["inventory_mask"] = self._inventory_mask
            cutting["cutting_mask"] = self._cutting_mask
        return {0: selection, 1: cutting}

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
        """Return the state of one environment, in sub-step 1 with the chosen piece."""
        state = self.core_env.maze_state(env)
        return state.with_choice(int(self._piece_idx[env])) if self._next_key[env] == 1 else state

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all episodes."""
        return {**super().state_dict(), **self.core_env.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        super().load_state_dict(state)
        self.core_env.load_state_dict(state)
