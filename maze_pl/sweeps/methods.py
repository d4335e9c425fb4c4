"""Samplers, pruners and runners by the names that they have in sweep files."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from maze_pl.config.search_path import ConfigurationError, dump, suggestion
from maze_pl.sweeps.search_space import Parameter, Range, grid

_NOTHING: Final[dict[str, type]] = {}
SAMPLERS: Final[dict[str, dict[str, type]]] = {
    "tpe": {"n_startup_trials": int, "n_ei_candidates": int, "multivariate": bool, "group": bool},
    "cmaes": {"n_startup_trials": int, "sigma0": float, "popsize": int, "with_margin": bool, "lr_adapt": bool},
    "random": _NOTHING,
    "nsga2": {"population_size": int, "mutation_prob": float, "crossover_prob": float, "swapping_prob": float},
    "grid": _NOTHING,
}
"""Name of a sampler -> its options."""
PRUNERS: Final[dict[str, dict[str, type]]] = {
    "none": _NOTHING,
    "median": {"n_startup_trials": int, "n_warmup_steps": int, "interval_steps": int, "n_min_trials": int},
    "hyperband": {"min_resource": int, "max_resource": int, "reduction_factor": int, "bootstrap_count": int},
}
"""Name of a pruner -> its options."""
RUNNERS: Final[dict[str, dict[str, type]]] = {"processes": _NOTHING, "ray": {"address": str}}
"""Name of a runner -> its options."""
_LEAST: Final[dict[str, dict[str, int]]] = {
    "tpe": {"n_ei_candidates": 1},
    "cmaes": {"popsize": 2},
    "hyperband": dict(min_resource=1, max_resource=1, reduction_factor=2, bootstrap_count=0),
}
"""Name -> option -> least value, where Optuna does not check it until a trial needs it."""
_INSTALL: Final = 'a sweep needs Optuna: pip install "maze-pl[sweep]"'
_SEEDS: Final = 2**32


@dataclass(frozen=True)
class Method:
    """A sampler, a pruner or a runner.

    Attributes:
        name: Its name.
        options: Its options.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


def parse_method(key: str, content: Any, known: Mapping[str, Mapping[str, type]]) -> Method:
    """Return the method that a sweep file names.

    Args:
        key: Key of the file.
        content: A name, or a mapping with `name` and options.
        known: Name -> option -> type.

    Raises:
        ConfigurationError: The name or an option is unknown, or an option has the wrong type.
    """
    options = dict(content) if isinstance(content, Mapping) else {"name": content}
    name = options.pop("name", None)
    if name not in known:
        near = suggestion(str(name), known)
        raise ConfigurationError(f"{key} must be one of {', '.join(known)}; got {dump(name)}{near}")
    for option, value in options.items():
        if option not in known[name]:
            has = f"it has {', '.join(known[name])}" if known[name] else "it has no options"
            near = suggestion(str(option), known[name])
            raise ConfigurationError(f"{key} {name} has no option {option!r}; {has}{near}")
        wanted = known[name][option]
        is_number = wanted is float and isinstance(value, int)
        if not (isinstance(value, wanted) or is_number) or (wanted is not bool and isinstance(value, bool)):
            raise ConfigurationError(f"{key}.{option} must be of type {wanted.__name__}; got {dump(value)}")
    return Method(str(name), options)


def require_sampler_fits(sampler: Method, parameters: Sequence[Parameter], n_objectives: int) -> None:
    """Refuse a sampler that cannot search these options, or not with several objectives.

    Raises:
        ConfigurationError: The sampler does not fit.
    """
    if sampler.name == "cmaes":
        n_ranges = sum(isinstance(parameter, Range) and not parameter.when for parameter in parameters)
        if n_ranges < 2:
            fault = f"sampler cmaes needs at least 2 ranges without `when`, but search has {n_ranges}"
            raise ConfigurationError(f"{fault}: use tpe")
        if n_objectives > 1:
            raise ConfigurationError("sampler cmaes has a single objective: use nsga2 for several")


def optuna_module() -> Any:
    """Return the package `optuna`, which then reports errors only.

    Raises:
        ImportError: It is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise ImportError(_INSTALL) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def make_sampler(sampler: Method, parameters: Sequence[Parameter], seed: int, trial: int) -> Any:
    """Return the sampler of one trial.

    Each trial has its own random numbers, which depend on the seed of the sweep and the trial's
    number only, so that a sweep that was interrupted continues as if it was not.

    Args:
        sampler: Name and options.
        parameters: The searched options.
        seed: Seed of the sweep.
        trial: Number of the trial.
    """
    optuna = optuna_module()
    if sampler.name == "grid":
        return _grid_sampler(parameters, trial)
    makers: dict[str, Callable[..., Any]] = {
        "tpe": optuna.samplers.TPESampler,
        "cmaes": optuna.samplers.CmaEsSampler,
        "random": optuna.samplers.RandomSampler,
        "nsga2": optuna.samplers.NSGAIISampler,
    }
    maker = makers[sampler.name]
    options = dict(sampler.options)
    if sampler.name == "cmaes":
        options["warn_independent_sampling"] = False  # choices and conditional options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # chosen by the user
        return maker(seed=(seed * 1_000_003 + trial) % _SEEDS, **options)


def _grid_sampler(parameters: Sequence[Parameter], trial: int) -> Any:
    """Return a sampler that gives the values of a combination of the grid."""
    optuna = optuna_module()
    combination = grid(parameters)[trial]
    base: Any = optuna.samplers.BaseSampler

    class Combination(base):  # type: ignore[misc]
        """One combination of values."""

        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            return {}

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
            return {}

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            value = combination[param_name]
            is_choice = isinstance(param_distribution, optuna.distributions.CategoricalDistribution)
            return dump(value) if is_choice else value

    return Combination()


def make_pruner(pruner: Method) -> Any:
    """Return the pruner of a sweep."""
    optuna = optuna_module()
    makers: dict[str, Callable[..., Any]] = {
        "none": optuna.pruners.NopPruner,
        "median": optuna.pruners.MedianPruner,
        "hyperband": optuna.pruners.HyperbandPruner,
    }
    return makers[pruner.name](**pruner.options)


def require_valid_options(sampler: Method, pruner: Method, parameters: Sequence[Parameter]) -> None:
    """Refuse options of a sampler or a pruner that Optuna would refuse, before anything is written.

    Raises:
        ConfigurationError: An option is out of range, or contradicts another one.
    """
    for key, method in (("sampler", sampler), ("pruner", pruner)):
        for option, least in _LEAST.get(method.name, {}).items():
            value = method.options.get(option, least)
            if value < least:
                raise ConfigurationError(f"{key}.{option} must be at least {least}; got {value}")
        try:
            if key == "sampler":
                make_sampler(method, parameters, seed=0, trial=0)
            else:
                make_pruner(method)
        except ValueError as error:
            raise ConfigurationError(f"{key} {method.name}: {error}") from error
