"""`maze_pl.compare`: policies in environments of all kinds, and the object that it returns."""

from __future__ import annotations

import doctest
import json
import re
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pandas
import pytest
import torch
import yaml
from gymnasium.envs.classic_control import CartPoleEnv

import maze_pl
from maze_pl.__main__ import main
from maze_pl.agents import DummyCartPolePolicy, RandomPolicy
from maze_pl.collect.engines import InProcessEngine
from maze_pl.comparison import compare as module_of_compare
from maze_pl.comparison.analysis import Question, make_comparison
from maze_pl.comparison.compare import compare
from maze_pl.comparison.effects import mean_effects
from maze_pl.comparison.entries import Entry, Player, make_entries
from maze_pl.comparison.page import page_text
from maze_pl.comparison.results import ComparedCheckpoint, Comparison
from maze_pl.comparison.tables import console_text
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.cutting_2d import masked_structured_environment
from maze_pl.envs.cutting_2d.masked_structured_environment import masked_struct_env_factory
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    RewardScalingWrapper,
    TimeLimitWrapper,
)
from maze_pl.runs.checkpoint_files import checkpoint_digest
from maze_pl.runs.rollout import rollout
from maze_pl.search import SearchError
from tests.bad_input.project import SMALL
from tests.bundle.written_bundles import write_bundle
from tests.structured import hierarchy, team


def cart_pole() -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1")


