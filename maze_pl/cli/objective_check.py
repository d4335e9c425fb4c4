"""Check that KPIs by which a sweep compares its trials can exist."""

import contextlib
from collections.abc import Sequence
from typing import Any

from maze_pl.cli.option_check import ParsedOnly
from maze_pl.config.assembling import prepare
from maze_pl.config.factories import with_factories
from maze_pl.config.search_path import ConfigurationError, suggestion
from maze_pl.config.texts import with_texts
from maze_pl.core.monitored_kpi import monitored_kpi, sources_of
from maze_pl.datamodules.environments import EnvironmentDataModule


def check_kpis(command: Sequence[str], metrics: Sequence[str]) -> None:
    """Refuse objectives that are KPIs which the environments of a run do not have.

    Only objectives that name a KPI cost time: the data module is made then, with its environments.

    Args:
        command: Command line after `maze-pl`, which begins with `fit`.
        metrics: Names of the objectives.

    Raises:
        ConfigurationError: The environment declares its KPIs, and an objective is not among them.
    """
    metrics = [metric for metric in metrics if "/kpi/" in metric]
    if not metrics:
        return
    try:
        with contextlib.ExitStack() as undo:
            data = _DataOnly(prepare(command), command, undo).datamodule
            if not isinstance(data, EnvironmentDataModule):
                return
            undo.callback(data.teardown, "fit")
            found = [_undeclared(metric, data) for metric in metrics]
    except Exception:  # the first trial reports it, with its traceback
        return
    faults = [fault for fault in found if fault is not None]
    if faults:
        raise ConfigurationError(f"objective {faults[0]}")


def _undeclared(metric: str, data: EnvironmentDataModule) -> str | None:
    """Describe the fault of an objective if it is a KPI that is not declared."""
    kpi = monitored_kpi(metric, sources_of(data))
    known = None if kpi is None else data.kpi_names_of(kpi.source)
    if kpi is None or known is None or kpi.name in known:
        return None
    has = f"has the KPIs {', '.join(known)}" if known else "has no KPI calculator"
    return f"{metric}: the environment {has}{suggestion(kpi.name, known)}"


class _DataOnly(ParsedOnly):
    """Command line of which only the data module is made."""

    def instantiate_classes(self) -> None:
        """Make the data module."""
        config = with_texts(self.config, self._written)
        options = config[self.subcommand]
        for name in list(vars(options)):
            if name != "data":
                options[name] = None
        ready = with_factories(config, self._written)
        made = self.parser.instantiate(ready, instantiate_groups=False)
        self.datamodule: Any = made[self.subcommand].data
