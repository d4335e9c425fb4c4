"""Trained agents from their files alone: the module of a checkpoint, and the environment that it was trained in.

Every checkpoint that maze_pl writes holds the configuration of its module and data, and the spec, as plain YAML types,
so that neither the run's configuration file nor the data module is needed to rebuild the right class.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from maze_pl.search_path import ConfigurationError

if TYPE_CHECKING:
    from maze_pl.core.spec import Spec
    from maze_pl.datamodules.environments import EnvironmentDataModule
    from maze_pl.envs.wrappers import LogStatsWrapper
    from maze_pl.modules import AlgorithmModule

CHECKPOINT_KEY = "maze_pl_config"
_MODULE_KEY = "maze_pl"  # under which algorithms keep what is theirs


def checkpoint_path(location: str | Path, preference: Sequence[str] = ("best", "last")) -> Path:
    """The checkpoint file that a path means.

    Args:
        location: A checkpoint, or a run directory.
        preference: Which of a run's checkpoints to take; the first one that exists.

    Raises:
        ConfigurationError: There is none.
    """
    paths = [Path(location), *(Path(location, "checkpoints", f"{name}.ckpt") for name in preference)]
    for path in paths:
        if path.is_file():
            return path
    raise ConfigurationError(f"there is no checkpoint: none of {', '.join(map(str, paths))} is a file")


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Content of a checkpoint, or of the best one of a run directory, on the CPU.

    Nothing but tensors and plain values is ever read, so that a checkpoint from somebody else cannot run code.

    Args:
        path: A checkpoint file, or a run directory.

    Raises:
        ConfigurationError: There is none, it is damaged, or another program or version of maze_pl has written it.
    """
    import torch

    from maze_pl.modules.algorithm import CHECKPOINT_FORMAT

    file = checkpoint_path(path)
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever torch makes of a file that is none of its own
        reason = error.strerror if isinstance(error, OSError) else _what_is_wrong(file)
        raise ConfigurationError(f"the checkpoint {file} cannot be read: {reason}") from error
    if not isinstance(content, dict) or "state_dict" not in content:
        raise ConfigurationError(f"the checkpoint {file} was not written by maze_pl: it has no state_dict")
    written = content.get(_MODULE_KEY, {})
    if written.get("format", CHECKPOINT_FORMAT) != CHECKPOINT_FORMAT:
        found = f"format {written['format']} (maze_pl {written.get('version')})"
        raise ConfigurationError(f"the checkpoint {file} has {found}, this version reads format {CHECKPOINT_FORMAT}")
    return cast(dict[str, Any], content)


def _what_is_wrong(file: Path) -> str:
    if not file.read_bytes().startswith(b"PK"):
        return "it was not written by maze_pl"
    return "it holds more than tensors and plain values" if zipfile.is_zipfile(file) else "it is truncated"


def check_fit(path: str | Path, module: AlgorithmModule, spec: Spec) -> None:
    """Refuse a checkpoint from which this module cannot go on.

    Args:
        path: A checkpoint file, or a run directory.
        module: Gets the weights, with its networks built.
        spec: What its agent sees and does.

    Raises:
        ConfigurationError: The checkpoint cannot be read, or is one of other spaces, or of other networks.
    """
    checkpoint = read_checkpoint(path)
    if _MODULE_KEY not in checkpoint:
        raise ConfigurationError(f"the checkpoint {path} was not written by maze_pl: it does not say what it is of")
    require_same_spaces(checkpoint[_MODULE_KEY]["spec"], spec.to_dict(), f"the agent of {path}")
    there, here = _shapes(checkpoint["state_dict"]), _shapes(module.state_dict())
    _require_equal(there, here, f"the networks of {path} do not fit", "networks")


def _require_equal(there: dict[str, str], here: dict[str, str], problem: str, remedy: str) -> None:
    """Refuse a checkpoint in which something is different; says what is so first."""
    for name in {**there, **here}:
        former, own = (one.get(name, "missing") for one in (there, here))
        if former != own:
            raise ConfigurationError(f"{problem}: {name} is {former} there and {own} here; use its {remedy}")


def require_same_spaces(there: dict[str, Any], here: dict[str, Any], whose: str) -> None:
    """Refuse an agent that sees or does something else than an environment has.

    Args:
        there: `Spec.to_dict()` of the agent.
        here: That of the environment.
        whose: Of whom the message speaks.

    Raises:
        ConfigurationError: Something is different.
    """
    _require_equal(_spaces(there), _spaces(here), f"{whose} is one for other spaces", "environment and wrappers")


