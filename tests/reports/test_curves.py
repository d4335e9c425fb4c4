from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, dump
from maze_pl.config.summary import Summary
from maze_pl.core.provenance import Provenance
from maze_pl.reports.curves import Curve, band, chart, default_statistics, full_name, read_all, smoothed
from maze_pl.reports.run_groups import grouped_runs
from maze_pl.runs.intervals import bootstrap_interval, interquartile_mean
from maze_pl.runs.metrics import NoMetricsError
from maze_pl.runs.provenance import collect_provenance, provenance_text
from tests.reports.written_runs import RETURN, write_run


def curve(x: list[float], y: list[float]) -> Curve:
    return Curve(Path("run"), np.array(x), np.array(y))


def test_curves_of_other_steps_are_interpolated_in_the_range_of_all() -> None:
    found = band("a", [curve([0, 10, 20], [0, 10, 20]), curve([5, 25], [100, 300])])
    assert found.x.tolist() == [5, 10, 20]
    np.testing.assert_allclose(found.middle, [(5 + 100) / 2, (10 + 150) / 2, (20 + 250) / 2])
    assert band("a", [curve([0, 1], [0, 1])]).x.size == 0
    assert band("a", [curve([0, 1], [0, 1]), curve([5, 6], [0, 1])]).x.size == 0


def test_a_band_is_the_interquartile_mean_with_its_interval() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 100.0]
    found = band("a", [curve([0, 1], [value, 0]) for value in values])
    assert found.middle[0] == interquartile_mean(values) == pytest.approx(14 / 3)
    assert (found.low[0], found.high[0]) == bootstrap_interval(values, n_resamples=2000)


def test_a_grid_has_at_most_200_points_with_both_ends() -> None:
    x = np.arange(1000.0)
    found = band("a", [Curve(Path("run"), x, x), Curve(Path("run"), x, x + 2)])
    assert len(found.x) == 200 and (found.x[0], found.x[-1]) == (0, 999)
    np.testing.assert_allclose(found.middle, found.x + 1)


def test_smoothing_averages_neighbours_as_far_as_there_are_any() -> None:
    values = np.array([0.0, 3.0, 6.0, 0.0])
    assert smoothed(values, 1).tolist() == values.tolist()
    assert smoothed(values, 2).tolist() == [1.5, 4.5, 3.0, 0.0]
    assert smoothed(values, 3).tolist() == [1.5, 3.0, 3.0, 3.0]
    assert smoothed(values, 99).tolist() == [2.25] * 4


def test_smoothing_forgets_a_very_large_value_that_is_no_neighbour() -> None:
    assert smoothed(np.array([1e20, 0.0, 1.0, 2.0, 3.0]), 2).tolist() == [5e19, 0.5, 1.5, 2.5, 3.0]
    assert smoothed(np.array([1e308, 1.5e308, 0.0]), 2).tolist() == [1.25e308, 7.5e307, 0.0]


def test_numbers_that_are_too_large_to_be_drawn_are_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 0, [1.0, -1e308])
    with pytest.raises(
        ConfigurationError, match=r"run has logged a number of size 1e\+308 as '.*', .* at most 1e\+300"
    ):
        chart(grouped_runs([run])[0], read_all([run])[0], RETURN, "env_steps")


def test_runs_that_differ_in_seed_and_length_are_a_group_named_by_what_differs(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a" / "seed_0", 0)
    second = write_run(tmp_path / "a" / "seed_1", 1, config={"trainer": {"max_epochs": 9}, "view": True})
    other = write_run(tmp_path / "b", 0, config={"model": {"lr": 0.2}})
    groups, faults = grouped_runs([first, second, other, first])
    assert not faults
    assert [(group.name, group.runs) for group in groups] == [
        ("model.lr=0.1", [first, second]),
        ("model.lr=0.2", [other]),
    ]
    assert [group.name for group in grouped_runs([first, second])[0]] == ["a"]


def test_runs_of_one_configuration_and_seed_are_not_counted_as_independent(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "out" / name) for name in ("ppo", "again")]
    groups, _ = grouped_runs(runs)
    assert [(group.name, group.runs) for group in groups] == [("ppo", [runs[0]]), ("again", [runs[1]])]
    runs.append(write_run(tmp_path / "out" / "other", 1))
    assert [group.runs for group in grouped_runs(runs)[0]] == [[runs[0], runs[2]], [runs[1]]]
    seeds = [write_run(tmp_path / name / f"seed_{seed}", seed) for name in ("a", "b") for seed in (0, 1)]
    slow = write_run(tmp_path / "slow", config={"model": {"lr": 0.01}})
    groups, _ = grouped_runs([*seeds, slow])
    assert [(group.name, len(group.runs)) for group in groups] == [
        ("model.lr=0.1 (a)", 2),
        ("model.lr=0.1 (b)", 2),
        ("model.lr=0.01", 1),
    ]
    assert [group.is_repeated for group in groups] == [True, True, False]
    unseeded = [write_run(tmp_path / name, config={"seed_everything": False}) for name in ("u", "v")]
    assert [group.runs for group in grouped_runs(unseeded)[0]] == [unseeded]


