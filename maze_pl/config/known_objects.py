"""Classes and functions that a configuration of unknown origin may name.

Making such an object must not execute code that the arguments choose, apart from other objects that
the configuration may name. So functions are listed one by one; classes are those in packages of
maze_pl whose constructors were reviewed, and a few kinds in the other libraries.
"""

import importlib
import inspect
from typing import Any, Final

LIBRARIES: Final = ("maze_pl", "gymnasium", "torch.nn", "torch.optim")
"""Packages whose classes an untrusted configuration may name."""

FUNCTIONS: Final = frozenset(
    (
        "gymnasium.envs.registration.make",
        "gymnasium.envs.registration.make_vec",
        "maze_pl.envs.arrays.envpool_env.make_envpool_env",
        "maze_pl.envs.cutting_2d.environment.maze_env_factory",
        "maze_pl.envs.cutting_2d.masked_environment.masked_env_factory",
        "maze_pl.envs.cutting_2d.masked_structured_environment.masked_struct_env_factory",
        "maze_pl.envs.cutting_2d.structured_environment.struct_env_factory",
        "maze_pl.envs.gym_env.make_gym_maze_env",
        "maze_pl.envs.job_shop.environment.job_shop_factory",
        "maze_pl.envs.job_shop.structured_environment.structured_job_shop_factory",
        "maze_pl.envs.multi_echelon_stock.environment.stock_factory",
        "maze_pl.envs.multi_echelon_stock.environment.structured_stock_factory",
        "maze_pl.envs.pettingzoo_env.make_pettingzoo_env",
        "maze_pl.envs.ride_hailing.central_environment.central_dispatch_factory",
        "maze_pl.envs.ride_hailing.environment.ride_hailing_factory",
        "maze_pl.envs.vehicle_routing.environment.vehicle_routing_factory",
        "maze_pl.envs.vehicle_routing.structured_environment.structured_vehicle_routing_factory",
        "maze_pl.run_context.given.anything",
        "maze_pl.run_context.given.callback",
        "maze_pl.run_context.given.critic",
        "maze_pl.run_context.given.dataset",
        "maze_pl.run_context.given.engine",
        "maze_pl.run_context.given.logger",
        "maze_pl.run_context.given.networks",
        "maze_pl.run_context.given.policy",
    )
)
"""Functions that make environments, and stand-ins for objects from Python, by their modules."""

PACKAGES: Final = (
    *("agents", "callbacks", "collect.engines", "core.random_policy", "datamodules", "datasets"),
    *("distributions", "envs", "events", "loggers", "modules", "perception", "rllib", "schedules"),
    "search",
)
"""Packages and modules of maze_pl whose public classes may be made with any arguments."""

KINDS: Final = frozenset(
    (
        "gymnasium.core.Env",
        "gymnasium.spaces.space.Space",
        "gymnasium.vector.vector_env.VectorEnv",
        "torch.nn.modules.module.Module",
        "torch.optim.lr_scheduler.LRScheduler",
        "torch.optim.optimizer.Optimizer",
    )
)
"""Base classes of the classes of other libraries."""

_FUNCTIONAL: Final = "torch.nn.functional"
_HOMES_OF_FUNCTIONAL: Final = (_FUNCTIONAL, "torch", "torch._C._nn")
"""Modules of its functions of tensors, some of which come from torch's C++ part."""


def is_of_libraries(path: str) -> bool:
    """True for the path of a part of `LIBRARIES`, and for their own."""
    return any(is_below(path, library) for library in LIBRARIES)


def is_below(path: str, parent: str) -> bool:
    """True if a dotted path is another one, or continues it."""
    return path == parent or path.startswith(f"{parent}.")


def is_known_object(path: str) -> bool:
    """True for a path in `LIBRARIES` that a configuration of unknown origin may name.

    A path that does not exist passes; others report it.
    """
    found = _object(path)
    if found is None:
        return True
    if isinstance(found, type):
        return _is_known_class(found)
    holder, _, name = path.rpartition(".")
    home = getattr(found, "__module__", None)
    if holder == _FUNCTIONAL:
        is_of_tensors = inspect.isroutine(found) and home in _HOMES_OF_FUNCTIONAL
        return is_of_tensors and not name.startswith("_")
    return inspect.isfunction(found) and f"{home}.{found.__qualname__}" in FUNCTIONS


def _is_known_class(kind: type) -> bool:
    """True for a public class in `PACKAGES`, or in another library if it is of one of `KINDS`."""
    module, name = kind.__module__, kind.__qualname__
    if not is_of_libraries(module) or any(part.startswith("_") for part in name.split(".")):
        return False
    if is_below(module, "maze_pl"):
        return any(is_below(module, f"maze_pl.{package}") for package in PACKAGES)
    return any(f"{base.__module__}.{base.__qualname__}" in KINDS for base in kind.__mro__)


def _object(path: str) -> Any:
    """Resolve a path through modules, then attributes; None if it does not exist."""
    parts = path.split(".")
    for n_modules in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:n_modules]))
        except ImportError:
            continue
        for name in parts[n_modules:]:
            found = getattr(found, name, None)
        return found
    return None
