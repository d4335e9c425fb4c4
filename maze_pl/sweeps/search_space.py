"""The options that a sweep searches, and the values that they may have."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from maze_pl.config.search_path import ConfigurationError, dump, suggestion

_KEYS = ("low", "high", "log", "step", "type", "values", "when")
_TYPES = ("int", "float")
_MOST_GRID_VALUES = 10_000


@dataclass(frozen=True)
class Parameter(ABC):
    """A searched option.

    Attributes:
        option: Name of the option of `maze-pl fit`, such as `model.lr`.
        when: Another option -> values of it, as texts, with which this one is searched.
    """

    option: str
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)

    def is_active(self, assignment: Mapping[str, Any]) -> bool:
        """True if this option is searched, given the values of the options before it."""
        return all(
            option in assignment and dump(assignment[option]) in allowed for option, allowed in self.when.items()
        )

    @abstractmethod
    def suggest(self, trial: Any) -> Any:
        """Return the value for a trial of Optuna."""

    @abstractmethod
    def grid(self) -> list[Any]:
        """Return all values for a grid.

        Raises:
            ConfigurationError: There are infinitely many.
        """

    @abstractmethod
    def samples(self) -> list[Any]:
        """Return the values with which the option is checked before the sweep: the ends, or all choices."""


@dataclass(frozen=True)
class Range(Parameter):
    """A number between two ends, which are included.

    Attributes:
        low: The lower end.
        high: The upper end; with a step, a whole number of steps above `low`.
        is_int: Whether only integers are tried.
        log: Whether values are drawn uniformly on a logarithmic scale.
        step: Distance of the values; None means any value, or any integer.
    """

    low: float
    high: float
    is_int: bool
    log: bool = False
    step: float | None = None

    def suggest(self, trial: Any) -> Any:
        """Return the value for a trial of Optuna."""
        if self.is_int:
            return trial.suggest_int(self.option, int(self.low), int(self.high), step=int(self.step or 1), log=self.log)
        return trial.suggest_float(self.option, self.low, self.high, step=self.step, log=self.log)

    def grid(self) -> list[Any]:
        """Return all values with a distance of `step`; see `Parameter.grid`."""
        step = self.step or (1 if self.is_int and not self.log else None)
        if step is None:
            remedy = f"list them (`{self.option}: [...]`), or give a step"
            raise ConfigurationError(f"search.{self.option}: a grid needs single values: {remedy}")
        n_values = math.floor((self.high - self.low) / step + 1e-9) + 1
        if n_values > _MOST_GRID_VALUES:
            raise ConfigurationError(f"search.{self.option}: {n_values:,} values are too many for a grid")
        values = [self.low + index * step for index in range(n_values)]
        return [int(value) for value in values] if self.is_int else [float(f"{value:.12g}") for value in values]

    def samples(self) -> list[Any]:
        """Return both ends."""
        return [int(self.low), int(self.high)] if self.is_int else [float(self.low), float(self.high)]


@dataclass(frozen=True)
class Choice(Parameter):
    """One of several values of any kind.

    Attributes:
        values: The values.
    """

    values: tuple[Any, ...]

    @property
    def labels(self) -> list[str]:
        """The values as texts, by which the storage names them."""
        return [dump(value) for value in self.values]

    def suggest(self, trial: Any) -> Any:
        """Return the value for a trial of Optuna."""
        labels = self.labels
        return self.values[labels.index(trial.suggest_categorical(self.option, labels))]

    def grid(self) -> list[Any]:
        """Return all values."""
        return list(self.values)

    samples = grid


def parse_search(content: Any) -> list[Parameter]:
    """Return the searched options of a sweep file.

    Args:
        content: Option -> range, list of values, or mapping with `values`; see docs/sweeps.md.

    Raises:
        ConfigurationError: A range is empty, or something else is invalid.
    """
    if not isinstance(content, Mapping) or not content:
        example = "`search: {model.lr: {low: 1.0e-4, high: 1.0e-2, log: true}}`"
        raise ConfigurationError(f"search must map options to their values, such as {example}; got {dump(content)}")
    parameters: list[Parameter] = []
    for option, values in content.items():
        if not isinstance(option, str):
            raise ConfigurationError(f"search: {option!r} is not the name of an option")
        parameters.append(_parameter(option.removeprefix("--"), values, parameters))
    return parameters


def _parameter(option: str, content: Any, before: Sequence[Parameter]) -> Parameter:
    """Return a searched option."""
    if isinstance(content, list):
        content = {"values": content}
    where = f"search.{option}"
    if not isinstance(content, Mapping):
        expected = "a list of values, or a range such as {low: 0.1, high: 0.9}"
        raise ConfigurationError(f"{where}: expected {expected}; got {dump(content)}")
    for key in content:
        if key not in _KEYS:
            known = f"it may have {', '.join(_KEYS)}"
            raise ConfigurationError(f"{where} has the unknown key {key!r}; {known}{suggestion(str(key), _KEYS)}")
    when = _conditions(where, content.get("when"), before)
    if "values" in content:
        return Choice(option, _values(where, content), when=when)
    return _range(option, where, content, when)


def _values(where: str, content: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of a choice."""
    values = content["values"]
    if others := [key for key in content if key not in ("values", "when")]:
        raise ConfigurationError(f"{where} has values, and {', '.join(others)} of a range: keep one of them")
    if not isinstance(values, list) or not values:
        raise ConfigurationError(f"{where}: values must be a list with at least one value; got {dump(values)}")
    labels = [dump(value) for value in values]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigurationError(f"{where} has the value {label} twice: list it once")
    return tuple(values)


