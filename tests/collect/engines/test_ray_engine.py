"""What is particular to Ray: that it is started and ended, how workers are counted, and what it refuses."""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import Any

import pytest

from maze_pl.collect.engines import RayEngine
from maze_pl.system import ray_cluster
from tests.collect.engines.players import Player, RandomActs
from tests.distributed.ray_cluster import nothing_left


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"address": "nonsense"}, "address='nonsense' must be `auto` or `host:port`"),
        ({"address": "ray://10.0.0.1:10001"}, "must be `auto` or `host:port`"),
        ({"n_workers": -1}, "n_workers=-1"),
        ({"max_replacements": -1}, "max_replacements=-1"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RayEngine(**arguments)


def test_how_to_install_ray_is_said_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    engine = RayEngine()
    with pytest.raises(ImportError, match=r'pip install "maze-pl\[ray\]"'):
        engine.start(Player, RandomActs())
    engine.close()


class Movable(Player):
    """A player whose state can be taken elsewhere."""

    def state_dict(self) -> dict[str, Any]:
        return {"n_calls": self.n_calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n_calls = state["n_calls"]


@pytest.mark.slow
def test_ray_is_started_on_this_machine_and_ended_and_workers_are_replaced() -> None:
    former = signal.getsignal(signal.SIGTERM)
    with nothing_left() as started:
        engine = RayEngine(max_replacements=1)
        try:
            engine.start(Movable, RandomActs())
            assert signal.getsignal(signal.SIGTERM) is former
            assert engine.n_workers == len(os.sched_getaffinity(0))
            engine._n_workers = 1  # as if there were no more room
            first, other = engine.map([(0, "pid", ()), (1, "pid", ())])
            assert first == other != os.getpid()
            assert engine.map([(0, "count", ()), (1, "count", ())]) == [(0, 1, ()), (1, 1, ())]

            engine._n_workers = 2  # there is room now, for one of the players with its state
            assert engine.map([(0, "count", ()), (1, "count", ())]) == [(0, 2, ()), (1, 2, ())]
            first, other = engine.map([(0, "pid", ()), (1, "pid", ())])
            assert first != other and {first, other} <= started()

            engine.submit(0, "kill_first", 1)
            engine.submit(1, "count")
            done = {one.player: one for one in (engine.get(), engine.get())}
            assert (done[0].result, done[0].restarts) == (1, 1)
            assert (done[1].result, done[1].restarts) == ((1, 3, ()), 0)
            engine.submit(0, "kill_first", 9)
            with pytest.raises(RuntimeError, match=r"a worker of RayEngine is lost: .*max_replacements=1"):
                engine.get()
        finally:
            engine.close()
    assert signal.getsignal(signal.SIGTERM) is former


@pytest.mark.slow
def test_what_does_not_answer_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "_SECONDS_TO_ANSWER", 4)
    with nothing_left(), socket.socket() as silent:
        silent.bind(("0.0.0.0", 0))
        silent.listen()
        engine = RayEngine(f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(ConnectionError, match=r"cannot use the Ray cluster at 127\.0\.0\.1:"):
            engine.start(Player, RandomActs())
        engine.close()
