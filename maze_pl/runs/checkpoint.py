"""Loading of trained agents: the module of a checkpoint, and its training environment.

Each checkpoint of maze_pl holds the configuration of its module and data, and the spec, as plain
YAML types. So neither the run's configuration file nor the data module is needed to rebuild the
right class. As the author of the checkpoint chooses these classes, they are only instantiated
without `trust` if they are part of maze_pl, gymnasium or torch.nn; see `maze_pl.config.trust`.
"""

from __future__ import annotations

import sys
import zipfile
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from maze_pl.config.search_path import ConfigurationError
from maze_pl.config.trust import Trust, extend_import_path, foreign_names, import_folders, refusal, require_modules

if TYPE_CHECKING:
    from torch import Tensor, nn

    from maze_pl.datamodules.environments import EnvironmentDataModule
    from maze_pl.envs.wrappers import LogStatsWrapper
    from maze_pl.modules import AlgorithmModule

CHECKPOINT_KEY = "maze_pl_config"
_MODULE_KEY = "maze_pl"  # key of the algorithm's entries


def checkpoint_path(location: str | Path, preference: Sequence[str] = ("best", "last")) -> Path:
    """Return the checkpoint file that a path refers to.

    Args:
        location: A checkpoint, or a run directory.
        preference: Names of a run's checkpoints; the first one that exists is taken.

    Raises:
        ConfigurationError: There is no such file.
    """
    paths = [Path(location), *(Path(location, "checkpoints", f"{name}.ckpt") for name in preference)]
    for path in paths:
        if path.is_file():
            return path
    raise ConfigurationError(f"there is no checkpoint: none of {', '.join(map(str, paths))} is a file")


