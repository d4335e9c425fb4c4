"""The masked, structured cutting environment in torch tensors, for any device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.cutting_2d.core_environment import Cutting2DCoreEnvironment
from maze_pl.envs.cutting_2d.default_reward_aggregator import DefaultRewardAggregator
from maze_pl.envs.cutting_2d.demand import Demand
from maze_pl.envs.cutting_2d.events import CuttingEvents, InventoryEvents
from maze_pl.envs.cutting_2d.kpi_calculator import Cutting2dKpiCalculator
from maze_pl.envs.cutting_2d.masked_structured_environment import masked_struct_env_factory
from maze_pl.envs.cutting_2d.objects import Cutting2DMazeState, Piece
from maze_pl.envs.cutting_2d.tensor_orders import TensorOrders
from maze_pl.envs.structured_env import Array
from maze_pl.envs.tensors.tensor_env import Outcome, TensorEnv, Tensors

MOST_DISCARDED = 2
"""Pieces that a cut can push out of a full stock: one is replaced by two leftovers and a raw piece."""


class StructuredCutting2DTensorEnvironment(TensorEnv):
    """Cutting environments in tensors, each with the dynamics of a `MaskedStructuredCutting2DEnvironment`.

    Orders have the same probabilities, but other seeds. Events and KPIs are the same.

    Args:
        max_pieces_in_inventory: Maximum number of pieces in stock.
        raw_piece_size: Size of a raw piece.
        static_demand: The piece that is always ordered, several pieces that are ordered in a cycle,
            or `MixedPeriodicDemand` or `UniformDemand`.
        reward_aggregator: A `DefaultRewardAggregator`; None for one with its default penalties.
        max_episode_steps: Environment steps after which an episode is truncated; None for no limit.

    Raises:
        TypeError: The generator of orders or the aggregator has no form for tensors.
    """

    heuristic_policy = "maze_pl.envs.cutting_2d.GreedyCuttingPolicy"

    def __init__(
        self,
        max_pieces_in_inventory: int,
        raw_piece_size: Piece,
        static_demand: Demand,
        reward_aggregator: RewardAggregatorInterface | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        super().__init__(max_episode_steps)
        settings = max_pieces_in_inventory, raw_piece_size, static_demand
        single = Cutting2DCoreEnvironment(*settings)  # checks the arguments
        aggregator = reward_aggregator or DefaultRewardAggregator()
        if type(aggregator) is not DefaultRewardAggregator:
            remedy = "use DefaultRewardAggregator, or the environment in arrays"
            raise TypeError(f"{type(aggregator).__name__} has no form for tensors; {remedy}")
        self._n_pieces = max_pieces_in_inventory
        self._raw_piece_size = single.raw_piece_size
        self._demand = single.demand
        self._penalties = aggregator.invalid_action_penalty, aggregator.raw_piece_usage_penalty
        self._single: Any = masked_struct_env_factory(*settings)  # declares the spaces
        self._cutting_events: Any = self.create_event_topic(CuttingEvents)
        self._inventory_events: Any = self.create_event_topic(InventoryEvents)
        TensorOrders(self._demand, self._raw_piece_size, self.device)  # refuses other generators

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Observation space of both sub-steps."""
        return self._single.observation_spaces_dict  # type: ignore[no-any-return]

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Action space of both sub-steps."""
        return self._single.action_spaces_dict  # type: ignore[no-any-return]

    @property
    def action_masks_dict(self) -> Mapping[Any, Mapping[str, str]]:
        """Masks of both sub-steps."""
        return self._single.action_masks_dict  # type: ignore[no-any-return]

    @property
    def kpi_names(self) -> tuple[str, ...]:
        """Names of the KPIs."""
        return Cutting2dKpiCalculator.kpi_names

    def make_tensors(self, n_envs: int) -> None:
        """Make stocks, orders, and counters of the KPIs."""
        self._orders = TensorOrders(self._demand, self._raw_piece_size, self.device)
        like: dict[str, Any] = {"dtype": torch.int64, "device": self.device}
        self.raw = torch.tensor(self._raw_piece_size, dtype=torch.float32, device=self.device)
        self.places = torch.arange(self._n_pieces + 3, device=self.device)
        self.room = torch.zeros(n_envs, self._n_pieces + 3, 2, device=self.device)  # 3 places for the pieces of a cut
        self.size = torch.zeros(n_envs, **like)
        self.chosen = torch.zeros(n_envs, **like)
        self.seed = torch.zeros(n_envs, **like)
        self.period = torch.zeros(n_envs, max(self._orders.length, 1), 2, device=self.device)
        self.order = torch.zeros(n_envs, 2, device=self.device)
        self.n_orders = torch.zeros(n_envs, **like)
        self.n_raw_pieces = torch.zeros(n_envs, **like)
        self.n_served = torch.zeros(n_envs, **like)

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        """Start with one raw piece in stock, which counts in the first step."""
        of_pieces = which[:, None, None]
        first = torch.where((self.places == 0)[:, None], self.raw, 0.0)
        self.room.copy_(torch.where(of_pieces, first, self.room))
        self.size.copy_(torch.where(which, 1, self.size))
        self.n_raw_pieces.copy_(torch.where(which, 1, self.n_raw_pieces))
        self.n_orders.masked_fill_(which, 0)
        self.n_served.masked_fill_(which, 0)
        self.seed.copy_(torch.where(which, seeds, self.seed))
        if self._orders.length:
            self.period.copy_(torch.where(of_pieces, self._orders.period(self.seed), self.period))
        self._show_order()
        self._inventory_events.piece_replenished(which)

    def reseed(self, which: Array, seeds: Array) -> None:
        """Draw again the orders that no agent can know; see `ReseededArrays`."""
        envs = torch.from_numpy(which).to(self.device)
        self.seed[envs] = torch.from_numpy(seeds).to(self.device)
        if self._orders.length:
            n_seen = self.n_orders[envs, None] + 1
            is_known = torch.arange(self._orders.length, device=self.device) < n_seen
            others = self._orders.period(self.seed[envs])
            self.period[envs] = torch.where(is_known[..., None], self.period[envs], others)

    def _show_order(self) -> None:
        if not self._orders.length:
            self.order.copy_(self._orders.independent(self.seed, self.n_orders))
            return
        index = (self.n_orders % self._orders.length)[:, None, None].expand(-1, 1, 2)
        self.order.copy_(self.period.gather(1, index).squeeze(1))

    def observe(self, step_key: StepKey) -> Tensors:
        """Stock and order in sub-step 0, the chosen piece and the order in sub-step 1."""
        if step_key == 0:
            return {
                "inventory": self.room[:, : self._n_pieces],
                "inventory_size": self.size[:, None].float(),
                "ordered_piece": self.order,
                "inventory_mask": self._fitting().float(),
            }
        piece = self._piece()
        fits = torch.stack([(order <= piece).all(1) for order in (self.order, self.order.flip(1))], 1)
        return {"selected_piece": piece, "ordered_piece": self.order, "cutting_mask": fits.float()}

    def _fitting(self) -> Tensor:
        """Find the pieces [N, n_pieces] that the order fits into, upright or turned."""
        pieces = self.room[:, : self._n_pieces]
        upright = (self.order[:, None] <= pieces).all(2)
        return upright | (self.order.flip(1)[:, None] <= pieces).all(2)

    def _piece(self) -> Tensor:
        """The chosen piece [N, 2]; 0 for an empty slot."""
        return self.room.gather(1, self.chosen[:, None, None].expand(-1, 1, 2)).squeeze(1)

    def act(self, step_key: StepKey, action: Tensors) -> Outcome:
        """Choose a piece (sub-step 0), or cut it (sub-step 1)."""
        if step_key == 0:
            self.chosen.copy_(action["piece_idx"])
            return Outcome(torch.zeros_like(self.size, dtype=torch.float64))
        is_cut, is_raw = self._cut(action["cut_rotation"] > 0, action["cut_order"] > 0)
        self._inventory_events.piece_replenished(is_raw)
        self._inventory_events.pieces_in_inventory(torch.ones_like(is_cut), value=self.size)
        n_raw_pieces = is_raw.double() + (self.n_orders == 0)
        for_invalid, for_raw = self._penalties
        reward = (~is_cut).double() * for_invalid + n_raw_pieces * for_raw
        self.n_raw_pieces.add_(is_raw)
        self.n_served.add_(is_cut)
        self.n_orders.add_(1)
        self._show_order()
        fits_nowhere = ~self._fitting().any(1)
        self._inventory_events.no_piece_fits(fits_nowhere, current_demand=self.order)
        return Outcome(reward, fits_nowhere)

    def _cut(self, rotate: Tensor, reverse: Tensor) -> tuple[Tensor, Tensor]:
        """Cut orders out of the chosen pieces, and put leftovers and raw pieces in stock; see `ArrayInventory`.

        Args:
            rotate: [N] bool, whether the order is rotated by 90 degrees.
            reverse: [N] bool, whether the first cut sets the order's extent in y instead of in x.

        Returns:
            Whether the order was cut [N], and whether a raw piece was put in stock [N].
        """
        piece = self._piece()
        order = torch.where(rotate[:, None], self.order.flip(1), self.order)
        is_cut = (self.chosen < self.size) & (order <= piece).all(1)
        is_raw = is_cut & (piece == self.raw).all(1)
        left = piece - order
        x_first = torch.where(reverse, piece[:, 0], left[:, 0])
        y_first = torch.where(reverse, left[:, 1], piece[:, 1])
        x_second = torch.where(reverse, left[:, 0], order[:, 0])
        y_second = torch.where(reverse, order[:, 1], left[:, 1])
        first, second = torch.stack([x_first, y_first], 1), torch.stack([x_second, y_second], 1)
        behind = self.places + (self.places >= self.chosen[:, None])  # closes the gap of the removed piece
        room = self._taken(self.room, behind)
        size = self.size - 1
        for added, is_added in ((first, (first > 0).all(1)), (second, (second > 0).all(1)), (self.raw, is_raw)):
            is_place = (self.places == size[:, None]) & is_added[:, None]
            room = torch.where(is_place[..., None], added if added.dim() == 1 else added[:, None], room)
            size = size + is_added
        n_discarded = (size - self._n_pieces).clamp(min=0)
        self._fire_cut(piece, is_cut, room, n_discarded)
        room = self._taken(room, self.places + n_discarded[:, None])
        self.room.copy_(torch.where(is_cut[:, None, None], room, self.room))
        self.size.copy_(torch.where(is_cut, size - n_discarded, self.size))
        return is_cut, is_raw

    def _fire_cut(self, piece: Tensor, is_cut: Tensor, room: Tensor, n_discarded: Tensor) -> None:
        """Fire the events of a cut, before it is carried out.

        Args:
            piece: [N, 2] the chosen pieces.
            is_cut: [N] bool, whether the order is cut.
            room: [N, n_pieces + 3, 2] the pieces in stock after the cut, with those that are discarded first.
            n_discarded: [N] number of pieces that are discarded, if the order is cut.
        """
        is_piece = self.chosen < self.size
        raw = self.raw.expand_as(piece)
        self._cutting_events.invalid_piece_selected(~is_piece)
        self._cutting_events.invalid_cut(is_piece & ~is_cut, self.order, piece, raw)
        area = self.order.double().prod(1)
        self._cutting_events.valid_cut(is_cut, self.order, piece, raw, cutting_area=area)
        for place in range(MOST_DISCARDED):
            self._inventory_events.piece_discarded(is_cut & (n_discarded > place), piece=room[:, place])

    def _taken(self, room: Tensor, source: Tensor) -> Tensor:
        """Take pieces from other places [N, n_pieces + 3]; 0 for places beyond the last."""
        last = len(self.places) - 1
        taken = room.gather(1, source.clamp(max=last)[..., None].expand(-1, -1, 2))
        return taken * (source <= last)[..., None]

    def kpi_tensors(self) -> Tensors:
        """Raw pieces per step and per order served."""
        n_orders, n_served = self.n_orders.double(), self.n_served.double()
        n_used = self.n_raw_pieces + n_orders - n_served
        return {
            "raw_piece_usage_per_step": self.n_raw_pieces / n_orders,
            "raw_pieces_per_order_served": n_used / n_served.clamp(min=1.0),
        }

    def maze_state(self, env: int) -> Cutting2DMazeState:
        """Return the state of one environment, in sub-step 1 with the chosen piece."""
        pieces = self.room[env, : int(self.size[env])].int().tolist()
        width, height = self.order[env].int().tolist()
        inventory = [(x, y) for x, y in pieces]
        state = Cutting2DMazeState(inventory, self._n_pieces, (width, height), self._raw_piece_size)
        return state.with_choice(int(self.chosen[env])) if self._next_key[env] == 1 else state
