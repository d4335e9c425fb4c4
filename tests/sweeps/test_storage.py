"""The storage of a sweep: trials that were under way when the sweep was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maze_pl.sweeps.methods import make_sampler
from maze_pl.sweeps.search_space import has_all_values, parse_search, suggested
from maze_pl.sweeps.storage import (
    CONFIGURATIONS,
    JOURNAL_FILE,
    create_study,
    open_study,
    plan_of,
    resumed_trial,
)
from maze_pl.sweeps.sweep_file import SweepPlan, parse_sweep

SEARCH: dict[str, Any] = {
    "o.a": {"low": 0.0, "high": 1.0},
    "o.b": {"low": 1e-4, "high": 1.0, "log": True},
    "o.c": ["x", "y", None],
    "o.d": {"low": 1, "high": 9, "when": {"o.c": ["x", "y"]}},
    "o.e": {"low": 0.0, "high": 1.0},
}
N_TRIALS = 4


def assignments(folder: Path, plan: SweepPlan, interrupted: int | None = None, n_drawn: int = 0) -> list[Any]:
    """The values of all trials.

    Args:
        folder: Folder of the sweep.
        plan: The sweep.
        interrupted: Number of a trial that is continued after its first options were drawn; None for none.
        n_drawn: Number of these options.
    """
    folder.mkdir()
    study = create_study(folder, plan)
    found = []
    for number in range(N_TRIALS):
        study.sampler = make_sampler(plan.sampler, plan.parameters, plan.seed, number)
        trial = study.ask()
        if number == interrupted:
            suggested(plan.parameters[:n_drawn], trial)
            study = open_study(folder, plan)
            study.sampler = make_sampler(plan.sampler, plan.parameters, plan.seed, number)
            trial = resumed_trial(study, plan, number)
        found.append(suggested(plan.parameters, trial))
        study.tell(trial, found[-1]["o.a"] - found[-1]["o.b"])
        assert found[-1] == suggested(plan.parameters, resumed_trial(study, plan, number))
    return found


@pytest.mark.parametrize("sampler", ["random", {"name": "tpe", "n_startup_trials": 2}])
def test_a_trial_has_the_same_values_if_the_sweep_was_killed_while_they_were_drawn(
    tmp_path: Path, sampler: Any
) -> None:
    plan = parse_sweep({"config": "ppo_cartpole", "search": SEARCH, "sampler": sampler, "n_trials": N_TRIALS})
    expected = assignments(tmp_path / "whole", plan)
    for n_drawn in (1, 3):
        assert assignments(tmp_path / f"killed_{n_drawn}", plan, N_TRIALS - 1, n_drawn) == expected


def test_a_trial_with_all_of_its_values_is_one_in_which_no_searched_option_is_missing() -> None:
    parameters = parse_search(SEARCH)
    values = {"o.a": 0.5, "o.b": 0.5, "o.c": "null", "o.e": 0.5}
    assert has_all_values(parameters, values)
    assert not has_all_values(parameters, {**values, "o.c": "x"})
    assert has_all_values(parameters, {**values, "o.c": "x", "o.d": 3})
    assert not has_all_values(parameters, {})


def test_a_storage_without_digest_is_of_version_0_2_0(tmp_path: Path) -> None:
    plan = parse_sweep({"config": "ppo_cartpole", "search": SEARCH, "n_trials": 1})
    assert not plan_of(create_study(tmp_path, plan), plan).has_yaml_texts
    path = tmp_path / JOURNAL_FILE
    entries = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in entries if CONFIGURATIONS not in line), encoding="utf-8")
    assert plan_of(open_study(tmp_path, plan), plan).has_yaml_texts
