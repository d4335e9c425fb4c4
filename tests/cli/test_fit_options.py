"""Options of training that are refused before anything is instantiated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonargparse import Namespace

from maze_pl.cli.fit_options import refuse_unsuitable_options, start_of
from maze_pl.cli.option_check import check_options
from maze_pl.config.messages import explain
from maze_pl.config.search_path import ConfigurationError
from maze_pl.sweeps.sweep_file import parse_sweep

NAMING = ["fit", "--hyperparameters", "[x]"]


def options(**changes: Any) -> Namespace:
    env = Namespace(class_path="a.Env", init_args=Namespace(name="x"), dict_kwargs={"size": None})
    wrappers = [
        Namespace(class_path="a.First", init_args=Namespace(size=1)),
        Namespace(class_path="a.Last", init_args=Namespace(limit=3)),
    ]
    evaluators = {"eval": {"n_episodes": 1}}
    data = Namespace(class_path="a.Data", init_args=Namespace(env=env, wrappers=wrappers, evaluators=evaluators))
    model = Namespace(class_path="a.Model", init_args=Namespace(lr=0.1, tau=None))
    trainer = Namespace(max_epochs=1, check_val_every_n_epoch=1, val_check_interval=None)
    none = dict.fromkeys(("seeds", "resume", "warm_start", "run", "hyperparameters"))
    return Namespace(**{**none, "seed_everything": 0, "model": model, "data": data, "trainer": trainer, **changes})


@pytest.mark.parametrize(
    "name",
    [
        *("model", "model.lr", "model.tau", "model.init_args.lr", "seed_everything", "trainer.max_epochs", "data.env"),
        *("data.env.name", "data.env.dict_kwargs.size", "data.evaluators.eval.n_episodes", "model.class_path"),
        *("data.wrappers", "data.wrappers+", "data.wrappers.limit", "data.wrappers.init_args.limit"),
        *("data.env.dict_kwargs.name", "variables.horizon"),
    ],
)
def test_hyperparameters_are_options_of_the_run(name: str) -> None:
    refuse_unsuitable_options(options(hyperparameters=["model.lr", name]), NAMING)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("model.lrr", "model.lr"),
        ("data.env.dict_kwargs.sise", "data.env.dict_kwargs.size"),
        ("data.wrappers.size", "data.wrappers or data.wrappers.limit"),  # of a wrapper that is not the last one
    ],
)
def test_a_hyperparameter_that_is_no_option_is_refused_by_name(name: str, near: str) -> None:
    with pytest.raises(ConfigurationError, match=f"there is no option {name}; did you mean {near}"):
        refuse_unsuitable_options(options(hyperparameters=["model.lr", name]), NAMING)


@pytest.mark.parametrize("words", [["--hyperparameters+", "model.lrr"], ["--config", "{hyperparameters: [model.lrr]}"]])
def test_hyperparameters_are_checked_however_they_are_named(words: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no option model\.lrr"):
        refuse_unsuitable_options(options(hyperparameters=["model.lrr"]), ["fit", *words])


def test_hyperparameters_that_the_sweep_of_another_run_has_named_are_not_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("hyperparameters: [model.lrr]\n", encoding="utf-8")
    named = options(hyperparameters=["model.lrr"])
    for source in ("--config", "--resume", "--warm-start"):
        path = tmp_path / "config.yaml" if source == "--config" else tmp_path
        refuse_unsuitable_options(named, ["fit", source, str(path)])
        with pytest.raises(ConfigurationError, match=r"there is no option model\.lrr"):
            refuse_unsuitable_options(named, ["fit", source, str(path), "--hyperparameters", "[model.lrr]"])


@pytest.mark.parametrize(
    "search",
    [
        {"variables.horizon": [100, 200]},
        {"data.wrappers.max_episode_steps": [100, 200]},
        {"data.wrappers+": [{"class_path": "maze_pl.envs.wrappers.LogStatsWrapper"}]},
        {"data.env.dict_kwargs.name": ["CartPole-v0"]},
        {"model.init_args.lr": [0.1]},
    ],
)
def test_trials_of_a_sweep_may_train(tmp_path: Path, search: dict[str, Any]) -> None:
    (tmp_path / "base.yaml").write_text(
        "base: ppo_cartpole\n"
        "variables: {horizon: 50}\n"
        "data: {init_args: {wrappers: [{class_path: maze_pl.envs.wrappers.TimeLimitWrapper, "
        "init_args: {max_episode_steps: '${variables.horizon}'}}]}}\n",
        encoding="utf-8",
    )
    plan = parse_sweep({"config": str(tmp_path / "base.yaml"), "search": search, "sampler": "grid"})
    check_options([plan.command({option: values[0] for option, values in search.items()}, tmp_path / "run")])


def test_names_that_do_not_exist_are_found_before_a_sweep_begins() -> None:
    with pytest.raises(ConfigurationError, match=r"there is no option model\.lrr; did you mean model\.lr"):
        check_options([["fit", "--config", "ppo_cartpole", "--hyperparameters", "[model.lrr]"]])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["fit", "--config={}", "--model.lr"], "--model.lr"),
        (["fit", "--model.gamma=1", "--model.lr", "--data.n_envs=2"], "--model.lr"),
        (["fit", "--model"], "--model"),
        ([], "--model"),
    ],
)
def test_an_option_without_a_value_is_named(words: list[str], named: str) -> None:
    assert explain("argument --model: expected one argument", words=words) == f"{named} needs a value"


def test_the_start_of_a_run_is_the_run_or_checkpoint_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    best = tmp_path / "run" / "checkpoints" / "best.ckpt"
    best.parent.mkdir(parents=True)
    best.touch()
    for named, path in (
        ("run", tmp_path / "run"),
        ("run/../run/", tmp_path / "run"),
        ("run/checkpoints/best.ckpt", best),
    ):
        assert start_of(options(warm_start=named, ckpt_path=None)) == {"warm_start": str(path)}
        assert start_of(options(warm_start=named, ckpt_path="a.ckpt")) == {"ckpt_path": str(tmp_path / "a.ckpt")}
    assert start_of(options(ckpt_path=None)) == {}
    assert start_of(options(resume="run", ckpt_path="a.ckpt")) == {"resume": str(tmp_path / "run")}
    with pytest.raises(ConfigurationError, match=r"there is no checkpoint"):
        start_of(options(warm_start="missing", ckpt_path=None))
