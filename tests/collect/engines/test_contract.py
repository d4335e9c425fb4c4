"""What every engine must do, whatever holds its players; results are the same with all of them."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect.engines import Engine, InProcessEngine, ProcessEngine, RayEngine, ray_engine
from maze_pl.core.provenance import PROVENANCE_VARIABLE
from maze_pl.envs.contract import EnvContractError
from maze_pl.system import worker_process
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from maze_pl.system.lost_process import LostProcessError
from tests.collect.engines.players import Player, RandomActs, change, make_policy
from tests.distributed.ray_cluster import small_ray
from tests.documentation import blocks

PAGE = Path(__file__).parents[3] / "docs" / "writing_an_engine.md"


@functools.cache
def documented_module() -> ModuleType:
    """The module with an engine that a page of the documentation shows."""
    module = ModuleType("documented_engines")
    sys.modules[module.__name__] = module  # for pickles
    (program,) = [block for block in blocks(PAGE.read_text(encoding="utf-8")) if block.file]
    exec(program.content, vars(module))
    return module


def documented_engine() -> Engine:
    """The engine with threads that a page of the documentation shows, with two of them."""
    engine: Engine = documented_module().ThreadEngine(n_workers=2)
    return engine


# name -> how it is made, marks
ENGINES: dict[str, tuple[Callable[[], Engine], Any]] = {
    "in-process": (InProcessEngine, ()),
    "processes-1": (lambda: ProcessEngine(n_workers=1), ()),
    "processes-2": (lambda: ProcessEngine(n_workers=2), ()),
    "processes-3": (lambda: ProcessEngine(n_workers=3), [pytest.mark.slow, pytest.mark.long]),
    "threads": (documented_engine, pytest.mark.slow),
    "ray": (lambda: RayEngine(n_workers=1), pytest.mark.slow),
}


PARAMETERS = [pytest.param(make, id=name, marks=marks) for name, (make, marks) in ENGINES.items()]


@pytest.fixture(scope="module", params=PARAMETERS)
def shared_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = request.param()
    with small_ray() if isinstance(engine, RayEngine) else contextlib.nullcontext():
        yield engine
        engine.close()


@pytest.fixture
def engine(shared_engine: Engine) -> Engine:
    """An engine that works with `make_policy()`."""
    shared_engine.start(Player, make_policy().eval())
    return shared_engine


def numbers(engine: Engine) -> list[Any]:
    """What four players draw with three versions of the weights."""
    policy = make_policy().eval()
    engine.start(Player, policy)
    drawn = []
    for version in range(3):
        if version:
            torch.manual_seed(version)
            change(policy)
            engine.publish(policy.state_dict(), version)
        drawn += engine.map([(player, "draw", (5 + player,)) for player in (2, 0, 3, 1)])
    return drawn


def test_numbers_depend_neither_on_the_engine_nor_on_its_workers(shared_engine: Engine) -> None:
    expected = numbers(InProcessEngine())
    for (values, array), (same_values, same_array) in zip(expected, numbers(shared_engine), strict=True):
        assert torch.equal(values, same_values)
        np.testing.assert_array_equal(array, same_array)


def test_an_actor_keeps_its_state_and_does_its_jobs_in_order(engine: Engine) -> None:
    for call in range(6):
        for player in range(5):
            engine.submit(player, "count", call)
    done = [engine.get() for _ in range(30)]
    for player in range(5):
        results = [one.result for one in done if one.player == player]
        assert results == [(player, call + 1, (call,)) for call in range(6)]
    assert all(one.restarts == 0 for one in done)


def test_map_returns_results_in_the_order_of_the_jobs(engine: Engine) -> None:
    jobs = [(player, "count", (place,)) for place, player in enumerate([3, 1, 3, 0, 1])]
    assert engine.map(jobs) == [(3, 1, (0,)), (1, 1, (1,)), (3, 2, (2,)), (0, 1, (3,)), (1, 2, (4,))]


def test_weights_and_buffers_arrive_bit_for_bit_with_their_version(engine: Engine) -> None:
    policy = make_policy().eval()
    engine.start(Player, policy)
    for version in (0, 1, 2, 7):
        if version:
            torch.manual_seed(version)
            change(policy)
            engine.publish(policy.state_dict(), version)
        for player in range(3):
            engine.submit(player, "weights")
        for done in [engine.get() for _ in range(3)]:
            assert done.version == version
            assert list(done.result) == list(policy.state_dict())
            for name, value in policy.state_dict().items():
                assert done.result[name].dtype == value.dtype
                assert done.result[name].stride() == value.stride()
                assert torch.equal(done.result[name], value), name


def test_weights_of_before_the_first_job_are_those_that_it_is_done_with(engine: Engine) -> None:
    policy = make_policy().eval()
    engine.start(Player, policy)
    change(policy)
    engine.publish(policy.state_dict(), 5)
    engine.submit(0, "weights")
    done = engine.get()
    assert done.version == 5
    assert torch.equal(done.result["0.weight"], policy[0].weight)


def test_a_policy_without_weights_works_too(shared_engine: Engine) -> None:
    shared_engine.start(Player, RandomActs())
    shared_engine.publish({}, 3)
    shared_engine.submit(0, "is_training")
    done = shared_engine.get()
    assert (done.result, done.version) == (False, 3)


def test_actors_may_be_made_by_a_lambda(shared_engine: Engine) -> None:
    offset = 100
    shared_engine.start(lambda policy, number, restarts: Player(policy, number + offset, restarts), RandomActs())
    assert shared_engine.map([(1, "count", ())]) == [(101, 1, ())]


def test_large_results_arrive_whole_and_can_be_written_to(shared_engine: Engine) -> None:
    shared_engine.start(Player, make_policy().eval())
    big = np.arange(3_000_000, dtype=np.float32).reshape(1000, 3000)
    number, _, (array, tensor, half) = shared_engine.map(
        [(1, "count", (big[:, ::2], torch.from_numpy(big).t(), torch.ones(9, 9000, dtype=torch.bfloat16)))]
    )[0]
    assert number == 1
    np.testing.assert_array_equal(array, big[:, ::2])
    assert torch.equal(tensor, torch.from_numpy(big).t())
    assert half.dtype == torch.bfloat16 and half.sum() == 81_000
    array += 1
    tensor += 1


IN_PROCESSES = [parameter for parameter in PARAMETERS if parameter.id in ("processes-2", "ray")]


@pytest.mark.parametrize("shared_engine", IN_PROCESSES, indirect=True)
def test_global_generators_of_workers_follow_the_seed_and_differ(shared_engine: Engine) -> None:
    def drawn(seed: int) -> list[tuple[float, float, float]]:
        policy = make_policy()
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        shared_engine.start(Player, policy)
        jobs: list[Any] = [(player, "draw_globally", ()) for player in range(2)]
        numbers: list[tuple[float, float, float]] = shared_engine.map(jobs)
        assert torch.equal(torch.get_rng_state(), state)  # nothing is drawn here
        # the worker that replaces one draws other numbers again
        shared_engine.submit(1, "kill_first", 1)
        shared_engine.get()
        return numbers + shared_engine.map([(1, "draw_globally", ())])

    first, again, other = drawn(3), drawn(3), drawn(4)
    assert first == again
    for numbers in zip(*first, *other, strict=True):
        assert len(set(numbers)) == 6


@pytest.mark.parametrize("shared_engine", PARAMETERS[1:], indirect=True)  # in process, it is the very object
def test_a_result_does_not_change_when_the_actor_goes_on(shared_engine: Engine) -> None:
    shared_engine.start(Player, RandomActs())
    for _ in range(5):
        shared_engine.submit(0, "again")
    assert [int(shared_engine.get().result.sum()) for _ in range(5)] == [7000 * n for n in (1, 2, 3, 4, 5)]


def test_a_tensor_that_occurs_twice_arrives_as_one(engine: Engine) -> None:
    one, other = engine.map([(0, "twice", ())])[0]
    assert one is other


def test_a_job_may_return_none(engine: Engine) -> None:
    assert engine.map([(0, "nothing", ())]) == [None]


def assert_ended(engine: Engine) -> None:
    if isinstance(engine, InProcessEngine):
        assert engine.map([(0, "count", ())]) == [(0, 2, ())]
    else:
        with pytest.raises(RuntimeError, match="not started"):
            engine.submit(0, "count")


def test_a_broken_contract_arrives_as_such_and_ends_all(engine: Engine) -> None:
    engine.submit(0, "count")
    engine.get()
    engine.submit(1, "broken_contract")
    with pytest.raises(EnvContractError, match=r"^step of Player returned 'nonsense' of type str; expected"):
        engine.get()
    assert_ended(engine)


def test_any_other_error_arrives_with_its_trace_and_ends_all(engine: Engine) -> None:
    engine.map([(0, "count", ())])
    engine.submit(2, "wrong")
    expected = ZeroDivisionError if isinstance(engine, InProcessEngine) else RuntimeError
    with pytest.raises(
        expected, match=r"(?s)^player 2 failed:.*in wrong.*ZeroDivisionError: a mistake of the user|^a mis"
    ):
        engine.get()
    assert_ended(engine)


def test_an_actor_that_has_lost_its_environments_begins_anew(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.map([(0, "count", ())])
    engine.submit(0, "lose_environments", 2)
    engine.submit(0, "count")
    done = [engine.get(), engine.get()]
    assert [(one.result, one.restarts) for one in done] == [(2, 2), ((0, 1, ()), 2)]
    messages = [message for message in caplog.messages if "environments 0 to 3 failed: they are gone" in message]
    assert [re.findall(r"(\d) more", message) for message in messages] == [["2"], ["1"]]
    engine.submit(1, "lose_environments", 9)
    with pytest.raises(LostProcessError, match="they are gone; max_replacements=3 others were replaced before"):
        engine.get()
    with pytest.raises(RuntimeError, match="not started"):
        engine.submit(0, "count")


def test_waiting_without_a_submitted_job_is_an_error(engine: Engine) -> None:
    with pytest.raises(TimeoutError, match="no job was submitted"):
        engine.get()
    engine.map([(0, "count", ())])
    with pytest.raises(TimeoutError, match="no job was submitted"):
        engine.get(timeout=0)


def test_a_second_start_forgets_jobs_weights_and_actors(engine: Engine) -> None:
    engine.publish(make_policy().state_dict(), 4)
    engine.map([(0, "count", ())])
    engine.submit(0, "count")
    engine.start(Player, make_policy().eval())
    engine.submit(0, "count")
    done = engine.get()
    assert (done.result, done.version, done.restarts) == ((0, 1, ()), 0, 0)


def test_after_closing_nothing_is_done_until_the_next_start(engine: Engine) -> None:
    engine.submit(0, "count")
    engine.close()
    engine.close()
    with pytest.raises(TimeoutError, match="no job was submitted"):
        engine.get()
    with pytest.raises(RuntimeError, match="not started"):
        engine.submit(0, "count")
    with pytest.raises(RuntimeError, match="not started"):
        engine.publish({}, 1)
    engine.start(Player, RandomActs())
    assert engine.map([(0, "count", ())]) == [(0, 1, ())]


@pytest.mark.parametrize("make", [make for make, _ in ENGINES.values()], ids=list(ENGINES))
def test_an_engine_that_was_not_started_can_be_closed_and_copied(make: Callable[[], Engine]) -> None:
    engine = pickle.loads(pickle.dumps(copy.deepcopy(make())))
    assert engine.n_workers >= 1 and type(engine) is type(make())
    with pytest.raises(RuntimeError, match="not started"):
        engine.submit(0, "count")
    engine.close()


def test_players_know_the_run_that_they_belong_to(
    shared_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = RUN_DIR_VARIABLE, PROVENANCE_VARIABLE
    for number in range(2):
        folder = str(tmp_path / str(number))
        monkeypatch.setenv(RUN_DIR_VARIABLE, folder)
        monkeypatch.setenv(PROVENANCE_VARIABLE, f"run {number}")
        shared_engine.start(Player, RandomActs())
        assert shared_engine.map([(0, "variables", names)]) == [[folder, f"run {number}"]]
    monkeypatch.delenv(RUN_DIR_VARIABLE)
    monkeypatch.delenv(PROVENANCE_VARIABLE)
    shared_engine.start(Player, RandomActs())
    folder_without_run = os.getcwd() if isinstance(shared_engine, RayEngine) else None
    assert shared_engine.map([(0, "variables", names)]) == [[folder_without_run, None]]


def test_players_have_time_to_close(
    shared_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (worker_process, ray_engine):
        monkeypatch.setattr(module, "_SECONDS_TO_END", 0.01)
    shared_engine.start(Player, RandomActs())
    shared_engine.map([(player, "close_slowly", (str(tmp_path / str(player)),)) for player in range(2)])
    shared_engine.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    assert caplog.messages == []
