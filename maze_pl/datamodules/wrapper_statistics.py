"""The wrapper statistics of a data module, from the start of a run to its end."""

import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from pytorch_lightning.utilities import rank_zero_info

from maze_pl.collect.state_tensors import on_host
from maze_pl.datamodules.completed_statistics import CompletedStatistics
from maze_pl.envs.wrapper import Wrapper
from maze_pl.system.ranks import gather_objects


class WrapperStatistics:
    """Wrapper statistics of a run: taken over from another run, estimated before training, or gathered in it.

    What wrappers gather while a module is trained belongs to that module. If the next fit trains
    another one, the statistics are those from before the first fit again.

    Attributes:
        may_differ: Whether the wrappers may differ from those of the run that statistics were taken over from.
        are_of_checkpoint: Whether a checkpoint of this run was loaded.
    """

    def __init__(self) -> None:
        self._states: dict[str, Any] | None = None
        self._on_device: dict[str, Any] | None = None  # the latest ones, if they were gathered on a device
        self._wrappers: Mapping[str, type[Wrapper]] = {}
        self._merged: frozenset[str] = frozenset()  # names of wrappers that merged theirs there
        self.may_differ = False
        self.are_of_checkpoint = False
        self._are_complete = False  # whether `states` cover all wrappers
        self._initial: tuple[dict[str, Any] | None, bool] = (None, False)  # both, before the first fit
        self._module: Callable[[], Any] | None = None  # returns the module of the last fit, if it still exists

    # ------------------------------------------------------------------------------------------------- origins

    def begin_fit(self, module: Any) -> None:
        """Note the module of a fit; return to the initial statistics if an earlier fit had another one.

        Args:
            module: The module that is trained.
        """
        if self._module is not None and self._module() is not module:
            self.states, self._are_complete = self._initial
        self._module = weakref.ref(module)

    def take_over(self, states: dict[str, Any], may_differ: bool) -> None:
        """Begin with the statistics of another run.

        Args:
            states: State of each wrapper of that run, by name.
            may_differ: Whether its wrappers may differ from the present ones.
        """
        self.states, self._are_complete = states, False
        self.may_differ = may_differ
        self._initial = states, False

    def load(self, states: dict[str, Any] | None) -> None:
        """Continue with the statistics of a checkpoint.

        Args:
            states: State of each wrapper, by name; None if they were not estimated yet.
        """
        self.states, self._are_complete = states, False
        self.may_differ = False
        self.are_of_checkpoint = True

    # -------------------------------------------------------------------------------------------------- values

    @property
    def states(self) -> dict[str, Any] | None:
        """State of each wrapper, by name; None if they are still to be estimated.

        Raises:
            ValueError: Statistics that were gathered on a device are not finite.
        """
        if self._states is None and self._on_device is not None:
            host = on_host(self._on_device)
            self._states = {}
            for name, state in host.items():
                merged = self._wrappers[name].merge_shared_states([state])  # checks its numbers
                self._states[name] = state if name in self._merged else merged
        return self._states

    @states.setter
    def states(self, states: dict[str, Any] | None) -> None:
        self._states, self._on_device = states, None

    @property
    def gathered_states(self) -> dict[str, Any] | None:
        """The states as they were gathered, on a device or here; None until all wrappers have one."""
        return self._on_device if self._are_complete and self._on_device is not None else self.complete_states

    @property
    def complete_states(self) -> dict[str, Any] | None:
        """State of each wrapper, by name; None until all wrappers have one."""
        return self.states if self._are_complete else None

    def complete(self, completed: CompletedStatistics) -> dict[str, Any]:
        """Take over completed statistics from rank 0; every rank must call it.

        Args:
            completed: What this rank has; those of rank 0 count.

        Returns:
            State of each wrapper, by name.

        Raises:
            ValueError: They could not be completed.
        """
        completed = gather_objects(completed)[0]
        if completed.refusal:
            raise ValueError(completed.refusal)
        if completed.message:
            rank_zero_info(completed.message)
        self.states, self._are_complete = completed.states, True
        if not self.are_of_checkpoint:
            self._initial = completed.states, True
        return completed.states

    def merge(self, parts: Iterable[Mapping[str, Any]], wrappers: Mapping[str, type[Wrapper]]) -> None:
        """Replace the statistics by what several environments have gathered.

        Args:
            parts: State of each wrapper by name, for each environment.
            wrappers: Classes of the wrappers, by name.
        """
        parts = list(parts)
        merged = {}
        for name in self.states or {}:
            merged[name] = wrappers[name].merge_shared_states([part[name] for part in parts])
        self.states = merged

    def keep_on_device(
        self, states: dict[str, Any], wrappers: Mapping[str, type[Wrapper]], merged: Collection[str]
    ) -> None:
        """Replace the statistics by those of a device; they are fetched when they are read.

        Args:
            states: State of each wrapper, by name, with tensors.
            wrappers: Classes of the wrappers, by name.
            merged: Names of the wrappers whose states are merged there. A merge may change even a
                merged state, so that these are used as they are.
        """
        self._states, self._on_device = None, states
        self._wrappers, self._merged = wrappers, frozenset(merged)

    # ----------------------------------------------------------------------------------------------- processes

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and processes, in which there is no module of the last fit."""
        fetched = {"_states": self.states, "_on_device": None}
        return {**self.__dict__, **fetched, "_module": self._module and _no_module}


def _no_module() -> None:
    """Return None, as a weak reference does whose object has gone."""
