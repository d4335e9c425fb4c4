"""The storage of a sweep: a journal file of Optuna in the sweep's folder.

Only the process of the sweep writes to it, so that a trial that is killed at any time cannot damage
it. `optuna-dashboard` and Optuna itself read it.
"""

import contextlib
import json
import os
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from maze_pl.config.search_path import ConfigurationError
from maze_pl.sweeps.configurations import digest_of_trials
from maze_pl.sweeps.methods import make_pruner, optuna_module
from maze_pl.sweeps.search_space import has_all_values
from maze_pl.sweeps.sweep_file import SweepPlan

JOURNAL_FILE: Final = "study.journal"
"""File in the folder of a sweep with the values and results of its trials."""
STUDY_NAME: Final = "sweep"
CONFIGURATIONS: Final = "configurations"
"""User attribute of the study: digest of the configurations that its trials start from; version 0.2.0 has none."""
_IDENTITY: Final = "sweep"  # user attribute of the study
_SECONDS_OF_A_LOCK: Final = 5.0


def create_study(folder: Path, plan: SweepPlan) -> Any:
    """Create the storage of a new sweep.

    Args:
        folder: Folder of the sweep.
        plan: The sweep.

    Returns:
        A study of Optuna.

    Raises:
        ConfigurationError: A configuration of the sweep cannot be read.
    """
    optuna = optuna_module()
    study = optuna.create_study(
        study_name=STUDY_NAME,
        storage=_storage(folder),
        directions=[objective.direction for objective in plan.objectives],
        pruner=make_pruner(plan.pruner),
        load_if_exists=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names([objective.metric for objective in plan.objectives])
    study.set_user_attr(CONFIGURATIONS, digest_of_trials(plan))
    study.set_user_attr(_IDENTITY, plan.identity)
    return study


def open_study(folder: Path, plan: SweepPlan, *, is_writer: bool = True) -> Any:
    """Open the storage of a sweep that was started earlier.

    Args:
        folder: Folder of the sweep.
        plan: The sweep.
        is_writer: Whether this is the process of the sweep, which repairs what a crash has left.

    Returns:
        A study of Optuna.

    Raises:
        ConfigurationError: The storage is missing or damaged, or belongs to another sweep.
    """
    path = folder / JOURNAL_FILE
    if not path.is_file():
        if is_writer:  # killed before it was made
            return create_study(folder, plan)
        raise ConfigurationError(f"{folder} has no trials yet: it has no {JOURNAL_FILE}")
    _require_journal(path, is_writer)
    optuna = optuna_module()
    try:
        study = optuna.load_study(study_name=STUDY_NAME, storage=_storage(folder), pruner=make_pruner(plan.pruner))
    except KeyError:
        if is_writer and not path.stat().st_size:
            return create_study(folder, plan)
        raise ConfigurationError(f"{path} belongs to another sweep: it has no study {STUDY_NAME!r}") from None
    except (ValueError, TypeError, AttributeError, AssertionError) as error:
        raise ConfigurationError(f"{path} is damaged: {error}") from error
    identity = study.user_attrs.get(_IDENTITY)
    if identity is None and is_writer and not study.trials:  # killed while it was made
        return create_study(folder, plan)
    if identity != plan.identity:
        fault = f"{path} belongs to another sweep than {folder / 'sweep.yaml'}"
        remedy = "restore the file, or start a new sweep in another folder"
        raise ConfigurationError(f"{fault}: {remedy}")
    return study


def plan_of(study: Any, plan: SweepPlan) -> SweepPlan:
    """Return the plan of a sweep with the meaning that its texts had when it was started.

    Args:
        study: Its study.
        plan: The sweep, as its file is read now.
    """
    return replace(plan, has_yaml_texts=CONFIGURATIONS not in study.user_attrs)


def resumed_trial(study: Any, plan: SweepPlan, number: int) -> Any:
    """Return a trial that was under way when a sweep ended, so that it can be continued.

    If the sweep ended while the values of its options were drawn, all of them are drawn again, from
    the first random number on.

    Args:
        study: The study, whose sampler is that of the trial.
        plan: The sweep.
        number: Number of the trial.
    """
    frozen = study.get_trials(deepcopy=False)[number]
    trial = optuna_module().trial.Trial(study, frozen._trial_id)
    if not has_all_values(plan.parameters, frozen.params):
        trial._cached_frozen_trial.params.clear()
        trial._cached_frozen_trial.distributions.clear()
    return trial


def _storage(folder: Path) -> Any:
    """Return Optuna's access to the journal file."""
    journal = optuna_module().storages.journal
    return optuna_module().storages.JournalStorage(journal.JournalFileBackend(str(folder / JOURNAL_FILE)))


def _require_journal(path: Path, is_writer: bool) -> None:
    """Refuse a damaged journal; cut off a last line that a crash has left unfinished.

    Raises:
        ConfigurationError: A line other than the last is not JSON.
    """
    lock = Path(f"{path}.lock")
    with contextlib.suppress(OSError):
        if is_writer and time.time() - lock.lstat().st_mtime > _SECONDS_OF_A_LOCK:
            lock.unlink()  # of a process that was killed: Optuna would wait for half a minute
    content = path.read_bytes()
    n_good = 0
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        try:
            is_entry = line.endswith(b"\n") and isinstance(json.loads(line), dict)
        except ValueError:
            is_entry = False
        if not is_entry:
            if n_good + len(line) < len(content):
                raise ConfigurationError(f"{path} is damaged: line {number} is not an entry of Optuna's journal")
            break
        n_good += len(line)
    if is_writer and n_good < len(content):
        os.truncate(path, n_good)
