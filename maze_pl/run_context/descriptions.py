"""Descriptions of Python values as YAML: names, class paths and arguments, and stand-ins for everything else."""

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import Any, Final

import gymnasium
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger

from maze_pl.agents import TorchActorCritic
from maze_pl.config.given_objects import GIVEN
from maze_pl.core.class_path import import_object
from maze_pl.core.spec import Spec
from maze_pl.modules import AlgorithmModule
from maze_pl.perception.models.automatic_model_composer import AutomaticModelComposer
from maze_pl.runs.part_factories import listed_wrappers
from maze_pl.schedules import Schedule

_STAND_INS: Final = {
    "model": "networks",
    "policy": "policy",
    "model.policy": "policy",
    "critic": "critic",
    "model.critic": "critic",
    "runner": "engine",
    "data.engine": "engine",
    "data.dataset": "dataset",
    "runner.dataset": "dataset",
    "data.demonstrations": "dataset",
    "algorithm.networks": "networks",
    "runner.initial_demonstration_trajectories": "dataset",
}
"""Key -> function of `maze_pl.run_context.given`; all others have `anything`."""
_STAND_INS_OF_LIGHTNING: Final = {Callback: "callback", Logger: "logger"}
"""Class of an object -> function of `maze_pl.run_context.given`, also in lists of them."""
_NOT_ARGUMENTS: Final = ("self", "spec", "actor_critic", "networks")


class ReadyNetworks:
    """Composer of networks that exist already.

    Args:
        actor_critic: The networks.
    """

    def __init__(self, actor_critic: TorchActorCritic) -> None:
        self.actor_critic = actor_critic

    def compose(self, spec: Spec) -> TorchActorCritic:
        """Return the networks."""
        return self.actor_critic


