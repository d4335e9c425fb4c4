"""Translation of Maze's command lines for RLlib into options of `maze-pl rllib`."""

import sys
from collections.abc import Mapping
from typing import Any, Final

from maze_pl.config.search_path import ConfigurationError
from maze_pl.migration.documented import component_options, named_component, option_value, translated_key
from maze_pl.migration.documented_names import FIT

RLLIB: Final = "conf_rllib"
"""Root configuration, and the folder of those with RLlib's defaults."""
ALGORITHM: Final = "rllib/algorithm"
RUNNER: Final = "rllib/runner"
_DEFAULT_ALGORITHM: Final = "ppo"
_REPLACED: Final = {"a3c": "appo", "a2c": "ppo", "impala": "appo"}
"""Algorithms of the documentation that Ray or `maze-pl rllib` does not have -> the most similar ones."""
_RUNNERS: Final = {"dev": "0", "local": "1"}
"""Runner -> worker processes, unless a key says how many."""
_DEFAULT_MODEL: Final = "rllib"
_HIDDEN: Final = "networks.init_args.hidden_units"
_RENAMED: Final = {
    "num_workers": "num_env_runners",
    "num_envs_per_worker": "num_envs_per_env_runner",
    "num_sgd_iter": "num_epochs",
    "sgd_minibatch_size": "minibatch_size",
    "lambda": "lambda_",
}
"""Options of RLlib in the documentation's time -> in the tested release."""
_KEYS: Final = {
    **FIT,
    "algorithm": "model",
    "algorithm.n_epochs": "trainer.max_epochs",
    "runner.n_epochs": "trainer.max_epochs",
    "runner.num_workers": "model.config.num_env_runners",
    "runner.concurrency": "model.config.num_envs_per_env_runner",
}
"""Keys of training with RLlib -> options of `maze-pl rllib`."""


def rllib_options(groups: Mapping[str, Any], keys: Mapping[str, Any]) -> list[str]:
    """Return the options of `maze-pl rllib` for a training run.

    Args:
        groups: Group -> name of a component.
        keys: Dotted key -> value, with the groups of RLlib, `rllib/algorithm` and `rllib/runner`.

    Raises:
        ConfigurationError: A group, a component or a key does not exist.
    """
    for group in ("algorithm", "runner", "policy"):
        if group in groups:
            remedy = f"use rllib/{group}" if group != "policy" else "omit it"
            raise ConfigurationError(f"{group}={groups[group]} is not a component of RLlib: {remedy}")
    keys = dict(keys)
    name = str(keys.pop(ALGORITHM, _DEFAULT_ALGORITHM))
    algorithm = _REPLACED.get(name, name)
    if algorithm != name:
        sys.stderr.write(f"maze-run: RLlib trains by {algorithm} in place of {name}\n")
    words = ["--config", named_component(RLLIB, algorithm, ALGORITHM)]
    components = {group: chosen for group, chosen in groups.items() if chosen != _DEFAULT_MODEL}
    words += component_options(components)
    runner = keys.pop(RUNNER, None)
    if runner is not None:
        if runner not in _RUNNERS:
            raise ConfigurationError(f"there is no {RUNNER} {runner!r}; there are {', '.join(_RUNNERS)}")
        words += ["--model.config.num_env_runners", _RUNNERS[runner]]
    if groups.get("model") == _DEFAULT_MODEL:
        words += _default_networks(keys)
    for key, value in keys.items():
        option = translated_key(key, _KEYS)
        before, _, last = option.rpartition(".")
        if before == "model.config":
            option = f"{before}.{_RENAMED.get(last, last)}"
        words += [f"--{option}", option_value(option, value)]
    return words


def _default_networks(keys: dict[str, Any]) -> list[str]:
    """Return the options for networks like those that RLlib makes by default; take their keys out of `keys`."""
    hidden = keys.pop("model.fcnet_hiddens", None)
    is_shared = str(keys.pop("model.vf_share_layers", "false")).lower() == "true"
    words = ["--model.networks", "model/flatten_concat_shared_embedding" if is_shared else "model/flatten_concat"]
    if hidden is not None:
        words += [f"--model.networks.policy.{_HIDDEN}", str(hidden)]
        words += [] if is_shared else [f"--model.networks.critic.{_HIDDEN}", str(hidden)]
    unknown = sorted(key for key in keys if key.startswith("model."))
    if unknown:
        remedy = "only model.fcnet_hiddens and model.vf_share_layers are; use a model of maze_pl for others"
        raise ConfigurationError(f"{unknown[0]} is not translated for model=rllib: {remedy}")
    return words