def test_runs_of_folders_that_share_a_seed_stay_with_those_of_their_folder(tmp_path: Path) -> None:
    seeds = {"x/ppo": (0, 1, 2), "y/ppo": (2, 3, 4), "z": (5,)}
    runs = {
        folder: [write_run(tmp_path / folder / f"seed_{seed}", seed) for seed in of_folder]
        for folder, of_folder in seeds.items()
    }
    groups, _ = grouped_runs([run for of_folder in runs.values() for run in of_folder])
    names = ["x/ppo", "y/ppo", "seed_5"]
    assert [(group.name, group.runs) for group in groups] == list(zip(names, runs.values(), strict=True))
    again = write_run(tmp_path / "x" / "ppo" / "again", 1)
    groups, _ = grouped_runs([*runs["x/ppo"], again, *runs["z"]])
    assert [(group.name, len(group.runs)) for group in groups] == [("ppo", 3), ("again", 1), ("seed_5", 1)]


def test_an_option_that_a_resumed_run_changed_has_both_values_in_its_name(tmp_path: Path) -> None:
    named = enumerate(("resumed", "other"))
    runs = [write_run(tmp_path / name, seed, config={"data": {"horizon": 30}}) for seed, name in named]
    commands: list[Provenance] = []
    for horizon in (60, 60, 30, 20):  # the last command was stopped before its first checkpoint
        text = f"seed_everything: 0\nmodel: {{lr: 0.1}}\ndata: {{horizon: {horizon}}}\n"
        words = ["maze-pl", "fit", *(["--resume", "run"] if commands else [])]
        commands.append({**collect_provenance(words, 0), "configuration": text})
    (runs[0] / "provenance.json").write_text(provenance_text(commands))
    (runs[1] / "provenance.json").write_text(provenance_text(commands[2:3]))
    groups, _ = grouped_runs(runs)
    assert [group.name for group in groups] == ["data.horizon=60, then 30", "data.horizon=30"]
    commands[0]["configuration"] = "data: ["
    (runs[0] / "provenance.json").write_text(provenance_text([commands[0], commands[2]]))
    assert [group.runs for group in grouped_runs(runs)[0]] == [runs]


def names(folder: Path, others: str, *commands: tuple[str, str]) -> list[str]:
    """Names of the groups of a run and another one.

    Args:
        folder: Folder for both.
        others: Configuration of the other run.
        commands: Configuration and summary of each command of the run; the last one was kept.
    """
    runs = [write_run(folder / name) for name in ("run", "other")]
    (runs[0] / "config.yaml").write_text(commands[-1][0], encoding="utf-8")
    (runs[1] / "config.yaml").write_text(others, encoding="utf-8")
    entries: list[Provenance] = []
    for configuration, summary in commands:
        start = {"resume": "run"} if summary.startswith(OF_RUN) else {}
        described: Any = {"configuration": configuration, "summary": summary, "start": start}
        entries.append({"command": "maze-pl fit", "versions": {}, "git": None, **described})
    (runs[0] / "provenance.json").write_text(provenance_text(entries))
    return [group.name for group in grouped_runs(runs)[0]]


OF_RUN = "configuration: run/config.yaml"


def rate(value: float) -> str:
    """A configuration with a learning rate."""
    return f"model: {{class_path: a.B, init_args: {{lr: {value}}}}}\n"


def test_commands_that_trained_nothing_are_not_in_the_name_of_a_run(tmp_path: Path) -> None:
    failed = (rate(0.01), "configuration: ppo_cartpole, with\n  model.lr: 0.01 (instead of 0.1)")
    trained = (rate(0.001), "configuration: ppo_cartpole, with\n  model.lr: 0.001 (instead of 0.1)")
    assert names(tmp_path / "a", rate(5), failed, trained)[0] == "model.lr=0.001"
    wrong = (rate(0.1), f"{OF_RUN}, with\n  model.lr: 0.1 (instead of 0.001)")
    unchanged = (rate(0.001), OF_RUN)
    assert names(tmp_path / "b", rate(5), trained, wrong, unchanged)[0] == "model.lr=0.001"
    assert names(tmp_path / "c", rate(5), trained, wrong, wrong, unchanged)[0] == "model.lr=0.001"
    right = (rate(0.0001), f"{OF_RUN}, with\n  model.lr: 0.0001 (instead of 0.001)")
    assert names(tmp_path / "d", rate(5), trained, wrong, right)[0] == "model.lr=0.001, then 0.0001"


def test_configurations_of_commands_are_compared_in_the_form_of_the_last_one(tmp_path: Path) -> None:
    first, second, same = (
        f"data: {{class_path: a.Data, init_args: {{env: {env}}}}}"
        for env in ("a.make_a", "a.make_b", "{class_path: a.make_a, init_args: {}}")
    )
    changed = (second, f"{OF_RUN}, with\n  data.env: a.make_b (instead of a.make_a)")
    (name, _) = names(tmp_path / "a", second, (first, ""), changed)
    assert name == 'data.env.class_path="a.make_a", then "a.make_b"'
    assert len(names(tmp_path / "b", first, (first, ""), (same, OF_RUN))) == 1


