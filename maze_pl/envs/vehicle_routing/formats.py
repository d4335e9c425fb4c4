"""Readers of the text formats in which instances and solutions are published."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from maze_pl.envs.vehicle_routing.instance import Array, RoutingInstance, straight_distances
from maze_pl.envs.vehicle_routing.solution import Routes, RoutingSolution, check_routes

_MOST_NODES = 10_000
"""Largest number of nodes, so that a wrong file is refused before its distances fill the memory."""

_LAYOUTS = ("FULL_MATRIX", "LOWER_ROW", "LOWER_DIAG_ROW", "UPPER_ROW", "UPPER_DIAG_ROW")
_DISTANCES = ("EUC_2D", "CEIL_2D", "EXPLICIT")
_SECTIONS = ("NODE_COORD_SECTION", "DEMAND_SECTION", "DEPOT_SECTION", "EDGE_WEIGHT_SECTION", "DISPLAY_DATA_SECTION")
_DISTANCE_NUMBER = r"((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:e[+-]?\d+)?)(?![\d.,]*\d|e[+-]?\d)"
_STATED = rf"(?:optimal|best)(?: known)?(?: value)? *: *{_DISTANCE_NUMBER}"
_OPTIMUM = re.compile(_STATED, re.IGNORECASE)


@dataclass
class _File:
    """Entries of a file.

    Attributes:
        entries: Keyword -> value, from lines with a colon; several comments are joined.
        sections: Section -> its lines, each with its number in the file and its numbers.
    """

    entries: dict[str, str]
    sections: dict[str, list[tuple[int, list[float]]]]


def read_instance(path: str | Path, is_rounded: bool = True) -> RoutingInstance:
    """Read an instance from a file; the name is that of the file.

    A solution of the same name with the suffix `.sol` is read too: its distance is the best known one.

    Args:
        path: The file, in the format of `parse_vrp`.
        is_rounded: Whether distances of EUC_2D are rounded to whole numbers.

    Raises:
        ValueError: There is no such file, it is not text, or it is malformed.
    """
    path = Path(path)
    instance = parse_vrp(_text(path), path.stem, is_rounded)
    solution_path = path.with_suffix(".sol")
    if solution_path.exists():
        solution = read_solution(solution_path, instance)
        instance = replace(instance, best_known=solution.distance)
    return instance


def read_solution(path: str | Path, instance: RoutingInstance) -> RoutingSolution:
    """Read a solution from a file, and verify it.

    Args:
        path: The file, in the format of `parse_solution`.
        instance: Its instance.

    Raises:
        ValueError: There is no such file, it is not text, it is malformed, or it does not solve the
            instance.
    """
    path = Path(path)
    return check_routes(instance, parse_solution(_text(path), path.name))


def parse_vrp(text: str, name: str, is_rounded: bool = True) -> RoutingInstance:
    """Parse an instance in the format of CVRPLIB, which is that of TSPLIB (Reinelt 1991).

    Augerat's (A, B, P) and Uchoa's (X) instances have the distances EUC_2D: straight lines between
    places, rounded to the nearest whole number. CEIL_2D, rounded up, and EXPLICIT, a matrix, are
    read, too. Nodes are numbered from 1, and the depot is the first. Without places, those of a
    plane that fit the matrix best are computed, for pictures and angles. A number of vehicles is
    not a limit. Limits of the length of routes (DISTANCE) are refused unless no route can reach
    them, and so are service times, which count in them.

    Args:
        text: Content of the file.
        name: Name of the instance.
        is_rounded: Whether distances of EUC_2D are rounded, as in all publications on these instances.

    Raises:
        ValueError: The text is malformed, or needs something that is not supported.

    Example:
        >>> lines = ["DIMENSION: 2", "EDGE_WEIGHT_TYPE: EUC_2D", "CAPACITY: 5", "NODE_COORD_SECTION"]
        >>> lines += ["1 0 0", "2 3 4", "DEMAND_SECTION", "1 0", "2 5", "DEPOT_SECTION", "1", "-1", "EOF"]
        >>> instance = parse_vrp("\\n".join(lines), "one")
        >>> instance.n_customers, float(instance.distances[0, 1]), instance.demands.tolist()
        (1, 5.0, [0, 5])
    """
    file = _read(text, name)
    kind = file.entries.get("TYPE", "CVRP").upper().split()[:1]
    if kind != ["CVRP"]:
        raise ValueError(f"{name}: TYPE is {' '.join(kind) or 'empty'}; only CVRP is supported")
    n_nodes = _whole_entry(file, "DIMENSION", name)
    if not 2 <= n_nodes <= _MOST_NODES:
        raise ValueError(f"{name}: DIMENSION is {n_nodes}; expected from 2 to {_MOST_NODES} nodes")
    capacity = _whole_entry(file, "CAPACITY", name)
    demands = _by_node(file, "DEMAND_SECTION", n_nodes, 1, name)[:, 0]
    _check_depot(file, name)
    coordinates, distances = _geometry(file, n_nodes, name, is_rounded)
    _check_limits(file, distances, name)
    return RoutingInstance(name, coordinates, demands, capacity, distances, _optimum(file) if is_rounded else None)


def parse_solution(text: str, name: str) -> Routes:
    """Parse a solution in the format of CVRPLIB: a line `Route #1: 3 1 2` for each route, then the cost.

    Customers are numbered from 1, without the depot, and so are the nodes of `RoutingInstance`.

    Args:
        text: Content of the file.
        name: Name in messages.

    Raises:
        ValueError: The text is malformed.

    Example:
        >>> parse_solution("Route #1: 3 1 \\nRoute #2: 2 \\nCost 12", "three")
        [[3, 1], [2]]
    """
    routes: Routes = []
    for number, line in enumerate(text.splitlines(), start=1):
        head, colon, tail = line.partition(":")
        if head.strip().lower().startswith("route"):
            if not colon:
                raise ValueError(f"{name}, line {number}: expected 'Route #1: 3 1 2'; got {line.strip()[:30]!r}")
            routes.append([_whole(word, f"{name}, line {number}") for word in tail.split()])
    if not routes:
        raise ValueError(f"{name} has no routes; expected lines such as 'Route #1: 3 1 2'")
    return routes


def _text(path: Path) -> str:
    """Content of a text file."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a readable text file ({error}); name a file with an instance") from error


