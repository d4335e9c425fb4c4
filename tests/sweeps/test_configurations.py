"""The digest of a sweep's configurations covers what its trials read, also the groups that are searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maze_pl.sweeps.configurations import changed_configuration, digest_of_trials
from maze_pl.sweeps.sweep_file import parse_sweep

CONTENT: dict[str, Any] = {
    "config": "mine.yaml",
    "options": {"data.env": "env/first"},
    "search": {"model": ["algorithm/first", "algorithm/second"], "model.lr": {"low": 0.1, "high": 0.2}},
    "n_trials": 2,
    "n_seeds": 2,
}
FILES = ["mine.yaml", "configs/common.yaml", "configs/env/first.yaml"]
FILES += [f"configs/algorithm/{name}.yaml" for name in ("first", "second")]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        base = "base: common\n" if name == "mine.yaml" else ""
        (tmp_path / name).write_text(f"{base}{'lr' if 'algorithm' in name else 'x'}: 1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_a_change_in_a_file_that_a_trial_reads_is_found(project: Path, name: str) -> None:
    plan = parse_sweep(CONTENT)
    digest = digest_of_trials(plan)
    assert changed_configuration(parse_sweep({**CONTENT, "n_trials": 9}), digest) is None
    text = (project / name).read_text(encoding="utf-8")
    (project / name).write_text(text.replace("1", "2"), encoding="utf-8")
    fault = changed_configuration(plan, digest)
    assert fault is not None and fault.startswith("a configuration of this sweep has changed")
    assert changed_configuration(plan, None) is None  # a sweep of an earlier version
    (project / name).unlink()
    fault = changed_configuration(plan, digest)
    assert fault is not None and fault.startswith("a configuration of this sweep cannot be read, ")
    assert "restore it" in fault
    (project / name).write_text(text, encoding="utf-8")
    assert changed_configuration(plan, digest) is None
