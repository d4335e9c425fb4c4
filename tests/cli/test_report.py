"""`maze-pl report`: one page about a run, which names what is missing."""

from __future__ import annotations

import json
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from maze_pl.__main__ import main
from maze_pl.runs.run_directory import claimed
from tests.bad_input.project import tree
from tests.reports.written_runs import write_run

HOSTILE = "</script><script>alert(1)</script>\"'{body}&\x1b"
ENDED = "command: x\nrun directory: a\n\nended: max_epochs\n300 env steps in 0:01:30\nrun directory: a\nnext:\n"
MISSING = ("no comparison with baselines", "no view of an episode", "no pictures of networks", "No KPIs were logged")


class Page(HTMLParser):
    """Tags of a page, its texts, and the addresses that it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.addresses: list[str] = []
        self.frames: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        assert not [name for name in values if name.startswith("on")]
        self.addresses += [str(values[name])[:40] for name in ("src", "href", "data", "xlink:href") if name in values]
        if tag == "iframe":
            assert values["sandbox"] == "allow-scripts"
            self.frames.append(str(values["srcdoc"]))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


@pytest.mark.parametrize("command", ["report", "plot", "show"])
def test_commands_that_run_no_code_say_that_they_need_no_trust(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(Path("run"))
    assert main([command, "run", "--trust"]) == 2
    expected = f"maze-pl: error: maze-pl {command} runs no code of a run and needs no --trust: omit it\n"
    assert capsys.readouterr().err == expected


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report(*words: str, file: str = "run/report.html") -> Page:
    assert main(["report", *words]) == 0
    page = Page(Path(file).read_text(encoding="utf-8"))
    assert "script" not in page.tags and "link" not in page.tags
    assert not [one for one in page.addresses if not one.startswith(("data:image/", "#"))]
    return page


def test_what_is_missing_is_named_with_the_command_that_adds_it() -> None:
    write_run(Path("run"))
    page = report("run")
    for text in (*MISSING, "There is no final evaluation", "versions, machine and git commit are unknown"):
        assert text.lower() in page.text.lower()
    for command in (
        "compare run --baseline random --to run/comparison",
        "view run --to run/view.html",
        "validate run",
    ):
        assert f"maze-pl {command}" in page.text
    assert page.tags.count("svg") == 1 and "stopped before its end" in page.text
    Path("run", "metrics.csv").unlink()
    assert "run has no metrics.csv yet" in report("run").text
    Path("run", "metrics.csv").write_text("step,a\n1,x\n")
    assert "line 2 has 'x' for a" in report("run").text


def test_damaged_provenance_of_a_run_is_named_and_the_rest_is_shown() -> None:
    write_run(Path("run"))
    git = {"commit": "c0ffee" * 6 + "c0ff", "branch": "main", "is_dirty": []}
    entry = {"command": "maze-pl fit", "seed": 7, "versions": {"maze_pl": "9.9"}, "git": git}
    Path("run", "provenance.json").write_text(json.dumps({"commands": [{**entry, "git": 3}, entry]}))
    text = report("run").text
    assert "c0ffeec0ff" in text and "maze_pl 9.9" in text and "is_dirty is of type list" in text
    assert "provenance.json" in text and "git is of type int instead of dict (command 1)" in text


def test_all_parts_of_a_run_are_shown() -> None:
    write_run(Path("run"))
    git = {"commit": "c0ffee" * 6 + "c0ff", "branch": "main", "is_dirty": True}
    entry = {"command": "maze-pl fit", "seed": 7, "versions": {"maze_pl": "9.9"}, "git": git, "summary": "model.lr: 3"}
    Path("run", "provenance.json").write_text(json.dumps({"commands": [entry]}))
    episodes = [{"return": 10.0, "kpi/waste": 0.5}, {"return": 20.0, "kpi/waste": 0.25}]
    final = {"env_steps": {"best": 1, "last": 2}, "evaluators": {"eval": {"best": episodes, "last": episodes}}}
    Path("run", "final_evaluation.json").write_text(json.dumps(final))
    summary = {"n_values": 100, "mean": 42.0, "mean_interval": [40.0, 44.0], "iqm": 41.0, "iqm_interval": None}
    entries = [{"name": name, "metrics": {"return": summary}} for name in ("mine", "random")]
    both = {"entry": "mine", "baseline": "random", "metric": "return", "difference": 5.5, "interval": [1.0, 10.0]}
    both |= {"probability_of_improvement": 0.875, "episodes_needed": 1234}
    mirrored = both | {"entry": "random", "baseline": "mine", "difference": -5.5}
    content = {
        "entries": entries,
        "differences": [both, mirrored],
        "winner": "mine",
        "metric": "return",
        "n_episodes": 100,
    }
    Path("run", "versus").mkdir()
    Path("run", "versus", "comparison.json").write_text(json.dumps(content))
    Path("run", "versus", "comparison.html").touch()
    Path("run", "zzz").mkdir()
    Path("run", "zzz", "comparison.json").write_text("{}")
    os.utime(Path("run", "zzz", "comparison.json"), (1, 1))  # earlier than the other comparison
    Path("run", "networks").mkdir()
    Path("run", "networks", "policy.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'></svg>")
    Path("run", "view.html").write_text("<p>the episode</p>")
    page = report("run")
    assert page.frames == ["<p>the episode</p>"] and page.tags.count("img") == 1
    assert "commit c0ffee" in page.text and "with changes that were not committed" in page.text
    for text in (
        "maze_pl 9.9",
        "model.lr: 3",
        "0.375",
        "-48.53 to 78.53",
        "40 to 44",
        "0.875",
        "1,234",
        "Best by return: mine",
    ):
        assert text in page.text, text
    assert "viewer: run/versus/comparison.html" in page.text and "-5.5" not in page.text
    assert not [text for text in MISSING[:3] if text in page.text]


def test_several_seeds_are_one_page_with_a_table_of_runs() -> None:
    for seed in (0, 1):
        write_run(Path("seeds", f"seed_{seed}"), seed)
    Path("seeds", "seed_1", "run.log").write_text(ENDED)
    Path("seeds", "seeds.json").write_text(json.dumps({"seeds": [0, 1], "options": []}))
    page = report("seeds", file="seeds/report.html")
    assert "1 of 2" in page.text and "seed_0" in page.text and "seed_1" in page.text
    assert "IQM of 2 runs" in page.text
    page = report("seeds/seed_0", "seeds/seed_1", "--to", "both.html", file="both.html")
    assert "IQM of 2 runs" in page.text


def test_a_run_in_progress_is_told_from_one_that_was_killed() -> None:
    write_run(Path("run"))
    with claimed(Path("run")):
        with Path("run", "metrics.csv").open("a") as file:
            file.write("400,1")  # a row that is being written
        assert f"in progress (process {os.getpid()})" in report("run").text
    assert Path("run", ".lock").read_text() == f"{os.getpid()}\n"  # of a process that still exists
    assert "stopped before its end" in report("run").text


def test_nothing_from_a_run_is_markup_or_imported() -> None:
    Path("own_code.py").write_text("raise RuntimeError('imported')\n")
    config = {"model": {"class_path": "own_code.Model"}, "note": HOSTILE}
    write_run(Path("run"), config=config, statistic=f"eval_{HOSTILE}_BaseEnvEvents/reward/mean")
    hostile = {"command": HOSTILE, "versions": {HOSTILE: HOSTILE}, "git": {"commit": HOSTILE, "branch": HOSTILE}}
    hostile |= {"summary": HOSTILE, "machine": {HOSTILE: HOSTILE}, "seed": HOSTILE}
    Path("run", "provenance.json").write_text(json.dumps({"commands": [hostile]}))
    Path("run", "command.txt").write_text(f"{HOSTILE}\n")
    evaluators = {HOSTILE: {HOSTILE: [{HOSTILE: 1.0}, 5, {"x": "y"}]}}
    assert "maze-pl validate run --trust" in report("run").text
    Path("run", "final_evaluation.json").write_text(json.dumps({"evaluators": evaluators}))
    entry = {"name": HOSTILE, "metrics": {HOSTILE: {"mean": HOSTILE, "mean_interval": [HOSTILE, 1]}}}
    Path("run", "comparison.json").write_text(
        json.dumps({"entries": [entry, 3], "winner": HOSTILE, "command": HOSTILE})
    )
    Path("run", "networks").mkdir()
    Path("run", "networks", "<img src=x onerror=alert(1)>.svg").write_text("<svg onload='alert(1)'/>")
    Path("run", "view.html").write_text(HOSTILE)
    page = report("run")
    assert page.frames == [HOSTILE]
    assert "own_code" not in sys.modules and "<script>alert(1)</script>" in page.text
    written = Path("run", "report.html").read_text(encoding="utf-8")
    assert "\x1b" not in re.sub(r'srcdoc="[^"]*"', "", written) and "<script" not in written


def test_damaged_files_are_named_and_do_not_fail_the_page() -> None:
    write_run(Path("run"))
    for name in ("final_evaluation.json", "comparison.json", "provenance.json"):
        Path("run", name).write_text('{"entries": [')
    Path("run", "checkpoints").mkdir()
    Path("run", "checkpoints", "last.ckpt").write_text("hello")
    page = report("run")
    Path("run", "metrics.csv").write_text("a,b\n1,2,3\n")
    assert "its first line must name different columns" in report("run").text
    assert "run/comparison.json is damaged" in page.text and "There is no final evaluation" in page.text


def test_what_is_no_run_is_refused_and_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("run"))
    Path("empty").mkdir()
    Path("file").touch()
    Path("played").mkdir()
    Path("played", "config.yaml").touch()
    Path("played", "episodes.csv").touch()
    before = tree(Path())
    for words, message in (
        (["empty"], "empty is not a run directory"),
        (["nowhere"], "nowhere does not exist"),
        (["file"], "file is a file"),
        (["played"], "holds played episodes, not a training"),
        (["run", "--comparison", "empty"], "has no comparison.json"),
        (["run", "--to", "file/page.html"], "cannot be written"),
        ([], "the following arguments are required: RUNS"),
    ):
        assert main(["report", *words]) == 2
        output, error = capsys.readouterr()
        assert output == "" and message in error and error.count("\n") == 1
    assert tree(Path()) == before
