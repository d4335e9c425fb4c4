"""Published and random instances."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from maze_pl.envs.job_shop import (
    FixedInstance,
    JobShopInstance,
    RandomInstances,
    TaillardGenerator,
    best_known,
    instance_sources,
    published_instance,
    taillard_instance,
)
from tests.envs.job_shop.reference import TWO_BY_TWO, drawn, jobs_of

NAMES = ["ft06", "ft10", "ft20", *[f"la{i:02d}" for i in range(1, 41)], *[f"ta{i:02d}" for i in range(1, 81)]]
SIZES = {"ft06": (6, 6), "ft10": (10, 10), "ft20": (20, 5), "la01": (10, 5), "la35": (30, 10), "la40": (15, 15)}


def test_all_published_instances_are_there_with_their_makespans() -> None:
    assert list(best_known()) == sorted(NAMES)
    for name in NAMES:
        instance = published_instance(name)
        assert instance.name == name
        assert instance.lower_bound is not None
        assert instance.best_known is not None
        assert instance.start_bound <= instance.lower_bound <= instance.best_known
        machines = instance.machines[:, :, 0]
        assert (np.sort(machines, axis=1) == np.arange(instance.n_machines)).all()  # each machine once
    for name, size in SIZES.items():
        assert (published_instance(name).n_jobs, published_instance(name).n_machines) == size


def test_the_instances_are_those_of_the_publications() -> None:
    ft06 = published_instance("ft06")
    assert ft06.machines[0, :, 0].tolist() == [2, 0, 1, 3, 5, 4]
    assert ft06.durations[5, :, 0].tolist() == [3, 3, 9, 10, 4, 1]
    ta01 = published_instance("ta01")
    assert ta01.durations[0, :, 0].tolist() == [94, 66, 10, 53, 26, 15, 65, 82, 10, 27, 93, 92, 96, 70, 83]
    assert ta01.machines[0, :, 0].tolist() == [6, 12, 4, 7, 3, 2, 10, 11, 8, 14, 9, 13, 5, 0, 1]
    assert [published_instance(name).best_known for name in ("ft10", "la29", "ta20")] == [930, 1152, 1348]
    assert (published_instance("ta30").lower_bound, published_instance("ta30").best_known) == (1562, 1584)


@pytest.mark.parametrize(
    ("number", "size", "bound"),
    [(1, (15, 15), 1005), (31, (30, 15), 1764), (51, (50, 15), 2760), (61, (50, 20), 2868), (80, (100, 20), 5183)],
)
def test_generated_instances_have_the_published_lower_bounds(number: int, size: tuple[int, int], bound: int) -> None:
    instance = taillard_instance(number)
    assert (instance.n_jobs, instance.n_machines) == size
    assert _machine_and_job_bound(jobs_of(instance), instance.n_machines) == bound


def _machine_and_job_bound(jobs: list[list[dict[int, int]]], n_machines: int) -> int:
    """Taillard's bound: the longest job, or the work of a machine with the shortest heads and tails.

    It is the optimum of many large instances.
    """
    best = max(sum(sum(operation.values()) for operation in job) for job in jobs)
    for machine in range(n_machines):
        heads, work, tails = [], 0, []
        for job in jobs:
            times = [next(iter(operation.values())) for operation in job]
            place = next(i for i, operation in enumerate(job) if machine in operation)
            heads.append(sum(times[:place]))
            work += times[place]
            tails.append(sum(times[place + 1 :]))
        best = max(best, min(heads) + work + min(tails))
    return best


def test_taillards_generator_equals_schrages_form() -> None:
    generator = TaillardGenerator(398197754)
    state = 398197754
    for _ in range(500):
        state = 16807 * (state % 127773) - 2836 * (state // 127773)
        state += 2**31 - 1 if state < 0 else 0
        assert generator.integer(0, 2**31 - 2) == int(state / (2**31 - 1) * (2**31 - 1))
        assert generator.state == state
    with pytest.raises(ValueError, match="must be from 1"):
        TaillardGenerator(0)
    with pytest.raises(ValueError, match="ta81"):
        taillard_instance(81)


def test_an_instance_computes_bounds_and_successors() -> None:
    instance = JobShopInstance.of("by hand", 3, [[[(0, 3), (1, 2)], [(2, 4)]], [[(2, 5)]]])
    assert instance.shortest.tolist() == [[2, 4], [5, 0]]
    assert instance.forced_load.tolist() == [0, 0, 9]
    assert (instance.start_bound, instance.total_operations) == (9, 3)
    assert instance.mean_duration == pytest.approx(11 / 3)
    assert instance.successor_durations.tolist() == [[4, 0, 0], [0, 0, 0]]
    assert instance.successor_machines.tolist() == [[2, 3, 3], [3, 3, 3]]
    with pytest.raises(ValueError, match="read-only"):
        instance.durations[0, 0, 0] = 1


def test_instances_with_the_same_schedules_have_the_same_content() -> None:
    first = JobShopInstance.of("first", 2, TWO_BY_TWO)
    assert first.content == JobShopInstance.of("second", 2, TWO_BY_TWO, best_known=8).content
    others: list[list[list[list[tuple[int, int]]]]] = [
        [[[(0, 3)], [(1, 2)]], [[(0, 2)], [(1, 5)]]],
        [[[(0, 3)], [(1, 2)]], [[(1, 2)], [(0, 4)]]],
        [[[(0, 3)], [(1, 2)]], [[(0, 2)]]],
    ]
    contents = {JobShopInstance.of("other", 2, jobs).content for jobs in others}
    contents.add(JobShopInstance.of("more machines", 3, TWO_BY_TWO).content)
    assert len(contents - {first.content}) == 4


def test_arrays_of_fractions_are_refused() -> None:
    pair = JobShopInstance.of("pair", 2, TWO_BY_TWO)
    with pytest.raises(ValueError, match="pair: durations have the type float64; give whole numbers, such as int64"):
        replace(pair, durations=pair.durations / 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, TWO_BY_TWO), "got 2 jobs and 0 machines"),
        ((2, []), "got 0 jobs"),
        ((2, [[]]), "job 0 has no operations"),
        ((2, [[[]]]), "has the machines []"),
        ((1, TWO_BY_TWO), "needs the machines [1], but there are only 0 to 0"),
        ((2, [[[(0, 2.7)]]]), "operation 0 of job 0 takes [2.7]; durations are whole numbers: multiply all of them"),
        ((2, [[[(0, float("nan"))]]]), "operation 0 of job 0 takes [nan]; durations are whole numbers"),
        ((2, [[[(0.5, 2)]]]), "operation 0 of job 0 has the machines [0.5]; machines are whole numbers from 0"),
        ((2.5, TWO_BY_TWO), "got 2.5 machines; their number must be whole"),
    ],
)
def test_an_impossible_instance_is_refused(arguments: tuple[int, list], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        JobShopInstance.of("bad", *arguments)


def test_random_instances_depend_on_the_seed_alone_and_keep_their_ranges() -> None:
    text = "random(3-6x4-5, times=2-7)"
    sizes = set()
    for seed in range(30):
        instance = drawn(text, seed)
        assert jobs_of(instance) == jobs_of(drawn(text, seed))
        sizes.add((instance.n_jobs, instance.n_machines))
        assert 2 <= instance.durations.min() <= instance.durations.max() <= 7
        assert (np.sort(instance.machines[:, :, 0], axis=1) == np.arange(instance.n_machines)).all()
    assert len(sizes) == 8
    assert jobs_of(drawn(text, 0)) != jobs_of(drawn(text, 1))


def test_durations_and_machines_of_random_instances_are_uniform() -> None:
    instance = drawn("random(400x10)", 0)
    durations = instance.durations.ravel()
    assert abs(durations.mean() - 50) < 1.5
    assert set(durations.tolist()) == set(range(1, 100))
    first = np.bincount(instance.machines[:, 0, 0], minlength=10)
    assert first.min() > 20


def test_flexible_random_instances_have_distinct_machines_and_similar_durations() -> None:
    instance = drawn("random(30x5, alternatives=3)", 0)
    counts = set()
    for job in range(30):
        for operation in range(5):
            pairs = instance.alternatives(job, operation)
            counts.add(len(pairs))
            durations = [duration for _, duration in pairs]
            assert len({machine for machine, _ in pairs}) == len(pairs)
            assert max(durations) <= 1.5 * min(durations) + 2
    assert counts == {1, 2, 3}


@pytest.mark.parametrize(
    "text",
    [
        "random()",
        "random(5)",
        "random(5x)",
        "random(0x5)",
        "random(6-5x5)",
        "random(5x5, speed=3)",
        "random(5x5, times=0-3)",
        "random(5x5, times=9-3)",
        "random(5x5, times=1.5)",
        "random(5x2, alternatives=3)",
        "random(5x5, alternatives=0)",
        "random(5x5, alternatives=1-2)",
        "random(5x5",
        "random (5x5)",
    ],
)
def test_wrong_descriptions_of_random_instances_get_one_message(text: str) -> None:
    with pytest.raises(ValueError, match="random"):
        instance_sources([text])


def test_sources_are_named_in_several_ways(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsp"
    path.write_text("1 1\n0 5\n")
    instance = JobShopInstance.of("pair", 2, TWO_BY_TWO)
    sources = instance_sources(["ft06", "la01-la03", "random(4x4)", str(path), instance, FixedInstance(instance)])
    assert [source.max_jobs for source in sources] == [6, 10, 10, 10, 4, 1, 2, 2]
    assert isinstance(sources[4], RandomInstances)
    assert sources[6].draw(np.random.default_rng(0)) is instance


def test_files_may_be_paths_and_have_names_that_begin_with_random(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("random1.jsp", "random(2x2)"):
        Path(name).write_text("1 1\n0 5\n")
    sources = instance_sources(["random1.jsp", "random(2x2)", Path("random1.jsp"), Path("random(2x2)")])
    assert [source.max_jobs for source in sources] == [1, 2, 1, 1]
    with pytest.raises(ValueError, match=r"'random2\.jsp' is not a description of random instances"):
        instance_sources(["random2.jsp"])
    with pytest.raises(ValueError, match="is not a readable text file"):
        instance_sources([Path("ft06")])


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        ([], "there are no instances"),
        ("ft06", "write a list, [ft06]"),
        (["ft07"], "'ft07' is neither a file nor a published instance"),
        (["ta81"], "'ta81' is neither"),
        (["ta79-ta82"], "there is no instance 'ta81'"),
        (["la05-la01"], "'la05-la01' is an empty span"),
    ],
)
def test_unknown_instances_get_one_message(instances: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        instance_sources(instances)


@pytest.mark.parametrize("text", ["random(2-4x3-5, times=1-9, alternatives=3)", "random(3x4, alternatives=4)"])
def test_alternatives_are_drawn_operation_by_operation(text: str) -> None:
    source = RandomInstances.parse(text)
    for seed in range(20):
        generator = np.random.default_rng(seed)
        n_jobs = int(generator.integers(source.n_jobs[0], source.n_jobs[1] + 1))
        n_machines = int(generator.integers(source.n_machines[0], source.n_machines[1] + 1))
        base = generator.integers(source.times[0], source.times[1] + 1, (n_jobs, n_machines))
        order = generator.permuted(np.tile(np.arange(n_machines), (n_jobs, 1)), axis=1)
        jobs = []
        for job in range(n_jobs):
            operations = []
            for machine, duration in zip(order[job].tolist(), base[job].tolist(), strict=True):
                count = int(generator.integers(1, source.alternatives + 1))
                others = [other for other in generator.permutation(n_machines).tolist() if other != machine]
                factors = generator.uniform(0.8, 1.2, count).tolist()
                lengths = [max(round(factor * duration), 1) for factor in factors]
                operations.append(list(zip([machine, *others][:count], lengths, strict=True)))
            jobs.append(operations)
        expected = JobShopInstance.of("expected", n_machines, jobs)
        found = source.draw(np.random.default_rng(seed))
        for name in ("machines", "durations", "n_operations", "n_alternatives"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


def test_durations_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="times=1-900000000 of random instances must be at most 800000000"):
        RandomInstances((2, 2), (2, 2), (1, 900_000_000))
