"""Sweep files: what is searched, how, and what is compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

from maze_pl.config.assembling import SWEEP_FILE as SWEEP_FILE
from maze_pl.config.option_types import option_name
from maze_pl.config.search_path import ConfigurationError, dump, dump_lines, parse, read, resolve, suggestion
from maze_pl.config.summary import configured_value
from maze_pl.sweeps.methods import PRUNERS, RUNNERS, SAMPLERS, Method, parse_method, require_sampler_fits
from maze_pl.sweeps.option_places import in_order, refuse_same_values, spelled_alike
from maze_pl.sweeps.plain_values import plain
from maze_pl.sweeps.search_space import Parameter, grid, parse_search

Direction = Literal["maximize", "minimize"]
Which = Literal["best", "last"]

_KEYS: Final[dict[str, Any]] = {
    "config": None,
    "options": {},
    "search": None,
    "objective": "eval/return",
    "sampler": "tpe",
    "pruner": "none",
    "n_trials": None,
    "n_seeds": 1,
    "n_parallel": 1,
    "runner": "processes",
    "max_failures": 3,
    "seed": 0,
}
"""Keys of a sweep file, and their defaults."""
_MONITORED: Final = {"monitor": "eval/return", "mode": "max"}
"""Defaults of `best_checkpoint`, which fit the default objective."""
CHANGEABLE: Final = ("n_trials", "n_parallel", "runner", "max_failures")
"""Keys that may change when a sweep is continued."""
_RESERVED: Final = (
    *("config", "c", "run_dir", "resume", "warm_start", "warm-start", "run", "ckpt_path", "experiment", "trust"),
    *("seeds", "seeds.parallel", "print_model", "print_config", "hyperparameters"),
)
"""Options of `maze-pl fit` that a sweep sets, or that do not belong to a run's configuration."""


@dataclass(frozen=True)
class Objective:
    """A value by which trials are compared.

    Attributes:
        metric: Its name in `metrics.csv`, or `eval/return`, or `eval/kpi/<name>`.
        direction: Whether it is maximized or minimized.
        which: Whether the best or the last evaluation of a run counts.
    """

    metric: str
    direction: Direction = "maximize"
    which: Which = "best"


@dataclass(frozen=True)
class SweepPlan:
    """A sweep.

    Attributes:
        config: Names of the configurations that all runs start from.
        options: Option of `maze-pl fit` -> its value in all runs.
        parameters: The searched options.
        objectives: What is compared; the storage has one value for each.
        sampler: How values are chosen.
        pruner: Which trials are stopped early.
        n_trials: Number of trials, including pruned and failed ones.
        n_seeds: Number of seeds with which each trial is trained.
        n_parallel: Number of trials at a time.
        runner: Where the processes run.
        max_failures: Number of failed trials that the sweep tolerates.
        seed: Determines the sampler's random numbers.
        content: The content of the sweep file.
        has_yaml_texts: Whether texts among the values of options are YAML, as in sweeps of version 0.2.0.
    """

    config: tuple[str, ...]
    options: Mapping[str, Any]
    parameters: tuple[Parameter, ...]
    objectives: tuple[Objective, ...]
    sampler: Method
    pruner: Method
    n_trials: int
    n_seeds: int
    n_parallel: int
    runner: Method
    max_failures: int
    seed: int
    content: Mapping[str, Any] = field(repr=False)
    has_yaml_texts: bool = False

    @property
    def identity(self) -> str:
        """Everything that must not change when the sweep is continued, as a text."""
        fixed = {key: value for key, value in self.content.items() if key not in CHANGEABLE}
        return dump(dict(sorted(fixed.items())))

    @property
    def text(self) -> str:
        """The content of the sweep file as YAML."""
        return dump_lines(dict(self.content))

    def command(self, assignment: Mapping[str, Any], run_dir: Path) -> list[str]:
        """Return the command line of a trial after `maze-pl`, without `--trust`.

        Args:
            assignment: Searched option -> value.
            run_dir: Its run directory.
        """
        searched = dump(list(map(option_name, assignment)))
        return [*self.fit(assignment), f"--hyperparameters={searched}", "--run_dir", str(run_dir)]

    def _monitored(self, command: Sequence[str]) -> list[str]:
        """Return the options by which `best.ckpt` holds the policy that the objective judges.

        None are needed if the last evaluation counts, for values that are not those of evaluations,
        if the sweep itself has options of `best_checkpoint`, and for the default objective unless
        the configuration monitors another value.

        Args:
            command: The command line of a trial without these options.
        """
        objective = self.objectives[0]
        source, slash, _ = objective.metric.partition("/")
        is_evaluated = bool(slash) and source != "train" and not source.startswith("train_")
        options = [*self.options, *(parameter.option for parameter in self.parameters)]
        is_given = any(option.partition(".")[0] == "best_checkpoint" for option in options)
        if objective.which != "best" or is_given or not is_evaluated:
            return []
        mode = "min" if objective.direction == "minimize" else "max"
        wanted = {"monitor": objective.metric, "mode": mode}
        if wanted == _MONITORED and not _changes_monitor(command):
            return []
        return ["--best_checkpoint.monitor", objective.metric, "--best_checkpoint.mode", mode]

    def fit(self, assignment: Mapping[str, Any]) -> list[str]:
        """Return the command line after `maze-pl` that trains with values of the searched options.

        Args:
            assignment: Searched option -> value.
        """
        start = ["fit"]
        for name in self.config:
            start += ["--config", name]
        words: list[str] = []
        for option, value in in_order(self.options, assignment):
            is_yaml = self.has_yaml_texts and isinstance(value, str)
            words += [f"--{option}", value if is_yaml else dump(value)]
        seeds = ["--seeds", str(self.n_seeds)] if self.n_seeds > 1 else []
        return [*start, *self._monitored([*start, *words]), *words, *seeds]