def _spaces(spec: dict[str, Any]) -> dict[str, str]:
    """What networks depend on: for each observation and action its kind, shape and number of values."""
    described = {}
    for step in spec["steps"]:
        for kind in ("observation", "action"):
            for name, space in step[f"{kind}_space"]["spaces"].items():
                size = [str(space[key]) for key in ("type", "shape", "n", "nvec") if key in space]
                described[f"{kind} {name!r} of sub-step {step['key']!r}"] = " ".join(size)
    return described


def load(path: str | Path) -> AlgorithmModule:
    """The trained module of a run, in evaluation mode, ready to act on processed observations.

    Example:
        >>> agent = maze_pl.load("outputs/ppo_cartpole/2026-11-20_12-00-00")  # doctest: +SKIP
        >>> action = agent.act(observation)  # doctest: +SKIP

    Args:
        path: A run directory (its best checkpoint is taken, or the last one where none was the best), or a checkpoint.

    Raises:
        ConfigurationError: There is no checkpoint, or it was not written by `maze-pl`.
    """
    from maze_pl.core.spec import Spec
    from maze_pl.instantiation import Factory

    checkpoint = read_checkpoint(path)
    stored = _stored(checkpoint, path)
    module = Factory.of(stored["model"])(spec=Spec.from_dict(stored["spec"]))
    module.load_state_dict(checkpoint["state_dict"])
    return cast("AlgorithmModule", module.eval())


def load_env(path: str | Path) -> LogStatsWrapper:
    """The environment that the agent was trained in, with its wrappers and what they had learned, which stays fixed.

    Args:
        path: A run directory or a checkpoint, as for `load`.

    Raises:
        ConfigurationError: There is no checkpoint, or it was not written by `maze-pl`.
    """
    from maze_pl.instantiation import Factory

    checkpoint = read_checkpoint(path)
    datamodule: EnvironmentDataModule = Factory.of(_stored(checkpoint, path)["data"])()
    datamodule.warm_start(learned_in(checkpoint, path))
    return datamodule.make_env()


def warm_start(path: str | Path, module: AlgorithmModule, datamodule: EnvironmentDataModule) -> None:
    """Begin with the weights of policy and critic, and what the wrappers had learned, of another run.

    Optimisers, counters and environments start anew, so the algorithm may be another one. Where the other run had no
    critic, as behavioural cloning has none, that of the module stays as it is.

    Args:
        path: A run directory or a checkpoint, as for `load`.
        module: Its networks get the weights.
        datamodule: Its wrappers get the statistics.

    Raises:
        ConfigurationError: There is no checkpoint, or its networks or wrappers do not fit.
    """
    from pytorch_lightning.utilities import rank_zero_info

    checkpoint = read_checkpoint(path)
    own, other = module.state_dict(), checkpoint["state_dict"]
    critic = {name for name in own if name.startswith("actor_critic.critic.")}
    if critic and not any(name.startswith("actor_critic.critic.") for name in other):
        rank_zero_info(f"{path} has no critic: it starts anew, and learns first with critic_burn_in_epochs")
        own = {name: value for name, value in own.items() if name not in critic}
    here, there = _shapes(own), _shapes({name: other[name] for name in own if name in other})
    _require_equal(there, here, f"the networks of {path} do not fit", "networks")
    module.load_state_dict(module.state_dict() | {name: other[name] for name in here})
    datamodule.warm_start(learned_in(checkpoint, path))


def _shapes(state: dict[str, Any]) -> dict[str, str]:
    """The shapes of those entries of a module's state that belong to the networks of policy and critic."""
    return {name: str(tuple(value.shape)) for name, value in state.items() if name.startswith("actor_critic.")}


def _stored(checkpoint: dict[str, Any], path: str | Path) -> dict[str, Any]:
    stored = checkpoint.get(CHECKPOINT_KEY)
    if stored is None:
        remedy = "let `maze-pl fit` write it, or a Trainer with the callback RunRecord"
        raise ConfigurationError(f"{path} does not hold the configuration of what it belongs to: {remedy}")
    return cast(dict[str, Any], stored)


def learned_in(checkpoint: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """What the wrappers of a run had learned, from the state that Lightning files under the data module's name.

    Args:
        checkpoint: Its content, see `read_checkpoint`.
        path: Where that came from.
    """
    from maze_pl.collect.storage import from_tensors

    name = _stored(checkpoint, path)["data"]["class_path"].rpartition(".")[2]
    shared = checkpoint.get(name, {}).get("shared")
    return {} if shared is None else cast(dict[str, Any], from_tensors(shared))
