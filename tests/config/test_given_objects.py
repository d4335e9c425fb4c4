"""Objects from Python that stand in configurations, and the message that they are needed."""

from __future__ import annotations

from maze_pl.config.given_objects import missing


def test_an_object_in_a_list_is_given_with_the_whole_list() -> None:
    names = ["env", "wrappers.1", "data.evaluators.short.env", "data.evaluators.short.wrappers.0"]
    message = missing(dict.fromkeys([*names, "data.evaluators.short.wrappers.1"], "the function <lambda>"))
    overrides = "overrides={'data.evaluators.short.env': ..., 'data.evaluators.short.wrappers': ...}"
    assert f"use RunContext(run_dir=..., env=..., wrappers=..., {overrides}) in Python" in message
