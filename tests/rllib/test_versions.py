"""RLlib is accepted in the tested release of Ray only."""

from __future__ import annotations

from importlib import metadata, util

import pytest

from maze_pl.rllib import versions
from maze_pl.rllib.versions import TESTED_RAY, require_rllib, require_tested


@pytest.mark.parametrize("installed", ["2.60.0", "2.60.7", "2.60.1rc1"])
def test_patches_of_the_tested_release_are_accepted(installed: str) -> None:
    require_tested(installed)


@pytest.mark.parametrize(
    ("installed", "age"), [("2.9.3", "older"), ("2.59.1", "older"), ("2.61.0", "newer"), ("3.0", "newer")]
)
def test_other_releases_are_refused_with_both_versions(installed: str, age: str) -> None:
    with pytest.raises(ImportError, match=f"Ray {installed} is {age} than Ray {TESTED_RAY}.*maze-pl.rllib"):
        require_tested(installed)


def test_the_installed_ray_is_asked_for_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: {"ray": "2.40.0"}[name])
    with pytest.raises(ImportError, match=r"Ray 2.40.0 is older"):
        require_rllib()


def test_a_missing_ray_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'RLlib is not installed: pip install "maze-pl\[rllib\]"'):
        require_rllib()


def test_a_missing_package_of_rllib_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError("No module named 'tree'")

    monkeypatch.setattr(versions, "import_module", fail)
    with pytest.raises(ImportError, match=r"lacks a package \(No module named 'tree'\): pip install"):
        require_rllib()
