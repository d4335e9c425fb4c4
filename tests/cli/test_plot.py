"""`maze-pl plot`: learning curves of runs as PNG and SVG."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from maze_pl.__main__ import main
from maze_pl.core.provenance import Provenance
from maze_pl.runs.provenance import provenance_text
from tests.bad_input.project import tree
from tests.reports.written_runs import write_run

HOSTILE = "<script>alert(1)</script>_$\\frac{$ \x1b[2J"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    before = tree(Path())
    capsys.readouterr()
    assert main(["plot", *words]) == 2
    output, error = capsys.readouterr()
    assert output == "" and error.startswith("maze-pl: error: ") and error.count("\n") == 1
    assert tree(Path()) == before
    return error


def texts(svg: Path) -> list[str]:
    root = ElementTree.fromstring(svg.read_text(encoding="utf-8"))
    return ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]


def test_runs_of_several_seeds_are_one_band_in_both_formats(capsys: pytest.CaptureFixture[str]) -> None:
    seeds = Path("seeds")
    for seed in (0, 1, 2):
        write_run(seeds / f"seed_{seed}", seed, [seed, 2, 5], step=100 + seed)
    (seeds / "seeds.json").write_text(json.dumps({"seeds": [0, 1, 2], "options": []}))
    write_run(Path("other"), 0, [7, 7], config={"model": {"lr": 0.5}})
    assert main(["plot", "seeds"]) == 0
    assert capsys.readouterr().out.split() == ["seeds/curves.png", "seeds/curves.svg"]
    assert Path("seeds/curves.png").read_bytes().startswith(b"\x89PNG")
    found = texts(Path("seeds/curves.svg"))
    assert "eval/return" in found and "seeds: IQM of 3 runs, 95% interval" in found
    assert main(["plot", "seeds", "other", "--x", "wall_clock", "--to", "both.svg"]) == 0
    found = texts(Path("both.svg"))
    assert {"model.lr=0.1: IQM of 3 runs, 95% interval", "model.lr=0.5", "wall clock (minutes)"} <= set(found)
    assert not Path("both.png").exists()


@pytest.mark.parametrize("content", [None, ""])
def test_a_run_in_its_first_epoch_is_left_out(content: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1, 2):
        write_run(Path(f"seeds/seed_{seed}"), seed)
    Path("seeds", "seeds.json").write_text(json.dumps({"seeds": [0, 1, 2], "options": []}))
    file = Path("seeds/seed_1/metrics.csv")
    file.unlink()
    if content is not None:
        file.write_text(content)
    assert main(["plot", "seeds"]) == 0
    output, error = capsys.readouterr()
    assert output.split() == ["seeds/curves.png", "seeds/curves.svg"]
    assert error.startswith(f"maze-pl: {file} ") and error.endswith("; the run is left out\n")
    assert error.count("\n") == 1
    assert "seeds: IQM of 2 runs, 95% interval" in texts(Path("seeds/curves.svg"))
    write_run(Path("damaged"))
    Path("damaged", "metrics.csv").write_text("step,a\n1,2,3\n")
    assert main(["plot", "seeds", "damaged", "--to", "x.png"]) == 2
    assert "damaged/metrics.csv is damaged" in capsys.readouterr().err


def test_a_run_whose_configuration_cannot_be_read_is_drawn_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1, 2):
        write_run(Path(f"seed_{seed}"), seed)
    Path("seed_1", "config.yaml").write_text("[]", encoding="utf-8")
    assert main(["plot", "seed_0", "seed_1", "seed_2", "--to", "curves.svg"]) == 0
    fault = "maze-pl: seed_1/config.yaml is damaged: it holds no options; the run is a group by itself\n"
    assert capsys.readouterr().err == fault
    assert any(text.endswith("IQM of 2 runs, 95% interval") for text in texts(Path("curves.svg")))


def test_the_horizontal_axis_of_clones_counts_acts() -> None:
    for run, unit in (("clone", "acts"), ("played", "env steps")):
        write_run(Path(run))
        command: Provenance = {"command": "fit", "started": "", "seed": 0, "versions": {}, "git": None}
        Path(run, "provenance.json").write_text(provenance_text([command | {"step_unit": unit}]), encoding="utf-8")
    write_run(Path("earlier"))
    for runs, label in (("clone", "acts"), ("played earlier", "env steps"), ("clone played", "acts or env steps")):
        assert main(["plot", *runs.split(), "--to", "x.svg"]) == 0
        assert label in texts(Path("x.svg"))


def test_runs_that_share_no_range_have_curves_and_no_band() -> None:
    for seed, steps in ((0, 100), (1, 1000)):
        write_run(Path(f"seeds/seed_{seed}"), seed, [1, 2, 3], step=steps)
    assert main(["plot", "seeds/seed_0", "seeds/seed_1", "--to", "x.svg"]) == 0
    assert "seeds: 2 runs without a common range" in texts(Path("x.svg"))


def test_the_same_runs_give_the_same_file() -> None:
    write_run(Path("run"))
    for name in ("a", "b"):
        assert main(["plot", "run", "--to", name, "--smooth", "2"]) == 0
    for form in ("png", "svg"):
        assert Path(f"a.{form}").read_bytes() == Path(f"b.{form}").read_bytes()


def test_hostile_names_are_drawn_as_text() -> None:
    write_run(Path("run"), statistic=HOSTILE)
    write_run(Path("_other"), statistic=HOSTILE, config={HOSTILE: HOSTILE, "b": 1, "c": 2, "d": 3})
    assert main(["plot", "run", "_other", "--statistic", HOSTILE, "--to", "x"]) == 0
    assert "<script" not in Path("x.svg").read_text(encoding="utf-8")
    found = texts(Path("x.svg"))
    assert any(text.startswith("<script>alert(1)</script>_$") for text in found) and "_other" in found


def test_what_cannot_be_drawn_is_refused_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(Path("run"))
    assert "did you mean eval_BaseEnvEvents/reward/mean?" in refusal(
        capsys, "run", "--statistic", "BaseEnvEvents/reward/mean"
    )
    assert "nowhere does not exist: name a run directory" in refusal(capsys, "run", "nowhere")
    Path("empty").mkdir()
    assert "empty is not a run directory" in refusal(capsys, "empty")
    write_run(Path("new"))
    Path("new", "metrics.csv").unlink()
    assert "it appears after the first epoch" in refusal(capsys, "new")
    Path("new", "metrics.csv").write_text("step,a\n1,2,3\n")
    assert "line 2 has 3 values for 2 columns" in refusal(capsys, "new")
    assert "did you mean eval/return?" in refusal(capsys, "run", "--statistic", "eval/retrun")
    assert "--to x.pdf: pictures are .png or .svg" in refusal(capsys, "run", "--to", "x.pdf")
    assert "--smooth 0" in refusal(capsys, "run", "--smooth", "0")
    assert "invalid choice: 'epochs'" in refusal(capsys, "run", "--x", "epochs")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert 'pip install "maze-pl[rendering]"' in refusal(capsys, "run")


def test_large_numbers_are_drawn_and_larger_ones_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        write_run(Path("seeds", f"seed_{seed}"), seed, [1e300, -1e300, 5e299])
    assert main(["plot", "seeds/seed_0", "seeds/seed_1", "--smooth", "2", "--to", "curves.svg"]) == 0
    write_run(Path("larger"), 0, [1e308, -1e308])
    assert "too large to be drawn" in refusal(capsys, "larger")
