"""Options of RLlib's algorithms: their names, and the ones that maze_pl sets."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from maze_pl.core.class_path import import_object

_SET_HERE: Final = {
    "env": "data.env",
    "env_config": "data.env",
    "observation_space": "data.env",
    "action_space": "data.env",
    "policies": "data.env",
    "policy_mapping_fn": "data.env",
    "is_atari": "data.wrappers",
    "disable_env_checking": "data.check",
    "seed": "seed_everything",
    "gym_env_vectorize_mode": "num_env_runners",
    "evaluation_interval": "data.evaluators",
    "framework_str": "model.networks",
    "enable_rl_module_and_learner": "model.networks",
    "enable_env_runner_and_connector_v2": "model.networks",
    "normalize_actions": "a distribution of model.networks",
    "clip_actions": "a distribution of model.networks",
    "num_atoms": "model.class_path: DQN of maze_pl has no distributional values either",
    "noisy": "epsilon",
    "dueling": "a critic in model.networks",
}
"""Options that would contradict the run, and the ones to use instead."""


OptionValue = bool | int | float | str | list[Any] | dict[str, Any] | None
"""Value of an option."""


class AlgorithmOptions(NamedTuple):
    """An algorithm of RLlib with its options.

    Attributes:
        config_class: Path of RLlib's class of its configuration.
        learns_values: Whether it learns values of actions, as DQN, instead of a policy.
        config: Options by RLlib's names.
        address: Address of a Ray cluster; None starts one on this machine.
    """

    config_class: str
    learns_values: bool
    config: Mapping[str, Any]
    address: str | None


def configuration_of(options: AlgorithmOptions) -> Any:
    """Make RLlib's `AlgorithmConfig`, without environments and modules.

    Args:
        options: The algorithm.

    Raises:
        ValueError: An option does not exist, is set by maze_pl, or RLlib refuses it.
    """
    config = import_object(options.config_class)()
    config.environment(normalize_actions=False, clip_actions=False, disable_env_checking=True)
    config.debugging(log_level="ERROR")
    config.env_runners(num_env_runners=0)
    if options.address is None:  # the processes share the cores of this machine, whatever their number
        config.env_runners(num_cpus_per_env_runner=0)
        config.resources(num_cpus_for_main_process=0)
        config.learners(num_cpus_per_learner=0)
    _apply(config, options.config)
    if options.learns_values:
        config.training(num_atoms=1, dueling=False)
    require_valid(config)
    return config


def require_valid(config: Any) -> None:
    """Raise ValueError if RLlib refuses a configuration."""
    try:
        config.validate()
    except (ValueError, TypeError, AssertionError, AttributeError) as error:
        raise ValueError(f"RLlib's {type(config).__name__} refuses model.config: {error}") from error


def _apply(config: Any, options: Mapping[str, Any]) -> None:
    """Set options of an RLlib algorithm.

    Args:
        config: RLlib's `AlgorithmConfig`.
        options: Name -> value.

    Raises:
        ValueError: There is no option of that name, maze_pl sets it, or it is text instead of a number.
    """
    known = {name for name in vars(config) if not name.startswith("_")} | _settable(type(config))
    for name, value in options.items():
        if name in _SET_HERE:
            raise ValueError(f"model.config.{name} follows from the run: use {_SET_HERE[name]}")
        attribute = "lambda_" if name == "lambda" else name
        if attribute not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            kind = type(config).__name__
            raise ValueError(f"model.config.{name}: RLlib's {kind} has no such option{hint}")
        if value == "None":  # jsonargparse turns the null of a dict's item into text
            value = None
        default = getattr(config, attribute)
        if isinstance(default, int | float) and isinstance(value, str) and value != "auto":
            raise ValueError(f"model.config.{name}={value!r} is text: give a value such as {default}, RLlib's default")
        setattr(config, attribute, value)


def _settable(kind: type) -> set[str]:
    """Return the names of a class's properties that can be set."""
    found = {name: getattr(kind, name, None) for name in dir(kind)}
    return {name for name, value in found.items() if isinstance(value, property) and value.fset is not None}
