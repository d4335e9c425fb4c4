"""The players of a data module: the start of its engine, and the weights that players on workers have."""

from typing import Any

from torch import Tensor, nn

from maze_pl.collect.engines import Engine, InProcessEngine
from maze_pl.collect.engines.engine import MakePlayer


class Players:
    """The players that an engine runs for a data module.

    Args:
        owner: Class name of the data module.

    Attributes:
        are_started: Whether the engine was started, and has not been closed since.
        policy: Policy with which it was started.
        version: Number of publications of weights so far.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.are_started = False
        self.policy: Any = None
        self.version = 0
        self._start = 0  # number of the start of the engine
        self._weights: dict[str, Any] = {}  # published last

    def start(self, engine: Engine, make_player: MakePlayer, policy: Any) -> None:
        """Start the engine.

        Args:
            engine: Runs the players.
            make_player: Makes a player.
            policy: Policy of the players.
        """
        self._start = engine.start_numbered(make_player, policy)
        self._weights = {}
        self.policy = policy
        self.are_started = True

    def end(self, engine: Engine) -> None:
        """Close the engine; safe to call twice, and before `start`."""
        engine.close()
        self.policy = None
        self.are_started = False

    def require_current(self, engine: Engine) -> None:
        """Refuse an engine that another data module has started since.

        Raises:
            ValueError: It runs the players of another data module.
        """
        if self.are_started and self._start != engine.n_starts:
            fault = f"the {type(engine).__name__} of this {self._owner} was started by another data module"
            raise ValueError(f"{fault}, whose environments it runs now; give each data module its own engine")

    def update(self, engine: Engine, policy: Any) -> Any:
        """Prepare the players to act with the current weights of a policy.

        Args:
            engine: Runs the players.
            policy: Their policy, or another one.

        Returns:
            The policy to send with each job; None if they have it already.
        """
        self.require_current(engine)
        if isinstance(engine, InProcessEngine) or policy is not self.policy or not isinstance(policy, nn.Module):
            return policy
        weights = {}
        for name, value in policy.state_dict().items():
            weights[name] = value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value
        # Extra state besides tensors may have changed in place, so it is always published.
        published = self._weights
        is_same = (isinstance(value, Tensor) and value.equal(published[name]) for name, value in weights.items())
        if weights.keys() != published.keys() or not all(is_same):
            self.version += 1
            self._weights = weights
            engine.publish(weights, self.version)
        return None