def best_or_last(run_dir: str | Path) -> Path:
    """Return the best checkpoint of a run; without one its last, with a message.

    Raises:
        ConfigurationError: Neither exists.
    """
    path = checkpoint_path(run_dir)
    if path.name == "last.ckpt" and path.parent == Path(run_dir, "checkpoints"):
        sys.stderr.write(f"maze-pl: {run_dir} has no best.ckpt, as no evaluation chose one: this is {path}\n")
    return path


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint, or the best one of a run directory, to the CPU.

    Only tensors and plain values are read, so that an untrusted checkpoint cannot run code.

    Args:
        path: A checkpoint file, or a run directory.

    Raises:
        ConfigurationError: It is missing, damaged, or written by another program or version of
            maze_pl.
    """
    import torch

    from maze_pl.modules.algorithm import CHECKPOINT_FORMAT

    file = checkpoint_path(path)
    require_intact(file)
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises all kinds of errors for foreign files
        reason = error.strerror if isinstance(error, OSError) else _what_is_wrong(file)
        raise ConfigurationError(f"the checkpoint {file} cannot be read: {reason}") from error
    if not isinstance(content, dict) or "state_dict" not in content:
        raise ConfigurationError(f"the checkpoint {file} was not written by maze_pl: it has no state_dict")
    written = content.get(_MODULE_KEY, {})
    if written.get("format", CHECKPOINT_FORMAT) != CHECKPOINT_FORMAT:
        found = f"format {written['format']} (maze_pl {written.get('version')})"
        raise ConfigurationError(f"the checkpoint {file} has {found}, this version reads format {CHECKPOINT_FORMAT}")
    return cast(dict[str, Any], content)


def require_intact(file: Path) -> None:
    """Verify the checksums in a checkpoint, which torch ignores when loading it.

    Args:
        file: The checkpoint. A file that is not a torch archive has no checksums, and passes.

    Raises:
        ConfigurationError: A part of it is damaged.
    """
    try:
        if not zipfile.is_zipfile(file):
            return
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
        problem = f"its part {damaged!r} does not match its checksum" if damaged is not None else ""
    except OSError as error:
        raise ConfigurationError(f"the checkpoint {file} cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error) as error:
        problem = str(error)
    if problem:
        remedy = "restore it from a copy, or use another checkpoint of the run"
        raise ConfigurationError(f"the checkpoint {file} is damaged: {problem}; {remedy}")


def _what_is_wrong(file: Path) -> str:
    if not file.read_bytes().startswith(b"PK"):
        return "it was not written by maze_pl"
    return "it holds more than tensors and plain values" if zipfile.is_zipfile(file) else "it is truncated"


def check_fit(
    path: str | Path, module: AlgorithmModule, data: EnvironmentDataModule, names: Collection[str] | None
) -> None:
    """Refuse a checkpoint from which this module cannot continue.

    Args:
        path: A checkpoint file, or a run directory.
        module: Gets the weights; its networks are built.
        data: Provides the spec of the agent, and gets the state of the environments.
        names: Plot functions that its statistics may name; None if the checkpoint is trusted.

    Raises:
        ConfigurationError: The checkpoint cannot be read, needs trust, or is for other spaces or
            networks.
    """
    checkpoint = read_checkpoint(path)
    if _MODULE_KEY not in checkpoint:
        raise ConfigurationError(f"the checkpoint {path} was not written by maze_pl: it does not say what it is of")
    if names is not None:
        kept = [checkpoint[_MODULE_KEY].get("ranks"), checkpoint.get(type(data).__qualname__)]
        if foreign := [name for name in foreign_names(kept) if name not in names]:
            remedy = "if you trust whoever made it, repeat the command with --trust"
            raise ConfigurationError(f"{refusal(path, foreign)}; {remedy}")
    require_same_spaces(checkpoint[_MODULE_KEY]["spec"], data.spec.to_dict(), f"the agent of {path}")
    there, here = _shapes(checkpoint["state_dict"]), _shapes(module.state_dict())
    _require_equal(there, here, f"the networks of {path} do not fit", "networks")


def _require_equal(there: dict[str, str], here: dict[str, str], problem: str, remedy: str) -> None:
    """Raise ConfigurationError naming the first difference."""
    for name in {**there, **here}:
        former, own = (one.get(name, "missing") for one in (there, here))
        if former != own:
            raise ConfigurationError(f"{problem}: {name} is {former} there and {own} here; use its {remedy}")


def require_same_spaces(there: dict[str, Any], here: dict[str, Any], whose: str) -> None:
    """Refuse an agent whose observations or actions differ from those of an environment.

    Args:
        there: `Spec.to_dict()` of the agent.
        here: `Spec.to_dict()` of the environment.
        whose: Name of the agent in the message.

    Raises:
        ConfigurationError: The spaces differ.
    """
    _require_equal(_spaces(there), _spaces(here), f"{whose} is one for other spaces", "environment and wrappers")


def _spaces(spec: dict[str, Any]) -> dict[str, str]:
    """Type, shape and number of values of each observation and action: what networks depend on."""
    described = {}
    for step in spec["steps"]:
        for kind in ("observation", "action"):
            for name, space in step[f"{kind}_space"]["spaces"].items():
                size = [str(space[key]) for key in ("type", "shape", "n", "nvec") if key in space]
                described[f"{kind} {name!r} of sub-step {step['key']!r}"] = " ".join(size)
    return described


def load(path: str | Path, *, trust: bool = False) -> AlgorithmModule:
    """Load the trained module of a run, in evaluation mode, ready to act on processed observations.

    Example:
        >>> agent = maze_pl.load("outputs/ppo_cartpole/2026-11-20_12-00-00")  # doctest: +SKIP
        >>> action = agent.act(observation)  # doctest: +SKIP

    Args:
        path: A checkpoint, or a run directory, of which the best checkpoint is taken, else the last
            one.
        trust: Whether it may name classes outside of maze_pl, gymnasium and torch.nn, and run their
            code; set it only if you know who made it. Classes are imported from Python's path, or
            else from the folders that the run was made with.

    Raises:
        ConfigurationError: There is no checkpoint, it was not written by `maze-pl`, or it needs trust.
    """
    from maze_pl.core.spec import Spec
    from maze_pl.modules import AlgorithmModule

    checkpoint = read_checkpoint(path)
    stored = _stored(checkpoint, path)
    module = _make(stored["model"], AlgorithmModule, path, trust, spec=Spec.from_dict(stored["spec"]))
    module.load_state_dict(checkpoint["state_dict"])
    return cast("AlgorithmModule", module.eval())


def load_env(path: str | Path, *, trust: bool = False) -> LogStatsWrapper:
    """Load the environment that the agent was trained in, with its wrappers and frozen statistics.

    Args:
        path: A run directory or a checkpoint, as for `load`.
        trust: As for `load`.

    Raises:
        ConfigurationError: There is no checkpoint, it was not written by `maze-pl`, or it needs trust.
    """
    from maze_pl.datamodules.environments import EnvironmentDataModule

    checkpoint = read_checkpoint(path)
    datamodule = _make(_stored(checkpoint, path)["data"], EnvironmentDataModule, path, trust)
    datamodule.warm_start(learned_in(checkpoint, path), may_differ=False)
    return cast("LogStatsWrapper", datamodule.make_env())


def _make(node: Any, base: type, path: str | Path, is_trusted: bool, **arguments: Any) -> Any:
    """Instantiate a class that a checkpoint describes.

    Args:
        node: Class path and arguments.
        base: Required base class.
        path: The checkpoint, or its run directory.
        is_trusted: Whether it may name any class.
        arguments: Additional arguments of the class.
    """
    from jsonargparse import ArgumentError

    from maze_pl.config.factories import Factory
    from maze_pl.config.messages import explain
    from maze_pl.core.class_path import import_class, import_object

    run_dir = _run_directory(path)
    if is_trusted:
        extend_import_path(import_folders(run_dir))
        require_modules(node, run_dir)
    elif foreign := foreign_names(node, import_folders(run_dir)):
        remedy = "if you trust whoever made it, say trust=True (or `--policy.trust true` for policy/torch_policy)"
        raise ConfigurationError(f"{refusal(path, foreign, run_dir)}; {remedy}")
    try:
        if not is_trusted or isinstance(import_object(node["class_path"]), type):
            import_class(node["class_path"], base, f"{path}: ")
        return Factory.of(node, Trust() if is_trusted else Trust(frozenset()))(**arguments)
    except ArgumentError as error:
        raise ConfigurationError(f"{path}: {explain(str(error))}") from None  # the message includes the causes


def _run_directory(path: str | Path) -> Path:
    """Return the run directory at a path, or of the checkpoint at a path."""
    path = Path(path).resolve()
    return path if path.is_dir() else path.parents[1]


def warm_start(path: str | Path, module: AlgorithmModule, datamodule: EnvironmentDataModule) -> None:
    """Initialize a module and a data module with the weights and wrapper statistics of another run.

    Optimisers, counters, environments and parameters outside of networks start from scratch, so the
    algorithm may be a different one. If the other run had no critic, as in behavioural cloning, the
    module's critic is left unchanged.

    Other networks of the algorithm, such as target networks, get their weights from the other run.
    If it has no network of that name, a network that was an exact copy of a part of policy or
    critic is copied again; any other is left unchanged, with a message.

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
    further = _further_networks(module)
    stored = [name for name in further if any(entry.startswith(f"{name}.") for entry in other)]
    originals = {name: _original(network, module) for name, network in further.items() if name not in stored}
    prefixes = ("actor_critic.", *(f"{name}." for name in stored))
    own = {name: value for name, value in own.items() if name.startswith(prefixes)}
    here, there = _shapes(own), _shapes({name: other[name] for name in own if name in other})
    _require_equal(there, here, f"the networks of {path} do not fit", "networks")
    module.load_state_dict(module.state_dict() | {name: other[name] for name in here})
    for name, original in originals.items():
        if original is None:
            rank_zero_info(f"{path} has no network {name}, and it is not a copy of one: it starts anew")
        else:
            further[name].load_state_dict(original.state_dict())
            rank_zero_info(f"{path} has no network {name}: it is copied from the one of which it was a copy")
    datamodule.warm_start(learned_in(checkpoint, path))


