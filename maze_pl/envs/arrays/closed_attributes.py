"""Refusal of attributes that nothing would read."""

from __future__ import annotations

from typing import Any, ClassVar

from maze_pl.envs.contract import EnvContractError


class NewAttributeWarning(UserWarning):
    """A wrapper has given an attribute to an array environment that may not read it."""


class ClosedAttributes:
    """Has only the attributes that its class makes, so that setting another one is an error instead of no effect.

    Subclasses are free: they may make attributes at any time.

    Attributes:
        attribute_remedy: What to do instead of setting another attribute, for the message.
    """

    attribute_remedy: ClassVar[str]
    _has_all_attributes = False

    def close_attributes(self, kind: type) -> None:
        """Refuse further attributes from now on, unless this is an object of a subclass.

        Args:
            kind: The class that calls this.
        """
        if type(self) is kind:
            self._has_all_attributes = True

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute.

        Raises:
            EnvContractError: There is no such attribute.
        """
        if self._has_all_attributes and name not in vars(self) and not hasattr(type(self), name):
            fault = f"{type(self).__name__} has no attribute {name!r}, and setting it would change nothing"
            raise EnvContractError(f"{fault}; {self.attribute_remedy}")
        super().__setattr__(name, value)