class Descriptions:
    """Describes values as YAML, and keeps the objects that it cannot describe.

    Attributes:
        objects: Name -> object; the name is the key of the option that takes it.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}

    def of(self, key: str, value: Any) -> Any:
        """Return the value of an option as YAML.

        Args:
            key: The group or dotted key that the value was given for.
            value: Plain values, also nested; classes, functions, partial functions, and objects.
        """
        if value is None or isinstance(value, str | bool | int | float):
            return value
        if isinstance(value, Mapping):
            return self._of_mapping(key, value)
        if isinstance(value, list | tuple):
            return [self.of(f"{key}.{index}", item) for index, item in enumerate(value)]
        if isinstance(value, Callback | Logger):
            return self._kept(key, value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self.of(key, {field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
        if isinstance(value, Schedule) and _is_described_by_attributes(value):
            return {"class_path": importable(type(value)), "init_args": self._of_mapping(key, vars(value))}
        if isinstance(value, functools.partial) and not value.args and importable(value.func):
            return {"class_path": importable(value.func), "init_args": self._of_mapping(key, value.keywords)}
        path = importable(value)
        if path is not None:
            return {"class_path": path}
        return self._kept(key, value)

    def _of_mapping(self, key: str, value: Mapping[Any, Any]) -> dict[Any, Any]:
        """Describe a mapping; `_target_` and the other keys are a class path and arguments."""
        described = {name: self.of(f"{key}.{name}", item) for name, item in value.items()}
        if "_target_" not in described:
            return described
        path = described.pop("_target_")
        path = path["class_path"] if isinstance(path, dict) else path
        return {"class_path": path, "init_args": described}

    def _kept(self, key: str, value: Any) -> dict[str, Any]:
        """Keep an object, and return the stand-in for it."""
        self.objects[key] = value
        name = getattr(value, "__qualname__", None)
        description = f"a {type(value).__name__}"
        if name is not None:
            noun = "class" if isinstance(value, type) else "function"
            description = f"the {noun} {name.rpartition('.')[2]}"
        function = _STAND_INS.get(key, "anything")
        for kind, function_of_kind in _STAND_INS_OF_LIGHTNING.items():
            if isinstance(value, kind):
                function = function_of_kind
        return {"class_path": f"{GIVEN}.{function}", "init_args": {"name": key, "description": description}}

    # ----------------------------------------------------------------------------------------------------- groups

    def env(self, value: Any) -> Any:
        """Describe an environment: a name, a class path and arguments, or a function that makes one.

        Raises:
            TypeError: It is an environment, or cannot be called.
        """
        if isinstance(value, gymnasium.Env) or not (isinstance(value, str | Mapping) or callable(value)):
            remedy = "give a function that makes one, such as env=lambda: GymMazeEnv('CartPole-v1')"
            raise TypeError(f"env={value!r} must be a name, a dict, or a callable: {remedy}")
        return self.of("env", value)

    def wrappers(self, value: Any) -> Any:
        """Describe wrappers: a name, or anything that `listed_wrappers` takes.

        Raises:
            TypeError: One is an object that wraps an environment already.
        """
        if isinstance(value, str) and "." not in value:
            return value
        items = listed_wrappers(value)
        for item in items:
            if not (isinstance(item, str | Mapping) or callable(item)):
                expected = "a name, a dict, or callables that wrap an env"
                remedy = "give its class, a functools.partial of it, or a function"
                example = "lambda env: MyWrapper(env)"
                raise TypeError(f"wrappers={value!r} must be {expected}: {remedy}, such as {example}")
        nodes = [self.of(f"wrappers.{index}", item) for index, item in enumerate(items)]
        return [{"class_path": node} if isinstance(node, str) else node for node in nodes]

    def runner(self, value: Any) -> Any:
        """Describe a runner: a name, options of the data module, or an engine."""
        if isinstance(value, str):
            return value
        node = self.of("runner", value)
        is_engine = "class_path" in node
        return {"init_args": {"n_shards": 0, "engine": node}} if is_engine else {"init_args": node}

    def algorithm(self, value: Any) -> Any:
        """Describe an algorithm: a name, a class path and arguments, a class, a partial, or a module.

        The class may also be one that the running script or notebook defines.

        Raises:
            TypeError: It is something else, its class cannot be imported by its name, or a module has
                arguments that cannot be read back from it.
        """
        if isinstance(value, str | Mapping):
            return self.of("algorithm", value)
        if isinstance(value, AlgorithmModule):
            path, arguments = _path_of_algorithm(type(value)), _arguments_of(value)
        elif isinstance(value, functools.partial):
            if value.args:
                fault = f"algorithm={value!r} has arguments without a name"
                raise TypeError(f"{fault}: name them, as in functools.partial(MyAlgorithm, lr=0.001)")
            path, arguments = _path_of_algorithm(value.func), value.keywords
        else:
            return {"class_path": _path_of_algorithm(value)}
        return {"class_path": path, "init_args": self._of_mapping("algorithm", arguments)}


def _path_of_algorithm(value: Any) -> str:
    """Return the class path of an algorithm, also if it is defined in the running script or notebook.

    Raises:
        TypeError: There is none.
    """
    path = _importable_here(value)
    if path is not None:
        return path
    if not isinstance(value, type):
        expected = "a name, a dict, a class, a functools.partial of a class, or a module"
        raise TypeError(f"algorithm={value!r} must be {expected}")
    fault = f"algorithm: {value.__module__}.{value.__qualname__} does not lead to this class"
    raise TypeError(f"{fault}; define it outside of functions, and give its latest definition")


def _arguments_of(module: AlgorithmModule) -> dict[str, Any]:
    """Return the arguments with which to make a module like this one.

    Raises:
        TypeError: Some cannot be read back from it.
    """
    kind = type(module)
    names = [name for name in inspect.signature(kind).parameters if name not in _NOT_ARGUMENTS]
    lost = [name for name in names if name not in module.given_arguments]
    if lost:
        remedy = "give {'class_path': ..., 'init_args': {...}}, or a class, or functools.partial"
        fault = f"its arguments {', '.join(lost)} cannot be written as YAML"
        raise TypeError(f"algorithm={kind.__name__}(...): {fault}: {remedy}")
    arguments = {name: module.given_arguments[name] for name in names}
    if module.actor_critic is not None:
        arguments["networks"] = ReadyNetworks(module.actor_critic)
    elif not isinstance(module.composer, AutomaticModelComposer):
        arguments["networks"] = module.composer
    elif module.hparams.get("networks") == "auto":
        arguments["networks"] = "auto"
    return arguments


def _is_described_by_attributes(schedule: Schedule) -> bool:
    """True if other processes can make a schedule from its class and its attributes, as its base class asks."""
    kind = type(schedule)
    return importable(kind) is not None and vars(schedule).keys() == inspect.signature(kind).parameters.keys()


def importable(value: Any) -> str | None:
    """Return the class path by which other processes can import a class or function; None if they cannot."""
    path = _importable_here(value)
    return None if path is None or path.startswith("__main__.") else path


def _importable_here(value: Any) -> str | None:
    """Return the class path by which this process can import a class or function; None if it cannot."""
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if module is None or not isinstance(name, str) or "<" in name:
        return None
    path = f"{module}.{name}"
    try:
        found = import_object(path)
    except (ImportError, AttributeError, ValueError):
        return None
    return path if found is value else None
