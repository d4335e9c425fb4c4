"""States that the wrappers of a vector had before their first and their running episodes."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from maze_pl.core.class_path import definer_of
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrapper import Wrapper

_Stack = Mapping[str, Wrapper]


class WrapperStarts:
    """Copies of the states of wrappers before episodes; wrappers without state cost nothing.

    Args:
        stacks: For each environment, its wrappers by name; see `wrapper_stack`.
    """

    def __init__(self, stacks: Sequence[_Stack]) -> None:
        self._stateful: list[dict[str, Wrapper]] = []
        for stack in stacks:
            stateful = {name: wrapper for name, wrapper in stack.items() if _may_change(wrapper)}
            self._stateful.append(stateful)
        self._first: list[dict[str, Any]] = [{} for _ in stacks]
        self._running: list[dict[str, Any]] = [{} for _ in stacks]

    def note(self, n: int) -> None:
        """Copy the states of environment n, whose next episode is about to start.

        Raises:
            EnvContractError: `state_dict` of a wrapper failed.
        """
        stateful = self._stateful[n]
        if not stateful:
            return
        self._running[n] = {name: _copied_state(wrapper) for name, wrapper in stateful.items()}
        self._first[n] = self._first[n] or self._running[n]

    def of_running(self, n: int) -> dict[str, Any]:
        """Return the states before the running episode of environment n; not to be modified."""
        return self._running[n]

    def load(self, n: int, states: Mapping[str, Any]) -> None:
        """Load saved states before an episode; other wrappers stay as they are.

        Args:
            n: Number of the environment.
            states: Result of `of_running`.

        Raises:
            EnvContractError: `state_dict` of a wrapper failed.
        """
        if not self._first[n]:
            self.note(n)
        for name, wrapper in self._stateful[n].items():
            if name in states:
                wrapper.load_state_dict(copy.deepcopy(states[name]))

    def load_first(self) -> None:
        """Load the states of all environments before their first episodes."""
        for n, states in enumerate(self._first):
            if states:
                self.load(n, states)


def _may_change(wrapper: Wrapper) -> bool:
    """True if a wrapper has a state that may differ between episodes.

    The state of some wrappers consists of shared statistics that copies do not change.
    """
    kind = type(wrapper)
    if kind.state_dict is Wrapper.state_dict:
        return False
    is_shared = kind.state_dict is kind.shared_state
    return not is_shared or merges_statistics(kind)


def merges_statistics(kind: type[Wrapper]) -> bool:
    """True if copies of a wrapper change the statistics that they share."""
    return definer_of(kind, "merge_shared_states") is not Wrapper


def _copied_state(wrapper: Wrapper) -> Any:
    """Copy the state of a wrapper before an episode."""
    try:
        state = wrapper.state_dict()
    except Exception as error:
        fault = f"state_dict of {type(wrapper).__name__} failed before an episode with {error!r}"
        remedy = "it is also called before the first reset: set the attributes that it reads in __init__"
        raise EnvContractError(f"{fault}; {remedy}") from error
    return copy.deepcopy(state)