def _shapes(state: dict[str, Any]) -> dict[str, str]:
    """Return the shapes of the entries of a module's state."""
    return {name: str(tuple(value.shape)) for name, value in state.items()}


def _further_networks(module: AlgorithmModule) -> dict[str, nn.Module]:
    """Return networks besides policy and critic, such as target networks, by name in the state."""
    from torch import nn

    shared = {id(tensor) for tensor in module.networks.state_dict(keep_vars=True).values()}
    networks: dict[str, nn.Module] = {}
    waiting = list(module.named_children())
    while waiting:
        name, child = waiting.pop(0)
        if isinstance(child, nn.ModuleDict | nn.ModuleList):
            waiting += [(f"{name}.{part}", network) for part, network in child.named_children()]
        elif any(id(tensor) not in shared for tensor in child.state_dict(keep_vars=True).values()):
            networks[name] = child
    return networks


def _original(network: nn.Module, module: AlgorithmModule) -> nn.Module | None:
    """Return the part of policy or critic that a network is an exact copy of, if any."""
    state = network.state_dict()
    if all(bool((value == value.flatten()[:1]).all()) for value in state.values()):
        return None  # as in fresh normalisation layers, which are all alike
    for part in module.networks.modules():
        found = part.state_dict()
        if found.keys() == state.keys() and all(_equal(found[name], value) for name, value in state.items()):
            return part
    return None


def _equal(one: Tensor, other: Tensor) -> bool:
    """Tell if two tensors have the same shape and values."""
    return one.shape == other.shape and bool((one == other).all())


def _stored(checkpoint: dict[str, Any], path: str | Path) -> dict[str, Any]:
    stored = checkpoint.get(CHECKPOINT_KEY)
    if stored is None:
        remedy = "let `maze-pl fit` write it, or a Trainer with the callback RunRecord"
        raise ConfigurationError(f"{path} does not hold the configuration of what it belongs to: {remedy}")
    return cast(dict[str, Any], stored)


def learned_in(checkpoint: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """Return a run's wrapper statistics, from the state that Lightning stores for the data module.

    Args:
        checkpoint: Content of a checkpoint, see `read_checkpoint`.
        path: Path of the checkpoint, for messages.
    """
    from maze_pl.collect.storage import from_tensors

    name = _stored(checkpoint, path)["data"]["class_path"].rpartition(".")[2]
    shared = checkpoint.get(name, {}).get("shared")
    return {} if shared is None else cast(dict[str, Any], from_tensors(shared))
