"""Decisions that fail: others are answered, and episodes keep their states."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from maze_pl.serving.app import DecisionServer, ServerOptions
from maze_pl.serving.batcher import Batcher, _results
from maze_pl.serving.served_policy import CheckedRequest, ServedPolicy
from maze_pl_runtime import Decision
from tests.bundle.written_bundles import write_bundle

ONE: dict[str, Any] = {"place": [0.5, -1.0], "allowed": [1, 1, 1], "kind": 2}
FAR: dict[str, Any] = {**ONE, "place": [3e38, 0.0]}


@pytest.fixture
def served(tmp_path: Path) -> ServedPolicy:
    return ServedPolicy(write_bundle(tmp_path / "agent.bundle"), 8)


def test_an_episode_keeps_the_state_before_a_decision_that_is_not_a_number(served: ServedPolicy) -> None:
    with TestClient(DecisionServer(lambda: served, ServerOptions()).app) as client:
        episode = client.post("/episodes").json()["episode"]
        path = f"/episodes/{episode}/act"
        assert client.post(path, json={"observation": FAR}).status_code == 200
        answer = client.post(path, json={"observation": FAR})  # the sum of both places is infinite
        assert answer.status_code == 422
        assert "next_state/memory has values that are not numbers, or infinite" in answer.json()["error"]
        assert client.post(path, json={"observation": {**ONE, "place": [-3e38, 1.0]}}).status_code == 200
        answer = client.post(path, json={"observation": {**ONE, "place": [0.25, 0.0]}, "with_parameters": True})
        assert answer.json()["parameters"] == {"turn": [0.25, 0.0, 0.25]}  # the sum is 0.25


def test_observations_that_are_not_finite_are_the_clients_mistake(served: ServedPolicy) -> None:
    with TestClient(DecisionServer(lambda: served, ServerOptions()).app) as client:
        answer = client.post("/act", json={"observation": {**ONE, "place": [1e300, 0.0]}})
        assert answer.status_code == 422
        assert answer.json()["field"] == "observation/place"


def has_left() -> bool:
    return False


def test_a_request_that_fails_does_not_fail_those_decided_with_it(served: ServedPolicy) -> None:
    sizes: list[int] = []

    async def decided() -> list[Any]:
        batcher = Batcher(8, sizes.append)
        contents = [{"observation": place, "state": {"memory": [3e38, 0.0]}} for place in (ONE, FAR, ONE)]
        requests = [served.checked(content) for content in contents]
        decisions = [batcher.decide(served, one, has_left) for one in requests]
        results = await asyncio.gather(*decisions, return_exceptions=True)
        batcher.close()
        return results

    first, second, third = asyncio.run(decided())
    assert sizes == [3]
    assert isinstance(second, ValueError)
    assert first.action["turn"].tolist() == third.action["turn"].tolist() == [2]


def test_an_error_outside_of_the_policy_ends_the_requests_of_a_batch_and_no_others(served: ServedPolicy) -> None:
    sizes: list[int] = []

    def count(size: int) -> None:
        sizes.append(size)
        if len(sizes) == 1:
            raise ZeroDivisionError

    async def decided() -> list[Any]:
        batcher = Batcher(2, count)
        request = served.checked({"observation": ONE})
        async with asyncio.timeout(60):
            decisions = [batcher.decide(served, request, has_left) for _ in range(3)]
            results = await asyncio.gather(*decisions, return_exceptions=True)
        batcher.close()
        return results

    first, second, third = asyncio.run(decided())
    assert isinstance(first, ZeroDivisionError) and isinstance(second, ZeroDivisionError)
    assert isinstance(third, Decision)
    assert sizes == [2, 1]


def test_a_request_that_fails_is_found_in_few_decisions(served: ServedPolicy) -> None:
    state = {"memory": [3e38, 0.0]}
    requests = [served.checked({"observation": FAR if n == 11 else ONE, "state": state}) for n in range(16)]
    sizes: list[int] = []
    decide = served.decide

    def counted(some: Sequence[CheckedRequest]) -> list[Decision]:
        sizes.append(len(some))
        return decide(some)

    served.decide = counted  # type: ignore[method-assign]
    results = _results(served, requests)
    assert [n for n, result in enumerate(results) if isinstance(result, ValueError)] == [11]
    assert sizes == [16, 8, 8, 4, 2, 2, 1, 1, 4]
