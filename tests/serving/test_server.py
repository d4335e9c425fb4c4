"""The server as a process: its start, its signals, and clients that are slow or hostile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings

from maze_pl.__main__ import main
from maze_pl.config.search_path import ConfigurationError
from maze_pl.serving.app import DecisionServer, ServerOptions
from maze_pl.serving.connections import Connection, ConnectionLimits, most_connections
from maze_pl.serving.served_policy import ServedPolicy
from maze_pl.serving.server import _config_of, _Server, _socket_of, serve
from tests.bundle.written_bundles import STEP, write_bundle

ONE: dict[str, Any] = {"place": [0.5, -1.0], "allowed": [1, 1, 1], "kind": 2}
BODY = json.dumps({"observation": ONE}).encode()


@contextlib.contextmanager
def served(bundle: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server and its port."""
    command = [sys.executable, "-m", "maze_pl", "serve", str(bundle), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"serving on http://127.0.0.1:(\d+)", line)
        assert found, (line, process.communicate()[1])
        yield process, int(found[1])
    finally:
        process.kill()
        process.communicate()


def post(port: int, path: str = "/act", body: bytes = BODY) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def head(length: int) -> bytes:
    return (
        f"POST /act HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n".encode()
    )


@pytest.mark.slow
def test_it_answers_what_is_under_way_when_it_is_ended_and_reloads_on_hup(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "agent.bundle")
    with served(bundle, "--body_seconds", "30") as (process, port):
        stalled = socket.create_connection(("127.0.0.1", port))
        stalled.sendall(head(len(BODY)) + BODY[:10])  # and others are answered meanwhile
        assert post(port)["action"] == {"turn": 0}
        write_bundle(bundle, observations={**STEP["observations"], "kind": {"type": "discrete", "n": 9, "start": 1}})
        process.send_signal(signal.SIGHUP)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("reloaded: sha256 ")
        assert post(port, body=json.dumps({"observation": {**ONE, "kind": 9}}).encode())["action"] == {"turn": 0}
        bundle.write_bytes(b"nothing")
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        assert "the bundle in use stays" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        assert process.poll() is None  # one request is under way
        stalled.sendall(BODY[10:])
        assert b"200 OK" in stalled.recv(4096)
        stalled.close()
        assert process.wait(30) == 0


@pytest.mark.slow
def test_a_second_signal_ends_it_without_answering_what_is_under_way(tmp_path: Path) -> None:
    with served(write_bundle(tmp_path / "agent.bundle"), "--body_seconds", "100") as (process, port):
        stalled = socket.create_connection(("127.0.0.1", port))
        stalled.sendall(head(len(BODY)) + BODY[:10])
        assert post(port)["action"] == {"turn": 0}
        process.send_signal(signal.SIGTERM)
        time.sleep(1.0)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        stalled.close()


@pytest.mark.slow
def test_a_third_signal_ends_it_while_a_reload_hangs(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "agent.bundle")
    with served(bundle) as (process, port):
        bundle.unlink()
        os.mkfifo(bundle)  # which nothing writes to
        process.send_signal(signal.SIGHUP)
        assert post(port)["action"] == {"turn": 0}
        for number in range(3):
            assert process.poll() is None, number
            process.send_signal(signal.SIGTERM)
            time.sleep(1.0)
        assert process.wait(10) == -signal.SIGTERM


def test_hangups_during_the_start_are_noted_for_a_reload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = write_bundle(tmp_path / "agent.bundle")
    original = ServedPolicy.__init__
    seen: list[list[int]] = []

    def init(self: ServedPolicy, *arguments: Any) -> None:
        signal.raise_signal(signal.SIGHUP)
        original(self, *arguments)

    def noted(_: DecisionServer, host: str, port: int, hangups: list[int], on_stop: Any) -> int:
        seen.append(hangups)
        return 0

    monkeypatch.setattr(ServedPolicy, "__init__", init)
    monkeypatch.setattr("maze_pl.serving.server.serve", noted)
    unexpected: list[int] = []
    previous = signal.signal(signal.SIGHUP, lambda number, _: unexpected.append(number))
    try:
        assert main(["serve", str(bundle)]) == 0
        assert (seen, unexpected) == ([[signal.SIGHUP]], [])
        signal.raise_signal(signal.SIGHUP)
        assert unexpected == [signal.SIGHUP], "the handler is restored"
    finally:
        signal.signal(signal.SIGHUP, previous)


