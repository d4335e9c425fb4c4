"""Options of training that are refused before anything is instantiated."""

from __future__ import annotations

from typing import Any

import pytest
from jsonargparse import Namespace

from maze_pl.cli.fit_options import refuse_unsuitable_options
from maze_pl.config.messages import explain
from maze_pl.config.search_path import ConfigurationError


def options(**changes: Any) -> Namespace:
    env = Namespace(class_path="a.Env", init_args=Namespace(name="x"), dict_kwargs={"size": None})
    data = Namespace(class_path="a.Data", init_args=Namespace(env=env, evaluators={"eval": {"n_episodes": 1}}))
    model = Namespace(class_path="a.Model", init_args=Namespace(lr=0.1, tau=None))
    trainer = Namespace(max_epochs=1, check_val_every_n_epoch=1, val_check_interval=None)
    none = dict.fromkeys(("seeds", "resume", "warm_start", "run", "hyperparameters"))
    return Namespace(**{**none, "seed_everything": 0, "model": model, "data": data, "trainer": trainer, **changes})


@pytest.mark.parametrize(
    "name",
    [
        *("model", "model.lr", "model.tau", "model.init_args.lr", "seed_everything", "trainer.max_epochs", "data.env"),
        *("data.env.name", "data.env.dict_kwargs.size", "data.evaluators.eval.n_episodes", "model.class_path"),
    ],
)
def test_hyperparameters_are_options_of_the_run(name: str) -> None:
    refuse_unsuitable_options(options(hyperparameters=["model.lr", name]))


@pytest.mark.parametrize(
    ("name", "near"), [("model.lrr", "model.lr"), ("data.env.dict_kwargs.sise", "data.env.dict_kwargs.size")]
)
def test_a_hyperparameter_that_is_no_option_is_refused_by_name(name: str, near: str) -> None:
    with pytest.raises(ConfigurationError, match=f"there is no option {name}; did you mean {near}"):
        refuse_unsuitable_options(options(hyperparameters=["model.lr", name]))
    for source in ("resume", "warm_start", "run"):  # which were made with names of a whole sweep
        refuse_unsuitable_options(options(hyperparameters=[name], **{source: "run"}))


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
