"""The optimiser that the options of an algorithm describe: class, groups and frozen parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter, signature
from typing import Any, Literal

import pytorch_lightning as pl
from pytorch_lightning.utilities import rank_zero_warn
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from maze_pl.core.checks import check_at_least, check_not_negative, check_positive, is_plain
from maze_pl.modules.optimization.flat_adam import FlatAdam
from maze_pl.modules.optimization.flat_optimizer import TORCH_OPTIONS
from maze_pl.modules.optimization.flat_sgd import FlatSGD
from maze_pl.modules.optimization.parameter_group import ParameterGroup
from maze_pl.modules.optimization.parameter_names import matches, names_of, own_tensors, refuse_unmatched
from maze_pl.modules.target_networks import copies_in_targets
from maze_pl.schedules import Coefficient, described, value_at

OptimizerFactory = Callable[[Any], Optimizer]
"""Function from parameter groups to an optimiser: a class, or one with some arguments bound."""
OptimizerChoice = Literal["adam", "sgd"] | OptimizerFactory
"""Adam, SGD with a momentum of 0.9, or any optimiser."""

_BY_NAME: dict[str, OptimizerFactory] = {"adam": Adam, "sgd": partial(SGD, momentum=0.9)}
_ADAM = ("lr", "betas", "eps", "weight_decay")
_OF_PATTERN = ("part", "pattern")
"""Entries that only groups of `optimizer_groups` have."""
_DECOUPLED = "decoupled_weight_decay"  # option of Adam in newer versions of torch
_SGD = ("lr", "momentum", "dampening", "weight_decay", "nesterov")


class OptimizerOptions:
    """Makes the optimisers of an algorithm, and sets the learning rates of their groups.

    Args:
        module: The algorithm.
        optimizer: `adam`, `sgd`, or a function that makes an optimiser of parameter groups.
        groups: Options of the parameters that match a pattern.
        frozen: Patterns of parameters that are not trained.

    Raises:
        TypeError: An option is of another type.
        ValueError: A number is out of range.
    """

    def __init__(
        self,
        module: pl.LightningModule,
        optimizer: OptimizerChoice,
        groups: Mapping[str, ParameterGroup] | None,
        frozen: Sequence[str] | None,
    ) -> None:
        if not callable(optimizer) and optimizer not in _BY_NAME:
            expected = "'adam', 'sgd', or a class of optimisers such as torch.optim.AdamW"
            raise ValueError(f"optimizer={optimizer!r} must be {expected}")
        self._module = module
        self._choice = optimizer
        self._factory = optimizer if callable(optimizer) else _BY_NAME[optimizer]
        self.groups = {pattern: _group(pattern, group) for pattern, group in (groups or {}).items()}
        if isinstance(frozen, str):
            raise TypeError(f"frozen={frozen!r} must be a list of patterns, such as [{frozen!r}]")
        self.frozen = list(frozen or [])
        self._made: list[tuple[Optimizer, list[dict[str, Any]]]] = []

    def __reduce__(self) -> Any:
        options = self._choice, self.groups, self.frozen
        return OptimizerOptions, (self._module, *options)  # optimisers belong to one run

    @property
    def scheduled(self) -> list[str]:
        """Names of the learning rates of groups that follow a schedule."""
        return [f"optimizer_groups[{pattern!r}].lr" for pattern, group in self.groups.items() if callable(group.lr)]

    # ------------------------------------------------------------------------------------------------ parameters

    def apply_to_parameters(self) -> None:
        """Freeze parameters, and refuse patterns that match nothing; the networks exist.

        Raises:
            ValueError: A pattern matches nothing, or only parameters that are frozen or belong to
                earlier patterns; or nothing is left to train.
        """
        names = names_of(self._module)
        parameters = {id(one): one for one in self._module.parameters()}
        for pattern in self.frozen:
            found = [key for key, own in names.items() if matches(pattern, own)]
            if not found:
                refuse_unmatched("frozen", pattern, names)
            for key in found:
                if key in parameters:
                    parameters[key].requires_grad_(False)
        trained = {key: names[key] for key, one in parameters.items() if one.requires_grad}
        if self.frozen and not trained:
            raise ValueError(f"frozen={self.frozen} leaves no parameter to train: remove a pattern")
        taken: set[int] = set()
        for pattern in self.groups:
            every = [key for key in parameters if matches(pattern, names[key])]
            found = [key for key in every if key in trained and key not in taken]
            if not every:
                refuse_unmatched("optimizer_groups", pattern, {key: names[key] for key in parameters})
            if not found:
                reason = "all parameters that it matches are frozen, or belong to patterns before it"
                raise ValueError(f"optimizer_groups: {pattern!r} has no effect: {reason}")
            taken.update(found)

    def modules_at_rest(self) -> list[nn.Module]:
        """Return frozen layers with buffers, such as the statistics of batch normalisation.

        The copies of such layers in target networks are frozen with them.
        """
        if not self.frozen:
            return []
        names = names_of(self._module)
        layers = [part for part in self._module.modules() if self._is_at_rest(part, names)]
        return layers + copies_in_targets(self._module, layers)

    def _is_at_rest(self, part: nn.Module, names: Mapping[int, list[str]]) -> bool:
        """True for a module without parts that has buffers, if all of its tensors are frozen."""
        is_layer = next(part.children(), None) is None
        if not is_layer or next(part.buffers(recurse=False), None) is None:
            return False
        every = [names[id(one)] for one in own_tensors(part).values()]
        return all(self._is_frozen(own) for own in every)

    def _is_frozen(self, names: Sequence[str]) -> bool:
        return any(matches(pattern, names) for pattern in self.frozen)

    # ----------------------------------------------------------------------------------------------- optimisers

    def make(self, parameters: Mapping[str, Sequence[nn.Parameter]], lr: float) -> Optimizer:
        """Make an optimiser of some groups of `parameter_groups`, divided further by the patterns.

        Args:
            parameters: Parameters by the name of their group.
            lr: Learning rate at the beginning.

        Raises:
            ValueError: The optimiser lacks an option of a group, or sets a learning rate itself.
            TypeError: The function makes no optimiser.
        """
        entries = [entry for name, part in parameters.items() for entry in self._divided(name, part, lr)]
        for entry in entries:
            entry.setdefault("lr", lr)
        optimizer = self._factory(entries)
        if not isinstance(optimizer, Optimizer):
            made = f"made a {type(optimizer).__name__} of parameter groups"
            raise TypeError(f"optimizer={described_factory(self._factory)} {made}, not an optimiser of torch")
        self._refuse_options(optimizer)
        optimizer = flattened(optimizer)
        kept = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
        self._made.append((optimizer, kept))
        return optimizer

    def _divided(self, name: str, parameters: Sequence[nn.Parameter], lr: float) -> list[dict[str, Any]]:
        """Return the entries of an optimiser for a group: the rest, then one for each pattern."""
        if not self.groups:
            return [{"params": list(parameters), "name": name}]
        names = names_of(self._module)
        parts: dict[str | None, list[nn.Parameter]] = {None: [], **{pattern: [] for pattern in self.groups}}
        for parameter in parameters:
            own = names[id(parameter)]
            parts[next((one for one in self.groups if matches(one, own)), None)].append(parameter)
        entries: list[dict[str, Any]] = []
        for pattern, part in parts.items():
            if not part:
                continue
            entry: dict[str, Any] = {"params": part, "name": name}
            if pattern is not None:
                group = self.groups[pattern]
                entry.update(group.all_options, name=f"{name} {pattern}", part=name, pattern=pattern)
                if group.lr is not None:
                    entry["lr"] = value_at("lr", group.lr, 0.0)
            entries.append(entry)
        return entries

    def _refuse_options(self, optimizer: Optimizer) -> None:
        """Refuse an optimiser that sets a learning rate, and options that it does not have."""
        kind = type(optimizer)
        closure = signature(kind.step).parameters.get("closure")
        if closure is not None and closure.default is Parameter.empty:
            raise ValueError(f"optimizer={kind.__name__} computes the loss several times in a step: use another one")
        own_lr = optimizer.defaults.get("lr")
        expected = signature(kind).parameters.get("lr")
        default = Parameter.empty if expected is None else expected.default
        if own_lr is not None and default is not Parameter.empty and own_lr != default:
            remedy = "use the option lr of the algorithm, or lr in optimizer_groups"
            raise ValueError(f"optimizer={kind.__name__} sets lr={own_lr}: {remedy}")
        for pattern, group in self.groups.items():
            unknown = [name for name in group.all_options if name not in optimizer.defaults]
            if unknown:
                known = ", ".join(name for name in optimizer.defaults if name != "lr")
                fault = f"{kind.__name__} has no option {unknown[0]!r}; it has {known}"
                raise ValueError(f"optimizer_groups[{pattern!r}]: {fault}")

    def start_run(self) -> None:
        """Forget the optimisers of the previous run."""
        self._made = []

    def warn_if_unused(self) -> None:
        """Warn of options without effect, as `configure_optimizers` did not call `make_optimizer`."""
        given = ["optimizer"] if self._choice != "adam" else []
        given += ["optimizer_groups"] if self.groups else []
        if given and not self._made:
            fault = f"{' and '.join(given)} of {type(self._module).__name__} had no effect"
            rank_zero_warn(f"{fault}: its configure_optimizers does not call make_optimizer, which follows them")

    def has_made(self, optimizer: Optimizer) -> bool:
        """True for an optimiser that `make` has returned: its learning rates follow the options."""
        return any(made is optimizer for made, _ in self._made)

    def made_with(self, optimizer: Optimizer) -> list[dict[str, Any]]:
        """Return the options of the groups of an optimiser by `make`; empty for other ones."""
        return next((kept for made, kept in self._made if made is optimizer), [])

    def restore_options(
        self, optimizer: Optimizer, groups: Sequence[dict[str, Any]], earlier: Sequence[Mapping[str, Any]]
    ) -> None:
        """Change groups of a checkpoint by the options that differ from those of its run.

        Args:
            optimizer: Optimiser that is to continue from the checkpoint.
            groups: Its groups in the checkpoint, changed in place.
            earlier: Options that these were made with, by group; empty in checkpoints of earlier
                versions.
        """
        for index, (group, options) in enumerate(zip(groups, self.made_with(optimizer), strict=False)):
            before = earlier[index] if index < len(earlier) else {}
            for name, value in options.items():
                if name != "lr" and (name not in before or before[name] != value):
                    group[name] = value
            for name in _OF_PATTERN:
                if name not in options:
                    group.pop(name, None)

    def rate(self, pattern: str, lr: Coefficient, factor: float, progress: Callable[[], float]) -> float:
        """Return the learning rate of the parameters of a pattern.

        Args:
            pattern: The pattern.
            lr: Its option `lr`.
            factor: Share of its first value that `lr_schedule` leaves of a number.
            progress: Function that returns the progress of the run.
        """
        if not callable(lr):
            return lr * factor
        return value_at(f"optimizer_groups[{pattern!r}].lr", lr, progress(), check_not_negative)

    def hyperparameters(self) -> dict[str, Any]:
        """Return the options as plain values; others become text, which no constructor accepts."""
        plain: dict[str, Any] = {}
        if callable(self._choice):
            plain["optimizer"] = described_factory(self._factory)
        if self.groups:
            groups = {
                name: {"lr": one.lr, "weight_decay": one.weight_decay, "options": one.options}
                for name, one in self.groups.items()
            }
            plain["optimizer_groups"] = groups if is_plain(groups) else str(self.groups)
        return plain


def flattened(optimizer: Optimizer) -> Optimizer:
    """Return the flat optimiser with the options of one of torch; others are returned unchanged.

    Adam, AdamW and SGD have a flat form, unless they use variants that it does not have.

    Args:
        optimizer: An optimiser that has not taken a step.
    """
    kind = type(optimizer)
    if kind not in (Adam, AdamW, SGD) or any(
        group.get(name) for group in optimizer.param_groups for name in TORCH_OPTIONS
    ):
        return optimizer
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    if len({(one.dtype, one.device) for one in parameters}) > 1:
        return optimizer
    ignored = {"foreach", "fused", "initial_lr", *TORCH_OPTIONS}
    groups = [{key: value for key, value in group.items() if key not in ignored} for group in optimizer.param_groups]
    if kind is SGD:
        return FlatSGD(groups, **{name: optimizer.defaults[name] for name in _SGD})
    is_decoupled = optimizer.defaults.get(_DECOUPLED, kind is AdamW)
    for group in groups:
        group.setdefault(_DECOUPLED, is_decoupled)
    flat = FlatAdam(groups, **{name: optimizer.defaults[name] for name in _ADAM})
    flat.defaults[_DECOUPLED] = is_decoupled  # for groups that are added later
    return flat


def described_factory(factory: OptimizerFactory) -> str:
    """Return the class and the options of an optimiser as a text, for messages and logs."""
    if not isinstance(factory, partial):
        return described(factory)
    classes = [one for one in (factory.func, *factory.args) if isinstance(one, type)]
    options = ", ".join(f"{name}={value!r}" for name, value in factory.keywords.items())
    return f"{described(classes[-1] if classes else factory.func)}({options})"


def _group(pattern: str, group: object) -> ParameterGroup:
    """Return the options of a pattern, which may be given as a dict, as in checkpoints.

    Raises:
        TypeError: They are not options of a group.
        ValueError: A number is out of range.
    """
    where = f"optimizer_groups[{pattern!r}]"
    if isinstance(group, Mapping):
        group = ParameterGroup(**group)
    if not isinstance(group, ParameterGroup):
        raise TypeError(f"{where}={group!r} must be a ParameterGroup, such as ParameterGroup(lr=1e-4)")
    if group.lr is not None:
        value_at(f"{where}.lr", group.lr, 0.0, check_not_negative if callable(group.lr) else check_positive)
    check_at_least(0, **{f"{where}.weight_decay": group.weight_decay})
    if {"lr", "params", "name"} & group.options.keys():
        raise ValueError(
            f"{where}.options={group.options} must not contain lr, params or name: lr is a separate option"
        )
    return group
