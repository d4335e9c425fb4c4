"""The policy for which an environment step was recorded, as the graph has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from maze_pl.collect.tensors.graph_checks import (
    Numbers,
    PolicyParts,
    ReadTensors,
    addresses_of,
    constants_of,
    differing_number,
    parts_of,
    replaced_tensor,
)


class RecordedPolicy:
    """Modules, hooks, functions, addresses of tensors, and numbers of a policy, with which a step was recorded.

    Tensors that are neither parameters nor buffers count only if the step has read them, as others may
    be results that the policy keeps. Those that the policy has received since count as well, because
    the step might read them.

    Args:
        device: Device of the graph.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.forget()

    def forget(self) -> None:
        """Forget the policy."""
        self._addresses: list[object] = []  # with the policy, so that no other one gets its place in memory
        self._numbers: Numbers = {}
        self._plain: frozenset[str] = frozenset()  # that were read
        self._known: frozenset[str] = frozenset()  # also those that were not read

    def note(self, policy: Any) -> None:
        """Note a policy."""
        self._note(parts_of(policy))

    def _note(self, parts: PolicyParts) -> None:
        self._addresses = addresses_of(parts, self._plain)
        self._numbers = constants_of(parts, self._device, self._plain)
        self._known = parts.names_of_plain_tensors()

    def compare(self, policy: Any) -> tuple[bool, str | None]:
        """Compare a policy with the recorded one.

        Returns:
            Whether it is the same policy with the same modules, hooks, functions and addresses of
            tensors, without new tensors, and the name of the first value that has changed, None if
            there is none.
        """
        parts = parts_of(policy)
        number = differing_number(self._numbers, constants_of(parts, self._device, self._plain))
        is_same = self._addresses == addresses_of(parts, self._plain)
        return is_same and parts.names_of_plain_tensors() <= self._known, number

    def take(self, policy: Any, step: Callable[[], object]) -> str | None:
        """Take the step that was recorded, and note the policy.

        Args:
            policy: The policy.
            step: Acts by it.

        Returns:
            The reason not to use the graph if the policy changes when it acts, None otherwise.
        """
        before = parts_of(policy)
        numbers = constants_of(before, self._device)
        with ReadTensors() as read:
            step()
        after = parts_of(policy)
        plain = read.plain_ones(before.tensors)
        replaced = replaced_tensor(before.tensors, after.tensors, plain)
        self._plain = plain if replaced is None else frozenset()  # so that it is refused once
        self._note(after)
        self._known |= before.names_of_plain_tensors()
        changed = differing_number(numbers, constants_of(after, self._device))
        if changed is not None:
            return f"the policy changes its number {changed!r} when it acts"
        if replaced is not None:
            return f"the policy replaces its tensor {replaced!r} when it acts"
        if before.identities != after.identities:
            return "the policy replaces a module, a hook or a function when it acts"
        return None
