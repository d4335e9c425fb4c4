"""Options of an algorithm that may follow schedules: their values in the current batch.

The value of a scheduled option is a tensor of the module that is changed in place, so that traced
losses read it like any other tensor, and are not traced again when it changes. An option without a
schedule is a plain attribute, which callbacks may set; a resumed run continues with their numbers.
Both are checked when they are assigned.
"""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from maze_pl.core.checkpoint_content import written_entry
from maze_pl.schedules import Coefficient, described, run_progress, value_at
from maze_pl.schedules.coefficient import Check

if TYPE_CHECKING:
    import pytorch_lightning as pl

_ENTRY = "coefficients"
"""Entry of checkpoints with the numbers by callbacks, as `value`, and those by the options."""


class _Scheduled(NamedTuple):
    """An option that follows a schedule, and the check of its values."""

    schedule: Coefficient
    check: Check | None


class _Attribute(NamedTuple):
    """The attribute of an option; a tensor is not read, as that would wait for its device."""

    value: object
    version: int  # of a tensor, which may be changed in place

    def is_same(self, other: _Attribute) -> bool:
        """Return True if both are the same tensor in the same version, or equal numbers."""
        if isinstance(self.value, Tensor) or isinstance(other.value, Tensor):
            return self.value is other.value and self.version == other.version
        return self.value == other.value


class HasCoefficients:
    """Lets a `LightningModule` check what is assigned to attributes of options, as its constructor does."""

    def __setattr__(self, name: str, value: Any) -> None:
        coefficients = self.__dict__.get("_coefficients")
        if coefficients is not None:
            coefficients.require_suitable(name, value)
        super().__setattr__(name, value)


