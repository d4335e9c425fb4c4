"""The application of a server, without a network."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from starlette.testclient import TestClient

from maze_pl.bundle.errors import ExportError
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.spaces import space_to_dict
from maze_pl.serving import episode_store, served_policy
from maze_pl.serving.app import DecisionServer, ServerOptions
from maze_pl.serving.episode_store import Episode
from maze_pl.serving.openapi import _space
from maze_pl.serving.served_policy import ServedPolicy
from maze_pl.serving.server import _reload
from maze_pl_runtime import BundleError, Policy
from tests.bundle.written_bundles import STEP, write_bundle

ONE: dict[str, Any] = {"place": [0.5, -1.0], "allowed": [1, 1, 1], "kind": 2}
TOKEN = {"Authorization": "Bearer secret"}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "agent.bundle")


def server_of(bundle: Path, **options: Any) -> DecisionServer:
    return DecisionServer(lambda: ServedPolicy(bundle, options.get("max_batch", 8)), ServerOptions(**options))


@pytest.fixture
def client(bundle: Path) -> Iterator[TestClient]:
    with TestClient(server_of(bundle, max_batch=8, max_request_bytes=5000, max_episodes=3)) as client:
        yield client


@pytest.fixture(autouse=True)
def app_of_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `TestClient(server)` test the application of the server."""
    original = TestClient.__init__

    def init(self: TestClient, server: Any, **options: Any) -> None:
        original(self, getattr(server, "app", server), **options)

    monkeypatch.setattr(TestClient, "__init__", init)


def test_it_decides_as_the_bundle_does(client: TestClient, bundle: Path) -> None:
    policy = Policy.load(bundle)
    answer = client.post("/act", json={"observation": ONE, "with_parameters": True})
    decision = policy.decide(ONE)
    assert answer.status_code == 200
    assert answer.json()["action"] == decision.action
    assert answer.json()["state"] == {"memory": decision.state["memory"].tolist()}
    assert answer.json()["parameters"] == {"turn": decision.parameters["turn"].tolist()}


def test_a_batch_and_a_given_state_are_decided(client: TestClient) -> None:
    batch = {"place": [[0.5, -1.0], [0.25, 0.0]], "allowed": [[1, 1, 1]] * 2, "kind": [1, 4]}
    content = client.post("/act", json={"observation": batch, "state": {"memory": [[0, 0], [0.5, 0]]}}).json()
    assert content["action"] == {"turn": [0, 2]}
    assert content["state"] == {"memory": [[0.5, -1.0], [0.75, 0.0]]}


def test_a_mask_that_allows_nothing_is_refused(client: TestClient) -> None:
    answer = client.post("/act", json={"observation": {**ONE, "allowed": [0, 0, 0]}})
    assert answer.status_code == 422
    assert answer.json() == {
        "error": "observation 'allowed' allows no option of 'turn'",
        "field": "observation/allowed",
    }
    batch = {"place": [[0.5, -1.0]] * 2, "allowed": [[1, 0, 0], [0, 0, 0]], "kind": [1, 4]}
    answer = client.post("/act", json={"observation": batch})
    assert answer.status_code == 422 and answer.json()["error"].endswith("no option of 'turn' in row 1")


def test_null_stands_for_the_log_probability_of_an_impossible_option(client: TestClient) -> None:
    place = [float(np.finfo(np.float32).min), 0.5]
    answer = client.post("/act", json={"observation": {**ONE, "place": place}, "with_parameters": True})
    assert answer.json()["parameters"] == {"turn": [None, 0.5, None]}


def test_uniform_numbers_determine_sampled_actions(client: TestClient) -> None:
    found = []
    for uniform in (0.1, 0.5, 0.9):
        request = {"observation": ONE, "deterministic": False, "uniforms": [uniform]}
        found.append(client.post("/act", json=request).json()["action"]["turn"])
    assert found == [0, 1, 2]


def test_the_binary_form_has_the_same_decisions(client: TestClient) -> None:
    stream = io.BytesIO()
    np.savez(stream, **{f"observation/{name}": np.asarray(value) for name, value in ONE.items()})
    headers = {"content-type": "application/x-npz", "accept": "application/x-npz"}
    answer = client.post("/act", content=stream.getvalue(), headers=headers)
    assert answer.headers["content-type"] == "application/x-npz"
    with np.load(io.BytesIO(answer.content)) as arrays:
        assert arrays["action/turn"] == 0
        assert arrays["state/memory"].tolist() == [0.5, -1.0]


