"""Values of trials: best and last evaluations, interquartile means over seeds, steps for pruning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.run_directory import claimed
from maze_pl.sweeps.sweep_file import Objective
from maze_pl.sweeps.trial_results import final_values, in_use, steps

RETURN = Objective("eval/return")


def write(run: Path, *returns: float | str, column: str = "eval_BaseEnvEvents/reward/mean") -> None:
    run.mkdir(parents=True, exist_ok=True)
    rows = [f"{100 * place},{value}" for place, value in enumerate(returns, 1)]
    (run / "metrics.csv").write_text("\n".join([f"step,{column}", *rows]) + "\n", encoding="utf-8")


def write_seeds(folder: Path, *runs: tuple[float, ...]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "seeds.json").write_text(json.dumps({"seeds": list(range(len(runs))), "options": []}), encoding="utf-8")
    for seed, returns in enumerate(runs):
        if returns:
            write(folder / f"seed_{seed}", *returns)


def test_the_best_or_the_last_evaluation_of_a_run_counts(tmp_path: Path) -> None:
    write(tmp_path, 3.0, "", 9.0, 5.0)
    least = Objective("eval/return", "minimize")
    assert final_values(tmp_path, [RETURN]) == [9.0]
    assert final_values(tmp_path, [least]) == [3.0]
    assert final_values(tmp_path, [Objective("eval/return", which="last"), least]) == [5.0, 3.0]
    assert list(steps(tmp_path, RETURN)) == [(0, 3.0), (1, 9.0), (2, 9.0)]
    assert list(steps(tmp_path, Objective("eval/return", which="last"))) == [(0, 3.0), (1, 9.0), (2, 5.0)]


def test_several_seeds_count_by_their_interquartile_mean(tmp_path: Path) -> None:
    write_seeds(tmp_path, (1.0,), (100.0,), (4.0,), (6.0,))
    assert final_values(tmp_path, [RETURN]) == [5.0]  # without 1 and 100


def test_steps_of_seeds_follow_each_other_and_combine_finished_seeds_with_the_current_one(tmp_path: Path) -> None:
    write_seeds(tmp_path, (2.0, 4.0), (10.0,), ())
    assert list(steps(tmp_path, RETURN)) == [(0, 2.0), (1, 4.0), (2, 7.0)]


def test_kpis_have_short_names_and_an_unknown_metric_is_named_with_similar_ones(tmp_path: Path) -> None:
    write(tmp_path, 3.0, column="eval_BaseEnvEvents/kpi/mean/raw_pieces")
    assert final_values(tmp_path, [Objective("eval/kpi/raw_pieces")]) == [3.0]
    with pytest.raises(ConfigurationError, match=r"'eval/kpi/raw_piece'.*did you mean"):
        final_values(tmp_path, [Objective("eval/kpi/raw_piece")])
    assert list(steps(tmp_path, Objective("eval/kpi/raw_piece"))) == []


def test_a_value_that_is_no_number_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 1.0, "inf")
    with pytest.raises(ValueError, match="eval/return is inf"):
        final_values(tmp_path, [RETURN])


def write_table(run: Path, text: str) -> None:
    run.mkdir(exist_ok=True)
    (run / "metrics.csv").write_text(text, encoding="utf-8")


def test_an_evaluation_without_the_value_counts_as_one_and_is_not_replaced_by_an_earlier_one(tmp_path: Path) -> None:
    cost = "eval_BaseEnvEvents/kpi/mean/cost"
    columns = f"step,train_BaseEnvEvents/reward/mean,eval_BaseEnvEvents/reward/mean,eval_hard_BaseEnvEvents/r,{cost}"
    rows = ["100,1,5,,7", "200,1,,3,", "300,1,6,,", "400,1,7,,9", "500,1,8,,"]
    for n_rows in (4, 5):
        write_table(tmp_path / "run", "\n".join([columns, *rows[:n_rows]]) + "\n")
        last = Objective("eval/kpi/cost", "minimize", "last")
        best = Objective("eval/kpi/cost", "minimize")
        assert list(steps(tmp_path / "run", last)) == [(0, 7.0), (2, 9.0)]
        assert list(steps(tmp_path / "run", best))[:3] == [(0, 7.0), (1, 7.0), (2, 7.0)]
        assert final_values(tmp_path / "run", [best]) == [7.0]
        if n_rows == 4:
            assert final_values(tmp_path / "run", [last]) == [9.0]
    with pytest.raises(ValueError, match="eval/kpi/cost is nan"):
        final_values(tmp_path / "run", [last])


def test_values_of_training_count_where_they_were_logged(tmp_path: Path) -> None:
    write_table(tmp_path / "run", "step,train_A/loss,train_B/other,count\n100,4,1,\n200,3,1,6\n300,,1,\n")
    for metric, value in {"train_A/loss": 3.0, "count": 6.0}.items():
        assert final_values(tmp_path / "run", [Objective(metric, which="last")]) == [value]


def test_a_trial_is_in_use_while_a_process_holds_the_lock_of_one_of_its_runs(tmp_path: Path) -> None:
    with claimed(tmp_path / "seed_0"):
        assert in_use(tmp_path)
    assert not in_use(tmp_path)
    (tmp_path / "seed_1" / ".lock").mkdir(parents=True)  # which is not the lock of a run
    assert not in_use(tmp_path)
