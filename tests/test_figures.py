"""Figures that several places show: the README, pages and headers of configurations repeat what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
APPLIED = (ROOT / "docs" / "problems.md").read_text(encoding="utf-8")
JOB_SHOP = ROOT / "docs" / "results" / "problems" / "job_shop.json"
TABLES = {  # start of a row of the README -> heading of the benchmark, and the row of maze_pl
    "PPO, CartPole-v1, 8 x 100": ("W1", "maze_pl"),
    "the same with custom modules": ("W1", "maze_pl, custom modules, capture off"),
    "A2C, CartPole-v1, 8 x 100": ("W2: A2C, CartPole-v1, 8 environments x 100 steps", "maze_pl"),
    "A2C, CartPole-v1, 8 x 5": ("W2: A2C, CartPole-v1, 8 environments x 5 steps", "maze_pl"),
    "DQN": ("W9", "DQN, 32 updates a batch"),
    "TD3": ("W9", "TD3, 32 updates a batch"),
    "SAC": ("W3", "32 updates a batch, 1 thread"),
}
PROBLEMS = {  # row of the README -> header of the table of problems, and its rows of agent, best rule and solver
    "[job shop](docs/job_shop.md), Taillard's instances": (
        "| policy | makespan above the best known one",
        ("agent, best of 128", "FDD/MWKR", "CP-SAT, 10 s"),
    ),
    "flexible job shop": (
        "| policy | makespan above the bound",
        ("agent, greedy", "FDD/MWKR", "CP-SAT, 2 s"),
    ),
    "[vehicle routing](docs/vehicle_routing.md), 50 customers": (
        "| policy | distance above that of PyVRP",
        ("agent, best of 128 at temperature 1.5", "savings of nine shapes, 2-opt", "0"),
    ),
    "[stock](docs/multi_echelon_stock.md), two echelons": (
        "| policy | cost above the optimum",
        ("agent, greedy", "(s, S)", "0"),
    ),
    "stock, four echelons": ("| policy | cost of a period", ("agent, greedy", "base stock that follows demand", "")),
    "[ride hailing](docs/ride_hailing.md)": (
        "| policy | return of a day",
        ("agent, greedy", "nearest, repositioning", ""),
    ),
    "[cutting-2D](docs/results/cutting_2d.md), 200 orders": (
        "| policy | raw pieces for 200 orders",
        ("agent, sampled", "smallest piece that fits", ""),
    ),
}
HEADERS = {  # configuration -> what its header says: the best checkpoint's mean over seeds, or the range
    "a2c_pendulum": "a return of {lowest:.0f} to {highest:.0f}",
    "sac_cartpole": "a return of about {mean:.0f} (3 seeds",
    "ppo_acrobot": "a return of about {mean:.0f} (3 seeds",
}


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def number(text: str) -> float:
    return float(text.replace(",", ""))


def section(heading: str) -> dict[str, list[str]]:
    """First cell -> other cells of the table of a benchmark."""
    start = BENCHMARKS.index(f"\n## {heading}")
    text = BENCHMARKS[start : BENCHMARKS.find("\n## ", start + 1)]
    return {row[0]: row[1:] for row in map(cells, re.findall(r"^\|.*\|$", text, re.MULTILINE))}


def rows_below(header: str, page: str = README) -> list[list[str]]:
    """Cells of the rows of the table that starts with a header."""
    table = page[page.index(header) :].split("\n\n")[0]
    return [cells(line) for line in table.splitlines()[2:]]


def test_the_table_of_speeds_is_that_of_the_benchmarks() -> None:
    rows = rows_below("| env steps per second |") + rows_below("| updates per second |")
    assert len(rows) == len(TABLES)
    for row, (start, (heading, ours)) in zip(rows, TABLES.items(), strict=True):
        assert row[0].startswith(start)
        table = section(heading)
        measured = [table[ours][0]]
        if heading in ("W3", "W9"):
            measured.append(table[ours][1])
        elif ours == "maze_pl":
            measured += [table[name][0] for name in ("stable-baselines3", "tianshou", "torchrl")]
        shown = [number(cell) for cell in row[1:] if cell]
        assert shown == [round(number(cell)) for cell in measured], row


def test_the_speeds_in_arrays_are_those_of_the_benchmarks() -> None:
    table = section("W12")
    shown = re.findall(r"\d[\d,]{3,}\d", README[README.index("With 256 episodes in") :].split("\n\n")[0])
    assert shown[:2] == [table["in arrays"][0], table["one after the other"][0]]
    on_gpu = next(row for row in section("Training on a GPU").items() if row[0].startswith("`cutting_2d`"))
    assert on_gpu[1][2] in shown


def factors(page: str, start: str) -> list[float]:
    """Factors "about N times as fast" of a page, from a text to the end of its paragraph."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    paragraph = text[text.index(start) :].split("\n\n")[0]
    return [float(factor) for factor in re.findall(r"about ([\d.]+)\s+times\s+as\s+fast", paragraph)]


