from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

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
