"""What `pip install` gives: the wheel, used from elsewhere than the checkout."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import pytorch_lightning
from packaging.requirements import Requirement

import maze_pl

CHECKOUT = Path(__file__).parents[1]


@pytest.mark.parametrize("version", ["2.6.2", "2.6.3"])
def test_withdrawn_versions_of_lightning_are_never_installed(version: str) -> None:
    listed = map(Requirement, tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["dependencies"])
    (lightning,) = (requirement for requirement in listed if requirement.name == "pytorch-lightning")
    assert not lightning.specifier.contains(version)
    assert lightning.specifier.contains(pytorch_lightning.__version__)


def test_the_lowest_versions_are_the_lower_bounds_for_that_python(tmp_path: Path) -> None:
    needed = [
        "numpy>=1.26",
        "numpy>=2.1; python_version >= '3.13'",
        "torch<3,>=2.6,!=2.7",
        "onnx>=1.18; extra == 'onnx'",
    ]
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr("a-1.dist-info/METADATA", "\n".join(f"Requires-Dist: {one}" for one in needed))
    lowest_versions = runpy.run_path(str(CHECKOUT / "tools" / "check_wheel.py"))["lowest_versions"]
    assert lowest_versions(tmp_path / "a.whl", "3.11") == ["numpy==1.26", "torch==2.6"]
    assert lowest_versions(tmp_path / "a.whl", "3.13") == ["numpy==2.1", "torch==2.6"]


@pytest.mark.parametrize("name", ["maze_pl/core/version.py", "CITATION.cff"])
def test_the_version_is_the_same_everywhere(name: str) -> None:
    (version,) = re.findall(r"(?m)^(?:__version__ = |version: )\"?([\d.]+)", (CHECKOUT / name).read_text("utf-8"))
    assert version == maze_pl.__version__


@pytest.mark.slow
def test_the_wheel_brings_configurations_command_types_and_licence(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*build, str(CHECKOUT)], check=True)
    (wheel,) = tmp_path.glob("maze_pl-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "installed")
        entry_points = archive.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    assert "maze-pl = maze_pl.__main__:main" in entry_points
    assert "maze-run = maze_pl.maze_run:main" in entry_points
    assert {"maze_pl/py.typed", "maze_pl/configs/ppo_cartpole.yaml", "maze_pl/configs/algorithm/ppo.yaml"} <= set(names)
    templates = ("stock/README.md", "shared/.gitignore", "repairs/package/repairs.py")
    template = {f"maze_pl/project_template/{name}.template" for name in templates}
    assert template <= set(names)
    assert {f"maze_pl/viewer/page/{name}" for name in ("page.html", "style.css", "viewer.js")} <= set(names)
    assert {"maze_pl_runtime/py.typed", "maze_pl_runtime/policy.py"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith("tests/")]
    code = "from maze_pl.config.search_path import find; print(find('ppo_cartpole'))"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(tmp_path / "installed" / "maze_pl" / "configs" / "ppo_cartpole.yaml")
    new = "import sys; from maze_pl.__main__ import main; sys.exit(main(['new', 'shop']))"
    subprocess.run(
        [sys.executable, "-c", new], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "installed")}, check=True
    )
    assert (tmp_path / "shop" / "configs" / "ppo_stock.yaml").is_file()