@pytest.mark.parametrize("hangups", [(), (signal.SIGHUP,)])
def test_a_server_that_is_ready_reloads_once_for_hangups_before(
    tmp_path: Path, hangups: tuple[int, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = write_bundle(tmp_path / "agent.bundle")
    loads: list[ServedPolicy] = []

    def load() -> ServedPolicy:
        loads.append(ServedPolicy(bundle, 8))
        return loads[-1]

    server = DecisionServer(load, ServerOptions())
    original = _Server.main_loop

    async def main_loop(self: _Server) -> None:
        while hangups and len(loads) < 2:
            await asyncio.sleep(0.01)
        signal.raise_signal(signal.SIGTERM)
        await original(self)

    monkeypatch.setattr(_Server, "main_loop", main_loop)
    assert serve(server, "127.0.0.1", 0, hangups) == signal.SIGTERM
    assert len(loads) == 1 + len(hangups)
    assert capsys.readouterr().out.startswith("serving on http://127.0.0.1:")


def test_hangups_during_a_reload_are_one_further_reload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = write_bundle(tmp_path / "agent.bundle")
    loads: list[ServedPolicy] = []
    release = threading.Event()

    def load() -> ServedPolicy:
        loads.append(ServedPolicy(bundle, 8))
        if len(loads) == 2:
            release.wait(SECONDS)
        return loads[-1]

    def is_reloading() -> bool:
        return any(task.get_coro().__qualname__ == "_reload" for task in asyncio.all_tasks())

    server = DecisionServer(load, ServerOptions())
    original = _Server.main_loop

    async def main_loop(self: _Server) -> None:
        signal.raise_signal(signal.SIGHUP)
        while len(loads) < 2:
            await asyncio.sleep(0.01)
        for _ in range(5):
            signal.raise_signal(signal.SIGHUP)
            await asyncio.sleep(0.01)
        release.set()
        while is_reloading():
            await asyncio.sleep(0.01)
        signal.raise_signal(signal.SIGTERM)
        await original(self)

    monkeypatch.setattr(_Server, "main_loop", main_loop)
    assert serve(server, "127.0.0.1", 0) == signal.SIGTERM
    assert len(loads) == 3, "at the start, for the first hangup, and for all others"


SECONDS = 60.0  # after which a test that waits for the server fails
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Client]]


def config_of(host: str, port: int) -> uvicorn.Config:
    return _config_of(SimpleNamespace(app=None), ConnectionLimits(1.0, 8), host, port)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("nosuch.invalid", "not known|failure in name resolution"),
        ("192.0.2.1", "Cannot assign"),
        ("a..ä", "encoding of hostname"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_the_reason(host: str, reason: str) -> None:
    remedy = "choose an address of this machine by --host$"
    with pytest.raises(ConfigurationError, match=rf"^the address {host} cannot be used: .*({reason}).*; {remedy}"):
        _socket_of(config_of(host, 0))


def test_a_port_in_use_is_refused_with_another_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        fault = rf"^port {port} of 127\.0\.0\.1 cannot be used: Address already in use; choose another port by --port$"
        with pytest.raises(ConfigurationError, match=fault):
            _socket_of(config_of("127.0.0.1", port))


@contextlib.asynccontextmanager
async def running(bundle: Path, limits: ConnectionLimits) -> AsyncIterator[Connect]:
    """A server in the event loop, and a function that connects; it ends while connections are open."""
    config = _config_of(DecisionServer(lambda: ServedPolicy(bundle, 8), ServerOptions()), limits, "127.0.0.1", 0)
    listening = _socket_of(config)
    ready = asyncio.Event()
    server = _Server(config, limits, ready.set)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    await asyncio.wait_for(ready.wait(), SECONDS)
    address = listening.getsockname()
    clients: list[Client] = []

    async def connect() -> Client:
        clients.append(await asyncio.open_connection(*address))
        return clients[-1]

    try:
        yield connect
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, SECONDS)
        for _, writer in clients:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def received(client: Client, n_bytes: int = -1) -> bytes:
    """What the server sends; all until it closes the connection, or some of it."""
    return await asyncio.wait_for(client[0].read(n_bytes), SECONDS)