def _range(option: str, where: str, content: Mapping[str, Any], when: Mapping[str, tuple[str, ...]]) -> Range:
    """Return a range of numbers."""
    for key in ("low", "high"):
        if key not in content:
            raise ConfigurationError(f"{where} has no {key}: give low and high, or values")
    low, high = number(f"{where}.low", content["low"]), number(f"{where}.high", content["high"])
    step = None if content.get("step") is None else number(f"{where}.step", content["step"])
    log = content.get("log", False)
    if not isinstance(log, bool):
        raise ConfigurationError(f"{where}.log must be true or false; got {dump(log)}")
    given = content.get("type")
    if given is not None and given not in _TYPES:
        raise ConfigurationError(f"{where}.type must be int or float; got {dump(given)}")
    numbers = [value for value in (low, high, step) if value is not None]
    is_int = given == "int" or (given is None and all(isinstance(value, int) for value in numbers))
    if is_int and not all(float(value).is_integer() for value in numbers):
        raise ConfigurationError(f"{where} has the type int, but {dump(numbers)} are not all integers")
    if low >= high:
        raise ConfigurationError(f"{where} is empty: low={low} must be less than high={high}")
    if log and low <= 0:
        raise ConfigurationError(f"{where}: log needs numbers above 0; got low={low}")
    if log and step is not None:
        raise ConfigurationError(f"{where}: log and step exclude each other: omit one of them, or list the values")
    if step is not None:
        width = Decimal(str(high)) - Decimal(str(low))
        if step <= 0 or Decimal(str(step)) > width:
            expected = f"above 0 and at most high - low = {width:g}"
            raise ConfigurationError(f"{where}: step={step} must be {expected}")
        high = _highest(low, width, step, is_int)
    return Range(option, low, high, is_int, log, step, when=when)


def _highest(low: float, width: Decimal, step: float, is_int: bool) -> float:
    """Return the largest value that is reached in steps, in arithmetic of decimal numbers.

    Args:
        low: The lowest value.
        width: Distance of the highest value that is allowed.
        step: Distance of the values.
        is_int: Whether all are integers.
    """
    exact = Decimal(str(step))
    highest = Decimal(str(low)) + width // exact * exact
    return int(highest) if is_int else float(highest)


def number(where: str, value: Any) -> float | int:
    """Return a finite number; YAML reads 1e-3 as a text, which is accepted.

    Raises:
        ConfigurationError: It is not a number.
    """
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None if value == "" else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigurationError(f"{where} must be a number; got {dump(value)}")
    return value


