"""Readers of instance files, and the messages for malformed ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.envs.job_shop import JobShopInstance, parse_flexible, parse_job_shop, published_instance, read_instance
from tests.envs.job_shop.reference import jobs_of

STANDARD = """# two jobs
2 3
0 3  1 2  2 2
0 2  2 1  1 4
"""
TAILLARD = """Nb of jobs, Nb of Machines, Time seed, Machine seed, Upper bound, Lower bound
2 3 840612802 398197754 11 11
Times
3 2 2
2 1 4
Machines
1 2 3
1 3 2
"""
FLEXIBLE = """2 3 1.33
2  2 1 5 3 4  1 2 6
3  1 3 1  3 1 2 2 3 3 4  1 1 7
"""
JOBS = [[{0: 3}, {1: 2}, {2: 2}], [{0: 2}, {2: 1}, {1: 4}]]


def test_the_standard_format_has_a_line_of_pairs_for_each_job() -> None:
    instance = parse_job_shop(STANDARD, "two")
    assert jobs_of(instance) == JOBS
    assert (instance.name, instance.n_jobs, instance.n_machines, instance.max_alternatives) == ("two", 2, 3, 1)
    assert instance.best_known is None


def test_taillards_format_has_two_matrices_and_machines_from_1() -> None:
    assert jobs_of(parse_job_shop(TAILLARD, "two")) == JOBS


def test_the_flexible_format_has_alternatives_and_machines_from_1() -> None:
    instance = parse_flexible(FLEXIBLE, "two")
    assert jobs_of(instance) == [[{0: 5, 2: 4}, {1: 6}], [{2: 1}, {0: 2, 1: 3, 2: 4}, {0: 7}]]
    assert instance.n_operations.tolist() == [2, 3]
    assert instance.max_alternatives == 3


def test_whole_numbers_may_have_a_decimal_point() -> None:
    assert jobs_of(parse_job_shop("1 2.0\n0 3.0 1 1e2\n", "decimal")) == [[{0: 3}, {1: 100}]]


def test_files_are_read_by_their_suffix(tmp_path: Path) -> None:
    (tmp_path / "a.jsp").write_text(STANDARD)
    (tmp_path / "b.FJS").write_text(FLEXIBLE)
    assert read_instance(tmp_path / "a.jsp").name == "a"
    assert read_instance(tmp_path / "b.FJS").max_alternatives == 3
    (tmp_path / "marked.jsp").write_text(STANDARD, encoding="utf-8-sig")
    assert read_instance(tmp_path / "marked.jsp").content == read_instance(tmp_path / "a.jsp").content


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains no numbers"),
        ("no instance at all\n", "contains no numbers"),
        ("2\n0 1\n", "line 1: got [2]; expected the numbers of jobs and machines"),
        ("0 3\n", "line 1: got [0, 3]"),
        ("2 2\n0 1 1 1\n", "1 lines with numbers follow the sizes; expected 2 (standard format) or 4"),
        ("1 2\n0 1 1\n", "line 2: 3 numbers; expected pairs"),
        ("1 2\n0 1 2 1\n", "operation 1 of job 0 needs the machines [2], but there are only 0 to 1"),
        ("1 2\n0 1 1 -4\n", "operation 1 of job 0 takes [-4]"),
        ("1 2\n0 1 1 4x\n", "line 2: '4x' is not a number"),
        ("1 2\n0 1 1 99999999999\n", "durations are whole numbers from 0 to"),
        ("1 2\n3 4 5\n1 2\n", "line 2: 3 numbers; expected one per machine, 2"),
        ("1 2\n0 1 1 1e999\n", "is not a number"),
        ("1 2\n0 1 1 nan1\n", "is not a number"),
        ("1 2\n0 1 1 nan\n", "line 2: 'nan' is not a number"),
        ("1 2 x7\n0 1 1 5\n", "line 1: 'x7' is not a number"),
        ("1 2\n0 2.9 1 5\n", "line 2: '2.9' is a fraction; expected whole numbers only, so multiply durations"),
        ("1 2\n0.9 2 1 5\n", "line 2: '0.9' is a fraction"),
        ("1.7 2\n0 2 1 5\n", "line 1: '1.7' is a fraction"),
        ("1 2\n3 4\n1 1.5\n", "line 3: '1.5' is a fraction"),
    ],
)
def test_a_malformed_job_shop_gets_one_message(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_job_shop(text, "file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2\n1 1 1 5\n1 1 1 5\n", "expected one per job, 1"),
        ("1 2\n2 1 1 5\n", "line 2: the numbers do not add up"),
        ("1 2\n1 0\n", "line 2: the numbers do not add up"),
        ("1 2\n1 1 1 5 7\n", "line 2: the numbers do not add up"),
        ("1 2\n0\n", "job 0 has no operations"),
        ("1 2\n1 2 1 5 1 6\n", "has the machines [0, 0]; give at least one, and none twice"),
        ("1 2\n1 1 3 5\n", "needs the machines [2], but there are only 0 to 1"),
        ("1 2\n1 -1 3 5\n", "line 2: the numbers do not add up"),
        ("1 2\n-1 1 3 5\n", "line 2: the numbers do not add up"),
        ("1 200000\n1 1 1 5\n", "got 200000 machines; there may be at most 100000"),
        ("1 3e99\n1 1 1 5\n", "line 1: '3e99' is too large; numbers are at most 1000000000000"),
        (f"1 {'9' * 400}\n1 1 1 5\n", "is too large"),
        ("1 2 1.5\n1 1 1 5.9\n", "line 2: '5.9' is a fraction"),
        ("1 2 1.5\n1 1.2 1 5\n", "line 2: '1.2' is a fraction"),
        (f"1 {'9' * 5000}\n1 1 1 5\n", "line 1: '99999999999999999999' is not a number"),
    ],
)
def test_a_malformed_flexible_job_shop_gets_one_message(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_flexible(text, "file")


def test_a_missing_or_binary_file_gets_one_message(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a readable text file"):
        read_instance(tmp_path / "missing.jsp")
    (tmp_path / "picture.jsp").write_bytes(bytes(range(256)))
    with pytest.raises(ValueError, match="is not a readable text file"):
        read_instance(tmp_path / "picture.jsp")


@settings(max_examples=60, deadline=None)
@given(
    text=st.sampled_from([STANDARD, TAILLARD, FLEXIBLE]),
    place=st.integers(0, 120),
    length=st.integers(0, 6),
    inserted=st.text(alphabet="0123456789 -.x\n#e", max_size=5),
    is_flexible=st.booleans(),
)
def test_a_damaged_file_is_either_an_instance_or_one_message(
    text: str, place: int, length: int, inserted: str, is_flexible: bool
) -> None:
    damaged = text[:place] + inserted + text[place + length :]
    try:
        instance = (parse_flexible if is_flexible else parse_job_shop)(damaged, "damaged")
    except ValueError as error:
        assert "damaged" in str(error)
        assert "\n" not in str(error)
    else:
        assert isinstance(instance, JobShopInstance)
        assert instance.start_bound >= 0


def test_what_is_written_in_the_standard_format_is_read_again() -> None:
    instance = published_instance("la21")
    lines = [f"{instance.n_jobs} {instance.n_machines}"]
    for job in jobs_of(instance):
        lines.append(" ".join(f"{machine} {duration}" for operation in job for machine, duration in operation.items()))
    assert jobs_of(parse_job_shop("\n".join(lines), "la21")) == jobs_of(instance)
