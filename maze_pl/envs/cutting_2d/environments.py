"""The cutting problem: orders arrive one at a time, and each is cut out of a piece in stock.

The file holds the simulation, then the environments: a flat one, where the piece and the cuts are
chosen together, and a structured one, where one actor chooses the piece and a second actor, which
observes that piece, chooses the cuts. Last comes the baseline heuristic: cut the smallest piece
that fits, so that the largest leftover stays in one piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs import core_env as interfaces
from maze_pl.envs.core_env import ActionConversionInterface, CoreEnv, ObservationConversionInterface, take_over
from maze_pl.envs.cutting_2d import events
from maze_pl.envs.cutting_2d.events import Demand, DemandGenerator, InventoryEvents, Piece, StaticDemand, fits
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.structured_env import Action, Array, Dicts, Observation, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.wrapper import Wrapper

if TYPE_CHECKING:
    from maze_pl.core.policy import PolicyBatch, PolicyStep

_HEADS: dict[StepKey, tuple[str, ...]] = {0: ("piece_idx",), 1: ("cut_rotation", "cut_order")}


@dataclass(frozen=True, slots=True)
class Cutting2DMazeAction:
    """Action of the simulation: the piece to cut, and the cuts.

    Attributes:
        piece_id: Position of the piece in stock.
        rotate: Whether the order is rotated by 90 degrees.
        reverse_cutting_order: Whether the first cut sets the order's extent in y instead of in x.
    """

    piece_id: int
    rotate: bool
    reverse_cutting_order: bool


@dataclass(frozen=True, slots=True)
class Cutting2DMazeState:
    """State of the simulation: the stock and the current order.

    Attributes:
        inventory: Pieces in stock, the oldest first.
        max_pieces_in_inventory: Maximum number of pieces in stock.
        current_demand: The order to serve in the next step.
        raw_piece_size: Size of a raw piece.
    """

    inventory: list[Piece]
    max_pieces_in_inventory: int
    current_demand: Piece
    raw_piece_size: Piece


class Inventory:
    """Stock that stores pieces and cuts them.

    Args:
        max_pieces_in_inventory: Maximum number of pieces in stock; a full stock discards its oldest
            piece to make room.
        raw_piece_size: Size of a raw piece.
        inventory_events: Topic through which events are fired.

    Attributes:
        pieces: The pieces in stock, the oldest first.
    """

    def __init__(self, max_pieces_in_inventory: int, raw_piece_size: Piece, inventory_events: InventoryEvents) -> None:
        self.max_pieces_in_inventory, self.raw_piece_size = max_pieces_in_inventory, raw_piece_size
        self.inventory_events = inventory_events
        self.pieces: list[Piece] = []

    def size(self) -> int:
        """Number of pieces in stock."""
        return len(self.pieces)

    def is_full(self) -> bool:
        """True if there is no room left."""
        return len(self.pieces) == self.max_pieces_in_inventory

    def store_piece(self, piece: Piece) -> None:
        """Add a piece; a full stock discards its oldest piece first."""
        if self.is_full():
            self.inventory_events.piece_discarded(self.pieces.pop(0))
        self.pieces.append(piece)

    def replenish_piece(self) -> None:
        """Add a raw piece."""
        self.store_piece(self.raw_piece_size)
        self.inventory_events.piece_replenished()

    def cut(self, maze_action: Cutting2DMazeAction, ordered_piece: Piece) -> bool:
        """Cut an order out of a piece and put the leftovers in stock.

        Args:
            maze_action: The piece and the cuts.
            ordered_piece: Size of the order.

        Returns:
            True if the cut was possible; otherwise nothing has changed.
        """
        if not 0 <= maze_action.piece_id < len(self.pieces):
            return False
        (x, y), order = self.pieces[maze_action.piece_id], ordered_piece[::-1] if maze_action.rotate else ordered_piece
        if order[0] > x or order[1] > y:
            return False
        del self.pieces[maze_action.piece_id]
        for residual in residuals((x, y), order, maze_action.reverse_cutting_order):
            if residual[0] and residual[1]:
                self.store_piece(residual)
        return True


def residuals(piece: Piece, order: Piece, reverse_cutting_order: bool) -> tuple[Piece, Piece]:
    """Return the leftovers of the two cuts, in the order of the cuts; an empty one has a side of 0.

    The first cut goes straight across the piece and sets the order's extent in x, or in y if the
    cutting order is reversed. The second cut trims that part in the other direction.
    """
    (x, y), (width, height) = piece, order
    if reverse_cutting_order:
        return (x, y - height), (x - width, height)
    return (x - width, y), (width, y - height)


class Cutting2DCoreEnvironment(CoreEnv):
    """The online guillotine 2D cutting-stock problem: only the current order is known.

    Each step cuts one order out of a piece in stock by cuts that go straight across, and returns
    the leftovers to the stock. Whenever a raw piece is cut, another one is put in stock. A full
    stock discards its oldest piece. An invalid action changes nothing, but the order is lost. The
    aim is to use as few raw pieces as possible.

    Args:
        max_pieces_in_inventory: Maximum number of pieces in stock.
        raw_piece_size: Size of a raw piece.
        static_demand: The piece that is always ordered, several pieces that are ordered in a cycle,
            or a generator of other orders.
        reward_aggregator: Computes rewards; `DefaultRewardAggregator()` if None.

    Raises:
        ValueError: The stock or a raw piece has no size, or an order does not fit into a raw piece.
    """

    def __init__(
        self,
        max_pieces_in_inventory: int,
        raw_piece_size: Piece,
        static_demand: Demand,
        reward_aggregator: interfaces.RewardAggregatorInterface | None = None,
    ) -> None:
        super().__init__()
        if min(max_pieces_in_inventory, *raw_piece_size) < 1:
            raise ValueError(f"{max_pieces_in_inventory=} and {raw_piece_size=} must be at least 1")
        self.max_pieces_in_inventory = max_pieces_in_inventory
        self.raw_piece_size = (raw_piece_size[0], raw_piece_size[1])
        self.demand = static_demand if isinstance(static_demand, DemandGenerator) else StaticDemand(static_demand)
        self.reward_aggregator = reward_aggregator or events.DefaultRewardAggregator()
        self.pubsub.register_subscriber(self.reward_aggregator)
        self._cutting_events = self.pubsub.create_event_topic(events.CuttingEvents)
        self._inventory_events = self.pubsub.create_event_topic(InventoryEvents)
        self._generator = np.random.default_rng()
        self.reset()  # so that there is a state, and orders that do not fit are refused here

    def reset(self) -> Cutting2DMazeState:
        """Start an episode with one raw piece in stock; it counts in the first step."""
        if self.context.env_time:  # without a `MazeEnv`, which would have begun it
            self.context.reset_episode()
        self.pubsub.clear()
        self._stepped_at, self._order_index = -1, -1
        self._orders: list[Piece] = []
        self._next_order()
        self.inventory = Inventory(self.max_pieces_in_inventory, self.raw_piece_size, self._inventory_events)
        self.inventory.replenish_piece()
        return self.get_maze_state()

    def _next_order(self) -> None:
        self._order_index += 1
        if self._order_index == len(self._orders):
            size, last = self.raw_piece_size, self._orders
            self._orders, self._order_index = self.demand.period(size, self._generator, last), 0
            wrong = [o for o in self._orders if min(o) < 1 or not fits(o, size)] if self._orders is not last else []
            if wrong or not self._orders:
                raise ValueError(f"there must be orders that fit into raw pieces of size {size}: got {wrong or 'none'}")
        self.current_demand = self._orders[self._order_index]

    def step(self, maze_action: Cutting2DMazeAction) -> tuple[Cutting2DMazeState, float, bool, bool, dict[str, Any]]:
        """Try to cut the current order, then move on to the next one.

        Returns:
            State, reward, terminated and truncated (both always False), and info that names the
            outcome of the action.
        """
        if self.context.env_time == self._stepped_at:  # without a `MazeEnv`, which would keep time
            self.pubsub.clear()
            self.context.env_time += 1
        self._stepped_at = self.context.env_time
        index, order, inventory = maze_action.piece_id, self.current_demand, self.inventory
        piece = inventory.pieces[index] if 0 <= index < len(inventory.pieces) else None
        if piece is None:
            info = {"error": "piece_id_out_of_bounds"}
            self._cutting_events.invalid_piece_selected()
        elif not inventory.cut(maze_action, order):
            info = {"error": "invalid_cut"}
            self._cutting_events.invalid_cut(order, piece, self.raw_piece_size)
        else:
            info = {"msg": "valid_cut"}
            self._cutting_events.valid_cut(order, piece, self.raw_piece_size, float(order[0] * order[1]))
            if piece == self.raw_piece_size:
                inventory.replenish_piece()
        self._inventory_events.pieces_in_inventory(inventory.size())
        self._next_order()
        maze_state = self.get_maze_state()
        return maze_state, self.reward_aggregator.summarize_reward(maze_state), False, False, info

    def get_maze_state(self) -> Cutting2DMazeState:
        """Return a copy of the stock, and the current order."""
        pieces = self.inventory.pieces.copy()
        return Cutting2DMazeState(pieces, self.max_pieces_in_inventory, self.current_demand, self.raw_piece_size)

    def seed(self, seed: int) -> None:
        """Seed the generator that random orders are drawn with."""
        self._generator = np.random.default_rng(seed)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def clone_from(self, env: Any) -> None:
        """Take over the state of another simulation; see `CoreEnv.clone_from`."""
        take_over(self, env)

    def get_renderer(self) -> events.Cutting2DRenderer:
        """Return the renderer of the chosen piece, its cuts and the stock."""
        return events.Cutting2DRenderer()

    def get_kpi_calculator(self) -> events.Cutting2dKpiCalculator:
        """Return the calculator of raw piece usage."""
        return events.Cutting2dKpiCalculator()


class ObservationConversion(ObservationConversionInterface):
    """Observations: the stock padded with zeros, its size, and the order.

    Args:
        raw_piece_size: Size of a raw piece.
        max_pieces_in_inventory: Maximum number of pieces in stock.
    """

    def __init__(self, raw_piece_size: Piece, max_pieces_in_inventory: int) -> None:
        self.raw_piece_size, self.max_pieces_in_inventory = raw_piece_size, max_pieces_in_inventory

    def space(self) -> spaces.Dict:
        """`inventory` [max_pieces_in_inventory, 2], `inventory_size` [1] and `ordered_piece` [2], all float32."""
        high = np.tile(np.array(self.raw_piece_size, np.float32), (self.max_pieces_in_inventory, 1))
        return spaces.Dict(
            inventory=spaces.Box(np.zeros_like(high), high),
            inventory_size=spaces.Box(0, self.max_pieces_in_inventory, (1,)),
            ordered_piece=spaces.Box(0, max(self.raw_piece_size), (2,)),
        )

    def maze_to_space(self, maze_state: Cutting2DMazeState) -> Observation:
        """Observation of a state."""
        pieces = maze_state.inventory
        inventory = np.zeros((self.max_pieces_in_inventory, 2), np.float32)
        inventory[: len(pieces)] = pieces or 0
        size, order = np.array([len(pieces)], np.float32), np.array(maze_state.current_demand, np.float32)
        return {"inventory": inventory, "inventory_size": size, "ordered_piece": order}


class ActionConversion(ActionConversionInterface):
    """Actions of three choices: the piece, the rotation of the order, and the first cut.

    Args:
        max_pieces_in_inventory: Maximum number of pieces in stock.
    """

    def __init__(self, max_pieces_in_inventory: int) -> None:
        self.max_pieces_in_inventory = max_pieces_in_inventory

    def space(self) -> spaces.Dict:
        """`piece_idx`, `cut_rotation` and `cut_order`, all discrete."""
        n = self.max_pieces_in_inventory
        return spaces.Dict(piece_idx=spaces.Discrete(n), cut_rotation=spaces.Discrete(2), cut_order=spaces.Discrete(2))

    def space_to_maze(self, action: Action, maze_state: Cutting2DMazeState) -> Cutting2DMazeAction:
        """Convert an action to the simulation's action."""
        return Cutting2DMazeAction(int(action["piece_idx"]), bool(action["cut_rotation"]), bool(action["cut_order"]))

    def maze_to_space(self, maze_action: Cutting2DMazeAction) -> Action:
        """Convert the simulation's action to an agent's action."""
        rotation, order = int(maze_action.rotate), int(maze_action.reverse_cutting_order)
        return {"piece_idx": maze_action.piece_id, "cut_rotation": rotation, "cut_order": order}


