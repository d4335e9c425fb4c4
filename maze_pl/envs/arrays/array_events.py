"""Events of many environments at once: which of them, and which values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from maze_pl.core.histogram import NUMBER_KINDS
from maze_pl.envs.arrays.array_checks import as_numpy
from maze_pl.envs.arrays.array_step import AnyArray
from maze_pl.envs.arrays.event_values import objects_of
from maze_pl.envs.contract import describe
from maze_pl.envs.structured_env import Array
from maze_pl.events.attribute_values import copied, is_tensor, plain
from maze_pl.events.topics import EventDeclaration, declarations

Topic = TypeVar("Topic")
_SCALARS = (bool, int, float, str, np.generic)


class ArrayEvent(NamedTuple):
    """Events of one kind, at most one in each place of `which`.

    Attributes:
        declaration: Declaration of the event and its statistics.
        which: [n] int64, the environment of each event; an environment may occur several times. On a device,
            [N] bool, whether the event happened in each environment; see `TensorEnv.create_event_topic`.
        attributes: Name -> [n, ...] the values of the events; anything that is not an array counts for all.
    """

    declaration: EventDeclaration
    which: AnyArray
    attributes: dict[str, Any]


class ArrayEvents:
    """Events that environments have fired since the last call of `drain`.

    Attributes:
        topics: The topics whose events can be fired.
        n_envs: Number of environments; None if it is not known. Tensors as numbers of environments then stay tensors.
        is_for_statistics: Whether events in tensors have only the attributes that statistics need.
    """

    def __init__(self) -> None:
        self.topics: list[type] = []
        self.n_envs: int | None = None
        self.is_for_statistics = False
        self._fired: list[ArrayEvent] = []

    def create_event_topic(self, topic: type[Topic]) -> Topic:
        """Return an object that fires the events of a topic.

        Its methods are those of the topic, with the numbers of the environments, [n], as an
        additional first argument. Values are arrays or tensors [n, ...], lists of n values, or single
        values that count for all. Tuples and lists in a list stay what they are; give vectors as an
        array [n, k]. Everything is copied, so that it may be changed afterwards.

        Args:
            topic: The topic class, as for `Pubsub.create_event_topic`.

        Example:
            >>> import numpy as np
            >>> from maze_pl.events import RewardShareEvents
            >>> events = ArrayEvents()
            >>> shares = events.create_event_topic(RewardShareEvents)
            >>> shares.share(np.array([0, 3]), name="fuel", value=np.array([-0.5, -0.25]))
            >>> [(event.which.tolist(), event.attributes["name"]) for event in events.drain()]
            [([0, 3], 'fuel')]
        """
        if topic not in self.topics:
            self.topics.append(topic)
        return cast(Topic, ArrayTopic(topic, self))

    def fire(self, event: ArrayEvent) -> None:
        """Fire events."""
        self._fired.append(event)

    def drain(self) -> list[ArrayEvent]:
        """Return the events since the last call, in the order in which they were fired."""
        fired = self._fired.copy()
        self._fired.clear()
        return fired


class ArrayTopic:
    """Object with the methods of a topic, each of which fires its event for several environments.

    Args:
        topic: The topic class.
        events: Receives each event.
    """

    def __init__(self, topic: type, events: ArrayEvents) -> None:
        self._events = events
        self._declarations = declarations(topic)
        self._topic = topic

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return the function that fires an event."""
        if name.startswith("_") or name not in self._declarations:
            known = list(self._declarations)
            raise AttributeError(f"{self._topic.__name__} has no event {name!r}; its events are {known}")
        declaration = self._declarations[name]
        signature = declaration.signature
        label = f"{self._topic.__name__}.{name}"
        events = self._events

        def fire(which: AnyArray, *values: Any, **named_values: Any) -> None:
            """Fire the event for the environments `which`, [n]."""
            is_on_device = events.n_envs is None and is_tensor(which)
            numbers = _cloned_if_tensor(which) if is_on_device else _numbers(which, events.n_envs, label)
            if len(numbers) == 0 and not values and named_values.keys() == signature.parameters.keys():
                return  # before the arguments are bound, which takes longer
            try:
                bound = signature.bind(*values, **named_values)
            except TypeError as error:
                remedy = f"after the numbers of the environments, its arguments are {signature}"
                raise TypeError(f"{label}: {error}; {remedy}") from None
            if len(numbers) == 0:
                return
            bound.apply_defaults()
            attributes = _attributes_for(
                declaration,
                bound.arguments,
                label,
                on_device=is_on_device,
                for_statistics=events.is_for_statistics,
            )
            for attribute, value in attributes.items():
                if getattr(value, "ndim", 0) and len(value) != len(numbers):
                    fault = f"{attribute} of {label} has shape {tuple(value.shape)} for {len(numbers)} environments"
                    raise ValueError(f"{fault}; give one value for each, or a single one for all")
            events.fire(ArrayEvent(declaration, numbers, attributes))

        vars(self)[name] = fire
        return fire


