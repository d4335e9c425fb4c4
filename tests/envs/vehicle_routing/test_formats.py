"""Readers of CVRPLIB's files, and the messages for malformed ones."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.envs.vehicle_routing import (
    RoutingInstance,
    check_routes,
    instance_sources,
    parse_solution,
    parse_vrp,
    read_instance,
    read_solution,
)
from maze_pl.envs.vehicle_routing.formats import classical_scaling
from tests.envs.vehicle_routing.reference import FOLDER

HEAD = "NAME : four\nCOMMENT : (by hand, No of trucks: 2, Optimal value: 24)\nTYPE : CVRP\nDIMENSION : 4\n"
PLACES = "NODE_COORD_SECTION\n1 0 0\n2 3 4\n3 0 4.4\n4 -3 0\n"
DEMANDS = "DEMAND_SECTION\n1 0\n2 2\n3 2\n4 1\nDEPOT_SECTION\n1\n-1\nEOF\n"
STANDARD = f"{HEAD}EDGE_WEIGHT_TYPE : EUC_2D\nCAPACITY : 4\n{PLACES}{DEMANDS}"
EXPLICIT = f"{HEAD}EDGE_WEIGHT_TYPE : EXPLICIT\nEDGE_WEIGHT_FORMAT : LOWER_ROW\nCAPACITY : 4\n"
EXPLICIT += f"EDGE_WEIGHT_SECTION\n5 4 3\n3 7 5\n{DEMANDS}"
MATRIX = [[0, 5, 4, 3], [5, 0, 3, 7], [4, 3, 0, 5], [3, 7, 5, 0]]


def test_distances_are_rounded_to_the_nearest_whole_number() -> None:
    instance = parse_vrp(STANDARD, "four")
    assert (instance.name, instance.n_customers, instance.capacity) == ("four", 3, 4)
    assert instance.demands.tolist() == [0, 2, 2, 1]
    assert instance.coordinates.tolist() == [[0, 0], [3, 4], [0, 4.4], [-3, 0]]
    assert instance.distances.tolist() == MATRIX
    assert instance.best_known == 24


def test_distances_are_exact_if_asked_for_and_the_rounded_optimum_is_not_theirs() -> None:
    instance = parse_vrp(STANDARD, "four", is_rounded=False)
    assert instance.distances[0, 2] == 4.4
    assert instance.best_known is None


def test_other_kinds_of_distances_are_read() -> None:
    assert parse_vrp(STANDARD.replace("EUC_2D", "CEIL_2D"), "four").distances[0].tolist() == [0, 5, 5, 3]
    instance = parse_vrp(EXPLICIT, "four")
    assert instance.distances.tolist() == MATRIX
    layouts = {
        "UPPER_ROW": "5 4 3 3 7 5",
        "LOWER_DIAG_ROW": "0 5 0 4 3 0 3 7 5 0",
        "UPPER_DIAG_ROW": "0 5 4 3 0 3 7 0 5 0",
        "FULL_MATRIX": "0 5 4 3 5 0 3 7 4 3 0 5 3 7 5 0",
    }
    for layout, numbers in layouts.items():
        text = EXPLICIT.replace("LOWER_ROW", layout).replace("5 4 3\n3 7 5", numbers)
        assert parse_vrp(text, "four").distances.tolist() == MATRIX
    placed = EXPLICIT.replace("DEMAND_SECTION", PLACES.replace("NODE_COORD", "DISPLAY_DATA") + "DEMAND_SECTION")
    assert parse_vrp(placed, "four").coordinates[1].tolist() == [3, 4]


def test_places_that_fit_a_matrix_have_its_distances() -> None:
    places = np.random.default_rng(0).random((6, 2))
    distances = np.linalg.norm(places[:, np.newaxis] - places, axis=2)
    found = classical_scaling(distances)
    np.testing.assert_allclose(np.linalg.norm(found[:, np.newaxis] - found, axis=2), distances, atol=1e-6)


def test_augerats_instance_has_its_published_optimum() -> None:
    instance = read_instance(FOLDER / "A-n32-k5.vrp")
    assert (instance.n_customers, instance.capacity, instance.best_known) == (31, 100, 784)
    solution = read_solution(FOLDER / "A-n32-k5.sol", instance)
    assert (solution.distance, len(solution.routes)) == (784, 5)
    exact = check_routes(parse_vrp((FOLDER / "A-n32-k5.vrp").read_text(), "exact", is_rounded=False), solution.routes)
    assert exact.distance == pytest.approx(787.8082774366646)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "marked.vrp").write_text(STANDARD[STANDARD.index("DIMENSION") :], encoding="utf-8-sig")
    assert read_instance(tmp_path / "marked.vrp").distances.tolist() == MATRIX


def test_a_solution_beside_an_instance_sets_its_best_known_distance(tmp_path: Path) -> None:
    (tmp_path / "four.vrp").write_text(STANDARD)
    (tmp_path / "four.sol").write_text("Route #1: 1 2\nRoute #2: 3\nCost 18\n")
    (source,) = instance_sources([str(tmp_path / "four.vrp")])
    assert source.instance.best_known == 5 + 3 + 4 + 6
    (tmp_path / "four.sol").write_text("Route #1: 1 2 3\nCost 18\n")
    with pytest.raises(ValueError, match="route 1 carries 5, more than the capacity 4"):
        read_instance(tmp_path / "four.vrp")


def without(text: str, line: str) -> str:
    assert line in text
    return text.replace(line + "\n", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected an instance in the format of CVRPLIB"),
        ("no instance at all\n", "line 1: 'no instance at all' is neither an entry such as"),
        (without(STANDARD, "CAPACITY : 4"), "has no entry CAPACITY; add a line such as"),
        (without(STANDARD, "DIMENSION : 4"), "has no entry DIMENSION"),
        (STANDARD.replace("DIMENSION : 4", "DIMENSION : 4.5"), "'4.5' is not a whole number"),
        (STANDARD.replace("DIMENSION : 4", "DIMENSION : 99999999"), "expected from 2 to"),
        (STANDARD.replace("DIMENSION : 4", "DIMENSION : 3"), "there is no node 4; DIMENSION is 3"),
        (STANDARD.replace("DIMENSION : 4", "DIMENSION : 5"), "lacks 1 of 5 nodes, such as 5"),
        (STANDARD.replace("TYPE : CVRP", "TYPE : TSP", 1), "TYPE is TSP; only CVRP is supported"),
        (STANDARD.replace("EUC_2D", "GEO"), "EDGE_WEIGHT_TYPE is 'GEO'; supported are EUC_2D"),
        (STANDARD.replace("2 3 4", "2 3"), "2 numbers; expected the node and 2 more"),
        (STANDARD.replace("2 3 4", "2 3 x"), "'x' is not a number"),
        (STANDARD.replace("2 3 4", "2 3 nan"), "'nan' is not a number"),
        (STANDARD.replace("2 3 4", "2 3 1e300"), "coordinates must be from"),
        (STANDARD.replace("2 3 4", "3 3 4"), "node 3 occurs twice"),
        (STANDARD.replace("2 2\n", "2 2.5\n"), "demands must be whole numbers"),
        (STANDARD.replace("2 2\n", "2 2e30\n"), "demands must be numbers up to"),
        (STANDARD.replace("2 2\n", "2 9\n"), "customer 1 has a demand of 9, but vehicles carry from 0 to 4"),
        (STANDARD.replace("2 2\n", "2 -2\n"), "customer 1 has a demand of -2"),
        (STANDARD.replace("1 0\n2 2", "1 3\n2 2"), "the depot has a demand of 3"),
        (STANDARD.replace("SECTION\n1\n-1", "SECTION\n2\n-1"), "DEPOT_SECTION names 2; the only depot must be node 1"),
        (STANDARD.replace("SECTION\n1\n-1", "SECTION\n1\n2\n-1"), "DEPOT_SECTION names 1, 2"),
        (STANDARD.replace("SECTION\n1\n-1", "SECTION\n-1"), "DEPOT_SECTION names none"),
        (STANDARD.replace("NODE_COORD_SECTION", "DISPLAY_DATA_SECTION"), "has no NODE_COORD_SECTION; its sections are"),
        (EXPLICIT.replace("LOWER_ROW", "LOWER_COL"), "EDGE_WEIGHT_FORMAT is 'LOWER_COL'"),
        (EXPLICIT.replace("3 7 5", "3 7"), "EDGE_WEIGHT_SECTION has 5 numbers; expected 6"),
        (EXPLICIT.replace("3 7 5", "3 7 -5"), "distances must be numbers from 0"),
        (STANDARD.replace("CAPACITY : 4", "CAPACITY : 0"), "capacity=0 must be from 1"),
        (f"DISTANCE : 27.5\n{STANDARD}", "DISTANCE limits routes to 27.5, which is not supported; remove the line"),
        (f"DISTANCE : -3\n{STANDARD}", "DISTANCE limits routes to -3"),
        (f"DISTANCE : far\n{STANDARD}", "DISTANCE: 'far' is not a number"),
        (f"DISTANCE : 999999\nSERVICE_TIME : 10\n{STANDARD}", "SERVICE_TIME is 10; service times are not supported"),
        (f"service_time : 0.5\n{EXPLICIT}", "SERVICE_TIME is 0.5; service times are not supported"),
    ],
)
def test_a_malformed_instance_gets_one_message(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_vrp(text, "file")


def test_limits_that_no_route_reaches_are_accepted() -> None:
    for lines in ("DISTANCE : 0\nSERVICE_TIME : 0\n", "DISTANCE : 999999\n", "DISTANCE : 28\nVEHICLES : 1\n"):
        assert parse_vrp(lines + STANDARD, "four").distances.tolist() == MATRIX  # 4 drives of at most 7


def test_keywords_may_be_written_in_small_letters() -> None:
    text = STANDARD.replace("CVRP", "cvrp").replace("EUC_2D", "euc_2d").replace("CAPACITY", "capacity")
    assert parse_vrp(text, "four").distances.tolist() == MATRIX
    text = EXPLICIT.replace("EXPLICIT", "Explicit").replace("LOWER_ROW", "lower_row")
    assert parse_vrp(text, "four").distances.tolist() == MATRIX


@pytest.mark.parametrize(
    ("comment", "distance"),
    [
        ("best known: 1,234", 1234),
        ("Best known : 12,345,678.5)", 12345678.5),
        ("optimal : 7.84e2", 784),
        ("Optimal value: 784.", 784),
        ("Optimal value: 784, No of trucks: 5", 784),
        ("Optimal value: 784\nCOMMENT : (another one)", 784),
        ("(a first one)\nCOMMENT : Optimal value: 784", 784),
        ("best value: 1.2.3", None),
        ("best value: 1,23", None),
        ("best value: 0", None),
        ("best value: 1e999", None),
        ("best value: 7.84e2.5", None),
        ("best value: unknown", None),
    ],
)
def test_the_optimum_of_a_comment_is_read(comment: str, distance: float | None) -> None:
    text = STANDARD.replace("(by hand, No of trucks: 2, Optimal value: 24)", comment)
    assert parse_vrp(text, "four").best_known == distance


def test_an_asymmetric_matrix_is_refused() -> None:
    text = EXPLICIT.replace("LOWER_ROW", "FULL_MATRIX").replace("5 4 3\n3 7 5", "0 5 4 3 5 0 3 7 4 3 0 5 3 7 6 0")
    with pytest.raises(ValueError, match="distances must be symmetric, with 0 on the diagonal"):
        parse_vrp(text, "file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no routes; expected lines such as"),
        ("Cost 12\n", "has no routes"),
        ("Route #1 1 2\n", "line 1: expected 'Route #1: 3 1 2'; got 'Route #1 1 2'"),
        ("Route #1: 1 x\n", "line 1: 'x' is not a number"),
        ("Route #1: 1 2.5\n", "line 1: '2.5' is not a whole number"),
    ],
)
def test_a_malformed_solution_gets_one_message(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_solution(text, "file")


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ([[1, 2]], "the routes leave out 1 customers, such as 3"),
        ([[1, 2], [3, 1]], "customer 1 is served twice, again in route 2"),
        ([[1, 2], [4]], "route 2 visits customer 4, but there are only 1 to 3"),
        ([[1, 2, 3]], "route 1 carries 5, more than the capacity 4"),
    ],
)
def test_wrong_routes_are_refused(routes: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        check_routes(parse_vrp(STANDARD, "four"), routes)


def test_a_missing_or_binary_file_gets_one_message(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a readable text file"):
        read_instance(tmp_path / "missing.vrp")
    (tmp_path / "picture.vrp").write_bytes(bytes(range(256)))
    with pytest.raises(ValueError, match="is not a readable text file"):
        read_instance(tmp_path / "picture.vrp")


@settings(max_examples=150, deadline=None)
@given(
    text=st.sampled_from([STANDARD, EXPLICIT]),
    place=st.integers(0, 260),
    length=st.integers(0, 8),
    inserted=st.text(alphabet="0123456789 -.x\n:eEOFN_", max_size=6),
)
def test_a_damaged_instance_is_either_an_instance_or_one_message(
    text: str, place: int, length: int, inserted: str
) -> None:
    damaged = text[:place] + inserted + text[place + length :]
    try:
        instance = parse_vrp(damaged, "damaged")
    except ValueError as error:
        assert "damaged" in str(error)
        assert "\n" not in str(error)
    else:
        assert isinstance(instance, RoutingInstance)
        assert np.isfinite(instance.distances).all()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(place=st.integers(0, 40), length=st.integers(0, 6), inserted=st.text(max_size=4))
def test_a_damaged_solution_is_either_a_solution_or_one_message(place: int, length: int, inserted: str) -> None:
    text = "Route #1: 1 2\nRoute #2: 3\nCost 18\n"
    instance = parse_vrp(STANDARD, "damaged")
    try:
        solution = check_routes(instance, parse_solution(text[:place] + inserted + text[place + length :], "damaged"))
    except ValueError as error:
        assert "damaged" in str(error)
    else:
        assert sorted(customer for route in solution.routes for customer in route) == [1, 2, 3]
