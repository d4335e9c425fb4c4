"""What the wrappers have in common that put other action heads in the place of an environment's own."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from maze_pl.envs.structured_env import Action, ResetResult, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper


class ReplacedHeadsWrapper(ActionWrapper):
    """Replaces action heads, by name and in every sub-step that has them, each by one or several others.

    Args:
        env: The environment to wrap.
        config: Head -> what to do with it.

    Raises:
        ValueError: A head is unknown, is not the same in all sub-steps, or would be there twice.
    """

    def __init__(self, env: StructuredEnv, config: Mapping[str, Any]) -> None:
        super().__init__(env)
        old = {head: part for space in env.action_spaces_dict.values() for head, part in space.items()}
        differing = {h for space in env.action_spaces_dict.values() for h, part in space.items() if part != old[h]}
        name = type(self).__name__
        if wrong := set(config) - (set(old) - differing):
            fault = f"are not the same in all sub-steps, or not among {sorted(old)}"
            raise ValueError(f"{name}: action heads {sorted(wrong)} {fault}")
        self._new = {head: self.replacement(head, old[head], entry) for head, entry in config.items()}
        self._action_spaces = {}
        for key, space in env.action_spaces_dict.items():
            parts = [item for head, part in space.items() for item in self._new.get(head, {head: part}).items()]
            if len(dict(parts)) != len(parts):
                raise ValueError(f"{name}: some of the action heads {[head for head, _ in parts]} have the same name")
            self._action_spaces[key] = spaces.Dict(dict(parts))

    @abstractmethod
    def replacement(self, head: str, space: spaces.Space[Any], entry: Any) -> dict[str, spaces.Space[Any]]:
        """New heads, with their spaces, for an old one."""

    @abstractmethod
    def joined(self, head: str, values: dict[str, Any]) -> Any:
        """Value of an old head from those of the new ones."""

    @abstractmethod
    def divided(self, head: str, value: Any) -> dict[str, Any]:
        """Values of the new heads from that of the old one."""

    def action(self, action: Action) -> Action:
        """With the old heads."""
        changed = dict(action)
        for head, parts in self._new.items():
            if parts.keys() <= action.keys():  # otherwise it is another sub-step's
                changed[head] = self.joined(head, {name: changed.pop(name) for name in parts})
        return changed

    def reverse_action(self, action: Action) -> Action:
        """With the new heads."""
        changed = dict(action)
        for head in self._new.keys() & action.keys():
            changed |= self.divided(head, changed.pop(head))
        return changed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; the seed also determines what the new spaces sample."""
        for space in () if seed is None else (self._action_spaces or {}).values():
            space.seed(seed)
        return self.env.reset(seed=seed, options=options)
