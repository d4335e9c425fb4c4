"""Columns of a sweep in TensorBoard's HPARAMS tab."""

from pathlib import Path
from typing import Any

from maze_pl.config.option_types import option_name
from maze_pl.reports.curves import spelled_out
from maze_pl.sweeps.search_space import Choice, Parameter, Range
from maze_pl.sweeps.sweep_file import SweepPlan


def write_hparams_view(folder: Path, plan: SweepPlan) -> None:
    """Write an event file that gives the searched options and the objectives as columns.

    TensorBoard takes the columns from the first run that has some, which is the folder itself;
    a run only knows the options that were searched in its trial.

    Args:
        folder: Folder of the sweep.
        plan: The sweep.
    """
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
    from torch.utils.tensorboard import SummaryWriter

    metrics = []
    for objective in plan.objectives:
        tag = spelled_out(objective.metric)
        metrics.append(api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)))
    experiment = api_pb2.Experiment(
        hparam_infos=[_column(parameter, api_pb2) for parameter in plan.parameters],
        metric_infos=metrics,
    )
    content = plugin_data_pb2.HParamsPluginData(experiment=experiment, version=metadata.PLUGIN_DATA_VERSION)
    value = Summary.Value(tag=metadata.EXPERIMENT_TAG, metadata=metadata.create_summary_metadata(content))
    writer: Any = SummaryWriter(str(folder))
    writer._get_file_writer().add_summary(Summary(value=[value]))
    writer.close()


def _column(parameter: Parameter, api: Any) -> Any:
    """Return the column of a searched option, with the values that it may have."""
    info = api.HParamInfo(name=option_name(parameter.option), type=api.DATA_TYPE_STRING)
    if isinstance(parameter, Range):
        info.type = api.DATA_TYPE_FLOAT64
        info.domain_interval.min_value = parameter.low
        info.domain_interval.max_value = parameter.high
    elif isinstance(parameter, Choice):
        numbers = [value for value in parameter.values if isinstance(value, int | float)]
        if any(isinstance(value, bool) for value in parameter.values):
            info.type = api.DATA_TYPE_UNSET
        elif len(numbers) == len(parameter.values):
            info.type = api.DATA_TYPE_FLOAT64
            info.domain_discrete.extend(numbers)
    return info