def test_rounded_factors_of_pages_are_those_of_the_benchmarks() -> None:
    loops, cutting = section("W11: PPO"), section("W12")
    assert number(loops["plain PyTorch loop"][1]) >= 0.95  # "at least as fast", within what varies between measurements
    others = (
        loops["stable-baselines3, W1"],
        cutting["one after the other"],
        cutting["one after the other, 8 x 100 (W7)"],
    )
    measured = [number(row[1]) for row in others]
    assert factors("array_environments.md", "With training, PPO on 1,024") == pytest.approx(measured, rel=0.15)
    uneven = section("W16")["episodes that end between two sub-steps"]
    assert factors("speed.md", "- In structured environments") == pytest.approx([number(uneven[2])], rel=0.15)


def test_the_table_of_returns_is_that_of_the_results() -> None:
    results = {row[0]: row for row in rows_below("| configuration | env steps | best |", RESULTS)}
    for name, env_steps, mean, worst, required in rows_below("| configuration | env steps | mean |"):
        row = results[name.split(",")[0]]
        assert [env_steps, mean, required] == [row[1], row[2], row[6]], name
        assert number(worst) == min(map(number, row[3].split(", "))), name


def test_the_table_of_problems_is_that_of_the_problems() -> None:
    for problem, _, *shown in rows_below("| problem | measure |"):
        header, policies = PROBLEMS[problem]
        measured = {row[0]: row[1].split(" ±")[0] for row in rows_below(header, APPLIED)}
        wanted = [measured.get(policy, policy) for policy in policies]
        assert [cell.split(" ")[0].rstrip("%") for cell in shown] == wanted, problem


@pytest.mark.parametrize("name", HEADERS)
def test_returns_in_headers_are_those_of_the_results(name: str) -> None:
    (row,) = [cells(line) for line in RESULTS.splitlines() if line.startswith(f"| `{name}` |")]
    seeds = [float(value) for value in row[3].split(",")]
    wanted = HEADERS[name].format(mean=float(row[2]), lowest=round(min(seeds), -1), highest=round(max(seeds), -1))
    assert wanted in (ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8")


def test_gaps_of_job_shops_are_those_of_the_problems() -> None:
    values = json.loads(JOB_SHOP.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "job_shop.md").read_text(encoding="utf-8")
    found = re.findall(
        r"^\| `ppo_job_shop`, (greedy|best of 128) ?(?:samples)?, seed (\d) \| ([\d.]+) \|", page, re.MULTILINE
    )
    assert len(found) == 6
    means = {}
    for agent, seed, shown in found:
        gaps = values[f"{agent} {seed}"]
        means[agent, seed] = f"{sum(gaps) / len(gaps):.1f}"
        assert shown == means[agent, seed], (agent, seed)
    first, second, third = (means["greedy", str(seed)] for seed in range(3))
    header = (ROOT / "configs" / "ppo_job_shop.yaml").read_text(encoding="utf-8")
    assert f"{first}%, {second}% and {third}% (seeds 0 to 2)" in header
