"""State that a loss reads besides its minibatch: found by observing the loss once, then watched.

A traced loss has the values of attributes, globals and closures baked in. One run of the loss is
traced to collect the Python functions that it calls. Every object that can be reached from the
algorithm through names that occur in these functions is watched; lists, dicts and arrays are
watched as a whole. A loss that reads something that cannot be watched, such as a clock, a file, an
iterator or an attribute with a computed name, is not traced.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Callable, Iterable
from functools import partial, partialmethod
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from maze_pl.modules.optimization.code_origin import LIBRARY, MOVING, is_user_code, may_read_state, place_of
from maze_pl.modules.optimization.module_hooks import HOOKS, HOOKS_OF_ALL_MODULES
from maze_pl.modules.optimization.object_kinds import (
    BASES,
    BY_NAME,
    C_FUNCTIONS,
    C_MODULES,
    CONSTANT,
    CONTAINERS,
    IMPURE,
    INDIRECT,
    LARGEST_ARRAY,
    LARGEST_CONTAINER,
)
from maze_pl.modules.optimization.value_detectors import NumberDetector, ValueDetector
from maze_pl.modules.optimization.watch import Watch

Result = TypeVar("Result")

_IMPORT = "<frozen importlib._bootstrap>"
"""File of the functions that run modules while they are imported."""
_MISSING: Any = object()
_CELLS = partial(map, attrgetter("cell_contents"))  # in C, like everything that is called often

# ----------------------------------------------------------------------------------------------------------- observing


class _Refused(Exception):
    """Error for a value that cannot be watched."""


class LossObservation:
    """Observation of a loss: finds the state that it reads, and whether that can be watched.

    Args:
        module: The algorithm.
        opaque: Functions whose reads do not matter, including the reads of functions they call.
        forbidden: Functions with side effects, which a trace would leave out.
        inputs: Objects that are passed to the loss and differ in each call.

    Attributes:
        watch: State that was read.
        refused: Reason why the loss cannot be traced, None if it can.
    """

    def __init__(
        self,
        module: pl.LightningModule,
        opaque: Iterable[types.CodeType],
        forbidden: Iterable[types.CodeType],
        inputs: Iterable[Any],
    ) -> None:
        self.watch = Watch()
        self.refused: str | None = None
        self._module = module
        self._opaque, self._forbidden = set(opaque), set(forbidden)
        self._codes: set[types.CodeType] = set()
        self._files: dict[str, bool] = {}  # file -> whether its functions are examined
        self._names: set[str] = set()
        self._fresh = {id(item) for item in inputs}  # ids of objects that are created in each call
        self._kept: list[Any] = []  # references, so that ids are not reused
        self._visited: set[int] = set()
        self._objects: list[tuple[str, Any]] = []  # objects whose attributes are watched by name
        self._looked_up = 0  # number of objects already examined
        self._in_python: dict[type, bool] = {}

    def run(self, function: Callable[[], Result]) -> Result:
        """Call and observe a function that computes the loss and its gradient."""
        buffers = [(buffer, buffer.clone()) for buffer in self._module.buffers()]
        try:
            self._push_parts()
        except _Refused as reason:
            self.refuse(str(reason))
        previous = sys.gettrace()
        # Only this thread is observed, and on a GPU backward passes, with hooks, run in another one.
        one_thread = torch.autograd.set_multithreading_enabled(False)
        with ValueDetector(self.refuse), NumberDetector(self.refuse), one_thread:
            sys.settrace(self._called)
            try:
                result = function()
            finally:
                sys.settrace(previous)
        self.watch.complete()
        if not all(torch.equal(*pair) for pair in buffers):
            self.refuse("computing the loss changes buffers, such as those of batch normalisation")
        if added := self.watch.added_attribute():
            self.refuse(f"computing the loss adds the attribute {added}")
        if self.refused is None and (change := self.watch.change()) is not None:
            self.refuse(f"computing the loss changes what it reads: {change}")
        return result

    def _push_parts(self) -> None:
        """Watch the module, its parts, and hooks of all modules.

        Raises:
            _Refused: A hook or a part cannot be watched.
        """
        for hooks in HOOKS_OF_ALL_MODULES:
            self._push(hooks, "hooks of all modules")
        for name, part in self._module.named_modules():
            self.watch.remember_entries(part._parameters)
            self.watch.remember_entries(part._buffers)
            self._push(part, f"{type(self._module).__name__}{name and '.'}{name}")

    def refuse(self, reason: str) -> None:
        """Set the reason not to trace; the first one counts."""
        self.refused = self.refused or reason

    # ------------------------------------------------------------------------------------------------------ functions

    def _called(self, frame: types.FrameType, event: str, argument: Any) -> None:
        """Examine a function before it runs."""
        code, caller = frame.f_code, frame.f_back
        if self.refused is not None or not self._is_read(code.co_filename):
            return
        if code in self._opaque or self._is_incidental(code, caller):
            return
        if code in self._forbidden:
            self.refuse(f"computing the loss calls {code.co_qualname}")
        try:
            self._require_known(frame)
            if code not in self._codes:
                self._codes.add(code)
                self._read(code, frame.f_globals)
        except _Refused as reason:
            self.refuse(str(reason))

    def _is_incidental(self, code: types.CodeType, caller: types.FrameType | None) -> bool:
        """True if what a function reads has no effect on the loss.

        It is called by an opaque function, by an import, or, as a part of the standard library, by
        a package whose functions are not examined.
        """
        serves_library = code.co_filename.startswith(LIBRARY)
        while caller is not None and caller.f_code is not LossObservation.run.__code__:
            file = caller.f_code.co_filename
            if caller.f_code in self._opaque or file == _IMPORT:
                return True
            if serves_library and not file.startswith(LIBRARY):
                if not self._is_read(file):
                    return True
                serves_library = False
            caller = caller.f_back
        return False

    def _is_read(self, file: str) -> bool:
        """True if functions of a file may read relevant state."""
        if file not in self._files:
            self._files[file] = may_read_state(file)
        return self._files[file]

    def _require_known(self, frame: types.FrameType) -> None:
        """Refuse a method of an object that was reached in an unknown way.

        Raises:
            _Refused: The frame belongs to such a method.
        """
        code = frame.f_code
        name = code.co_varnames[0] if code.co_argcount else "."
        owner = frame.f_locals.get(name)
        if name.startswith(".") or isinstance(owner, (*CONSTANT, Tensor, type, types.FunctionType, np.ndarray)):
            return
        if code.co_name in ("__init__", "__new__", "__post_init__") or type(owner) in CONTAINERS:
            self._fresh.add(id(owner))
            self._kept.append(owner)
        elif name == "self" and id(owner) not in self._visited | self._fresh and is_user_code(code):
            raise _Refused(f"{place_of(code)} is called on a {type(owner).__name__} that is reached in an unknown way")

    def _read(self, code: types.CodeType, scope: dict[str, Any]) -> None:
        """Watch everything that a function can read through its names."""
        is_user, where = is_user_code(code), place_of(code)
        names, of_globals = set(code.co_names), set[str]()
        instructions = list(dis.get_instructions(code))
        for index, instruction in enumerate(instructions):
            name = instruction.argval
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                of_globals.add(name)
                if is_user and name in BY_NAME and name not in scope:
                    names.add(_constant_name(instructions[index:], f"{where} calls {name} with a computed name"))
            elif instruction.opname == "IMPORT_NAME":
                self._imported(name, scope, names, where, is_user)
        if is_user:
            impure = sorted((of_globals & IMPURE - scope.keys()) | (names & INDIRECT))
            if impure:
                raise _Refused(f"{where} uses {impure[0]}, whose outcome cannot be followed")
        for name in of_globals & scope.keys():
            self._global(scope, name, names, where, is_user)
        new = names - self._names
        self._names |= new
        if new:
            for label, item in self._objects[: self._looked_up]:
                self._attributes(label, item, new)
        self._look_up()

    def _imported(self, name: str, scope: dict[str, Any], names: set[str], where: str, is_user: bool) -> None:
        if module := sys.modules.get(name) or sys.modules.get(f"{scope.get('__package__')}.{name}"):
            self._module_entries(module, names, where, is_user)
        elif is_user:
            raise _Refused(f"{where} imports {name}")

    def _global(self, scope: dict[str, Any], name: str, names: set[str], where: str, is_user: bool) -> None:
        value = scope[name]
        if isinstance(value, types.ModuleType):
            self._module_entries(value, names, where, is_user)
        elif is_user or not isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            self._push(self.watch.add_entry(str(scope.get("__name__")), scope, name), f"{name} in {where}")

    def _module_entries(self, module: types.ModuleType, names: set[str], where: str, is_user: bool) -> None:
        """Watch the entries that are read from an imported module."""
        package = module.__name__.partition(".")[0]
        if f"{module.__name__}.".startswith("numpy.random."):
            raise _Refused(f"{where} uses {module.__name__}, whose outcome would be a constant of the trace")
        if package == "torch":
            return
        for name in names & vars(module).keys():
            value = vars(module)[name]
            if isinstance(value, types.ModuleType):
                if value is not module:
                    self._module_entries(value, names - {name}, where, is_user)
            elif package != "numpy":
                self._global(vars(module), name, names, where, is_user)

    # -------------------------------------------------------------------------------------------------------- objects

    def _look_up(self) -> None:
        """Look up all known names in objects found since the last call."""
        while self._looked_up < len(self._objects):
            label, item = self._objects[self._looked_up]
            self._looked_up += 1
            self._attributes(label, item, self._names)

    def _push(self, value: Any, label: str) -> None:
        """Watch a value and its parts.

        Raises:
            _Refused: The value cannot be watched.
        """
        if isinstance(value, CONSTANT) or id(value) in self._visited or id(value) in self._fresh:
            return
        self._visited.add(id(value))
        self._kept.append(value)
        if isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self._push(value.__self__, label)
            self._push(value.__func__, label)
        elif isinstance(value, partial | partialmethod):
            self._push((value.func, value.args, value.keywords), label)
        elif isinstance(value, staticmethod | classmethod):
            self._push(value.__func__, label)
        elif isinstance(value, property):
            self._push(value.fget, label)
        elif isinstance(value, C_FUNCTIONS):
            self._c_function(value, label)
        elif isinstance(value, np.ndarray):
            if value.dtype.hasobject or value.nbytes > LARGEST_ARRAY:
                raise _Refused(f"{label} is an array of {value.nbytes} bytes, too much to compare it each time")
            self.watch.add_array(label, value)
        elif type(value).__name__ == "_lru_cache_wrapper":
            self._push(value.__wrapped__, label)  # eager calls use its cached values too
        elif type(value) not in (Tensor, nn.Parameter, nn.Buffer):  # traces see changes of these
            self._object(value, label)

    def _function(self, value: types.FunctionType) -> None:
        contents = tuple(_CELLS(value.__closure__ or ()))
        if not all(isinstance(content, type) for content in contents):
            self.watch.add(f"a closure of {value.__qualname__}", value.__closure__ or (), _CELLS)
            for name, content in zip(value.__code__.co_freevars, contents, strict=True):
                self._push(content, f"{name} in {value.__qualname__}")
        for default in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()):
            self._push(default, f"a default of {value.__qualname__}")

    def _c_function(self, value: Any, label: str) -> None:
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType | type):
            self._push(owner, label)
            return
        is_function = isinstance(value, types.BuiltinFunctionType)
        home = value.__module__ if is_function else value.__objclass__.__module__
        if isinstance(owner, type):
            home = owner.__module__
        if str(home or "builtins").partition(".")[0] not in C_MODULES:
            raise _Refused(f"{label} is {value.__qualname__} of {home}, whose outcome would be a constant of the trace")

    def _object(self, value: Any, label: str) -> None:
        if isinstance(value, types.ModuleType):
            if value.__name__.partition(".")[0] not in C_MODULES:
                self._objects.append((label, value))
            return
        kind = type(value)
        if not isinstance(value, type) and kind not in CONTAINERS:
            foreign = [base for base in kind.__mro__ if base not in BASES and not self._is_in_python(base)]
            if foreign:
                name = f"{kind.__module__}.{kind.__qualname__}"
                raise _Refused(f"{label} is a {name}, whose changes cannot be noticed")
        if isinstance(value, CONTAINERS):
            if len(value) > LARGEST_CONTAINER:
                raise _Refused(f"{label} has {len(value)} entries, too many to compare them each time")
            if not isinstance(value, tuple | frozenset):
                self.watch.add(label, value, iter)
                if isinstance(value, dict | types.MappingProxyType):
                    self.watch.add(label, value, type(value).values)
            for index, item in enumerate(_contents(value)):
                self._push(item, f"entry {index} of {label}")
        if kind not in CONTAINERS:
            self.watch.moves = self.watch.moves or kind.__module__.startswith(MOVING)
            self._objects.append((label, value))
            self.watch.remember_names(value)

    def _is_in_python(self, kind: type) -> bool:
        """True if a class is written in Python: attributes and entries are all of its state."""
        if kind not in self._in_python:
            in_c = (*C_FUNCTIONS[1:], types.BuiltinFunctionType)
            is_heap = bool(kind.__flags__ & 2**9)
            self._in_python[kind] = is_heap and not any(isinstance(item, in_c) for item in vars(kind).values())
        return self._in_python[kind]

    def _attributes(self, label: str, item: Any, names: set[str]) -> None:
        """Watch attributes of an object, or of its class if the object itself lacks them."""
        spaces: list[Any] = [{} if isinstance(item, type) else getattr(item, "__dict__", {})]
        if isinstance(item, nn.Module):
            own = spaces[0]
            spaces += [own["_parameters"], own["_buffers"], own["_modules"]]
            for contents in (*HOOKS, *({"_modules"} & names)):
                self._push(own[contents], label)
            names = names - {"_parameters", "_buffers", "_modules"}
        found = set[str]()
        for space in spaces:
            for name in names & space.keys():
                found.add(name)
                self._push(self.watch.add_entry(label, space, name), f"{label}.{name}")
        kind = item if isinstance(item, type) else type(item)
        for base in kind.__mro__:
            if self._is_in_python(base):
                for name in (names - found) & vars(base).keys():
                    self._class_attribute(base, name, item, label)

    def _class_attribute(self, base: type, name: str, item: Any, label: str) -> None:
        value = vars(base)[name]
        if isinstance(value, types.MemberDescriptorType):
            if not isinstance(item, type):
                self.watch.add(f"{label}.{name}", [item], partial(_slot, value))
                self._push(_slot(value, [item])[0], f"{label}.{name}")
        elif isinstance(value, types.FunctionType | property | staticmethod | classmethod):
            self._push(value, f"{base.__qualname__}.{name}")
        elif not isinstance(value, types.GetSetDescriptorType):
            entry = self.watch.add_entry(base.__qualname__, vars(base), name)
            self._push(entry, f"{base.__qualname__}.{name}")


def _contents(container: Any) -> tuple[Any, ...]:
    is_mapping = isinstance(container, dict | types.MappingProxyType)
    return (*container, *container.values()) if is_mapping else tuple(container)


def _slot(slot: Any, owner: list[Any]) -> tuple[Any, ...]:
    try:
        return (slot.__get__(owner[0]),)
    except AttributeError:  # the slot is empty
        return (_MISSING,)


def _constant_name(instructions: list[dis.Instruction], problem: str) -> str:
    """Return the attribute name in a call of `getattr` or the like.

    Raises:
        _Refused: The name is not a constant.
    """
    end = next(
        index for index, item in enumerate(instructions) if item.opname in ("PRECALL", "CALL", "CALL_FUNCTION_EX")
    )
    texts = [item.argval for item in instructions[:end] if item.opname == "LOAD_CONST" and isinstance(item.argval, str)]
    simple = all(item.opname.startswith(("LOAD_", "PUSH_NULL")) for item in instructions[:end])
    if not simple or len(texts) != 1:
        raise _Refused(problem)
    return str(texts[0])