def test_an_episode_keeps_the_state_of_each_actor(client: TestClient) -> None:
    episode = client.post("/episodes").json()["episode"]
    actions = []
    for place, agent in (([0.5, -1.0], 0), ([0.25, 0.0], 0), ([0.25, 0.0], 1)):
        request = {"observation": {**ONE, "place": place}, "agent_id": agent}
        answer = client.post(f"/episodes/{episode}/act", json=request).json()
        assert "state" not in answer
        actions.append(answer["action"]["turn"])
    assert actions == [0, 2, 0]  # the second agent has not seen the first place
    assert client.delete(f"/episodes/{episode}").status_code == 204
    assert client.post(f"/episodes/{episode}/act", json={"observation": ONE}).status_code == 404


def test_an_act_of_an_episode_is_checked_once(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = server_of(bundle)
    checked = server.served.checked
    contents: list[Any] = []

    def noted(content: Any) -> Any:
        contents.append(content)
        return checked(content)

    monkeypatch.setattr(server.served, "checked", noted)
    with TestClient(server) as client:
        episode = client.post("/episodes").json()["episode"]
        for number in (1, 2):
            assert client.post(f"/episodes/{episode}/act", json={"observation": ONE}).status_code == 200
            assert len(contents) == number


def test_actors_of_an_episode_are_limited(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_store, "MOST_ACTORS", 2)
    episode = client.post("/episodes").json()["episode"]
    path = f"/episodes/{episode}/act"
    statuses = [client.post(path, json={"observation": ONE, "agent_id": agent}).status_code for agent in (5, 7, 7, 5)]
    assert statuses == [200] * 4
    for agent in (0, 2**40):
        answer = client.post(path, json={"observation": ONE, "agent_id": agent})
        assert (answer.status_code, answer.json()["field"]) == (422, "agent_id")
        assert "already has the states of 2 actors (sub-steps and agents), the most" in answer.json()["error"]
    assert client.post(path, json={"observation": ONE, "agent_id": 7}).status_code == 200


def test_episodes_are_limited(client: TestClient) -> None:
    assert [client.post("/episodes").status_code for _ in range(4)] == [201, 201, 201, 503]


@pytest.mark.parametrize(
    ("request_", "field", "message"),
    [
        ({}, "observation", "must be an object with ['place', 'allowed', 'kind'], not None"),
        ({"observation": []}, "observation", "must be an object"),
        ({"observation": {"place": [0, 0]}}, "observation/allowed", "'allowed' is missing"),
        ({"observation": {**ONE, "place": [1.0]}}, "observation/place", "has shape (1,), expected (2,)"),
        ({"observation": {**ONE, "place": "east"}}, "observation/place", "must be float32 of shape (2,), not 'east'"),
        ({"observation": {**ONE, "place": [[1, 2], [3, "a"]]}}, "observation/place", "has a text, expected numbers"),
        ({"observation": {**ONE, "place": [1e300, 0]}}, "observation/place", "not finite"),
        ({"observation": {**ONE, "kind": 9}}, "observation/kind", "must be integers from 1 to 4"),
        ({"observation": {**ONE, "allowed": [2, 0, 1]}}, "observation/allowed", "integers from 0 to 1"),
        ({"observation": {**ONE, "kind": [1, 2]}}, "observation", "must be single ones, or batches of the same size"),
        ({"observation": ONE, "step_key": 3}, "step_key", "step_key=3 must be one of the sub-steps [0]"),
        ({"observation": ONE, "deterministic": 1}, "deterministic", "must be true or false, not 1"),
        ({"observation": ONE, "determinstic": True}, "determinstic", "did you mean deterministic"),
        ({"observation": ONE, "state": {"x": 1}}, "state", "must be null or have the entries ['memory']"),
        ({"observation": ONE, "state": {"memory": [1]}}, "state/memory", "finite numbers of shape (2,)"),
        ({"observation": ONE, "state": {"memory": [1, "2"]}}, "state/memory", "has a text, expected numbers only"),
        ({"observation": ONE, "uniforms": [1.5]}, "uniforms", "at least 0 and below 1"),
        ({"observation": ONE, "agent_id": -1}, "agent_id", "must be from 0"),
        ({"observation": ONE, "agent_id": 0.5}, "agent_id", "must be int64"),
    ],
)
def test_a_wrong_request_names_its_field(client: TestClient, request_: Any, field: str, message: str) -> None:
    answer = client.post("/act", json=request_)
    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert message in answer.json()["error"]


def test_a_long_name_of_a_field_takes_no_longer_than_a_short_one(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    original = served_policy.suggestion

    def noted(name: str, known: Any) -> str:
        names.append(name)
        return original(name, known)

    monkeypatch.setattr(served_policy, "suggestion", noted)
    answer = client.post("/act", json={"observations" * 300: 1})
    assert answer.status_code == 422
    assert [len(name) for name in names] == [80]


def test_a_long_text_in_a_list_takes_no_memory_for_each_number(bundle: Path) -> None:
    place = [0.0] * 1000 + ["a" * 100_000]
    content = json.dumps({"observation": {**ONE, "place": place}})
    with TestClient(server_of(bundle)) as client:
        tracemalloc.start()
        try:
            answer = client.post("/act", content=content, headers={"content-type": "application/json"})
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (answer.status_code, answer.json()["field"]) == (422, "observation/place")
    assert peak < 10_000_000, "an array of texts would have 400 MB"


def test_deeply_nested_lists_are_refused(client: TestClient) -> None:
    content = '{"observation": {"place": ' + "[" * 900 + "]" * 900 + ', "allowed": [1, 1, 1], "kind": 2}}'
    answer = client.post("/act", content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["field"]) == (422, "observation/place")


def test_an_archive_of_many_arrays_is_refused(bundle: Path) -> None:
    stream = io.BytesIO()
    np.savez(stream, **{f"observation/{name}": np.asarray(value) for name, value in ONE.items()}, **{"state/m": 0})
    few = stream.getvalue()
    stream = io.BytesIO()
    np.savez(stream, **{f"observation/{number}": np.zeros(1) for number in range(1000)})
    headers = {"content-type": "application/x-npz"}
    with TestClient(server_of(bundle)) as client:
        answer = client.post("/act", content=stream.getvalue(), headers=headers)
        assert answer.status_code == 422
        assert "the archive has more than 27 arrays" in answer.json()["error"]
        assert "state must be null or have the entries" in client.post("/act", content=few, headers=headers).text


def test_pages_of_other_origins_have_no_access_without_a_token(bundle: Path) -> None:
    requests = [("POST", "/episodes"), ("POST", "/act"), ("GET", "/spec"), ("DELETE", "/episodes/x")]
    with TestClient(server_of(bundle)) as client:
        for method, path in requests:
            for origin in ("https://example.org", "null", "http://testserver:8080"):
                answer = client.request(method, path, headers={"Origin": origin})
                assert (answer.status_code, answer.json()["field"]) == (403, "origin")
            assert client.request(method, path, headers={"Origin": "http://TestServer"}).status_code != 403
        assert client.get("/health", headers={"Origin": "https://example.org"}).status_code == 200
    with TestClient(server_of(bundle, token="secret")) as client:
        headers = {**TOKEN, "Origin": "https://example.org"}
        assert client.post("/episodes", headers=headers).status_code == 201


def test_policy_states_of_episodes_are_limited_in_memory(bundle: Path) -> None:
    with TestClient(server_of(bundle, max_state_bytes=2500)) as client:
        path = f"/episodes/{client.post('/episodes').json()['episode']}/act"
        answers = [client.post(path, json={"observation": ONE, "agent_id": agent}) for agent in (0, 1, 2, 1)]
    assert [answer.status_code for answer in answers] == [200, 200, 503, 200]
    assert "the policy states of all episodes take 2016 bytes" in answers[2].json()["error"]


def test_a_policy_of_which_no_state_fits_is_not_served(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"takes 1008 bytes, more than --max_state_bytes 1000 allows$"):
        server_of(bundle, max_state_bytes=1000)
    server = server_of(bundle, max_state_bytes=1008, token="secret")
    monkeypatch.setattr(episode_store, "BYTES_OF_ACTOR", 2000)  # as if the states of the new bundle were larger
    with TestClient(server) as client:
        answer = client.post("/reload", headers=TOKEN)
        assert (answer.status_code, "the bundle in use stays: " in answer.json()["error"]) == (409, True)
        assert "takes 2008 bytes" in answer.json()["error"]
        assert client.post("/act", json={"observation": ONE}, headers=TOKEN).status_code == 200


def test_bodies_and_batches_are_limited(client: TestClient) -> None:
    assert client.post("/act", json={"observation": {"place": [0.0] * 5000}}).status_code == 413
    batch = {"place": [[0, 0]] * 9, "allowed": [[1, 1, 1]] * 9, "kind": [1] * 9}
    answer = client.post("/act", json={"observation": batch})
    assert answer.status_code == 422
    assert "at most 8" in answer.json()["error"]

    def chunks() -> Iterator[bytes]:  # without a declared length
        for _ in range(10):
            yield b" " * 1000

    headers = {"content-type": "application/json"}
    assert client.post("/act", content=chunks(), headers=headers).status_code == 413


def test_a_token_is_needed_for_all_but_the_health(bundle: Path) -> None:
    with TestClient(server_of(bundle, token="secret")) as client:
        assert client.get("/health").status_code == 200
        for path in ("/spec", "/metrics", "/openapi.json"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
            assert client.get(path, headers=TOKEN).status_code == 200
        answer = client.post("/act", json={"observation": ONE})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert client.post("/act", json={"observation": ONE}, headers=TOKEN).status_code == 200
        assert client.get("/openapi.json", headers=TOKEN).json()["security"] == [{"token": []}]


def test_the_bundle_is_replaced_only_by_a_valid_one(bundle: Path) -> None:
    with TestClient(server_of(bundle, token="secret")) as client:
        first = client.get("/health").json()["sha256"]
        kept = client.post("/episodes", headers=TOKEN).json()["episode"]
        content = bundle.read_bytes()
        bundle.write_bytes(content[:-80] + b"x" + content[-79:])
        refused = client.post("/reload", headers=TOKEN)
        assert refused.status_code == 409
        assert "was changed or cut off" in refused.json()["error"]
        assert client.get("/health").json()["sha256"] == first
        write_bundle(bundle, observations={**STEP["observations"], "kind": {"type": "discrete", "n": 9, "start": 1}})
        assert client.post("/reload", headers=TOKEN).json()["ended_episodes"] == 0
        assert client.get("/health").json()["sha256"] != first
        request = {"observation": {**ONE, "kind": 9}}
        assert client.post(f"/episodes/{kept}/act", json=request, headers=TOKEN).status_code == 200
        text = client.get("/metrics", headers=TOKEN).text
        assert 'maze_pl_reloads_total{outcome="refused"} 1.0' in text


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("there is no checkpoint"),
        ExportError("the network cannot be exported"),
        BundleError("it is damaged"),
    ],
)
def test_what_cannot_be_loaded_again_leaves_the_bundle_in_use(
    bundle: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    loaded: list[ServedPolicy] = []

    def load() -> ServedPolicy:
        if loaded:
            raise error
        loaded.append(ServedPolicy(bundle, 8))
        return loaded[0]

    server = DecisionServer(load, ServerOptions(token="secret"))
    with TestClient(server) as client:
        answer = client.post("/reload", headers=TOKEN)
        assert (answer.status_code, answer.json()["error"]) == (409, f"the bundle in use stays: {error}")
        assert client.get("/health").json()["sha256"] == loaded[0].digest
        assert client.post("/act", json={"observation": ONE}, headers=TOKEN).status_code == 200
    assert not caplog.records
    asyncio.run(_reload(server))  # as HUP does
    assert [record.getMessage() for record in caplog.records] == [f"the bundle in use stays: {error}"]


@pytest.mark.parametrize("error", [ZeroDivisionError(), ValueError("wrong"), FileNotFoundError("gone")], ids=repr)
def test_a_fault_in_a_reload_is_logged_with_its_traceback(
    bundle: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    server = server_of(bundle, token="secret")
    digest = server.served.digest

    def load() -> ServedPolicy:
        raise error

    server._load = load
    asyncio.run(_reload(server))
    assert "the bundle in use stays" in caplog.text
    assert "Traceback (most recent call last)" in caplog.text and type(error).__name__ in caplog.text
    caplog.clear()
    with TestClient(server) as client:
        answer = client.post("/reload", headers=TOKEN)
    assert (answer.status_code, answer.json()["error"]) == (500, f"the request failed: {type(error).__name__}")
    assert "Traceback (most recent call last)" in caplog.text
    assert server.served.digest == digest


def test_a_bundle_is_not_reloaded_over_http_without_a_token(client: TestClient) -> None:
    answer = client.post("/reload")
    assert answer.status_code == 403
    assert "SIGHUP" in answer.json()["error"]


def test_metrics_count_requests_and_decisions(client: TestClient) -> None:
    client.post("/act", json={"observation": ONE})
    client.post("/act", json={"observation": ONE})
    client.post("/act", json={})
    text = client.get("/metrics").text
    assert 'maze_pl_requests_total{path="/act",status="200"} 2.0' in text
    assert 'maze_pl_requests_total{path="/act",status="422"} 1.0' in text
    assert 'maze_pl_decisions_total{head="turn",option="0",step_key="0"} 2.0' in text
    assert 'maze_pl_request_seconds_count{path="/act"} 3.0' in text


def test_unknown_paths_and_methods_are_answered_in_json(client: TestClient) -> None:
    assert (client.get("/nothing").status_code, client.get("/nothing").json()["error"]) == (404, "Not Found")
    answer = client.get("/act")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(("method", "path"), [("POST", "/act/"), ("GET", "/health/"), ("DELETE", "/episodes/x/")])
def test_a_path_with_a_slash_at_its_end_is_unknown(client: TestClient, method: str, path: str) -> None:
    answer = client.request(method, path, follow_redirects=False)
    assert (answer.status_code, answer.json()) == (404, {"error": "Not Found", "field": ""})


def test_the_hash_is_that_of_the_bundle_that_decides(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another bundle replaces the file as soon as it was read."""
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
    other = write_bundle(tmp_path / "other.bundle", exploration=2.0)
    original = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        content = original(path)
        if other.exists():
            other.replace(bundle)
        return content

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    served = ServedPolicy(bundle, 8)
    assert served.digest == digest
    assert "exploration" not in served.policy.manifest["steps"][0], "the other one has it"


def test_a_fault_of_the_policy_is_no_detail_for_clients(bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = server_of(bundle)

    def fail(_: Any) -> Any:
        raise RuntimeError("secret path")

    server.served.decide = fail  # type: ignore[method-assign]
    with TestClient(server) as client:
        answer = client.post("/act", json={"observation": ONE})
    assert (answer.status_code, answer.json()["error"]) == (500, "the request failed: RuntimeError")
    assert "secret path" in caplog.text


def test_concurrent_requests_are_decided_together(bundle: Path) -> None:
    server = server_of(bundle)
    sizes: list[int] = []
    release = threading.Event()
    decide = server.served.decide

    def slow(requests: Any) -> Any:
        sizes.append(len(requests))
        release.wait(10)
        return decide(requests)

    server.served.decide = slow  # type: ignore[method-assign]
    answers: dict[int, Any] = {}
    with TestClient(server) as client:

        def ask(number: int) -> None:
            request = {"observation": {**ONE, "place": [number, 0.5]}}
            answers[number] = client.post("/act", json=request).json()["state"]["memory"]

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
            while not sizes:  # the first one is being decided
                release.wait(0.01)
        # nothing public shows requests that wait
        while len(server._batcher._waiting) < 5:
            release.wait(0.01)
        release.set()
        for thread in threads:
            thread.join()
    assert sizes == [1, 5]
    assert answers == {number: [float(number), 0.5] for number in range(6)}


def test_an_act_that_waits_while_a_bundle_with_other_states_replaces_its_own_is_told_to_begin_again(
    bundle: Path,
) -> None:
    loaded: list[ServedPolicy] = []

    def load() -> ServedPolicy:
        served = ServedPolicy(bundle, 8)
        if loaded:
            served.policy.spec[0]["state"] = {"memory": {"dtype": "float32", "shape": [3]}}
        loaded.append(served)
        return served

    server = DecisionServer(load, ServerOptions(token="secret"))
    is_deciding, release, has_found = threading.Event(), threading.Event(), threading.Semaphore(0)
    decide, find = server.served.decide, server._episodes.find

    def slow(requests: Any) -> Any:
        is_deciding.set()
        release.wait(10)
        return decide(requests)

    def find_and_tell(name: str) -> Episode:
        has_found.release()
        return find(name)

    server.served.decide = slow  # type: ignore[method-assign]
    server._episodes.find = find_and_tell  # type: ignore[method-assign]
    answers: dict[int, Any] = {}
    with TestClient(server) as client:
        path = f"/episodes/{client.post('/episodes', headers=TOKEN).json()['episode']}/act"

        def ask(number: int) -> None:
            answers[number] = client.post(path, json={"observation": ONE}, headers=TOKEN)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
        try:
            threads[0].start()
            assert has_found.acquire(timeout=10) and is_deciding.wait(10)
            threads[1].start()
            assert has_found.acquire(timeout=10)  # the second one waits for the first from here on
            assert client.post("/reload", headers=TOKEN).json()["ended_episodes"] == 1
        finally:
            release.set()
        for thread in threads:
            thread.join()
    assert answers[0].status_code == 200  # by the previous bundle
    assert (answers[1].status_code, answers[1].json()["field"]) == (404, "episode")
    assert "the bundle was replaced by one with other states; begin a new episode" in answers[1].json()["error"]


def test_the_description_fits_the_bundle(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    assert {"/act", "/episodes", "/health", "/spec", "/metrics", "/reload"} <= set(described["paths"])
    accepted = described["paths"]["/act"]["post"]["requestBody"]["content"]
    assert accepted["application/x-npz"] == {"schema": {"type": "string", "format": "binary"}}
    single, batch = accepted["application/json"]["schema"]["anyOf"]
    place = single["properties"]["observation"]["properties"]["place"]
    assert (place["minItems"], place["maxItems"], place["items"]["type"]) == (2, 2, "number")
    assert batch["properties"]["observation"]["properties"]["kind"]["items"]["maximum"] == 4
    assert {"403", "500", "503"} <= set(described["paths"]["/episodes/{episode}/act"]["post"]["responses"])
    state = batch["properties"]["state"]
    assert state["type"] == ["object", "null"]
    assert all(part["maxItems"] == 8 for part in state["properties"].values())
    json.dumps(described, allow_nan=False)


@pytest.mark.parametrize(
    ("space", "schema"),
    [
        (spaces.MultiDiscrete([3, 3]), {"items": {"type": "integer", "minimum": 0, "maximum": 2}}),
        (
            spaces.MultiDiscrete([2, 10], start=[0, 5]),
            {
                "prefixItems": [
                    {"type": "integer", "minimum": 0, "maximum": 1},
                    {"type": "integer", "minimum": 5, "maximum": 14},
                ]
            },
        ),
    ],
)
def test_choices_are_described_with_their_bounds(space: spaces.Space[Any], schema: dict[str, Any]) -> None:
    described = _space(space_to_dict(space), is_mask=False)
    assert described == {"type": "array", "minItems": 2, "maxItems": 2, **schema}


def test_observations_that_are_clipped_are_described_without_limits() -> None:
    space = space_to_dict(spaces.Box(-1.0, 1.0, (2,), np.float32))
    largest = float(np.finfo(np.float32).max)
    assert _space(space, is_mask=False)["items"] == {"type": "number", "minimum": -largest, "maximum": largest}
    assert _space({**space, "clipped": True}, is_mask=False)["items"] == {"type": "number"}


def test_choices_of_several_dimensions_are_described_one_by_one() -> None:
    described = _space(space_to_dict(spaces.MultiDiscrete([[2, 3], [4, 4]])), is_mask=False)
    first, second = described["prefixItems"]
    assert [part["maximum"] for part in first["prefixItems"]] == [1, 2]
    assert (second["items"]["maximum"], second["maxItems"]) == (3, 2)


@pytest.mark.parametrize("token", ["déjà", "Å"])
def test_the_last_byte_of_a_token_is_not_a_space(bundle: Path, token: str) -> None:
    with TestClient(server_of(bundle, token=token)) as client:
        header = b"Bearer  " + token.encode() + b" "
        assert client.get("/spec", headers=[(b"authorization", header)]).status_code == 200


def test_tokens_are_compared_in_utf_8(bundle: Path) -> None:
    with TestClient(server_of(bundle, token="geheim-ü")) as client:
        sent = {"Authorization": "Bearer geheim-ü".encode()}
        assert client.get("/spec", headers=sent).status_code == 200
        assert client.get("/spec", headers={"Authorization": "Bearer geheim-u"}).status_code == 401