async def is_answered(client: Client) -> bool:
    """Whether a request is answered; the connection stays open."""
    client[1].write(head(len(BODY)) + BODY)
    return (await received(client, 4096)).startswith(b"HTTP/1.1 200 ")


def test_connections_that_send_no_complete_head_are_closed(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "agent.bundle")

    async def play() -> None:
        async with running(bundle, ConnectionLimits(client_seconds=0.3, most=100)) as connect:
            used, silent, slow = await connect(), await connect(), await connect()
            assert await is_answered(used)
            used[1].write(b"P")  # of the next head
            slow[1].write(head(3)[:20])
            assert [await received(one) for one in (used, silent, slow)] == [b"", b"", b""]
            patient = await connect()
            patient[1].write(head(len(BODY)))
            await asyncio.sleep(0.5)  # the body has another limit
            patient[1].write(BODY)
            assert (await received(patient, 4096)).startswith(b"HTTP/1.1 200 ")

    asyncio.run(play())


def test_bytes_that_are_not_http_leave_the_log_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    bundle = write_bundle(tmp_path / "agent.bundle")
    chunked = b"GET /health HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    upgrade = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close, upgrade\r\nupgrade: websocket\r\n\r\n"

    async def play() -> None:
        async with running(bundle, ConnectionLimits(client_seconds=SECONDS, most=100)) as connect:
            nonsense, answered, upgraded = await connect(), await connect(), await connect()
            nonsense[1].write(b"nonsense\r\n\r\n")
            assert (await received(nonsense)).startswith(b"HTTP/1.1 400 ")
            answered[1].write(chunked)
            assert (await received(answered, 4096)).startswith(b"HTTP/1.1 200 ")
            answered[1].write(b"no size of a chunk\r\n")
            assert b"HTTP" not in await received(answered)
            upgraded[1].write(upgrade)
            assert (await received(upgraded)).startswith(b"HTTP/1.1 200 ")

    asyncio.run(play())
    assert (caplog.records, capfd.readouterr().err) == ([], "")


def test_the_longest_idle_connection_makes_room_for_another_one(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "agent.bundle")

    async def play() -> None:
        async with running(bundle, ConnectionLimits(client_seconds=SECONDS, most=4)) as connect:
            idle = [await connect() for _ in range(10)]
            assert [await received(one) for one in idle[:6]] == [b""] * 6
            used = await connect()
            assert await received(idle[6]) == b""
            assert await is_answered(idle[7]), "it is idle for the shortest time then"
            busy = [await connect() for _ in range(3)]
            assert [await received(one) for one in (*idle[8:], used)] == [b""] * 3
            for one in (*busy, idle[7]):
                one[1].write(head(len(BODY)))
            await asyncio.sleep(0.1)
            refused = await connect()
            assert await received(refused) == b"", "all others have a request under way"
            for one in (*busy, idle[7]):
                one[1].write(BODY)
                assert (await received(one, 4096)).startswith(b"HTTP/1.1 200 ")

    asyncio.run(play())


def test_a_connection_that_sends_much_is_read_in_turn_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = write_bundle(tmp_path / "agent.bundle")
    sizes: list[int] = []
    data_received = Connection.data_received

    def noted(self: Connection, data: bytes) -> None:
        sizes.append(len(data))
        data_received(self, data)

    monkeypatch.setattr(Connection, "data_received", noted)

    async def play() -> None:
        async with running(bundle, ConnectionLimits(client_seconds=SECONDS, most=100)) as connect:
            client = await connect()
            client[1].write(head(200_000) + BODY + b" " * (200_000 - len(BODY)))
            assert (await received(client, 4096)).startswith(b"HTTP/1.1 200 ")

    asyncio.run(play())
    assert sum(sizes) > 200_000
    assert max(sizes) <= 4096, "as chunks of one byte take long"


