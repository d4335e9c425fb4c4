"""Configurations of the trials of a sweep, which must not change while it is under way."""

import hashlib
from dataclasses import replace

from maze_pl.config.digest import RESTORE_IT, configuration_digest
from maze_pl.config.search_path import ConfigurationError
from maze_pl.sweeps.search_space import samples
from maze_pl.sweeps.sweep_file import SweepPlan

_REMEDY = f"{RESTORE_IT} where the sweep was started"


def digest_of_trials(plan: SweepPlan) -> str:
    """Return a digest of the options of all trials, and of the content of the files that they name.

    Args:
        plan: The sweep.

    Raises:
        ConfigurationError: A file is missing or is not YAML.
    """
    single = replace(plan, n_seeds=1)  # `--seeds` is not an option of a run
    digest = hashlib.sha256()
    for assignment in samples(plan.parameters):
        digest.update(configuration_digest(single.fit(assignment)).encode())
    return digest.hexdigest()


def changed_configuration(plan: SweepPlan, digest: str | None) -> str | None:
    """Return a message if a configuration of the trials has changed; None if they are the same.

    Args:
        plan: The sweep.
        digest: Result of `digest_of_trials` when the sweep was started; None for a sweep of an
            earlier version, which has none.
    """
    if digest is None:
        return None
    try:
        if digest_of_trials(plan) == digest:
            return None
    except ConfigurationError as error:
        return f"a configuration of this sweep cannot be read, {error}: {_REMEDY}"
    return f"a configuration of this sweep has changed since its trials were started: {_REMEDY}"
