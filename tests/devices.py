"""Devices that tests are repeated on. Tests marked `cuda` are collected only where there is such a device."""

from __future__ import annotations

import pytest

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
