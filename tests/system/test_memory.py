from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from maze_pl.system.memory import keep_freed_memory

PAGES = """
import json, resource
import numpy as np
from maze_pl.system.memory import keep_freed_memory
accepted = keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.empty(64 * 2**20, np.uint8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(json.dumps([accepted, faults()]))
"""


def page_faults(variables: dict[str, str]) -> tuple[bool, int]:
    """Result of `keep_freed_memory`, and page faults of ten blocks of 64 MiB after ten others."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", PAGES]
    result = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=True)
    accepted, n_faults = json.loads(result.stdout)
    return accepted, n_faults


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="options of glibc")
def test_large_blocks_are_reused() -> None:
    accepted, n_faults = page_faults({})
    assert accepted
    assert n_faults < 100


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="options of glibc")
@pytest.mark.parametrize(
    "variables",
    [{"MALLOC_MMAP_THRESHOLD_": "1048576"}, {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1048576"}],
)
def test_options_of_the_environment_are_left_alone(variables: dict[str, str]) -> None:
    accepted, n_faults = page_faults(variables)
    assert not accepted
    assert n_faults >= 10, "huge pages at least"


class Library:
    """A C library that accepts thresholds of mapped blocks up to a number of bytes, and keeps the options."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self.accepted: dict[int, int] = {}

    def mallopt(self, option: int, value: int) -> int:
        if option == -3 and value > self.largest:
            return 0
        self.accepted[option] = value
        return 1


@pytest.mark.parametrize(
    ("largest", "accepted"),
    [(2**30, {-3: 2**27, -1: 2**29}), (2**25, {-3: 2**25, -1: 2**29}), (2**20, {})],
)
def test_the_trim_threshold_is_set_together_with_that_of_mapped_blocks_only(
    largest: int, accepted: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(largest)
    monkeypatch.setattr("ctypes.CDLL", lambda name: library)
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.34"))
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=2")  # another option of malloc
    assert keep_freed_memory() == bool(accepted)
    assert library.accepted == accepted