def _read(text: str, name: str) -> _File:
    """Divide a file into its entries and sections."""
    file = _File({}, {})
    section: list[tuple[int, list[float]]] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        keyword = words[0].rstrip(":").upper() if words else ""
        if not words:
            continue
        if keyword == "EOF":
            break
        if keyword in _SECTIONS:
            section = file.sections.setdefault(keyword, [])
        elif ":" in line and not _is_number(words[0]):
            key, _, value = line.partition(":")
            key = key.strip().upper()
            before = file.entries.get(key, "") if key == "COMMENT" else ""
            file.entries[key] = f"{before}\n{value}".strip()
            section = None
        elif section is None:
            known = "an entry such as 'CAPACITY: 100', or one of the sections " + ", ".join(_SECTIONS)
            raise ValueError(f"{name}, line {number}: {line.strip()[:30]!r} is neither {known}")
        else:
            section.append((number, [_number(word, f"{name}, line {number}") for word in words]))
    if not file.entries and not file.sections:
        raise ValueError(f"{name} is empty; expected an instance in the format of CVRPLIB")
    return file


def _is_number(word: str) -> bool:
    """True for text that is a finite number."""
    try:
        return bool(np.isfinite(float(word)))
    except ValueError:
        return False


def _number(word: str, where: str) -> float:
    """Convert a word to a number."""
    if not _is_number(word):
        raise ValueError(f"{where}: {word[:20]!r} is not a number")
    return float(word)


def _whole(word: str, where: str) -> int:
    """Convert a word to a whole number."""
    value = _number(word, where)
    if value != int(value):
        raise ValueError(f"{where}: {word[:20]!r} is not a whole number")
    return int(value)


def _whole_entry(file: _File, key: str, name: str) -> int:
    """Whole number of an entry."""
    if key not in file.entries:
        raise ValueError(f"{name} has no entry {key}; add a line such as '{key}: 100'")
    return _whole(file.entries[key], f"{name}, {key}")


def _section(file: _File, section: str, name: str) -> list[tuple[int, list[float]]]:
    """Lines of a section."""
    if section not in file.sections:
        raise ValueError(f"{name} has no {section}; its sections are {', '.join(file.sections) or 'none'}")
    return file.sections[section]


def _by_node(file: _File, section: str, n_nodes: int, width: int, name: str) -> Array:
    """Numbers [n_nodes, width] of a section with a line for each node, which begins with its number."""
    values = np.full((n_nodes, width), np.nan)
    for number, row in _section(file, section, name):
        where = f"{name}, line {number}"
        if len(row) != 1 + width:
            raise ValueError(f"{where}: {len(row)} numbers; expected the node and {width} more in {section}")
        node = row[0]
        if node != int(node) or not 1 <= node <= n_nodes:
            raise ValueError(f"{where}: there is no node {node:g}; DIMENSION is {n_nodes}")
        if not np.isnan(values[int(node) - 1]).all():
            raise ValueError(f"{where}: node {node:g} occurs twice in {section}")
        values[int(node) - 1] = row[1:]
    missing = np.flatnonzero(np.isnan(values).any(axis=1))
    if len(missing):
        raise ValueError(f"{name}: {section} lacks {len(missing)} of {n_nodes} nodes, such as {missing[0] + 1}")
    return values


