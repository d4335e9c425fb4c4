"""The notebooks of examples/ run from top to bottom, and are stored without output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples" / "notebooks").glob("*.ipynb"))


def test_there_are_the_notebooks_that_the_documentation_names() -> None:
    names = ["fine_tuning_a_clone", "first_example", "looking_at_results", "own_environment"]
    assert [path.stem for path in NOTEBOOKS] == names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_valid_and_stored_without_output(path: Path) -> None:
    nbformat.validate(nbformat.read(path, as_version=4))
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 4
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


RUN = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=300).execute()
*_, last = [cell for cell in notebook.cells if cell.cell_type == "code"]
for output in last.outputs:
    print(output.output_type, output.get("data", {}).get("text/plain", ""))
"""
LAST_OUTPUT = {"own_environment": "Difference(entry='trained', baseline='random', metric='return'"}
"""Part of the last output, where the text before it says what is shown."""


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path: Path, tmp_path: Path) -> None:
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    command = [sys.executable, "-W", "ignore", "-c", RUN, str(path)]
    result = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-5000:]
    assert "execute_result" in result.stdout
    assert LAST_OUTPUT.get(path.stem, "") in result.stdout
