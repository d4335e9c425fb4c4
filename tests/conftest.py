"""Settings of all tests: one thread, so that they do not compete for cores, and no search path or seed from outside.

Folders of tests mirror those of the package: `tests/ROOM/test_FILE.py` tests `maze_pl/ROOM/FILE.py`, and other
modules there test what several files of the room do together. Folders that are no rooms are listed, with what they
test, in `test_tree.py`. Modules not named `test_*.py` hold helpers. What needs a GPU is marked `cuda`, what needs
EnvPool, which the extra `dev` leaves out, `envpool`, and what takes more than a few seconds `slow`.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
SET_BY_COMMANDS = (
    *("MAZE_PL_CONFIG_PATH", "MAZE_PL_RUN_DIR", "MAZE_PL_MAIN_PROCESS", "MAZE_PL_PROVENANCE"),
    *("PL_GLOBAL_SEED", "PL_SEED_WORKERS", "WANDB_SERVICE", "WANDB_MODE", "RAY_CLIENT_MODE"),
)
LONG = (
    *("test_readme", "test_site", "test_generated", "test_imitation", "distributed/test_strategies", "test_resume.py"),
    "learning/",
)

os.environ.setdefault("OMP_NUM_THREADS", "1")  # which torch looks at while it is imported
# Bytecode is written until all tests are collected: rewriting the assertions takes longer than importing everything.
WRITES_NO_BYTECODE = sys.dont_write_bytecode
sys.dont_write_bytecode = False
# Helper modules check things, too.
pytest.register_assert_rewrite(*(f"tests.{path.stem}" for path in FOLDER.iterdir() if path.stem != "conftest"))

from tests.representatives import leave_to_slow_and_long_tests  # noqa: E402


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that need what is not there; start long tests first, so that none is waited for.

    They start in the order of `LONG`, so that tests which share what takes long to make are run by one process.
    """
    import torch  # here, as the process that distributes tests among others needs none of it

    leave_to_slow_and_long_tests(items, all_are_there=not any("::" in argument for argument in config.args))
    is_there = {"cuda": torch.cuda.is_available(), "envpool": importlib.util.find_spec("envpool") is not None}
    for name in [name for name, found in is_there.items() if not found]:
        impossible = [item for item in items if item.get_closest_marker(name)]
        config.hook.pytest_deselected(items=impossible)
        items[:] = [item for item in items if not item.get_closest_marker(name)]
    items.sort(key=lambda item: next((place for place, name in enumerate(LONG) if name in item.nodeid), len(LONG)))


def pytest_collection_finish() -> None:
    """Take modules and collected tests, which stay to the end, out of what is searched for garbage again and again.

    From here on bytecode is written only where it is written anyway, as tests replace modules within a second.
    """
    gc.collect()
    gc.freeze()
    sys.dont_write_bytecode = WRITES_NO_BYTECODE
    remember_entry_points()


def remember_entry_points() -> None:
    """Look once for callbacks that installed packages add to each Trainer, instead of 10 ms for each Trainer."""
    from lightning_fabric.utilities import registry

    registry.entry_points = functools.cache(registry.entry_points)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that changes this process for those after it; begin each with the same random numbers."""
    from tests.process_state import children, differences, process_state, seed_generators, wait_for_processes

    seed_generators()
    before = process_state()
    yield
    if "shared_engine" in request.fixturenames:
        before["processes"] = children()  # they live as long as all tests which share the engine
    wait_for_processes(before["processes"])
    changed = differences(before, process_state())
    if changed:
        pytest.fail(f"the test leaves this process changed: {changed}", pytrace=False)


@pytest.fixture(autouse=True)
def clean_environment(nothing_is_left_behind: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a former run of the command line, or the developer's shell, has set; undo what this test sets."""
    for name in SET_BY_COMMANDS:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # W&B keeps it where one run ends before another
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands put the current folder there