def _check_depot(file: _File, name: str) -> None:
    """Refuse several depots, and one that is not the first node."""
    if "DEPOT_SECTION" not in file.sections:
        return
    depots = [value for _, row in file.sections["DEPOT_SECTION"] for value in row if value != -1]
    if depots != [1]:
        found = ", ".join(f"{depot:g}" for depot in depots[:5]) or "none"
        raise ValueError(f"{name}: DEPOT_SECTION names {found}; the only depot must be node 1")


def _check_limits(file: _File, distances: Array, name: str) -> None:
    """Refuse a limit of the length of routes that could matter, and service times."""
    limit = _number(file.entries.get("DISTANCE", "0"), f"{name}, DISTANCE")
    longest = len(distances) * float(distances.max())  # of any route
    if limit != 0 and limit < longest:
        fault = f"DISTANCE limits routes to {limit:g}, which is not supported"
        raise ValueError(f"{name}: {fault}; remove the line to allow routes of any length")
    service_time = _number(file.entries.get("SERVICE_TIME", "0"), f"{name}, SERVICE_TIME")
    if service_time != 0:
        fault = f"SERVICE_TIME is {service_time:g}; service times are not supported"
        raise ValueError(f"{name}: {fault}; remove the line to ignore them")


def _geometry(file: _File, n_nodes: int, name: str, is_rounded: bool) -> tuple[Array, Array]:
    """Coordinates and distances of the nodes."""
    kind = file.entries.get("EDGE_WEIGHT_TYPE", "EUC_2D").upper()
    if kind not in _DISTANCES:
        raise ValueError(f"{name}: EDGE_WEIGHT_TYPE is {kind[:30]!r}; supported are {', '.join(_DISTANCES)}")
    if kind == "EXPLICIT":
        distances = _matrix(file, n_nodes, name)
        places = [section for section in ("NODE_COORD_SECTION", "DISPLAY_DATA_SECTION") if section in file.sections]
        if places:
            return _by_node(file, places[0], n_nodes, 2, name), distances
        return classical_scaling(distances), distances
    coordinates = _by_node(file, "NODE_COORD_SECTION", n_nodes, 2, name)
    if not np.abs(coordinates).max() <= 1e9:
        raise ValueError(f"{name}: coordinates must be from -1e9 to 1e9")
    distances = straight_distances(coordinates[np.newaxis])[0]
    if kind == "CEIL_2D":
        return coordinates, np.ceil(distances)
    return coordinates, np.floor(distances + 0.5) if is_rounded else distances


def _matrix(file: _File, n_nodes: int, name: str) -> Array:
    """Distances [n_nodes, n_nodes] of EDGE_WEIGHT_SECTION."""
    layout = file.entries.get("EDGE_WEIGHT_FORMAT", "").upper()
    if layout not in _LAYOUTS:
        raise ValueError(f"{name}: EDGE_WEIGHT_FORMAT is {layout[:30]!r}; supported are {', '.join(_LAYOUTS)}")
    rows = _section(file, "EDGE_WEIGHT_SECTION", name)
    values = np.array([value for _, row in rows for value in row], np.float64)
    diagonal = 0 if "DIAG" in layout else 1
    places: Any = {
        "F": np.divmod(np.arange(n_nodes * n_nodes), n_nodes),
        "L": np.tril_indices(n_nodes, -diagonal),
        "U": np.triu_indices(n_nodes, diagonal),
    }[layout[0]]
    if len(values) != len(places[0]):
        raise ValueError(f"{name}: EDGE_WEIGHT_SECTION has {len(values)} numbers; expected {len(places[0])}")
    distances = np.zeros((n_nodes, n_nodes))
    distances[places] = values
    return distances if layout == "FULL_MATRIX" else distances + distances.T


def classical_scaling(distances: Array) -> Array:
    """Places [n, 2] in a plane whose distances are as close as possible to a matrix.

        B = -J D^2 J / 2,   J = I - 1 1' / n,   X = eigenvectors of B * sqrt(eigenvalues), the two largest

    Torgerson 1952 (Psychometrika 17, pp. 401-419).

    Args:
        distances: [n, n] symmetric distances.
    """
    squares = distances * distances
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, np.newaxis] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    return np.asarray(vectors[:, :-3:-1] * np.sqrt(np.maximum(values[:-3:-1], 0.0)))


def _optimum(file: _File) -> float | None:
    """Best known distance that the comment states."""
    match = _OPTIMUM.search(file.entries.get("COMMENT", ""))
    if match is None:
        return None
    distance = match[1].replace(",", "")
    return float(distance) if _is_number(distance) and float(distance) > 0 else None