def test_long_lists_of_commands_are_compared_with_their_summaries(tmp_path: Path) -> None:
    long = "a.place.with.a.long.name.of.more.than.sixty.letters.in.it.Wrapper"
    first, second = (f"data: {{class_path: a.Data, init_args: {{wrappers: [{long}, {n}]}}}}" for n in (1, 2))
    of_earlier_versions = (f"[{long[:59]} ...", f"[{long[:59]} ...")
    n_groups = []
    for number, (before, after) in enumerate((("... 1]", "... 2]"), of_earlier_versions, ("... 3]", "... 2]"))):
        changed = (second, f"{OF_RUN}, with\n  data.wrappers: {after} (instead of {before})")
        n_groups.append(len(names(tmp_path / str(number), second, (first, ""), changed)))
    assert n_groups == [2, 2, 1], "the first command of the last run was not kept"


def test_values_in_summaries_are_recognised_without_the_defaults_that_the_run_adds(tmp_path: Path) -> None:
    """The summary shows the command's values as they were given, and the run stores all."""
    path = "maze_pl.envs.wrappers.RunningObservationNormalizationWrapper"
    defaults = {"clip_range": [-10.0, 10.0], "exclude": None, "weight": 1000}
    before, after = ([{"class_path": path, "init_args": {**defaults, "window": n}}] for n in (10000, 5000))
    given = [{"class_path": path, "init_args": {"window": 5000}}]
    summary = str(Summary(f"run/{RUN_CONFIG}", {"data.wrappers": (given, before)}))
    assert "(instead of ... clip_range: [-10.0, 10.0]" in summary
    first, second = (dump({"data": {"class_path": "a.Data", "init_args": {"wrappers": w}}}) for w in (before, after))
    assert len(names(tmp_path, second, (first, ""), (second, summary))) == 2, "the first command was not kept"


def test_a_run_whose_configuration_cannot_be_read_is_a_group_by_itself(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, config={"model": {"lr": lr}}) for name, lr in (("a", 1), ("b", 2), ("c", 2))]
    (runs[1] / "config.yaml").write_text("[]", encoding="utf-8")
    groups, faults = grouped_runs(runs)
    assert [(group.name, group.runs) for group in groups] == [
        ("model.lr=1", [runs[0]]),
        ("model.lr=2", [runs[2]]),
        ("b", [runs[1]]),
    ]
    assert list(faults) == [runs[1]]


def test_options_that_only_place_files_or_end_training_are_in_no_name_and_split_no_group(tmp_path: Path) -> None:
    """The configurations that training writes hold these options, with other values in each run."""
    runs = []
    for seed in (0, 1):
        folder = f"outputs/{seed}"
        config = {
            "trainer": {"logger": {"init_args": {"save_dir": folder}}, "max_time": f"00:00:0{seed}:00"},
            "best_checkpoint": {"monitor": "eval/return", "dirpath": folder},
            "last_checkpoint": {"every_n_epochs": 1 + seed, "dirpath": folder},
            "hyperparameters": ["model.lr"][seed:],
            "early_stopping": {"patience": seed},
            "stop_at_return": {"threshold": 10.0 + seed},
        }
        runs.append(write_run(tmp_path / "seeds" / f"seed_{seed}", seed, config=config))
    (group,), _ = grouped_runs(runs)
    assert (group.name, group.runs) == ("seeds", runs)


def test_runs_without_metrics_and_damaged_ones_do_not_hide_the_others(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name) for name in ("whole", "missing", "empty", "damaged")]
    (runs[1] / "metrics.csv").unlink()
    (runs[2] / "metrics.csv").write_text("")
    (runs[3] / "metrics.csv").write_text("step,a\n1,2,3\n")
    metrics, faults = read_all(runs)
    assert list(metrics) == runs[:1]
    assert [isinstance(fault, NoMetricsError) for fault in faults.values()] == [True, True, False]


def test_statistics_have_short_names_and_unknown_ones_are_refused_with_similar_ones(tmp_path: Path) -> None:
    kpi = "night_BaseEnvEvents/kpi/mean/x"
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", 1, statistic=kpi)]
    groups, _ = grouped_runs(runs)
    metrics, faults = read_all(runs)
    assert not faults
    assert default_statistics(metrics) == [RETURN]
    assert full_name("eval/return", metrics) == RETURN
    assert full_name("night/kpi/x", metrics) == kpi
    with pytest.raises(ConfigurationError, match=r"logged the statistic 'evl/return'; .*mean eval/return"):
        full_name("evl/return", metrics)
    found = chart(groups, metrics, RETURN, "wall_clock")
    assert [one.curves[0].x.tolist() for one in found.bands] == [[30.0, 60.0, 90.0]]
