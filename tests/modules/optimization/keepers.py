"""Ways in which a loss can keep the number by which it is scaled: those that are followed, and those that are not."""

from __future__ import annotations

import functools
import operator
import weakref
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

FACTOR = 1.0
SETTINGS = {"factor": 1.0}


def flat(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


# ---------------------------------------------------------------------------------------------- ways to keep a number


class Plain:
    """A helper with an attribute."""

    def __init__(self) -> None:
        self.value = 1.0

    def get(self) -> float:
        return self.value

    def set(self, value: float) -> None:
        self.value = value


class Slots:
    """A helper without a dictionary."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 1.0

    def get(self) -> float:
        return self.value

    def set(self, value: float) -> None:
        self.value = value


class Dynamic:
    """A helper whose attributes do not exist."""

    def __init__(self) -> None:
        self._all = {"value": 1.0}

    def __getattr__(self, name: str) -> float:
        return self._all[name]

    def get(self) -> float:
        return self.value

    def set(self, value: float) -> None:
        self._all["value"] = value


class Delegating(Dynamic):
    """A helper that looks its attributes up in another object, by names that it computes."""

    def __init__(self) -> None:
        self._inner = Plain()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def set(self, value: float) -> None:
        self._inner.value = value


class Nested:
    """A property that gives an object, of which an attribute is read."""

    def __init__(self) -> None:
        self._hidden = Plain()

    @property
    def schedule(self) -> Plain:
        return self._hidden

    def get(self) -> float:
        return self.schedule.value

    def set(self, value: float) -> None:
        self._hidden.value = value


class Entry:
    """An entry of a dictionary in a list."""

    def __init__(self) -> None:
        self._all = [{"value": 1.0}]

    def get(self) -> float:
        return self._all[0]["value"]

    def set(self, value: float) -> None:
        self._all[0]["value"] = value


class Array:
    """A NumPy array that is written into."""

    def __init__(self) -> None:
        self._all = np.ones(3)

    def get(self) -> float:
        return float(self._all.mean())

    def set(self, value: float) -> None:
        self._all[:] = value


class Field(NamedTuple):
    """An entry of a named tuple."""

    value: float


class Named(Plain):
    """A field of a named tuple that another one takes the place of."""

    def __init__(self) -> None:
        self._all = Field(1.0)

    def get(self) -> float:
        return self._all.value

    def set(self, value: float) -> None:
        self._all = Field(value)


class Scalar(Plain):
    """A NumPy number."""

    def set(self, value: float) -> None:
        self.value = np.float64(value)


class Written:
    """A tensor that is written into."""

    def __init__(self) -> None:
        self._tensor = torch.ones(())

    def get(self) -> Any:
        return self._tensor

    def set(self, value: float) -> None:
        self._tensor.fill_(value)


class Replaced(Written):
    """A tensor in place of another one."""

    def set(self, value: float) -> None:
        self._tensor = torch.tensor(value)


class Number(Written):
    """A number out of a tensor."""

    def get(self) -> float:
        return float(self._tensor)


class Listed(Written):
    """A number out of a tensor, by way of a list."""

    def get(self) -> Any:
        return self._tensor.reshape(1).tolist()[0]


class Converted(Written):
    """A number out of a tensor, by way of NumPy."""

    def get(self) -> Any:
        return np.asarray(self._tensor).item()


class Closure:
    """A variable of a function."""

    def __init__(self) -> None:
        value = 1.0

        def get() -> float:
            return value

        def set_(new: float) -> None:
            nonlocal value
            value = new

        self.get, self.set = get, set_


class Global:
    """A global."""

    def get(self) -> float:
        return FACTOR

    def set(self, value: float) -> None:
        global FACTOR
        FACTOR = value


class GlobalEntry:
    """An entry of a global dictionary."""

    def get(self) -> float:
        return SETTINGS["factor"]

    def set(self, value: float) -> None:
        SETTINGS["factor"] = value


class OfClass:
    """An attribute of a class."""

    value = 1.0

    def get(self) -> float:
        return self.value

    def set(self, value: float) -> None:
        type(self).value = value


class Descriptor:
    """A descriptor that keeps its values by itself."""

    class Kept:
        def __init__(self) -> None:
            self.values: dict[str, float] = {}

        def __get__(self, instance: Any, owner: Any) -> float:
            return self.values.get("value", 1.0)

    value = Kept()

    def get(self) -> float:
        return self.value

    def set(self, value: float) -> None:
        vars(type(self))["value"].values["value"] = value


class Constant:
    """A constant name given to getattr."""

    def __init__(self) -> None:
        self._value = 1.0

    def get(self) -> float:
        return float(getattr(self, "_value"))  # noqa: B009

    def set(self, value: float) -> None:
        self._value = value


class Computed(Constant):
    """A computed name given to getattr."""

    def get(self) -> float:
        return float(getattr(self, "_" + "value".lower()))


class Dictionary(Constant):
    """The dictionary of an object."""

    def get(self) -> float:
        return float(vars(self)["_value"])


class Getter(Constant):
    """A function in C that reads an attribute."""

    read = operator.attrgetter("_value")

    def get(self) -> float:
        return float(type(self).read(self))


class Partial(Plain):
    """A function with arguments that are bound."""

    def __init__(self) -> None:
        super().__init__()
        self._read = functools.partial(operator.mul, 1.0)

    def get(self) -> float:
        return float(self._read(1.0))

    def set(self, value: float) -> None:
        self._read = functools.partial(operator.mul, value)


class Weak(Plain):
    """A weak reference."""

    def __init__(self) -> None:
        super().__init__()
        self._kept = Plain()
        self._weak = weakref.ref(self._kept)

    def get(self) -> float:
        kept = self._weak()
        assert kept is not None
        return kept.value

    def set(self, value: float) -> None:
        self._kept.value = value


class Switched(Plain):
    """A method that another one takes the place of."""

    def get(self) -> float:
        return self.compute()

    def compute(self) -> float:
        return 1.0

    def set(self, value: float) -> None:
        self.compute = lambda: value  # type: ignore[method-assign]


class Default:
    """A list that is the default of an argument."""

    def get(self, values: list[float] = [1.0]) -> float:  # noqa: B006
        return values[0]

    def set(self, value: float) -> None:
        (values,) = type(self).get.__defaults__ or ()
        values[0] = value


class Passed(Plain):
    """An object in an object that is made anew for each loss."""

    def __init__(self) -> None:
        self._inner = Plain()

    def get(self) -> float:
        return read_of(SimpleContext(self._inner))

    def set(self, value: float) -> None:
        self._inner.value = value


class SimpleContext:
    def __init__(self, inner: Plain) -> None:
        self.inner = inner


def read_of(context: SimpleContext) -> float:
    return context.inner.value


class Cached(Plain):
    """A function whose results are kept, of an argument that changes."""

    @staticmethod
    @functools.lru_cache
    def double(value: float) -> float:
        return 2 * value

    def get(self) -> float:
        return self.double(self.value)


FOLLOWED = [
    *(Plain, Slots, Dynamic, Nested, Entry, Array, Scalar, Written, Replaced, Closure, Global, GlobalEntry, OfClass),
    *(Named, Descriptor, Constant, Partial, Switched, Default, Passed, Cached),
]
REFUSED = [Delegating, Number, Listed, Converted, Computed, Dictionary, Getter, Weak]
