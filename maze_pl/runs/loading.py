"""Loading of trained agents: the module of a checkpoint, and its training environment.

Each checkpoint of maze_pl holds the configuration of its module and data, and the spec, as plain
YAML types. So neither the run's configuration file nor the data module is needed to rebuild the
right class. As the author of the checkpoint chooses these classes, they are only instantiated
without `trust` if they are part of maze_pl, gymnasium, torch.nn or torch.optim; see `maze_pl.config.trust`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from maze_pl.config.search_path import ConfigurationError
from maze_pl.config.trust import (
    Trust,
    UntrustedError,
    extend_import_path,
    foreign_names,
    import_folders,
    refusal,
    require_modules,
)
from maze_pl.core.checkpoint_content import checkpoint_entry
from maze_pl.runs.checkpoint_files import checkpoint_path, read_checkpoint, run_configuration, wrapper_statistics_in
from maze_pl.runs.other_environment import tell_other_environment
from maze_pl.runs.run_checkpoints import directory_of_run

if TYPE_CHECKING:
    from maze_pl.datamodules.environments import EnvironmentDataModule
    from maze_pl.envs.wrappers import LogStatsWrapper
    from maze_pl.modules import AlgorithmModule


def load(path: str | Path, *, trust: bool = False, objects: Mapping[str, Any] | None = None) -> AlgorithmModule:
    """Load the trained module of a run, in evaluation mode, ready to act on processed observations.

    Example:
        >>> agent = maze_pl.load("outputs/ppo_cartpole/2026-11-20_12-00-00")  # doctest: +SKIP
        >>> action = agent.act(observation)  # doctest: +SKIP

    Args:
        path: A checkpoint, or a run directory, whose best checkpoint is loaded or, without one, its
            last checkpoint.
        trust: Whether it may name classes outside of maze_pl, gymnasium, torch.nn and torch.optim, and run their
            code; set it only if you know who made it. Classes are imported from Python's path, or
            else from the folders that the run was made with.
        objects: Name -> object that the run was given from Python, as a message names it.

    Raises:
        ConfigurationError: There is no checkpoint, it was not written by `maze-pl`, or it needs trust.
    """
    from maze_pl.core.spec import Spec
    from maze_pl.modules import AlgorithmModule

    checkpoint = read_checkpoint(path)
    config, entry = run_configuration(checkpoint, path), checkpoint_entry(checkpoint)
    if entry is None or "spec" not in entry:
        raise ConfigurationError(f"{path} has no agent: its module is not an AlgorithmModule")
    make_again = partial(_make, config["model"], AlgorithmModule, path, trust, objects)
    module = make_again(spec=Spec.from_dict(entry["spec"]))
    module.make_again = make_again
    module.load_state_dict(checkpoint["state_dict"])
    module.env_steps = entry["env_steps"]  # in weights of earlier versions, that of a copy
    return cast("AlgorithmModule", module.eval())


def load_env(path: str | Path, *, trust: bool = False) -> LogStatsWrapper:
    """Load the environment that the agent was trained in, with its wrappers and frozen statistics.

    The configuration in the checkpoint counts. If `config.yaml` of the run has another environment, a message says so.

    Args:
        path: A run directory or a checkpoint, as for `load`.
        trust: As for `load`.

    Raises:
        ConfigurationError: There is no checkpoint, it was not written by `maze-pl`, or it needs trust.
    """
    return load_data(path, trust=trust).make_env()


def load_data(
    path: str | Path,
    *,
    trust: bool = False,
    objects: Mapping[str, Any] | None = None,
    with_evaluators: bool = False,
) -> EnvironmentDataModule:
    """Load the data module of a run, whose `make_env` makes environments with frozen statistics.

    Args:
        path: A run directory or a checkpoint, as for `load`.
        trust: As for `load`.
        objects: As for `load`.
        with_evaluators: Whether it has the evaluators of the run, whose environments and wrappers may need
            further classes and objects.

    Raises:
        ConfigurationError: There is no checkpoint, it was not written by `maze-pl`, or it needs trust.
    """
    from maze_pl.datamodules.environments import EnvironmentDataModule

    file = checkpoint_path(path)
    checkpoint = read_checkpoint(file)
    config = run_configuration(checkpoint, path)
    tell_other_environment(file, checkpoint, "checkpoint")
    data = config["data"] if with_evaluators else _without_evaluators(config["data"])
    datamodule = _make(data, EnvironmentDataModule, path, trust, objects)
    datamodule.warm_start(wrapper_statistics_in(checkpoint, path), may_differ=False)
    return cast("EnvironmentDataModule", datamodule)


def _without_evaluators(data: Any) -> Any:
    """Return the configuration of a data module with no evaluators, if it has an option for them."""
    arguments = data.get("init_args")
    if not isinstance(arguments, Mapping) or "evaluators" not in arguments:
        return data
    return {**data, "init_args": {**arguments, "evaluators": {}}}


def _make(
    node: Any, base: type, path: str | Path, is_trusted: bool, objects: Mapping[str, Any] | None, **arguments: Any
) -> Any:
    """Instantiate a class that a checkpoint describes.

    Args:
        node: Class path and arguments.
        base: Required base class.
        path: The checkpoint, or its run directory.
        is_trusted: Whether it may name any class.
        objects: Name -> object that it stands for.
        arguments: Additional arguments of the class.
    """
    from jsonargparse import ArgumentError

    from maze_pl.config.factories import Factory
    from maze_pl.config.messages import explain
    from maze_pl.core.class_path import import_class, import_object

    run_dir = directory_of_run(path)
    if is_trusted:
        extend_import_path(import_folders(run_dir))
        require_modules(node, run_dir)
    elif foreign := foreign_names(node, import_folders(run_dir)):
        raise UntrustedError(refusal(path, foreign, run_dir))
    try:
        if not is_trusted or isinstance(import_object(node["class_path"]), type):
            import_class(node["class_path"], base, f"{path}: ")
        return Factory.of(node, Trust() if is_trusted else Trust(frozenset()), objects)(**arguments)
    except ArgumentError as error:
        raise ConfigurationError(f"{path}: {explain(str(error))}") from None  # the message includes the causes
