"""`maze-pl show` of damaged files and of files of other origin: what is wrong is named, and the rest is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from maze_pl.__main__ import main
from maze_pl.core.checkpoint_content import CHECKPOINT_KEY
from maze_pl.reports.plain_text import as_json, as_lines
from tests.reports.written_runs import write_run

WHOLE: dict[str, Any] = {
    "command": "maze-pl fit --config sac",
    "seed": 1,
    "versions": {"maze_pl": "0.1.0"},
    "git": None,
}
STORAGE: dict[str, Any] = {"columns": {}, "written": 9, "capacity": 7}


def shown(capsys: pytest.CaptureFixture[str], path: Path) -> dict[str, Any]:
    """Facts in JSON, once the same facts could be printed as lines."""
    capsys.readouterr()
    assert main(["show", str(path)]) == 0
    assert main(["show", str(path), "--json"]) == 0
    output = capsys.readouterr().out
    facts: dict[str, Any] = json.loads(output[output.index("\n{") :])
    return facts


@pytest.mark.parametrize("is_dirty", [[], {}, "yes", 1])
def test_the_state_of_a_repository_may_be_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_dirty: Any
) -> None:
    git = {"commit": "c0ffee", "branch": "main", "is_dirty": is_dirty}
    torch.save({"state_dict": {}, CHECKPOINT_KEY: {"provenance": {**WHOLE, "git": git}}}, tmp_path / "a.ckpt")
    facts = shown(capsys, tmp_path / "a.ckpt")
    kind = type(is_dirty).__name__
    assert facts["git"] == f"commit c0ffee (branch main), changes unknown (damaged: is_dirty is of type {kind})"
    assert facts["command"] == WHOLE["command"]


@pytest.mark.parametrize(
    ("provenance", "fault"),
    [
        ([], "provenance is of type list instead of dict"),
        ({**WHOLE, "command": 3}, "command is of type int instead of str"),
        ({**WHOLE, "git": "main"}, "git is of type str instead of dict"),
        ({**WHOLE, "machine": []}, "machine is of type list instead of dict"),
        ({name: value for name, value in WHOLE.items() if name != "git"}, "git is missing"),
    ],
)
def test_provenance_in_another_form_is_named_and_the_rest_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], provenance: Any, fault: str
) -> None:
    state = {"storages": {0: [STORAGE]}, "provenance": provenance}
    torch.save(state, tmp_path / "replay-0.pt")
    facts = shown(capsys, tmp_path / "replay-0.pt")
    assert facts["file"] == str(tmp_path / "replay-0.pt") and facts["provenance"] == f"damaged: {fault}"
    assert facts["transitions"] == {"sub-step 0": ["7 of at most 7, 9 written so far"]}


@pytest.mark.parametrize(
    ("storage", "description"),
    [
        ({**STORAGE, "capacity": None}, "damaged: capacity is None"),
        ({**STORAGE, "capacity": "many"}, "damaged: capacity is 'many'"),
        ({**STORAGE, "capacity": [1]}, "damaged: capacity is [1]"),
        ({**STORAGE, "written": 0.5}, "damaged: written is 0.5"),
        ({**STORAGE, "written": 10**5000}, "damaged: written is 'a number of 16,610 bits'"),
        ({"written": 9}, "damaged: capacity is missing"),
        (3, "damaged: of type int instead of dict"),
    ],
)
def test_a_storage_in_another_form_is_named_and_the_others_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], storage: Any, description: str
) -> None:
    torch.save({"storages": {0: [storage, STORAGE], 1: 5}, "provenance": WHOLE}, tmp_path / "replay-0.pt")
    facts = shown(capsys, tmp_path / "replay-0.pt")
    assert facts["transitions"] == {
        "sub-step 0": [description, "7 of at most 7, 9 written so far"],
        "sub-step 1": "damaged: of type int instead of list",
    }
    assert facts["command"] == WHOLE["command"]


def test_storages_in_another_form_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"storages": [STORAGE], "provenance": WHOLE}, tmp_path / "replay-0.pt")
    facts = shown(capsys, tmp_path / "replay-0.pt")
    assert facts["transitions"] == "damaged: storages is of type list instead of dict"
    assert facts["command"] == WHOLE["command"]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "it has no list `commands`"),
        (
            json.dumps({"commands": [WHOLE, {**WHOLE, "versions": 1}]}),
            "versions is of type int instead of dict (command 2)",
        ),
    ],
)
def test_a_damaged_file_with_the_provenance_of_a_run_is_named_in_all_descriptions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, fault: str
) -> None:
    run = tmp_path / "run"
    write_run(run)
    (run / "provenance.json").write_text(content, encoding="utf-8")
    for path in (run, run / "metrics.csv"):
        facts = shown(capsys, path)
        assert facts["provenance"] == f"{run / 'provenance.json'}: it is damaged: {fault}"
        assert facts["kind"]
        if "command 2" in fault:
            assert facts["versions"] == "maze_pl 0.1.0"


def test_numbers_of_thousands_of_digits_are_described_by_their_size() -> None:
    facts = {"epoch": 10**5000, "list": [10**5000], "small": 10**50}
    assert next(as_lines(facts)) == "epoch: a number of 16,610 bits"
    assert json.loads(as_json(facts))["small"] == 10**50
