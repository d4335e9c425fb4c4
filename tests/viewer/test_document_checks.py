"""Documents that cannot be shown are refused with the place of the mistake."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from maze_pl.viewer.document_checks import check_document
from tests.viewer.episode_documents import array, document, structured_episode


def mistaken(place: str, value: Any) -> dict[str, Any]:
    """A document with something else at a place; "lacks" removes what is there."""
    changed = copy.deepcopy(document(structured_episode("robots", 4), structured_episode("robots", 4), pairs=[[0, 1]]))
    owner: Any = changed
    *way, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    for part in way:
        owner = owner[part]
    if value == "lacks":
        del owner[last]
    else:
        owner[last] = value
    return changed


def test_a_document_with_every_kind_of_observation_and_head_is_accepted() -> None:
    check_document(document(structured_episode("robots", 4)))


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("version", 2, r"version 2, but the viewer shows 'maze_pl episodes', version 1"),
        ("episodes", [], "at least one episode"),
        ("pairs", [[0, 2]], r"pairs\[0\] is \[0, 2\]"),
        ("title", 3, r"document\.title is 3, but must be of type str"),
        ("episodes.1.acts", "lacks", r"episodes\[1\] lacks 'acts'"),
        ("episodes.0.end", "done", r"episodes\[0\]\.end is 'done', but must be one of terminated"),
        ("episodes.0.acts.agent", array([0, 1], "int32"), r"acts\.agent has the shape \[2\], but must have \[12\]"),
        ("episodes.0.acts.env_step", array(range(12), "int32"), "must not decrease, and lie between 0 and 3"),
        ("episodes.0.acts.step_key", array([2] * 12, "int32"), "step_key has indices from 2 to 2"),
        ("episodes.0.acts.value.encoding", "gzip", r"value\.encoding is 'gzip'"),
        ("episodes.0.acts.step_key.data", "%", "cannot be decoded"),
        ("episodes.0.heads.plan.order.sizes", [119], r"order\.probabilities has the shape \[4, 120\]"),
        ("episodes.0.heads.jump", {}, r"heads has 'jump', which is not one of the step keys \['plan', 'move'\]"),
        ("episodes.0.heads.move.force.low", [0.0], "has 1 numbers for 2 coordinates"),
        ("episodes.0.observations.plan.map.kind", "chart", r"map\.kind is 'chart'"),
        ("episodes.0.observations.move.camera.pictures", [], "has 0 pictures for 8 acts"),
        ("episodes.0.events.attributes", [], r"events\.env_step has the shape"),
        ("episodes.0.acts.unit", 3, r"acts\.unit is 3"),
        ("episodes.0.return_unit", 3, r"return_unit is 3"),
        ("episodes.0.events.is_recorded", "no", r"events\.is_recorded is 'no'"),
        ("episodes.0.pictures.index", array([1] * 5, "int32"), "index has indices from 1 to 1"),
    ],
)
def test_mistakes_are_named_with_their_place(place: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_document(mistaken(place, value))