@contextlib.asynccontextmanager
async def answering(bundle: Path, limits: ConnectionLimits) -> AsyncIterator[tuple[_Server, Any]]:
    """A server whose connections hold few bytes in the kernel, and its address; its clients have ended."""
    config = _config_of(DecisionServer(lambda: ServedPolicy(bundle, 8), ServerOptions()), limits, "127.0.0.1", 0)
    listening = _socket_of(config)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # connections inherit it
    ready = asyncio.Event()
    server = _Server(config, limits, ready.set)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    await asyncio.wait_for(ready.wait(), SECONDS)
    try:
        yield server, listening.getsockname()
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, SECONDS)


async def silent_reader(address: Any, content: bytes) -> socket.socket:
    """A client that sends requests, and has room for few bytes of their answers."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await loop.sock_connect(client, address)
    await asyncio.wait_for(loop.sock_sendall(client, content), SECONDS)
    return client


async def until_without_connections(server: _Server) -> None:
    """Wait until the server has closed all connections."""
    while server.server_state.connections:
        await asyncio.sleep(0.02)


def described_at_length(folder: Path, n_bytes: int) -> Path:
    """A bundle whose description has at least so many bytes."""
    return write_bundle(folder / "agent.bundle", padding="x" * n_bytes)


SPEC = b"GET /spec HTTP/1.1\r\nhost: x\r\n\r\n"
LAST_SPEC = SPEC.replace(b"host", b"connection: close\r\nhost")


@pytest.mark.parametrize(
    ("requests", "n_bytes"),
    [(SPEC, 10**6), (SPEC * 200, 10**4), (LAST_SPEC, 10**6), (LAST_SPEC, 60_000), (SPEC + b"nothing\r\n\r\n", 60_000)],
    ids=["large", "several", "large and last", "last", "faulty"],
)
def test_connections_whose_clients_do_not_read_are_closed(tmp_path: Path, requests: bytes, n_bytes: int) -> None:
    bundle = described_at_length(tmp_path, n_bytes)

    async def play() -> None:
        async with answering(bundle, ConnectionLimits(client_seconds=0.2, most=100)) as (server, address):
            client = await silent_reader(address, requests)
            await asyncio.sleep(0.1)
            assert len(server.server_state.connections) == 1
            await asyncio.wait_for(until_without_connections(server), 10.0)
            client.close()

    asyncio.run(play())


@pytest.mark.slow
def test_a_client_that_reads_slowly_gets_its_answer(tmp_path: Path) -> None:
    bundle = described_at_length(tmp_path, 600_000)

    async def play() -> int:
        async with answering(bundle, ConnectionLimits(client_seconds=0.3, most=100)) as (_, address):
            client = await silent_reader(address, LAST_SPEC)
            n_read = 0
            while part := await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 2048), SECONDS):
                n_read += len(part)
                await asyncio.sleep(0.005)
            client.close()
            return n_read

    assert asyncio.run(play()) > 600_000


def test_a_closing_connection_makes_room_for_another_one(tmp_path: Path) -> None:
    bundle = described_at_length(tmp_path, 60_000)

    async def play() -> None:
        async with answering(bundle, ConnectionLimits(client_seconds=SECONDS, most=2)) as (server, address):
            closing = [await silent_reader(address, LAST_SPEC) for _ in range(2)]
            while not all(one.transport.is_closing() for one in server.server_state.connections):
                await asyncio.sleep(0.02)
            another = await silent_reader(address, SPEC)
            answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(another, 12), SECONDS)
            assert answer == b"HTTP/1.1 200"
            assert len(server.server_state.connections) == 2
            for client in (*closing, another):
                client.close()

    asyncio.run(play())


def test_a_connection_that_reads_an_answer_is_not_idle_while_others_are(tmp_path: Path) -> None:
    bundle = described_at_length(tmp_path, 60_000)

    async def play() -> None:
        loop = asyncio.get_running_loop()
        async with answering(bundle, ConnectionLimits(client_seconds=SECONDS, most=2)) as (server, address):
            slow = await silent_reader(address, SPEC)
            while not any(one.transport.get_write_buffer_size() for one in server.server_state.connections):
                await asyncio.sleep(0.02)
            idle = await silent_reader(address, b"")
            while len(server.server_state.connections) < 2:
                await asyncio.sleep(0.02)
            another = await silent_reader(address, SPEC)
            assert await asyncio.wait_for(loop.sock_recv(idle, 1), SECONDS) == b""
            n_read = 0
            while n_read < 60_000:
                n_read += len(await asyncio.wait_for(loop.sock_recv(slow, 2048), SECONDS))
            for client in (slow, idle, another):
                client.close()

    asyncio.run(play())


@pytest.mark.parametrize("has_episode", [False, True])
def test_a_request_whose_client_has_left_is_not_decided(
    has_episode: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = write_bundle(tmp_path / "agent.bundle")
    is_deciding, release = threading.Event(), threading.Event()
    sizes: list[int] = []
    decide = ServedPolicy.decide

    def slow(self: ServedPolicy, requests: Any) -> Any:
        sizes.append(len(requests))
        is_deciding.set()
        release.wait(SECONDS)
        return decide(self, requests)

    monkeypatch.setattr(ServedPolicy, "decide", slow)

    request = json.dumps({"observation": ONE, "with_parameters": True}).encode()

    async def asked(address: Any, path: str, body: bytes = request) -> Client:
        client = await asyncio.open_connection(*address)
        client[1].write(head(len(body)).replace(b"/act", path.encode()).replace(b"host", b"connection: close\r\nhost"))
        client[1].write(body)
        return client

    async def answered(client: Client) -> bytes:
        content = (await received(client)).partition(b"\r\n\r\n")[2]
        client[1].close()
        return content

    async def play() -> list[float]:
        async with answering(bundle, ConnectionLimits(client_seconds=SECONDS, most=100)) as (server, address):
            path = "/act"
            if has_episode:
                begun = json.loads(await answered(await asked(address, "/episodes")))
                path = f"/episodes/{begun['episode']}/act"
            first = await asked(address, path)
            while not is_deciding.is_set():
                await asyncio.sleep(0.01)
            left = await asked(address, path, b"no JSON" if has_episode else request)  # which is not read, either
            while len(server.server_state.tasks) < 2:
                await asyncio.sleep(0.01)
            left[1].close()
            while len(server.server_state.connections) > 1:
                await asyncio.sleep(0.01)
            second = await asked(address, path)
            release.set()
            answers = [json.loads(await answered(one)) for one in (first, second)]
            metrics = await asyncio.open_connection(*address)
            metrics[1].write(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert b'status="499"} 1.0' in await answered(metrics)
            return [answer["parameters"]["turn"][2] for answer in answers]

    assert asyncio.run(play()) == ([0.5, 1.0] if has_episode else [0.5, 0.5])
    assert sizes == [1, 1]


class Sending:
    """A connection, and its transport, whose client reads an answer."""

    n_looks = 0

    def __init__(self) -> None:
        self.transport = self

    def get_write_buffer_size(self) -> int:
        Sending.n_looks += 1
        return 1


def test_few_connections_are_looked_at_to_find_one_to_close() -> None:
    limits = ConnectionLimits(client_seconds=SECONDS, most=2)
    assert limits.longest_idle() is None
    sending: list[Any] = [Sending() for _ in range(1000)]
    limits.idle = dict.fromkeys(sending)
    assert limits.longest_idle() is sending[0]
    assert Sending.n_looks == 100


@pytest.mark.parametrize(("limit", "n"), [(1024, 896), (100, 16), (10**6, 10_000), (resource.RLIM_INFINITY, 10_000)])
def test_the_number_of_connections_follows_the_limit_of_open_files(
    limit: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert most_connections() == n


@pytest.mark.slow
def test_more_idle_connections_than_files_do_not_stop_it(tmp_path: Path) -> None:
    few = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, few[1]))  # processes inherit it
    try:
        with served(write_bundle(tmp_path / "agent.bundle")) as (process, port):
            resource.setrlimit(resource.RLIMIT_NOFILE, few)
            idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
            for _ in range(3):
                assert post(port)["action"] == {"turn": 0}
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert process.stderr is not None and process.stderr.read() == ""
            for connection in idle:
                connection.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, few)


@pytest.mark.slow
def test_hostile_bytes_and_stalled_clients_do_not_stop_it(tmp_path: Path) -> None:
    with served(write_bundle(tmp_path / "agent.bundle"), "--body_seconds", "1") as (process, port):
        generator = random.Random(0)
        stalled = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        for number, connection in enumerate(stalled):
            connection.sendall(head(100)[: 20 + 5 * number])
        slow = socket.create_connection(("127.0.0.1", port))
        slow.sendall(head(100) + b"{")
        for _ in range(100):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(generator.randbytes(generator.randrange(1, 2000)))
                connection.shutdown(socket.SHUT_WR)
                assert b" 500 " not in connection.recv(4096)
        assert b" 408 " in slow.recv(4096)
        assert post(port)["action"] == {"turn": 0}
        assert process.poll() is None
        for connection in (*stalled, slow):
            connection.close()


def send_cases(operation: Any, n_cases: int) -> int:
    """Send generated requests of an operation, and return their number."""
    described = {*operation.definition.raw["responses"], "405"}
    answers: list[int] = []
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]

    @settings(max_examples=n_cases, deadline=None, database=None, suppress_health_check=checks)
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        answer = case.call()
        assert answer.status_code != 500 and str(answer.status_code) in described, answer.text
        answers.append(answer.status_code)

    send()
    return len(answers)


def fuzz(bundle: Path, n_cases: int) -> int:
    """Send generated requests of each operation of the description, and return their number."""
    options = ServerOptions(max_batch=4, max_episodes=50)
    server = DecisionServer(lambda: ServedPolicy(bundle, options.max_batch), options)
    schema = schemathesis.openapi.from_asgi("/openapi.json", server.app)
    return sum(send_cases(found.ok(), n_cases) for found in schema.get_all_operations())


@pytest.mark.slow
def test_generated_requests_are_answered_as_described(tmp_path: Path) -> None:
    assert fuzz(write_bundle(tmp_path / "agent.bundle"), 40) > 100


@pytest.mark.slow
@pytest.mark.long
def test_ten_thousand_generated_requests_are_answered_as_described(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "agent.bundle")
    n_sent = 0
    while n_sent < 10_000:
        n_sent += fuzz(bundle, 1500)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "can be reached by others, but there is no token"),
        (["--host", "example.org"], "can be reached by others, but there is no token"),
        (["--port", "70000"], "--port 70000 must be from 0 to 65535"),
        (["--max_batch", "0"], "--max_batch 0 must be a number greater than 0"),
        (["--episode_seconds", "nan"], "--episode_seconds nan must be a number greater than 0"),
        (["--token_file", "nothing"], "--token_file nothing cannot be read"),
        (["--tokn_file", "x"], "did you mean --token_file"),
        ([], "agent.bundle is not a bundle of `maze-pl export`"),
    ],
)
def test_invalid_options_are_refused_in_one_message(
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MAZE_PL_SERVE_TOKEN", raising=False)
    (tmp_path / "agent.bundle").write_text("x" * 100)
    assert main(["serve", str(tmp_path / "agent.bundle"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_token_of_the_variable_has_no_space_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_bundle(tmp_path / "agent.bundle")
    tokens: list[str | None] = []

    def noted(server: DecisionServer, *_: Any) -> int:
        tokens.append(server.options.token)
        return 0

    monkeypatch.setattr("maze_pl.serving.server.serve", noted)
    monkeypatch.setenv("MAZE_PL_SERVE_TOKEN", " secret\n")
    assert main(["serve", str(bundle)]) == 0
    monkeypatch.delenv("MAZE_PL_SERVE_TOKEN")
    assert main(["serve", str(bundle)]) == 0
    assert tokens == ["secret", None]
    for empty in ("", " \n"):
        monkeypatch.setenv("MAZE_PL_SERVE_TOKEN", empty)
        assert main(["serve", str(bundle)]) == 2
        assert "MAZE_PL_SERVE_TOKEN is empty" in capsys.readouterr().err