class Cutting2DEnvironment(MazeEnv):
    """The cutting problem with one actor.

    Args:
        core_env: The simulation.
        action_conversion: Conversion of actions.
        observation_conversion: Conversion of states.
    """

    heuristic_policy = "maze_pl.envs.cutting_2d.GreedyCuttingPolicy"

    def __init__(
        self,
        core_env: CoreEnv,
        action_conversion: ActionConversionInterface,
        observation_conversion: ObservationConversionInterface,
    ) -> None:
        super().__init__(core_env, {0: action_conversion}, {0: observation_conversion})


def maze_env_factory(max_pieces_in_inventory: int, raw_piece_size: Piece, static_demand: Demand) -> MazeEnv:
    """Make the flat environment.

    Args:
        max_pieces_in_inventory: Maximum number of pieces in stock.
        raw_piece_size: Size of a raw piece.
        static_demand: The piece that is always ordered, several pieces that are ordered in a cycle,
            or a generator of other orders.
    """
    core_env = Cutting2DCoreEnvironment(max_pieces_in_inventory, raw_piece_size, static_demand)
    sees = ObservationConversion(raw_piece_size, max_pieces_in_inventory)
    return Cutting2DEnvironment(core_env, ActionConversion(max_pieces_in_inventory), sees)


class StructuredCutting2DEnvironment(Wrapper):
    """Splits each step of the flat environment into two sub-steps, 0 and 1.

    Sub-step 0 observes the whole stock and chooses a piece, with reward 0. Sub-step 1 observes that
    piece and the order, chooses the cuts and completes the step. Each of the two actors is credited
    with half of the reward.

    Args:
        maze_env: The flat environment, with or without wrappers; wrappers must not change the
            pieces and orders.

    Raises:
        ValueError: The observations or actions differ from the flat cutting environment's.

    Example:
        >>> env = struct_env_factory(50, (4, 3), (1, 2))
        >>> observation, _ = env.reset(seed=0)
        >>> observation, reward, *_ = env.step({"piece_idx": 0})
        >>> sorted(observation), observation["selected_piece"].tolist(), reward
        (['ordered_piece', 'selected_piece'], [4.0, 3.0], 0.0)
        >>> observation, reward, *_ = env.step({"cut_rotation": 0, "cut_order": 0})
        >>> observation["inventory"][:3].tolist(), reward
        ([[3.0, 3.0], [1.0, 1.0], [4.0, 3.0]], -2.0)
    """

    def __init__(self, maze_env: StructuredEnv) -> None:
        super().__init__(maze_env)
        flat, heads = (s.get(0, ()) for s in (maze_env.observation_spaces_dict, maze_env.action_spaces_dict))
        if not {"inventory", "ordered_piece"} <= set(flat) or set(heads) != {*_HEADS[0], *_HEADS[1]}:
            wanted = "the flat cutting environment, with inventory and ordered_piece among its observations"
            raise ValueError(f"{type(self).__name__} wraps {wanted}; got {maze_env}, which shows {sorted(flat)}")
        assert isinstance(flat, spaces.Dict) and isinstance(heads, spaces.Dict)
        cutting = dict.fromkeys(("selected_piece", "ordered_piece"), flat["ordered_piece"])
        self._observation_spaces = {0: spaces.Dict({**flat.spaces}), 1: spaces.Dict(cutting)}
        self._action_spaces = {key: spaces.Dict({head: heads[head] for head in _HEADS[key]}) for key in _HEADS}
        self._flat_observation: Observation | None = None
        self._piece_idx: int | None = None  # chosen in sub-step 0, None before
        self._reward = 0.0

    def step(self, action: Action) -> StepResult:
        """Choose a piece (sub-step 0) or cut it (sub-step 1)."""
        if self._flat_observation is None:
            raise ResetNeeded(f"step of {type(self).__name__} was called before reset; start an episode first")
        if self._piece_idx is None:
            self.begin_env_step()
            self._piece_idx = int(action["piece_idx"])
            return self._cutting_observation(self._flat_observation, self._piece_idx), 0.0, False, False, {}
        flat_action = {**action, "piece_idx": self._piece_idx}
        self._flat_observation, self._reward, terminated, truncated, info = self.env.step(flat_action)
        self._piece_idx = None
        return self._selection_observation(self._flat_observation), self._reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode with the choice of a piece."""
        self._flat_observation, info = self.env.reset(seed=seed, options=options)
        self._piece_idx = None
        return self._selection_observation(self._flat_observation), info

    def _selection_observation(self, flat: Observation) -> Observation:
        """Observation of sub-step 0."""
        return flat.copy()

    def _cutting_observation(self, flat: Observation, piece_idx: int) -> Observation:
        """Observation of sub-step 1; an empty slot gives a piece of extent 0."""
        inventory, order = flat["inventory"], flat["ordered_piece"].copy()
        piece = inventory[piece_idx].copy() if 0 <= piece_idx < len(inventory) else np.zeros_like(order)
        return {"selected_piece": piece, "ordered_piece": order}

    def actor_id(self) -> ActorID:
        """Agent 0 of sub-step 0 or 1."""
        return ActorID(0 if self._piece_idx is None else 1, 0)

    @property
    def agent_counts_dict(self) -> Mapping[StepKey, int]:
        """Number of agents of each sub-step: one in both."""
        return {0: 1, 1: 1}

    def get_actor_rewards(self) -> Array:
        """Rewards of the two actors: half of the finished step's reward each."""
        return np.full(2, self._reward / 2)

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action; without the action, only sub-step 0 is converted."""
        seen, taken = self.env.get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        observations = seen and {0: self._selection_observation(seen[0])}
        if observations and seen and taken:
            observations[1] = self._cutting_observation(seen[0], int(taken[0]["piece_idx"]))
        actions = taken and {key: {head: taken[0][head] for head in heads} for key, heads in _HEADS.items()}
        return observations, actions


class MaskedStructuredCutting2DEnvironment(StructuredCutting2DEnvironment):
    """The structured environment with masks that allow valid cuts only.

    `inventory_mask` is 1 for each piece that the order fits into; `cutting_mask` is 1 for each
    `cut_rotation` with which the order fits. If the order fits into no piece, the episode
    terminates (`no_piece_fits`).

    Args:
        maze_env: The flat environment, with or without wrappers; wrappers must not change the
            pieces and orders.

    Example:
        >>> env = masked_struct_env_factory(3, (4, 3), (1, 2))
        >>> env.reset(seed=0)[0]["inventory_mask"].tolist(), env.action_masks_dict
        ([1.0, 0.0, 0.0], {0: {'piece_idx': 'inventory_mask'}, 1: {'cut_rotation': 'cutting_mask'}})
    """

    def __init__(self, maze_env: StructuredEnv) -> None:
        super().__init__(maze_env)
        self._inventory_events = self.pubsub.create_event_topic(InventoryEvents)
        selection, cutting = self.observation_spaces_dict[0], self.observation_spaces_dict[1]
        selection["inventory_mask"] = spaces.Box(0, 1, (selection["inventory"].shape or ())[:1])
        cutting["cutting_mask"] = spaces.Box(0, 1, (2,))

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """The masks of both sub-steps."""
        return {0: {"piece_idx": "inventory_mask"}, 1: {"cut_rotation": "cutting_mask"}}

    def step(self, action: Action) -> StepResult:
        """Choose a piece or cut it; the episode terminates if the next order fits into no piece."""
        observation, reward, terminated, truncated, info = super().step(action)
        if self._piece_idx is None and not observation["inventory_mask"].any():
            self._inventory_events.no_piece_fits(tuple(observation["ordered_piece"].astype(int).tolist()))
            terminated, truncated = True, False
        return observation, reward, terminated, truncated, info

    def _selection_observation(self, flat: Observation) -> Observation:
        pieces, order = flat["inventory"], flat["ordered_piece"]
        upright, turned = pieces >= order, pieces >= order[::-1]
        mask = (upright[:, 0] & upright[:, 1]) | (turned[:, 0] & turned[:, 1])
        return {**flat, "inventory_mask": mask.astype(np.float32)}

    def _cutting_observation(self, flat: Observation, piece_idx: int) -> Observation:
        observation = super()._cutting_observation(flat, piece_idx)
        (x, y), (width, height) = observation["selected_piece"].tolist(), observation["ordered_piece"].tolist()
        fits = (width <= x and height <= y, height <= x and width <= y)
        return {**observation, "cutting_mask": np.array(fits, np.float32)}


def struct_env_factory(max_pieces_in_inventory: int, raw_piece_size: Piece, static_demand: Demand) -> Wrapper:
    """Make the structured environment; see `maze_env_factory`."""
    return StructuredCutting2DEnvironment(maze_env_factory(max_pieces_in_inventory, raw_piece_size, static_demand))


def masked_struct_env_factory(max_pieces_in_inventory: int, raw_piece_size: Piece, static_demand: Demand) -> Wrapper:
    """Make the structured environment with masks; see `maze_env_factory`."""
    flat_env = maze_env_factory(max_pieces_in_inventory, raw_piece_size, static_demand)
    return MaskedStructuredCutting2DEnvironment(flat_env)


class GreedyCuttingPolicy:
    """Chooses the smallest piece that fits, and the cuts that leave the largest single rectangle.

    Ties between pieces of equal area go to the first one; ties between cuts prefer not to rotate
    the order, then not to reverse the cutting order. The policy works in the flat environment and
    in both structured ones.

    Args:
        action_spaces_dict: Action space of each sub-step.
        masks: Not used, since the pieces and the order show what fits; accepted because any policy
            may be given masks.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict], masks: Any = None) -> None:
        self.heads = {key: tuple(space) for key, space in action_spaces_dict.items()}

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        """Choose the heads that the sub-step asks for, deterministically."""
        from maze_pl.core.policy import PolicyStep  # here, as environments can do without torch

        seen, orders = batch.observation, batch.observation["ordered_piece"]
        stock = seen["inventory"] if "inventory" in seen else seen["selected_piece"][:, np.newaxis]
        fits = (np.sort(stock) >= np.sort(orders)[:, np.newaxis]).all(axis=-1)
        index = np.where(fits, stock.prod(axis=-1), np.inf).argmin(axis=-1)
        pieces = stock[np.arange(len(stock)), index]
        cuts = np.array([_best_cuts(*both) for both in zip(pieces.tolist(), orders.tolist(), strict=True)])
        chosen = {"piece_idx": index, "cut_rotation": cuts[:, 0], "cut_order": cuts[:, 1]}
        return PolicyStep({head: chosen[head] for head in self.heads[batch.step_key]})


def _best_cuts(piece: Piece, order: Piece) -> tuple[int, int]:
    """Return `cut_rotation` and `cut_order` of the best cuts; (0, 0) if the order does not fit."""
    options = [
        (max(x * y for x, y in residuals(piece, turned, bool(reverse))), rotate, reverse)
        for rotate, turned in enumerate((order, order[::-1]))
        if turned[0] <= piece[0] and turned[1] <= piece[1]
        for reverse in (0, 1)
    ]
    return max(options, key=lambda option: option[0], default=(0, 0, 0))[1:]  # first one in a tie