def _conditions(where: str, content: Any, before: Sequence[Parameter]) -> dict[str, tuple[str, ...]]:
    """Return the conditions of an option as texts."""
    if content is None:
        return {}
    if not isinstance(content, Mapping) or not content:
        example = "{model: algorithm/ppo}"
        raise ConfigurationError(f"{where}.when must map options to values, such as {example}; got {dump(content)}")
    choices = {parameter.option: parameter for parameter in before if isinstance(parameter, Choice)}
    conditions: dict[str, tuple[str, ...]] = {}
    for option, allowed in content.items():
        if option not in choices:
            known = "it must be searched before, by a list of values"
            near = suggestion(str(option), choices)
            raise ConfigurationError(f"{where}.when: {option!r} is not a condition: {known}{near}")
        values = allowed if isinstance(allowed, list) else [allowed]
        labels = tuple(dump(value) for value in values)
        for label in labels:
            if label not in choices[option].labels:
                known = f"search.{option} has {', '.join(choices[option].labels)}"
                raise ConfigurationError(f"{where}.when: {option} is never {label}; {known}")
        conditions[option] = labels
    return conditions


# ------------------------------------------------------------------------------------------------------------- values


def suggested(parameters: Sequence[Parameter], trial: Any) -> dict[str, Any]:
    """Return option -> value for a trial of Optuna; options whose condition is false are missing."""
    assignment: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.is_active(assignment):
            assignment[parameter.option] = parameter.suggest(trial)
    return assignment


class StoredValues:
    """Gives values that were drawn earlier, as a trial of Optuna suggests new ones.

    Args:
        params: Searched option -> value in the storage.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = params

    def suggest_float(self, name: str, *_: Any, **__: Any) -> Any:
        """Return the stored value."""
        return self._params[name]

    suggest_int = suggest_categorical = suggest_float


def has_all_values(parameters: Sequence[Parameter], params: Mapping[str, Any]) -> bool:
    """True if a trial in the storage has a value of each option that is searched in it.

    Args:
        parameters: The searched options.
        params: Searched option -> value in the storage.
    """
    try:
        suggested(parameters, StoredValues(params))
    except KeyError:
        return False
    return True


def grid(parameters: Sequence[Parameter]) -> list[dict[str, Any]]:
    """Return all combinations of values, the last option changing fastest.

    Raises:
        ConfigurationError: There are infinitely many.
    """
    combinations: list[dict[str, Any]] = [{}]
    for parameter in parameters:
        values = parameter.grid()
        longer: list[dict[str, Any]] = []
        for assignment in combinations:
            if parameter.is_active(assignment):
                longer += [{**assignment, parameter.option: value} for value in values]
            else:
                longer.append(assignment)
        combinations = longer
    return combinations


def samples(parameters: Sequence[Parameter]) -> Iterator[dict[str, Any]]:
    """Yield few assignments that together contain each end of each range and each choice."""
    missing = {(parameter.option, dump(value)) for parameter in parameters for value in parameter.samples()}
    by_option = {parameter.option: parameter for parameter in parameters}
    while missing:
        option, label = min(missing, key=lambda pair: (list(by_option).index(pair[0]), pair[1]))
        forced = _forced(by_option[option], by_option)
        assignment: dict[str, Any] = {}
        for parameter in parameters:
            if not parameter.is_active(assignment):
                continue
            wanted = forced.get(parameter.option)
            if parameter.option == option:
                wanted = (label,)
            values = [value for value in parameter.samples() if wanted is None or dump(value) in wanted]
            unseen = [value for value in values if (parameter.option, dump(value)) in missing]
            assignment[parameter.option] = (unseen or values)[0]
        missing -= {(name, dump(value)) for name, value in assignment.items()} | {(option, label)}
        yield assignment


def _forced(parameter: Parameter, by_option: Mapping[str, Parameter]) -> dict[str, tuple[str, ...]]:
    """Return the values of other options that a parameter needs, directly or indirectly."""
    forced: dict[str, tuple[str, ...]] = {}
    for option, allowed in parameter.when.items():
        forced |= {**_forced(by_option[option], by_option), option: allowed}
    return forced
