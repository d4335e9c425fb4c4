"""Entries of a comparison: runs that join one entry, and the names by which entries are found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from maze_pl.agents import RandomPolicy
from maze_pl.comparison.analysis import Question, make_comparison
from maze_pl.comparison.entries import Entry, Player, make_entries
from maze_pl.comparison.results import ComparedCheckpoint, Comparison
from maze_pl.comparison.sources import Source
from maze_pl.config.learned_options import learned_options
from maze_pl.config.search_path import ConfigurationError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for runs that have configurations, and no checkpoints that are loaded."""

    def of_run(path: Path, *_: object) -> Entry:
        common, seed = learned_options(path)
        player = Player(str(path), None, {"env": object})
        return Entry(str(path), [player], configuration=common, seeds=[seed], given=[str(path)])

    monkeypatch.setattr("maze_pl.comparison.entries._of_run", of_run)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_run(path: str, seed: int = 0, **options: object) -> str:
    Path(path).mkdir(parents=True)
    Path(path, "config.yaml").write_text(json.dumps({"seed_everything": seed, **options}), encoding="utf-8")
    return path


def write_seeds(path: str, n_seeds: int) -> str:
    for seed in range(n_seeds):
        write_run(f"{path}/seed_{seed}", seed)
    Path(path, "seeds.json").write_text("{}", encoding="utf-8")
    return path


def entries(sources: Sequence[Source], baselines: Sequence[Source] = ()) -> list[Entry]:
    return make_entries(sources, baselines, "best", {"env": object}, trust=False)


def table(sources: Sequence[str], baselines: Sequence[str] = ()) -> Comparison:
    made = entries(sources, baselines)
    values = [np.arange(9.0) + np.zeros((len(entry.players), 1)) for entry in made]
    options = {"seed": 0, "max_steps": 0, "deterministic": False}
    return make_comparison(made, {"return": values}, Question(), **options)


def shown(found: Sequence[Entry]) -> list[tuple[str, list[str], bool]]:
    return [(entry.name, entry.sources, entry.is_baseline) for entry in found]


def test_runs_of_one_configuration_are_an_entry_but_a_baseline_is_not_part_of_it() -> None:
    a, b, c, d = [write_run(f"runs/{name}", seed) for seed, name in enumerate("abcd")]
    assert [entry.sources for entry in entries([a, b])] == [[a, b]]
    assert shown(entries([a], [b])) == [("runs/a", [a], False), ("runs/b", [b], True)]
    found = entries([a, b, c], [b])
    assert [(entry.sources, entry.is_baseline) for entry in found] == [([a, c], False), ([b], True)]
    found = entries([a, b], [c, d])
    assert [(entry.sources, entry.is_baseline) for entry in found] == [([a, b], False), ([c, d], True)]


def test_a_baseline_with_another_path_of_an_entry_is_that_entry(folder: Path) -> None:
    a, b = write_run("runs/a", 0), write_run("runs/b", 1)
    (folder / "link").symlink_to(a)
    for other in (f"{a}/", str(folder / a), "link", "runs/../runs/a"):
        found = entries([a, b], [other])
        assert [(entry.sources, entry.is_baseline) for entry in found] == [([a], True), ([b], False)]


def test_names_of_a_dict_are_entries_of_runs_folders_and_policies() -> None:
    a, b, c = [write_run(f"runs/{name}", seed) for seed, name in enumerate("abc")]
    seeds = write_seeds("runs/seeds", 2)
    policy = object()
    described = {"class_path": "maze_pl.agents.RandomPolicy", "init_args": {}}
    named = {"first": a, "second": Path(b), "several": seeds, "mine": policy, "rule": described, "chance": "random"}
    found = entries([named, c, described], ["second"])
    assert shown(found) == [
        ("first", [a], False),
        ("second", [b], True),
        ("several", [f"{seeds}/seed_0", f"{seeds}/seed_1"], False),
        ("mine", ["mine"], False),
        ("rule", ["rule"], False),
        ("chance", ["chance"], False),
        ("runs/c", [c], False),
        ("maze_pl.agents.RandomPolicy", ["maze_pl.agents.RandomPolicy"], False),
    ]
    assert found[3].players[0].policy is policy and found[5].players[0].policy == "random"
    assert found[4].players[0].policy.class_path == "maze_pl.agents.RandomPolicy"


