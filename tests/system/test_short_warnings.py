"""Warnings on the command line: those of maze_pl are one line each, others stay as they are."""

from __future__ import annotations

import warnings

import pytest
from gymnasium import spaces

import maze_pl
from maze_pl.envs.gym_observation_conversion import GymObservationConversion
from maze_pl.system.short_warnings import short_warnings

SPACE = spaces.Dict({"mission": spaces.Text(5), "view": spaces.Discrete(3)})
TEXT = "the observation space has text at ['mission'], which is left out: networks take numbers only"


def test_warnings_of_maze_pl_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(), short_warnings():
        warnings.simplefilter("always")
        GymObservationConversion(SPACE)
        with warnings.catch_warnings():  # after which Python has forgotten what was shown
            GymObservationConversion(SPACE)
    assert capsys.readouterr().err == f"maze-pl: warning: {TEXT}\n"


def test_other_warnings_are_shown_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: shown.append(str(message)))
    before = warnings.showwarning
    with short_warnings():
        warnings.showwarning(UserWarning("of a user"), UserWarning, __file__, 1)
        warnings.showwarning(DeprecationWarning("old"), DeprecationWarning, str(maze_pl.__file__), 1)
    assert shown == ["of a user", "old"]
    assert warnings.showwarning is before