def _changes_monitor(command: Sequence[str]) -> bool:
    """True if the configuration of a run chooses `best.ckpt` by another value than the default."""
    try:  # with a run directory, to which other options may refer
        configured = configured_value([*command, "--run_dir", "run"], "best_checkpoint")
    except ConfigurationError:  # the file is gone, so that no run starts from it
        return False
    if not isinstance(configured, Mapping):
        return False
    return any(configured.get(key, default) != default for key, default in _MONITORED.items())


def read_content(sweep: str | Path | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the content of a sweep file, with absolute paths of its configurations, and the sweep's name.

    Args:
        sweep: Path or name of the file, or its content.

    Raises:
        ConfigurationError: There is no such file, or it is not a mapping.
    """
    if isinstance(sweep, Mapping):
        return dict(sweep), "sweep"
    path = resolve(str(sweep))
    content = read(path)
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} is not a sweep: expected a mapping with `search`")
    if "search" not in content and {"model", "data", "trainer", "base"} & set(content):
        fault = f"{path} is the configuration of a run, not a sweep"
        raise ConfigurationError(f"{fault}: a sweep file names it, as in `config: {path.stem}`")
    return with_absolute_paths(content, path.parent), path.stem


def with_absolute_paths(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the content of a sweep file with absolute paths of the configurations in a folder.

    Args:
        content: The content, not checked yet.
        folder: The folder that their paths are relative to; other paths and names stay as they are.
    """
    names = content.get("config")
    if isinstance(names, list | tuple):
        return {**content, "config": [_absolute(name, folder) for name in names]}
    return {**content, "config": _absolute(names, folder)} if isinstance(names, str) else dict(content)


def _absolute(name: Any, folder: Path) -> Any:
    """Return the absolute path of a configuration in a folder; other names unchanged."""
    path = folder / str(name)
    return str(path.resolve()) if path.suffix and path.is_file() else name


def with_changes(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a sweep file with options of the command line, not checked yet.

    Args:
        content: The content.
        changes: Key -> value; `search.<option>` and `options.<option>` change one of them, after
            the keys themselves. An option that the content spells with `init_args` may omit it.

    Raises:
        ConfigurationError: An option of `search` or `options` is changed, and that is not a mapping.
    """
    changed = dict(content)
    for key in sorted(changes, key=lambda key: "." in key):
        value = changes[key]
        group, _, option = key.partition(".")
        if group in ("search", "options") and option:
            present = changed.get(group) or {}
            if not isinstance(present, Mapping):
                raise ConfigurationError(
                    f"{key} cannot be set: {group} must map options to values; got {dump(present)}"
                )
            known = next((name for name in present if spelled_alike(str(name), option)), option)
            changed[group] = {**present, known: value}
        else:
            changed[key] = value
    return changed


def parse_changes(words: Sequence[str]) -> dict[str, Any]:
    """Return the changes that options of the command line make, such as `--n_trials 10`.

    Several `--config` are a list, as for `maze-pl fit`.

    Raises:
        ConfigurationError: An option does not exist, has no value, or is given twice.
    """
    changes: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        group = name.partition(".")[0]
        is_known = name in _KEYS or (group in ("search", "options") and group != name)
        if not word.startswith("--") or not is_known:
            known = [f"--{key}" for key in (*_KEYS, "run_dir", "resume", "show", "trust")]
            near = suggestion(word, known) or f"; `maze-pl sweep` has {', '.join(known)}"
            raise ConfigurationError(f"there is no option {word!r}{near}")
        if not equals and not rest:
            raise ConfigurationError(f"--{name} needs a value")
        content = parse(value if equals else rest.pop(0))
        if name == "config" and name in changes:
            changes[name] = [*_as_list(changes[name]), *_as_list(content)]
            continue
        for other in changes:
            if spelled_alike(other, name):
                named = f"--{name} is" if other == name else f"--{other} and --{name} are the same, which is"
                raise ConfigurationError(f"{named} given twice: give it once")
        changes[name] = content
    return changes


def _as_list(value: Any) -> list[Any]:
    """Return a list of one or several values."""
    return value if isinstance(value, list) else [value]


def parse_sweep(content: Mapping[str, Any]) -> SweepPlan:
    """Check the content of a sweep file, except for the options of runs that it names.

    Args:
        content: The content; from Python, also with numbers and arrays of NumPy.

    Raises:
        ConfigurationError: Something is missing, unknown or invalid, or contradicts itself.
    """
    content = plain(content)
    for key in content:
        if key not in _KEYS:
            known = f"a sweep has {', '.join(_KEYS)}"
            raise ConfigurationError(f"there is no key {key!r} in a sweep; {known}{suggestion(str(key), _KEYS)}")
    values = {**_KEYS, **content}
    names = values["config"]
    config = tuple([names] if isinstance(names, str) else names or [])
    if not config or not all(isinstance(name, str) for name in config):
        raise ConfigurationError(f"config must name a configuration, such as ppo_cartpole; got {dump(names)}")
    options = values["options"] or {}
    if not isinstance(options, Mapping):
        raise ConfigurationError(f"options must map options of `maze-pl fit` to values; got {dump(options)}")
    options = {str(option).removeprefix("--"): value for option, value in options.items()}
    parameters = tuple(parse_search(values["search"]))
    sampler = parse_method("sampler", values["sampler"], SAMPLERS)
    pruner = parse_method("pruner", values["pruner"], PRUNERS)
    runner = parse_method("runner", values["runner"], RUNNERS)
    objectives = _objectives(values["objective"])
    n_seeds = _count("n_seeds", values["n_seeds"], 1)
    _refuse_reserved(options, parameters, n_seeds)
    require_sampler_fits(sampler, parameters, len(objectives))
    if len(objectives) > 1 and pruner.name != "none":
        raise ConfigurationError(f"pruner={pruner.name} compares a single value: omit it, or keep one objective")
    n_trials = values["n_trials"]
    if sampler.name == "grid":
        n_combinations = len(grid(parameters))
        n_trials = n_combinations if n_trials is None else min(n_combinations, _count("n_trials", n_trials, 1))
    elif n_trials is None:
        raise ConfigurationError("n_trials is missing: give the number of trials, or `sampler: grid`")
    return SweepPlan(
        config=config,
        options=options,
        parameters=parameters,
        objectives=objectives,
        sampler=sampler,
        pruner=pruner,
        n_trials=_count("n_trials", n_trials, 1),
        n_seeds=n_seeds,
        n_parallel=_count("n_parallel", values["n_parallel"], 1),
        runner=runner,
        max_failures=_count("max_failures", values["max_failures"], 0),
        seed=_count("seed", values["seed"], 0),
        content=content,
    )


def _refuse_reserved(options: Mapping[str, Any], parameters: Sequence[Parameter], n_seeds: int) -> None:
    """Refuse options that a sweep sets itself, and those that are both fixed and searched."""
    searched = [parameter.option for parameter in parameters]
    for option in [*options, *searched]:
        if option in _RESERVED:
            raise ConfigurationError(f"{option} cannot be an option of a sweep's runs: the sweep sets it, or has a key")
    refuse_same_values(list(options), searched)
    if n_seeds > 1 and "seed_everything" in searched:
        raise ConfigurationError(f"n_seeds={n_seeds} counts from seed_everything, which cannot be searched then")


def _objectives(content: Any) -> tuple[Objective, ...]:
    """Return the objectives of a sweep file."""
    entries = content if isinstance(content, list) else [content]
    if not entries:
        raise ConfigurationError("objective is empty: name a metric such as eval/return")
    objectives = tuple(_objective(entry, len(entries) > 1) for entry in entries)
    metrics = [objective.metric for objective in objectives]
    for metric in metrics:
        if metrics.count(metric) > 1:
            raise ConfigurationError(f"objective has {metric} twice")
    return objectives


def _objective(content: Any, is_one_of_several: bool) -> Objective:
    """Return an objective."""
    if isinstance(content, str):
        content = {"metric": content}
    keys = ("metric", "direction", "which")
    if not isinstance(content, Mapping) or not isinstance(content.get("metric"), str):
        expected = "the name of a metric such as eval/return, or a mapping with metric, direction and which"
        raise ConfigurationError(f"objective must be {expected}; got {dump(content)}")
    for key in content:
        if key not in keys:
            raise ConfigurationError(f"objective has the unknown key {key!r}{suggestion(str(key), keys)}")
    direction = content.get("direction", "maximize")
    which = content.get("which", "last" if is_one_of_several else "best")
    for name, value, allowed in (
        ("direction", direction, get_args(Direction)),
        ("which", which, get_args(Which)),
    ):
        if value not in allowed:
            raise ConfigurationError(f"objective: {name} must be {' or '.join(allowed)}; got {dump(value)}")
    if is_one_of_several and which == "best":
        fault = "the best evaluations by several objectives are of different policies"
        raise ConfigurationError(f"objective {content['metric']}: {fault}: use `which: last`")
    return Objective(content["metric"], direction, which)


def _count(name: str, value: Any, least: int) -> int:
    """Return a count."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{name} must be a whole number of at least {least}; got {dump(value)}")
    return value
