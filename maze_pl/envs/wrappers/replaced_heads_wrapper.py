"""Base class of wrappers that replace action heads by others."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from gymnasium import spaces

from maze_pl.envs.structured_env import Action, StructuredEnv, made_without_init
from maze_pl.envs.wrapper import ActionWrapper


class ReplacedHeadsWrapper(ActionWrapper):
    """Replaces each named action head by one or more others, in every sub-step that has it.

    The `heuristic` of the wrapped environment plays with its actions translated.

    Args:
        env: The environment to wrap.
        config: Head -> settings of its replacement.

    Raises:
        ValueError: A head is unknown, is not the same in all sub-steps, or would occur twice.
    """

    def __init__(self, env: StructuredEnv, config: Mapping[str, Any]) -> None:
        super().__init__(env)
        old = {head: part for space in env.action_spaces_dict.values() for head, part in space.items()}
        differing = {h for space in env.action_spaces_dict.values() for h, part in space.items() if part != old[h]}
        name = type(self).__name__
        if wrong := set(config) - (set(old) - differing):
            raise ValueError(f"{name}: {sorted(wrong)} are not the same in all sub-steps, or not among {sorted(old)}")
        self._new = {head: self.replacement(head, old[head], entry) for head, entry in config.items()}
        self._action_spaces = {}
        for key, space in env.action_spaces_dict.items():
            parts: list[tuple[str, spaces.Space[Any]]] = []
            for head, part in space.items():
                parts += self._new.get(head, {head: part}).items()
            if len(dict(parts)) != len(parts):
                raise ValueError(f"{name}: some of the action heads {[head for head, _ in parts]} have the same name")
            self._action_spaces[key] = spaces.Dict(dict(parts))

    @property
    def heuristic_policy(self) -> str | None:  # type: ignore[override]
        """Policy that translates what the `heuristic_policy` of the wrapped environment does; None if it has none."""
        path = "maze_pl.envs.wrappers.translated_rule_policy.TranslatedRulePolicy"
        return None if self.env.heuristic_policy is None else path

    @abstractmethod
    def replacement(self, head: str, space: spaces.Space[Any], entry: Any) -> dict[str, spaces.Space[Any]]:
        """New heads, with their spaces, for an old one."""

    @abstractmethod
    def joined(self, head: str, values: dict[str, Any]) -> Any:
        """Join the values of the new heads to the value of the old one."""

    @abstractmethod
    def divided(self, head: str, value: Any) -> dict[str, Any]:
        """Divide the value of the old head into the values of the new ones."""

    def action(self, action: Action) -> Action:
        """The action with the old heads."""
        changed = dict(action)
        for head, parts in self._new.items():
            if parts.keys() <= action.keys():  # otherwise the head is another sub-step's
                changed[head] = self.joined(head, {name: changed.pop(name) for name in parts})
        return changed

    def reverse_action(self, action: Action) -> Action:
        """The action with the new heads."""
        changed = dict(action)
        for head in self._new.keys() & action.keys():
            changed |= self.divided(head, changed.pop(head))
        return changed

    def without_env(self) -> Self:
        """Return a copy that only converts actions; it holds no environment, so that a policy can take it along."""
        copied: Self = made_without_init(type(self))
        vars(copied).update({name: value for name, value in vars(self).items() if name != "env"})
        return copied