class Coefficients:
    """Options of an algorithm that follow schedules, or that callbacks may set.

    Args:
        module: The algorithm. Each scheduled option is a buffer of the same name, which checkpoints
            omit; all others are attributes.
    """

    def __init__(self, module: pl.LightningModule) -> None:
        self._module = module
        self._scheduled: dict[str, _Scheduled] = {}
        self._scheduled_values: dict[str, float] = {}
        self._constants: dict[str, float | None] = {}  # by the options, of those without a schedule
        self._checks: dict[str, Check | None] = {}
        self._optional: set[str] = set()
        self._at_follow: dict[str, _Attribute] | None = None  # at the latest `follow`; None before the first run

    @property
    def names(self) -> list[str]:
        """Names of the options that follow a schedule."""
        return list(self._scheduled)

    @property
    def values(self) -> dict[str, float]:
        """Current values by name; those of the beginning of the run before it starts."""
        return dict(self._scheduled_values)

    def add(self, name: str, coefficient: Coefficient, check: Check | None) -> float | Tensor:
        """Add an option; see `AlgorithmModule.coefficient`."""
        first = value_at(name, coefficient, 0.0, check)
        self._checks[name] = check
        self._optional.discard(name)  # of a class that this one extends
        if not callable(coefficient):
            self._constants[name] = float(first)
            return first if _is_number(first) else float(first)
        for progress in (0.25, 0.5, 0.75, 1.0):  # finds most values out of range before training
            value_at(name, coefficient, progress, check)
        self._scheduled[name] = _Scheduled(coefficient, check)
        self._constants.pop(name, None)  # of a class that this one extends
        self._module.hparams[name] = described(coefficient)  # a text, which no constructor accepts
        self._scheduled_values[name] = first
        return nn.Buffer(torch.tensor(first, dtype=torch.get_default_dtype()), persistent=False)

    def add_optional(self, name: str, coefficient: Coefficient | None, check: Check | None) -> float | Tensor | None:
        """Add an option that may be None; see `AlgorithmModule.optional_coefficient`."""
        if coefficient is None:
            self._constants[name], self._checks[name] = None, check
        value = None if coefficient is None else self.add(name, coefficient, check)
        self._optional.add(name)
        return value

    def require_suitable(self, name: str, value: object) -> None:
        """Refuse what is assigned to the attribute of an option, unless the option could have this value.

        Tensors on other devices are not read, as that would wait for the device.

        Args:
            name: Name of any attribute.
            value: Its new value.

        Raises:
            TypeError: The value is not a number, or the option follows a schedule.
            ValueError: The number is out of range.
        """
        if name in self._scheduled:
            if not isinstance(value, Tensor):
                follows = f"{name} follows the schedule {described(self._scheduled[name].schedule)}"
                remedy = f"pass a number to {type(self._module).__name__}({name}=...)"
                raise TypeError(f"{follows}, and cannot be set to {value!r}: {remedy}")
        elif name in self._constants and not (value is None and name in self._optional):
            if not _is_number(value):
                expected = "a number, or a tensor of one: convert it by float(...)"
                raise TypeError(f"{name}={value!r} must be {expected}")
            if not isinstance(value, Tensor) or value.device.type == "cpu":
                number = value.detach() if isinstance(value, Tensor) else value
                value_at(name, cast(float, number), 0.0, self._checks[name])

    def follow(self, trainer: pl.Trainer) -> None:
        """Set all options to their values for the batch that is next, or in progress.

        Args:
            trainer: Trainer of the run.

        Raises:
            ValueError: A value is out of range.
        """
        self._at_follow = self._attributes()
        if not self._scheduled:
            return
        progress = run_progress(trainer)
        for name, (schedule, check) in self._scheduled.items():
            self._scheduled_values[name] = value_at(name, schedule, progress, check)
            self._module.get_buffer(name).fill_(self._scheduled_values[name])

    # ------------------------------------------------------------------------------------------------- callbacks

    @property
    def are_changed(self) -> bool:
        """True if a callback has set an option since `follow` was called."""
        at_follow = self._at_follow
        return at_follow is None or not all(one.is_same(at_follow[name]) for name, one in self._attributes().items())

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Add the numbers that callbacks have set, if any, to maze_pl's entry of a checkpoint.

        Args:
            checkpoint: The checkpoint.
        """
        entry: dict[str, dict[str, float | None]] = {}
        for name, value in self._by_callbacks().items():
            entry[name] = {"option": self._constants[name], "value": value}
        if entry:
            written_entry(checkpoint)[_ENTRY] = entry

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Continue with the numbers that callbacks had set; options that differ now replace them.

        Numbers of an earlier run of the same module are forgotten.

        Args:
            checkpoint: The checkpoint; those of earlier versions do not have such numbers.
        """
        if self._at_follow is not None:
            for name in self._by_callbacks():
                setattr(self._module, name, self._constants[name])
        for name, saved in written_entry(checkpoint).get(_ENTRY, {}).items():
            if name in self._constants and self._constants[name] == saved["option"]:
                setattr(self._module, name, saved["value"])

    def _by_callbacks(self) -> dict[str, float | None]:
        """Return the numbers of attributes that are not those of the options, by name."""
        changed: dict[str, float | None] = {}
        for name, one in self._attributes().items():
            value: Any = one.value
            value = value.detach() if isinstance(value, Tensor) else value
            value = None if value is None else float(value)
            if value != self._constants[name]:
                changed[name] = value
        return changed

    def _attributes(self) -> dict[str, _Attribute]:
        """Return the attributes of options without a schedule; the option where it is not a number."""
        attributes: dict[str, _Attribute] = {}
        for name, number in self._constants.items():
            value = getattr(self._module, name, number)
            if isinstance(value, Tensor) and value.numel() == 1:
                attributes[name] = _Attribute(value, 0 if value.is_inference() else value._version)
            else:
                attributes[name] = _Attribute(value if value is None or isinstance(value, Real) else number, 0)
        return attributes


def _is_number(value: object) -> bool:
    """True for numbers, also of NumPy, and tensors of one, whose changes are seen and saved."""
    if isinstance(value, Tensor):
        return value.numel() == 1
    return isinstance(value, Real) and not isinstance(value, bool)