def test_a_baseline_is_a_name_of_a_dict_before_a_path() -> None:
    new, old = write_run("new", 0), write_run("old", 1)
    assert shown(entries([{"new": new, "old": old}], ["old"])) == [("new", [new], False), ("old", [old], True)]
    assert shown(entries([{"old": new}], ["old", Path(old)])) == [("old", [new], True), ("old (2)", [old], True)]


def test_a_baseline_does_not_have_the_name_of_another_source(folder: Path) -> None:
    a, b = write_run("runs/a", 0), write_run("runs/b", 1)
    policy, other = object(), object()
    message = "the baseline 'mine' has the name of another run or policy: give each of them a different name"
    for first, second in ((a, b), (policy, other), (a, policy), ("random", "heuristic")):
        for sources, baselines in (([{"mine": first}], [{"mine": second}]), ([], [{"mine": first}, {"mine": second}])):
            with pytest.raises(ConfigurationError, match=message):
                entries(sources, baselines)
    rule = {"class_path": "maze_pl.agents.RandomPolicy", "init_args": {}}
    for first, second in ((a, str(folder / a)), (policy, policy), (rule, dict(rule))):
        assert shown(entries([{"mine": first}], [{"mine": second}]))[0][2], "it is this entry"


def test_arguments_of_policies_are_those_of_their_configuration(folder: Path) -> None:
    rule = {"_target_": "maze_pl.agents.RandomPolicy", "masks": None}
    (named, policy) = entries([{"mine": rule}, rule])
    assert (named.name, policy.name) == ("mine", "maze_pl.agents.RandomPolicy")
    assert policy.players[0].policy.init_args == named.players[0].policy.init_args == {"masks": None}
    (policy,) = entries([{"class_path": RandomPolicy, "init_args": {"masks": None}}])
    assert policy.name == "RandomPolicy" and policy.players[0].policy.keywords == {"masks": None}
    file = folder / "configs" / "policy" / "rule.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("class_path: maze_pl.agents.RandomPolicy\nk: 3\n", encoding="utf-8")
    misplaced = r"\['k'\] stand next to the class path maze_pl.agents.RandomPolicy: write arguments below init_args"
    for source in ("policy/rule", {"class_path": "maze_pl.agents.RandomPolicy", "k": 3}):
        with pytest.raises(ConfigurationError, match=misplaced):
            entries([source])


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([{}], "an empty dict names nothing to compare"),
        ([{"a": "random"}, {"a": "heuristic"}], "is given twice"),
        ([["random", "heuristic"]], r"a list is neither .*: give each run or policy as an argument, compare\(a, b\)"),
        ([{"a": ["random"]}], "a list is neither a run nor a policy"),
        ([RandomPolicy, RandomPolicy], "^the same RandomPolicy is given twice"),
        ([{"a": "runs/missing"}], "runs/missing is neither a run directory nor a policy"),
    ],
)
def test_dicts_that_name_nothing_are_refused(sources: list[object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_entries(sources, [], "best", {"env": object}, trust=False)


def test_the_results_have_the_checkpoints_that_played() -> None:
    played = [ComparedCheckpoint("runs/a/checkpoints/best.ckpt", 64 * "0", 600), None]
    made = [Entry(str(place), [Player("", None, checkpoint=one)]) for place, one in enumerate(played)]
    options = {"seed": 0, "max_steps": 0, "deterministic": False}
    found = make_comparison(made, {"return": [np.arange(9.0)[np.newaxis]] * 2}, Question(), **options).to_dict()
    assert [entry["checkpoints"] for entry in found["entries"]] == [
        [{"file": "runs/a/checkpoints/best.ckpt", "sha256": 64 * "0", "env_steps": 600}],
        [],
    ]


def test_a_run_in_a_folder_of_seeds_is_found_by_its_name() -> None:
    seeds = write_seeds("runs/seeds", 3)
    found = table([seeds], [f"{seeds}/seed_1"])
    assert found.entry(f"{seeds}/seed_1").n_runs == 1
    assert found.entry(f"{seeds}/seed_1/").n_runs == 1
    assert found.entry(f"{seeds}/seed_2").n_runs == 3  # which is only part of that entry
    assert found.difference(seeds, f"{seeds}/seed_1").difference == 0.0


def test_an_entry_is_found_by_what_the_user_named(folder: Path) -> None:
    seeds, run = write_seeds("deep/runs/seeds", 2), write_run("deep/runs/a", 5, model={"lr": 0.1})
    found = table([f"{seeds}/"], [f"{run}/"])
    assert [entry.name for entry in found.entries] == ["runs/seeds", "runs/a"]
    for name in (seeds, f"{seeds}/", "runs/seeds"):
        assert found.entry(name).n_runs == 2
    for name in (run, f"{run}/", "runs/a"):
        assert found.entry(name).n_runs == 1
    with pytest.raises(ConfigurationError, match="there is no entry 'a': use one of runs/seeds, runs/a"):
        found.entry("a")


def test_a_short_name_is_never_the_path_of_another_entry() -> None:
    near, far = write_run("runs/a", 0), write_run("other/runs/a", 0, model={"lr": 0.1})
    for sources in ([near, far], [far, near]):
        found = table(sources, [near])
        assert [entry.name for entry in found.entries] == sources
        assert [found.entry(source).sources for source in sources] == [[source] for source in sources]


def test_entries_of_runs_in_one_folder_are_told_apart() -> None:
    for name, rate in (("a", 0.1), ("b", 0.1), ("c", 0.2), ("d", 0.2)):
        write_run(f"runs/{name}", ord(name), model={"lr": rate})
    found = entries(["runs/a", "runs/b", "runs/c", "runs/d"])
    assert [entry.name for entry in found] == ["runs/a and 1 more", "runs/c and 1 more"]


def test_runs_without_a_telling_folder_are_named_by_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here/runs/a", "there/runs/b", "runs/inside/deep/c"):
        write_run(name, ord(name[-1]))
    (found,) = entries(["here/runs/a", "there/runs/b"])
    assert found.name == "runs/a and 1 more"  # not the current folder
    monkeypatch.chdir(tmp_path / "runs" / "inside")
    (found,) = entries(["deep/c", "../../here/runs/a"])
    assert found.name == "deep/c and 1 more"  # nor one around it
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("os.path.commonpath", lambda _: "/")  # as of runs on two disks
    (found,) = entries(["runs/a", "../there/runs/b"])
    assert found.name == "runs/a and 1 more"
    monkeypatch.setattr("os.path.commonpath", lambda _: "/data")
    (found,) = entries(["runs/a", "../there/runs/b"])
    assert found.name == "runs/a and 1 more"
    monkeypatch.setattr("os.path.commonpath", lambda _: "/data/ppo")
    (found,) = entries(["runs/a", "../there/runs/b"])
    assert found.name == "data/ppo"


def test_options_that_do_not_affect_learning_do_not_split_an_entry() -> None:
    for seed in (0, 1):
        write_run(f"runs/{seed}", seed, best_checkpoint={"dirpath": f"runs/{seed}/best"})
    write_run("runs/2", 2, hyperparameters=["model.lr"], best_checkpoint={"dirpath": None})
    (found,) = entries(["runs/0", "runs/1", "runs/2"])
    assert len(found.players) == 3
