"""Translation of Maze's configuration into command lines of `maze-pl`.

Groups (`env=gym_env`, `algorithm=ppo`) and dotted keys (`algorithm.lr=0.001`) become options of
`maze-pl fit` or `maze-pl rollout`. Nothing is assembled here: `maze_pl.config.assembling` does that
with the translated command line, as with any other one.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from maze_pl.config.search_path import ConfigurationError, dump, find, known_names, read, resolve, suggestion
from maze_pl.config.summary import configured_value
from maze_pl.migration.documented_names import (
    ENVIRONMENT_IDS,
    FIT,
    FIT_BY_ALGORITHM,
    OWN_OPTIONS,
    ROLLOUT,
    VALUES,
    WITH_OTHER_NETWORKS,
)

TRAINING = "conf_train"
ROLLOUTS = "conf_rollout"
"""Root configurations, and the folder of those with the documented defaults of each algorithm."""
_DEFAULT_ALGORITHM = "es"
_DEFAULT_ENV = "gym_env"
_RECORDED_THERE = "trajectory_data"
_RECORDED_HERE = "trajectories"
"""Folders with the recorded episodes of a rollout."""
_COMPONENTS = ("env", "wrappers", "runner", "model", "critic", "policy")  # in the order in which they take effect


def fit_options(groups: Mapping[str, Any], keys: Mapping[str, Any], root: str = TRAINING) -> list[str]:
    """Return the options of `maze-pl fit` for a training run.

    Args:
        groups: Group -> name of a component, or its class path and arguments.
        keys: Dotted key -> value; texts are YAML.
        root: `conf_train`, or the name of another configuration that the run starts from.

    Raises:
        ConfigurationError: A group, a component or a key does not exist, or two keys are one option.
    """
    keys = dict(keys)
    words = [*_start(groups, root), *component_options(groups)]
    algorithm = _algorithm_of(["fit", *words, "--run_dir", "run"])  # to which other options may refer
    if isinstance(groups.get("model"), str):
        for option, value in WITH_OTHER_NETWORKS.get(algorithm, {}).items():
            words += [f"--{option}", dump(value)]
    target = keys.pop("env._target_", None)
    if target is not None:
        words += ["--data.env", dump(_env_node(groups, target))]
    return [*words, *_options(keys, algorithm)]


def component_options(groups: Mapping[str, Any]) -> list[str]:
    """Return the options of `maze-pl fit` for components besides algorithm and experiment."""
    words = []
    for group in _COMPONENTS:
        if group in groups:
            option = "data" if group == "runner" else FIT[group]
            words += [f"--{option}", _component(group, groups[group])]
    return words


def resume_options(run_dir: str, groups: Mapping[str, Any], keys: Mapping[str, Any]) -> list[str]:
    """Return the options of `maze-pl fit` that continue a run with other components and values.

    Args:
        run_dir: Directory of the run.
        groups: As in `fit_options`.
        keys: As in `fit_options`; they also change the given components.
    """
    words = ["--resume", run_dir, *component_options(groups)]
    if "algorithm" in groups:
        words += ["--model", _component("algorithm", groups["algorithm"])]
    return [*words, *_options(keys, _algorithm_of(["fit", *words]))]


def _algorithm_of(command: Sequence[str]) -> str:
    """Return the name of the class of algorithm that a command configures; "" if it configures none."""
    model = configured_value(command, "model")
    path = model.get("class_path", "") if isinstance(model, dict) else ""
    return str(path).rpartition(".")[2]


def _options(keys: Mapping[str, Any], algorithm: str) -> list[str]:
    """Return the options that keys stand for with an algorithm.

    Raises:
        ConfigurationError: There is no such option, or two keys stand for the same one.
    """
    table = {**FIT, **FIT_BY_ALGORITHM.get(algorithm, {})}
    words = []
    named: dict[str, str] = {}
    for key, value in keys.items():
        option = translated_key(key, table)
        if option in named:
            both = f"{named[option]} and {key} both stand for --{option}"
            raise ConfigurationError(f"{both}: give values to one of them")
        named[option] = key
        if (option, str(value)) == ("data.evaluators.eval.n_episodes", "0"):  # held-out data only
            option, value = "data.evaluators", "{}"
        words += [f"--{option}", option_value(option, value)]
    return words


def rollout_options(groups: Mapping[str, Any], keys: Mapping[str, Any]) -> list[str]:
    """Return the options of `maze-pl rollout`; see `fit_options`."""
    keys = dict(keys)
    run_dir = keys.pop("input_dir", None) or None
    words = [] if run_dir is None else [str(run_dir)]
    if groups.get("policy") == "torch_policy" and run_dir is None:
        raise ConfigurationError("policy=torch_policy needs the directory of its run: add input_dir=RUN_DIR")
    if "env" in groups or run_dir is None or "env._target_" in keys:
        words += ["--env", _component("env", groups.get("env", _DEFAULT_ENV))]
    target = keys.pop("env._target_", None)
    if target is not None:
        words[-1] = dump(_env_node(groups, target))
    if "wrappers" in groups:
        words += ["--wrappers", _component("wrappers", groups["wrappers"])]
    if groups.get("policy", "torch_policy") != "torch_policy":
        words += ["--policy", _component("policy", groups["policy"])]
    elif run_dir is None:
        words += ["--policy", "policy/random_policy"]
    if "runner" in groups:
        words += ["--runner", _component("runner", groups["runner"])]
    for group in ("model", "critic"):
        if group in groups and run_dir is None:
            raise ConfigurationError(f"{group}={groups[group]} has no use in a rollout without input_dir: omit it")
    for group in ("algorithm", "experiment"):
        if group in groups:
            raise ConfigurationError(f"{group}={groups[group]} belongs to training: add -cn {TRAINING}, or omit it")
    if str(keys.get("runner.render")).lower() == "true" and _is_of_gymnasium(words):
        keys.setdefault("env.dict_kwargs.render_mode", "rgb_array")
    for key, value in keys.items():
        option = translated_key(key, ROLLOUT, own=())
        words += [f"--{option}", option_value(option, value)]
    return words


def _is_of_gymnasium(words: Sequence[str]) -> bool:
    """True if a rollout plays in an environment made by gymnasium, which needs a render mode."""
    try:
        env = configured_value(["rollout", *words], "env")
        data = configured_value(["rollout", *words], "data")
    except ConfigurationError:  # maze-pl reports what is wrong
        return False
    if env is None:
        env = (data or {}).get("init_args", {}).get("env")
    return isinstance(env, dict) and str(env.get("class_path")).endswith(".make_gym_maze_env")


def translated_key(key: str, table: Mapping[str, str], own: tuple[str, ...] = OWN_OPTIONS) -> str:
    """Return the option that a dotted key stands for.

    Args:
        key: Such as `algorithm.lr`.
        table: Keys -> options; the longest key that fits counts.
        own: Options that may also be given under their own names.

    Raises:
        ConfigurationError: No key of the table fits; names the nearest ones.
    """
    parts = key.split(".")
    for length in range(len(parts), 0, -1):
        known = ".".join(parts[:length])
        if known in table:
            return ".".join([table[known], *parts[length:]])
    if parts[0] in own:
        return key
    names = {name.split(".")[0] for name in table} | {*own}
    if parts[0] in names:
        names = {name for name in table if name.startswith(f"{parts[0]}.")}
    near = suggestion(key, names) or f"; known are {', '.join(sorted(names))}"
    raise ConfigurationError(f"there is no option {key!r}{near}")


def _start(groups: Mapping[str, Any], root: str) -> list[str]:
    """Return the words that name the configuration which a run starts from, and its algorithm."""
    algorithm = groups.get("algorithm")
    experiment = groups.get("experiment")
    words: list[str] = []
    if experiment is not None:
        _refuse_search(named_component("experiment", experiment))
    if root != TRAINING:
        words = ["--config", root]
    elif experiment is None or not _is_complete(named_component("experiment", experiment)):
        name = algorithm if isinstance(algorithm, str) and algorithm else _DEFAULT_ALGORITHM
        if isinstance(algorithm, Mapping):
            name = str(algorithm.get("class_path", "")).rpartition(".")[2].lower()
            name = name if find(f"{TRAINING}/{name}") else "ppo"
        words = ["--config", named_component(TRAINING, name, "algorithm")]
    if experiment is not None:
        words += ["--config", named_component("experiment", experiment)]
    is_chosen = isinstance(algorithm, str) and algorithm and f"{TRAINING}/{algorithm}" not in words
    if is_chosen or isinstance(algorithm, Mapping):
        words += ["--model", _component("algorithm", algorithm)]
    return words


def _refuse_search(name: str) -> None:
    """Raise ConfigurationError for the file of a sweep, which describes several runs."""
    content = read(resolve(name))
    if isinstance(content, dict) and "search" in content:
        raise ConfigurationError(f"{name} is a search: use `maze-pl sweep {name}`, or maze_pl.sweep({name!r})")


def _is_complete(name: str) -> bool:
    """True if a run can start from a configuration: it has a base, or both model and data."""
    path = find(name)
    content = None if path is None else read(path)
    return isinstance(content, dict) and ("base" in content or {"model", "data"} <= content.keys())


def _component(group: str, chosen: Any) -> str:
    """Return the value of an option for a component that was chosen by name or described."""
    return named_component(group, chosen) if isinstance(chosen, str) else dump(chosen)


def named_component(folder: str, name: Any, group: str | None = None) -> str:
    """Return the name of a component's file.

    Args:
        folder: Folder of the files.
        name: Name of the component.
        group: Name of the group in messages; that of the folder if None.

    Raises:
        ConfigurationError: There is none; suggests similar ones.
    """
    group = group or folder
    if not isinstance(name, str) or find(f"{folder}/{name}") is None:
        known = [other.partition("/")[2] for other in known_names() if other.startswith(f"{folder}/")]
        near = suggestion(str(name), known) or f"; there are {', '.join(known)}"
        raise ConfigurationError(f"there is no {group} {name!r}{near}")
    return f"{folder}/{name}"


def _env_node(groups: Mapping[str, Any], target: str) -> dict[str, Any]:
    """Return the environment that another function makes, with the arguments of the chosen one."""
    path = find(_component("env", groups.get("env", _DEFAULT_ENV)))
    content = {} if path is None else read(path)
    return {"class_path": str(target), "init_args": dict(content.get("init_args") or {})}


def option_value(option: str, value: Any) -> str:
    """Return a value as the text of an option.

    Args:
        option: The option.
        value: The value, or its text.
    """
    text = value if isinstance(value, str) else dump(value)
    if option in ("data.env.name", "env.name") and text in ENVIRONMENT_IDS:
        current = ENVIRONMENT_IDS[text]
        sys.stderr.write(f"maze-pl: {text} is outdated in gymnasium; {current} takes its place\n")
        return current
    folder = Path(text)
    if option.endswith(".input_data") and folder.name == _RECORDED_THERE and not folder.exists():
        here = folder.with_name(_RECORDED_HERE)
        text = str(here) if here.exists() else text
    return VALUES.get(option, {}).get(text.lower(), text)


def product(keys: Mapping[str, Any], values_of: Callable[[Any], list[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of values, the last key changing fastest.

    Args:
        keys: Key -> value, or several values.
        values_of: Returns the list of values that an entry of `keys` stands for.
    """
    combinations: list[dict[str, Any]] = [{}]
    for key, value in keys.items():
        combinations = [{**before, key: one} for before in combinations for one in values_of(value)]
    return combinations