def _attributes_for(
    declaration: EventDeclaration, arguments: Mapping[str, Any], label: str, *, on_device: bool, for_statistics: bool
) -> dict[str, Any]:
    """Return copies of the attributes of an event.

    Args:
        declaration: Declaration of the event.
        arguments: Attribute -> its value.
        label: Name of the event, for messages.
        on_device: Whether the environments are given as a tensor; the attributes then stay tensors.
        for_statistics: Whether to leave out what statistics do not need, on a device.

    Raises:
        TypeError: On a device, an attribute is an array or a list.
    """
    if not on_device:
        return {name: _copied(value, name in declaration.grouping) for name, value in arguments.items()}
    attributes = {}
    for name, value in arguments.items():
        if not for_statistics or _is_needed(name, declaration):
            _refuse_array(value, f"{name} of {label}")
            attributes[name] = _cloned_if_tensor(value)
    return attributes


def _cloned_if_tensor(value: Any) -> Any:
    """Return a copy of a tensor, which the act may still change; other values as they are."""
    return value.clone() if is_tensor(value) else value


def _refuse_array(value: Any, name: str) -> None:
    """Raise TypeError for a value that is not a tensor, but holds several values."""
    if isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim):
        raise TypeError(f"{name} is {describe(value)}; expected a tensor [N, ...] or a single value")


def _is_needed(attribute: str, declaration: EventDeclaration) -> bool:
    """True if statistics of an event are computed from an attribute, or are grouped by it."""
    inputs = inputs_of(declaration)
    return None in inputs or attribute in inputs or attribute in declaration.grouping


def inputs_of(declaration: EventDeclaration) -> tuple[str | None, ...]:
    """Return the inputs of the step statistics, without those that only count events.

    None stands for all attributes together.
    """
    return tuple(dict.fromkeys(s.input_name for s in declaration.step if s.reduce is not len))


def _numbers(which: Any, n_envs: int | None, label: str) -> Array:
    """Return a copy of the numbers of environments, [n] int64.

    Args:
        which: The numbers.
        n_envs: Number of environments; None if it is not known.
        label: Name of the event, for messages.

    Raises:
        TypeError: They are not integers [n].
        ValueError: There is no environment of some number.
    """
    numbers = as_numpy(which) if isinstance(which, np.ndarray | list | tuple) or is_tensor(which) else None
    highest = "N - 1" if n_envs is None else n_envs - 1
    expected = f"expected the numbers of its environments [n], integers from 0 to {highest}"
    if numbers is not None and numbers.shape == (0,):
        return numbers.astype(np.int64)
    if numbers is None or numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        came = describe(which if numbers is None else numbers)
        remedy = "use self.numbers_of(which) for those that act, np.flatnonzero(mask) for a mask [N]"
        raise TypeError(f"{label} was fired for {came}; {expected}: {remedy}")
    if numbers.min() < 0 or (n_envs is not None and numbers.max() >= n_envs):
        wrong = numbers.min() if numbers.min() < 0 else numbers.max()
        raise ValueError(f"{label} was fired for environment {wrong}; {expected}")
    return numbers.astype(np.int64)


def _copied(value: Any, is_grouping: bool) -> Any:
    """Return a copy of an attribute.

    Args:
        value: An array, a tensor, a list with a value for each environment, or a single value.
        is_grouping: Whether the statistics are grouped by it.
    """
    if isinstance(value, list):
        return _array_of(value, is_grouping)
    if not isinstance(value, np.ndarray) and not is_tensor(value):
        return copied(value)
    array = as_numpy(value)
    if not array.ndim:
        return copied(array[()])
    return objects_of(list(map(copied, array))) if array.dtype == object and array.ndim == 1 else array.copy()


def _without_tensor(value: Any) -> Any:
    """Return a tensor as an array, and single numbers in either as numbers."""
    return plain(value) if isinstance(value, np.ndarray) or is_tensor(value) else value


def _array_of(values: list[Any], is_grouping: bool) -> Array:
    """Return values as an array of numbers or texts, or of copies of other objects.

    Numbers of several types become numbers of one type, unless they name groups.
    """
    if not is_grouping:
        values = [_without_tensor(value) for value in values]
    kinds = set(map(type, values))
    are_scalars = all(issubclass(kind, _SCALARS) for kind in kinds)
    if is_grouping:
        is_array = are_scalars and len(kinds) == 1
    else:
        is_array = are_scalars or (kinds == {np.ndarray} and len({value.shape for value in values}) == 1)
    if not is_array:
        return objects_of(list(map(copied, values)))
    array = np.array(values)
    are_mixed = len(kinds) > 1 and array.dtype.kind not in NUMBER_KINDS
    return objects_of(list(map(copied, values))) if are_mixed or array.dtype == object else array
