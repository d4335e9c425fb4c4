"""Columns of a sweep in TensorBoard have the names that its trials log."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from maze_pl.sweeps.dashboard_view import write_hparams_view
from maze_pl.sweeps.sweep_file import parse_sweep


def test_columns_have_the_names_of_the_hyperparameters_of_trials(tmp_path: Path) -> None:
    search = {"model.init_args.lr": [0.1, 0.2], "data.wrappers+": ["a.B"], "trainer.max_epochs": [1]}
    plan = parse_sweep({"config": "ppo_cartpole", "search": search, "sampler": "grid"})
    write_hparams_view(tmp_path, plan)
    events = EventAccumulator(str(tmp_path)).Reload()
    content = events.SummaryMetadata(metadata.EXPERIMENT_TAG).plugin_data.content
    names = [column.name for column in metadata.parse_experiment_plugin_data(content).hparam_infos]
    assert names == ["model.lr", "data.wrappers", "trainer.max_epochs"]
    command = plan.command({option: values[0] for option, values in search.items()}, Path("run"))
    assert f"--hyperparameters=[{', '.join(names)}]" in command