class Remembers(DummyCartPolePolicy):
    """Alternates between both actions in each episode, with a state for each actor."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        assert batch.n_acts is not None
        return PolicyStep({"action": np.asarray(batch.n_acts) % 2})


RUN = Path(__file__).parents[1] / "data" / "0.2.0" / "runs" / "ppo_structured"
LIMITED = partial(TimeLimitWrapper, max_episode_steps=15)
NORMALIZED = partial(ObservationNormalizationWrapper, exclude=["inventory"])
SCALED = partial(ReturnNormalizationRewardWrapper, gamma=0.99)


def test_the_wrappers_of_the_heuristic_are_named_if_those_of_runs_differ(capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = ComparedCheckpoint("best.ckpt", "", 0)
    entries = [Entry("heuristic", [Player("heuristic", "heuristic", {"wrappers": [SCALED]})], given=["heuristic"])]
    for name, wrappers in (("a", [SCALED]), ("b", [SCALED])):
        player = Player(name, None, {"wrappers": wrappers}, checkpoint=checkpoint)
        entries.append(Entry(name, [player], seeds=[0], given=[name]))
    module_of_compare.tell_wrappers_of_heuristic(entries)
    assert capsys.readouterr().err == ""
    entries[2].players[0].options["wrappers"] = [LIMITED]
    module_of_compare.tell_wrappers_of_heuristic(entries)
    assert "heuristic plays with the wrappers of a, the first run: " in capsys.readouterr().err
    module_of_compare.tell_wrappers_of_heuristic(entries[1:])
    assert capsys.readouterr().err == ""
    (rule,) = make_entries([{"rule": "heuristic"}], [], "best", {"env": cart_pole}, trust=False)
    module_of_compare.tell_wrappers_of_heuristic([rule, *entries[1:]])
    assert "heuristic plays with the wrappers of a, the first run: " in capsys.readouterr().err
    (other,) = make_entries([{"heuristic": "random"}], [], "best", {"env": cart_pole}, trust=False)
    module_of_compare.tell_wrappers_of_heuristic([other, *entries[1:]])
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_other_wrappers_use_the_statistics_of_the_run() -> None:
    (whole,) = make_entries([RUN], [], "best", {}, trust=False)
    entries = make_entries([RUN, "random"], [], "best", {"wrappers": [LIMITED, NORMALIZED]}, trust=False)
    known = whole.players[0].options["wrapper_statistics"]
    checkpoint = whole.players[0].checkpoint
    assert checkpoint is not None and checkpoint.env_steps == whole.players[0].policy.env_steps > 0
    assert checkpoint.sha256 == checkpoint_digest(Path(checkpoint.file))
    normalization = next(name for name in known if name.endswith("ObservationNormalizationWrapper"))
    assert len(known) == 2
    for entry in entries:
        kept = entry.players[0].options["wrapper_statistics"]
        assert list(kept) == [normalization] and str(kept) == str({normalization: known[normalization]})


@pytest.mark.parametrize(
    ("wrappers", "message"),
    [
        ([], r"ppo_structured: the comparison has no wrapper .*ObservationNormalizationWrapper, with which the policy"),
        ([NORMALIZED, SCALED, SCALED], r"the comparison has the wrappers .*, whose statistics training does not have"),
    ],
)
def test_wrappers_that_do_not_fit_those_of_training_are_refused(wrappers: list[Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        compare(RUN, "random", wrappers=wrappers, n_episodes=1)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("there is no orders"),
        gymnasium.error.DependencyNotInstalled("Box2D is not installed"),
        gymnasium.error.NameNotFound("there is no LunarLander"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_run_whose_environment_of_training_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def missing(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(masked_structured_environment, "maze_env_factory", missing)
    message = rf"ppo_structured: the statistics .* made: {type(error).__name__}: {error}; without --wrappers"
    with pytest.raises(ConfigurationError, match=message):
        compare(RUN, "random", env=cart_pole, wrappers=[LIMITED], n_episodes=1)


@pytest.fixture(scope="module")
def table() -> Comparison:
    swinging = {"swinging": DummyCartPolePolicy()}
    return compare(swinging, "random", Remembers(), baselines=["random"], env=cart_pole, n_episodes=12, max_steps=80)


def test_the_numbers_are_those_of_the_rollouts(table: Comparison) -> None:
    played = rollout(cart_pole, "random", 12, max_steps=80)
    returns = np.array([[one.summary.reward for one in played]])
    assert table.entry("random").metrics["return"].mean == mean_effects(returns).estimate
    assert table.entry("swinging").metrics["return"].mean == 80.0
    assert table.difference("swinging", "random").difference == pytest.approx(80.0 - returns.mean())
    assert table.winner == "swinging"
    assert table.is_better("swinging", "random")


def test_it_is_a_table_for_libraries_of_data_frames(table: Comparison) -> None:
    frame = table.to_pandas()
    assert list(frame.index) == [("return", "swinging"), ("return", "random"), ("return", "Remembers")]
    assert frame.loc[("return", "swinging"), "mean"] == 80.0
    assert pandas.isna(frame.loc[("return", "random"), "difference to random"])
    assert list(pandas.DataFrame(table)["entry"]) == ["swinging", "random", "Remembers"]
    assert len(table) == 3 and table[0]["entry"] == "swinging"
    assert json.loads(json.dumps(table.to_dict(), allow_nan=False))["winner"] == "swinging"


def test_a_notebook_shows_it_without_markup_of_names(table: Comparison) -> None:
    named = compare({"<script>": "random"}, env=cart_pole, n_episodes=2, max_steps=5)
    assert "&lt;script&gt;" in named._repr_html_() and "<script>" not in named._repr_html_()
    assert "winner by return: swinging" in table._repr_html_()


def test_a_notebook_shows_the_tables_of_the_console(table: Comparison) -> None:
    shown = table._repr_html_()
    heads = re.findall("<th [^>]*>([^<]*)</th>", shown)
    assert heads[:7] == ["metric", "entry", "runs", "mean", "95% interval", "IQM", "95% interval"]
    assert heads[7:11] == ["metric", "entry", "baseline", "episodes"]
    cells = re.findall("<td [^>]*>([^<]*)</td>", shown)
    for line in console_text(table).splitlines():
        if line.startswith("return"):
            assert set(re.split(" {2,}", line)) <= set(cells)


def test_unknown_entries_and_comparisons_are_refused(table: Comparison) -> None:
    with pytest.raises(ConfigurationError, match="there is no entry 'x': use one of swinging, random, Remembers"):
        table.entry("x")
    with pytest.raises(ConfigurationError, match="was not compared with swinging"):
        table.difference("random", "swinging")


@pytest.mark.parametrize("make", [team.make_env, hierarchy.make_env])
def test_several_agents_and_sub_steps_are_compared(make: Any) -> None:
    table = compare("random", {"again": RandomPolicy}, env=make, n_episodes=8)
    assert table.winner is None
    assert table.difference("again", "random").difference == 0.0  # the same random numbers


def test_masked_structured_environments_are_compared() -> None:
    def make() -> TimeLimitWrapper:
        return TimeLimitWrapper(masked_struct_env_factory(20, (100, 100), (30, 15)), 10)

    table = compare("heuristic", "random", env=make, n_episodes=8, metric="kpi/raw_piece_usage_per_step")
    assert {"return", "kpi/raw_piece_usage_per_step"} <= set(table.metrics)
    assert not np.isnan(table.difference("random", "heuristic").difference)


def test_returns_are_those_of_the_environment_whatever_wrappers_change() -> None:
    def scale(env: Any) -> RewardScalingWrapper:
        return RewardScalingWrapper(env, 0.01)

    plain = compare("random", env=cart_pole, n_episodes=4, max_steps=30)
    scaled = compare("random", env=cart_pole, wrappers=[scale], n_episodes=4, max_steps=30)
    assert scaled.entry("random").metrics == plain.entry("random").metrics


class SometimesWithout:
    """KPI calculator that leaves its KPI out in long episodes."""

    kpi_names = None

    def calculate_kpis(self, episode_event_log: Any, last_maze_state: Any) -> dict[str, float]:
        n = len(episode_event_log.step_event_logs)
        return {"length": float(n)} if n < 20 else {}


def test_episodes_without_a_kpi_are_left_out_of_its_mean() -> None:
    def make() -> GymMazeEnv:
        env = cart_pole()
        env.core_env.get_kpi_calculator = SometimesWithout  # type: ignore[method-assign]
        return env

    table = compare("random", "heuristic", env=make, n_episodes=12, max_steps=60)
    found = table.entry("random").metrics["kpi/length"]
    lengths = [one.summary.env_steps for one in rollout(cart_pole, "random", 12, max_steps=60)]
    short = [length for length in lengths if length < 20]
    assert 0 < len(short) < 12
    assert (found.n_values, found.mean) == (len(short), pytest.approx(np.mean(short)))
    assert table.entry("heuristic").metrics["kpi/length"].mean_interval is None
    assert np.isnan(table.difference("heuristic", "random", "kpi/length").difference)
    assert table.to_dict()["entries"][1]["metrics"]["kpi/length"]["mean"] is None


def test_a_policy_that_only_solves_easy_episodes_does_not_win() -> None:
    """The first entry has the lower mean, as it lacks the costly episodes; it costs 1 more in all that both have."""
    costs = np.random.default_rng(0).uniform(0.0, 100.0, (1, 60))
    sometimes = np.where(costs < 50.0, costs + 1.0 + np.random.default_rng(1).normal(0.0, 0.1, (1, 60)), np.nan)
    entries = [
        Entry(name, [Player(name, name)], is_baseline=name == "solves all") for name in ("sometimes", "solves all")
    ]
    question = Question("kpi/cost", lower_is_better=True)
    table = make_comparison(
        entries, {"kpi/cost": [sometimes, costs]}, question, seed=0, max_steps=0, deterministic=False
    )
    found = table.difference("sometimes", "solves all")
    assert np.nanmean(sometimes) < costs.mean()
    assert found.n_shared == int((costs < 50.0).sum())
    assert found.difference == pytest.approx(float(np.nanmean(sometimes - costs)))
    assert found.probability_of_improvement == 0.0
    assert table.winner == "solves all" and not table.is_better("sometimes", "solves all")
    assert table.rows[0]["values shared with solves all"] == found.n_shared
    assert f"{found.n_shared}" in console_text(table).splitlines()[-3]


def test_an_improvement_is_named_only_for_the_metric_with_a_better_direction() -> None:
    """All values of the first entry are higher by 1; `cost` is better if it is lower."""
    low = np.random.default_rng(0).uniform(0.0, 9.0, (1, 40))
    values = {"return": [low + 1.0, low], "kpi/cost": [low + 1.0, low], "kpi/wait": [low + 1.0, low]}
    entries = [Entry(name, [Player(name, name)], is_baseline=name == "low") for name in ("high", "low")]
    question = Question("kpi/cost", lower_is_better=True)
    table = make_comparison(entries, values, question, seed=0, max_steps=0, deterministic=False)
    _, _, chosen, others, _ = console_text(table).split("\n\n")
    head, *rows = [line.split() for line in chosen.splitlines()]
    assert "P(improvement)" in head and [(row[0], row[8]) for row in rows] == [("kpi/cost", "0")]
    head, *rows = [line.split() for line in others.splitlines()]
    assert "P(higher)" in head and "P(improvement)" not in head
    assert [(row[0], row[8]) for row in rows] == [("return", "1"), ("kpi/wait", "1")]
    page = page_text(table, None, [])
    assert page.count('<p class="muted">P(improvement) 0 ') == 1
    assert page.count('<p class="muted">P(higher) 1 ') == 2


def test_nothing_is_written_if_a_file_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("maze_pl.comparison.writing.save_picture", fail)
    with pytest.raises(OSError, match="disk full"):
        compare("random", env=cart_pole, n_episodes=2, max_steps=5, to=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_winner_needs_wider_intervals_the_more_entries_there_are() -> None:
    table = compare("heuristic", "random", env=cart_pole, n_episodes=8, max_steps=30)
    assert table.n_comparisons == 1 and table.winner == "heuristic"
    assert maze_pl.compare is compare


def test_the_example_in_the_docstring_works() -> None:
    assert doctest.testmod(module_of_compare).failed == 0


def test_a_policy_that_cannot_play_is_refused_before_many_episodes_are_played() -> None:
    with pytest.raises(ValueError, match="no policy 'heuristic'"):
        compare("random", "heuristic", env=lambda: GymMazeEnv("Acrobot-v1"), n_episodes=1_000_000)


def test_a_search_that_is_impossible_is_refused_before_any_episode_is_played() -> None:
    n_acts = 0

    class Still(RandomPolicy):
        def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
            nonlocal n_acts
            n_acts += 1
            return PolicyStep({"action": np.zeros((len(batch.agent_id), 1))})

    with pytest.raises(ValueError, match="only best_of can search continuous actions"):
        compare(Still, env=lambda: GymMazeEnv("Pendulum-v1"), n_episodes=2, max_steps=3, search=["puct:4"])
    assert n_acts == 0


def test_a_bundle_that_does_not_fit_is_refused_before_a_search_is_played(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "other.bundle")
    n_steps = 0

    class Counted(CartPoleEnv):
        def step(self, action: Any) -> Any:
            nonlocal n_steps
            n_steps += 1
            return super().step(action)

    for sources in (["random", str(bundle)], [str(bundle), "random"]):
        with pytest.raises(ConfigurationError, match=r"other.bundle: .*the bundle does not fit"):
            compare(*sources, env=lambda: GymMazeEnv(Counted()), n_episodes=2, max_steps=3, search=["best_of:2"])
    assert n_steps == 0


@pytest.mark.slow
def test_a_search_is_a_further_entry() -> None:
    found = compare("random", env=cart_pole, n_episodes=3, max_steps=40, search=["lookahead:random:16:horizon=20"])
    assert [entry.name for entry in found.entries] == ["random", "random lookahead:random:16:horizon=20"]
    assert found.entry("random lookahead:random:16:horizon=20").metrics["return"].mean == 40.0
    assert found.entry("random").is_baseline
    with pytest.raises(ConfigurationError, match="there is no budget"):
        compare("random", env=cart_pole, n_episodes=3, search=["puct"])
    with pytest.raises(ConfigurationError, match="search 'puct:4' is given twice"):
        compare("random", env=cart_pole, n_episodes=3, search=["puct:4", "puct:4"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing
def test_an_environment_may_be_a_text_in_one_run_and_a_class_path_in_another(tmp_path: Path) -> None:
    path = "tests.envs.line.make_drawn_line_env"
    runs = [tmp_path / name for name in ("text", "node", "other")]
    command = ["fit", "--config", "ppo_cartpole", *SMALL, "--data.env", path, "--run_dir", str(runs[0])]
    assert main(command) == 0
    for run, node, seed, gamma in ((runs[1], path, 5, None), (runs[2], path, 5, 0.5)):
        shutil.copytree(runs[0], run)
        (checkpoint,) = (run / "checkpoints").glob("best.ckpt")
        content = torch.load(checkpoint, weights_only=True)
        configuration = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
        for stored in (content["maze_pl"]["config"], configuration):
            assert stored["data"]["init_args"]["env"] == {"class_path": path}, "earlier versions stored a text"
            stored["data"]["init_args"]["env"] = node
            stored["seed_everything"] = seed
            stored["model"]["init_args"]["gamma"] = gamma or stored["model"]["init_args"]["gamma"]
        torch.save(content, checkpoint)
        (run / "config.yaml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    entries = make_entries(runs, (), "best", {}, trust=True)
    assert [entry.sources for entry in entries] == [[str(runs[0]), str(runs[1])], [str(runs[2])]]
    (found,) = compare(runs[0], runs[2], n_episodes=2, max_steps=5, trust=True).differences
    assert found.difference == 0.0


class Locked(CartPoleEnv):
    """Cannot be copied; notes its steps."""

    n_steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.licence = threading.Lock()

    def step(self, action: Any) -> Any:
        type(self).n_steps += 1
        return super().step(action)


def test_searches_that_cannot_be_played_are_refused_before_anything_is() -> None:
    Locked.n_steps = 0
    options: Any = {"search": ["best_of:2"], "n_episodes": 4, "max_steps": 5}
    with pytest.raises(SearchError, match="search tries actions in copies of the environment"):
        compare("random", env=lambda: GymMazeEnv(Locked()), **options)
    assert not Locked.n_steps

    def timed() -> Any:
        return InProcessEngine(step_timeout=5.0)

    class Counted(GymMazeEnv):
        def step(self, action: Any) -> Any:
            Locked.n_steps += 1
            return super().step(action)

    with pytest.raises(ValueError, match=r"step_timeout=5.0 keeps environments in separate processes"):
        compare("random", env=lambda: Counted("CartPole-v1"), make_engine=timed, **options)
    assert not Locked.n_steps
