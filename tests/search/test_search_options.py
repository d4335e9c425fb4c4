"""Texts of searches: what they mean, and what is refused."""

from __future__ import annotations

import pytest

from maze_pl.search import SearchOptions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("best_of:128", SearchOptions("best_of", 128)),
        ("beam:16:max_actions=8", SearchOptions("beam", 16, max_actions=8)),
        ("lookahead:heuristic", SearchOptions("lookahead", rule="heuristic")),
        ("lookahead:a.b.Rule:200:horizon=30", SearchOptions("lookahead", 200, rule="a.b.Rule", horizon=30)),
        ("lookahead:policy:12.5ms", SearchOptions("lookahead", milliseconds=12.5, rule="policy")),
        ("puct:64", SearchOptions("puct", 64)),
        ("puct:64:max_actions=4:min_ratio=0.05", SearchOptions("puct", 64, max_actions=4, min_ratio=0.05)),
        ("puct:50ms", SearchOptions("puct", milliseconds=50.0)),
    ],
)
def test_texts_are_read_and_written(text: str, expected: SearchOptions) -> None:
    assert SearchOptions.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "there is no method ''"),
        ("mcts:64", "there is no method 'mcts'; methods are best_of, beam, lookahead, puct"),
        ("puct", "there is no budget"),
        ("puct:", "'' must be a whole number from 1"),
        ("puct:0", "'0' must be a whole number from 1"),
        ("puct:-3", "'-3' must be a whole number from 1"),
        ("puct:6.5", "'6.5' must be a whole number from 1"),
        ("puct:0ms", "the time 0ms must be above 0"),
        ("puct:64:50ms", "give a number of simulations or a time"),
        ("puct:64:32", "'32' gives simulations twice"),
        ("puct:64:depth=3", "there is no option 'depth'; options are horizon, max_actions and min_ratio"),
        ("puct:64:horizon=x", "'horizon=x' must be a whole number"),
        ("puct:64:min_ratio=-0.1", "'min_ratio=-0.1' must be a number from 0 to 1"),
        ("puct:64:min_ratio=1.5", "'min_ratio=1.5' must be a number from 0 to 1"),
        ("beam:20ms", "the width of a beam is a number, not a time"),
        ("lookahead", "lookahead needs the rule that plays on"),
        ("lookahead:64", "lookahead needs the rule that plays on"),
    ],
)
def test_malformed_texts_are_refused_with_examples(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match="write best_of:128") as error:
        SearchOptions.parse(text)
    assert fault in str(error.value)
