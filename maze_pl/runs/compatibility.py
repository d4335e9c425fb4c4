"""Comparison of a checkpoint with the networks and environments that are to continue from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maze_pl.agents.bounded_actions import complete_critics
from maze_pl.config.search_path import ConfigurationError
from maze_pl.config.trust import foreign_names, refusal
from maze_pl.core.checkpoint_content import checkpoint_entry, data_module_state
from maze_pl.runs.changed_environment import tell_changed_environment
from maze_pl.runs.checkpoint_files import read_checkpoint

if TYPE_CHECKING:
    from maze_pl.core.actor_id import StepKey
    from maze_pl.datamodules.environments import EnvironmentDataModule
    from maze_pl.modules import AlgorithmModule
    from maze_pl.runs.vector_inputs import VectorInputs


def require_compatible(
    path: str | Path,
    module: AlgorithmModule,
    data: EnvironmentDataModule,
    names: Collection[str] | None,
    config: Mapping[str, Any] | None = None,
) -> None:
    """Refuse a checkpoint from which this module cannot continue; tell of another environment.

    Args:
        path: A checkpoint file, or a run directory.
        module: Gets the weights; its networks are built.
        data: Provides the spec of the agent, and gets the state of the environments.
        names: Plot functions that its statistics may name; None if the checkpoint is trusted.
        config: Content of the configuration with which a training continues; None for an evaluation.

    Raises:
        ConfigurationError: The checkpoint cannot be read, needs trust, or is for other spaces or
            networks.
    """
    checkpoint = read_checkpoint(path)
    entry = checkpoint_entry(checkpoint)
    if entry is None or "spec" not in entry:
        fault = "was not written by maze_pl: it does not describe an agent"
        raise ConfigurationError(f"the checkpoint {path} {fault}")
    if names is not None:
        restored = [entry["ranks"], data_module_state(checkpoint, type(data).__qualname__)]
        foreign = [name for name in foreign_names(restored) if name not in names]
        if foreign:
            remedy = "if you trust its origin, repeat the command with --trust"
            raise ConfigurationError(f"{refusal(path, foreign)}; {remedy}")
    require_same_spaces(entry["spec"], data.spec.to_dict(), f"the agent of {path}")
    weights, expected = dict(checkpoint["state_dict"]), module.state_dict()
    complete_critics(weights, expected)
    require_equal(shapes(weights), shapes(expected), f"the networks of {path} do not fit", "networks")
    if config is not None:
        tell_changed_environment(path, entry, config, data.spec.to_dict())


def require_epochs(path: str | Path | None, n_epochs: int | None) -> None:
    """Refuse to continue from a checkpoint that has more epochs than the whole run is to have.

    Args:
        path: A checkpoint file, or a run directory; None passes.
        n_epochs: Number of epochs of the whole run; -1 or None without a limit.

    Raises:
        ConfigurationError: It has more epochs.
    """
    if path is None or not Path(path).exists() or n_epochs is None or n_epochs == -1:
        return
    n_trained = _trained_epochs(read_checkpoint(path))
    if n_trained > n_epochs:
        fault = f"trainer.max_epochs={n_epochs} is less than the {n_trained} epochs of {path}"
        raise ConfigurationError(f"{fault}: it counts all epochs of a run, also those before it was resumed")


def _trained_epochs(checkpoint: dict[str, Any]) -> int:
    """Return the number of epochs that had ended; 0 if the checkpoint does not hold it."""
    loop = checkpoint.get("loops", {}).get("fit_loop", {})
    return int(loop.get("epoch_progress", {}).get("current", {}).get("processed", 0))


def require_equal(there: dict[str, str], here: dict[str, str], problem: str, parts: str) -> None:
    """Raise ConfigurationError naming the first difference.

    Args:
        there: Name -> description of a part in the checkpoint.
        here: Name -> description of the same part in this run.
        problem: Beginning of the message.
        parts: The parts of the other run that would fit.
    """
    difference = _difference(there, here)
    if difference is not None:
        raise ConfigurationError(f"{problem}: {difference}; use its {parts}")


def _difference(there: dict[str, str], here: dict[str, str]) -> str | None:
    """Return the first part whose descriptions differ, with both; None if there is none."""
    for name in {**there, **here}:
        other, current = there.get(name, "missing"), here.get(name, "missing")
        if other != current:
            return f"{name} is {other} there and {current} here"
    return None


def require_same_spaces(there: dict[str, Any], here: dict[str, Any], agent: str) -> None:
    """Refuse an agent whose observations or actions differ from those of an environment.

    Args:
        there: `Spec.to_dict()` of the agent.
        here: `Spec.to_dict()` of the environment.
        agent: Name of the agent in the message.

    Raises:
        ConfigurationError: The spaces differ.
    """
    problem = f"{agent} was trained with other spaces"
    require_equal(_spaces(there), _spaces(here), problem, "environment and wrappers")


def different_spaces(there: dict[str, Any], here: dict[str, Any]) -> str | None:
    """Return the first difference in types, shapes or numbers of values between spaces; None without one.

    Args:
        there: `Spec.to_dict()` of an agent.
        here: `Spec.to_dict()` of an environment.
    """
    return _difference(_spaces(there), _spaces(here))


def require_same_names(
    there: dict[str, Any],
    here: dict[str, Any],
    agent: str,
    vectors: Mapping[StepKey, VectorInputs],
    *,
    all_observations: bool,
) -> None:
    """Refuse an agent whose sub-steps, observations or actions have other names or another order.

    Networks tell their inputs and outputs apart by position, so that equal shapes do not suffice.
    Bounds may differ, and so may masks, and sizes of observations that are not parts of a vector.

    Args:
        there: `Spec.to_dict()` of the agent.
        here: `Spec.to_dict()` of the environment.
        agent: Name of the agent in the message.
        vectors: Sub-step of the environment -> observations that networks join to a vector.
        all_observations: Whether one of the two may not have further observations.

    Raises:
        ConfigurationError: The names differ.
    """
    problem = f"{agent} was trained with other spaces"
    if max(len(there["steps"]), len(here["steps"])) > 1:
        keys = [_numbered(_keys(spec), "sub-step {}") for spec in (there, here)]
        require_equal(keys[0], keys[1], problem, "environment and wrappers")
    for step, current in zip(there["steps"], here["steps"], strict=False):
        place = f"of sub-step {current['key']!r}"
        heads = [_numbered(_heads(one), f"action {{}} {place}") for one in (step, current)]
        require_equal(heads[0], heads[1], problem, "environment and wrappers")
        names, own = _observations(step), _observations(current)
        # networks may not read the others
        if all_observations or not (_contains(names, own) or _contains(own, names)):
            observations = [_numbered(one, f"observation {{}} {place}") for one in (names, own)]
            require_equal(observations[0], observations[1], problem, "environment and wrappers")
        joined = vectors[current["key"]]
        inputs = [_numbered(_parts(one, joined), f"input {{}} {place}") for one in (step, current)]
        require_equal(inputs[0], inputs[1], problem, "environment and wrappers")


def _keys(spec: dict[str, Any]) -> list[str]:
    """Return the keys of the sub-steps."""
    return [repr(step["key"]) for step in spec["steps"]]


def _heads(step: dict[str, Any]) -> list[str]:
    """Return the names and types of the actions of a sub-step."""
    return [f"{name!r} ({space['type']})" for name, space in step["action_space"]["spaces"].items()]


def _observations(step: dict[str, Any]) -> list[str]:
    """Return the names of the observations of a sub-step without masks."""
    masks = step["masks"].values()
    return [repr(name) for name in step["observation_space"]["spaces"] if name not in masks]


def _parts(step: dict[str, Any], inputs: VectorInputs) -> list[str]:
    """Return names and sizes of the observations of a sub-step that are parts of a vector.

    Args:
        step: The sub-step in `Spec.to_dict()`.
        inputs: Parts of a vector.
    """
    found = []
    for name, space in step["observation_space"]["spaces"].items():
        if name not in inputs.joined:
            continue
        categories = space.get("n", space.get("nvec"))
        shape = space.get("shape", list(np.shape(categories)))
        if name in inputs.one_hot and categories is not None:
            found.append(f"{name!r} of {categories} categories")
        else:
            found.append(f"{name!r} of shape {shape}")
    return found


def _numbered(values: Sequence[str], name: str) -> dict[str, str]:
    """Return values by a name with their number."""
    return {name.format(number): value for number, value in enumerate(values, 1)}


def _contains(names: Sequence[str], others: Sequence[str]) -> bool:
    """True if names contain others in the same order."""
    following = iter(names)
    return all(other in following for other in others)


def _spaces(spec: dict[str, Any]) -> dict[str, str]:
    """Return type, shape and number of values of each observation and action, which networks need."""
    described: dict[str, str] = {}
    for step in spec["steps"]:
        for role in ("observation", "action"):
            for name, space in step[f"{role}_space"]["spaces"].items():
                size = [str(space[key]) for key in ("type", "shape", "n", "nvec") if key in space]
                described[f"{role} {name!r} of sub-step {step['key']!r}"] = " ".join(size)
    return described


def shapes(state: dict[str, Any]) -> dict[str, str]:
    """Return the shapes of the entries of a module's state."""
    return {name: str(tuple(value.shape)) for name, value in state.items()}
