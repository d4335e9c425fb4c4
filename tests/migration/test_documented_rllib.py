"""Names of Maze's documentation for RLlib become options of `maze-pl rllib`."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from maze_pl.config.search_path import ConfigurationError
from maze_pl.migration.documented_rllib import rllib_options


@pytest.mark.parametrize(("documented", "today"), [("a3c", "appo"), ("a2c", "ppo"), ("impala", "appo")])
def test_an_algorithm_that_is_gone_is_replaced_by_the_most_similar_one(
    documented: str, today: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rllib_options({}, {"rllib/algorithm": documented}) == ["--config", f"conf_rllib/{today}"]
    assert capsys.readouterr().err == f"maze-run: RLlib trains by {today} in place of {documented}\n"
    assert rllib_options({}, {"rllib/algorithm": today}) == ["--config", f"conf_rllib/{today}"]
    assert capsys.readouterr().err == ""


def test_options_of_former_releases_have_their_names_of_today() -> None:
    keys = {"algorithm.config.num_sgd_iter": 3, "algorithm.config.lambda": 0.9, "algorithm.config.lr": 0.1}
    assert rllib_options({}, {**keys, "runner.num_workers": 2, "runner.n_epochs": 4})[2:] == shlex.split(
        "--model.config.num_epochs 3 --model.config.lambda_ 0.9 --model.config.lr 0.1 "
        "--model.config.num_env_runners 2 --trainer.max_epochs 4"
    )


def test_layers_are_those_of_policy_and_critic_unless_they_share_them() -> None:
    keys: dict[str, Any] = {"model.fcnet_hiddens": "[8,8]"}
    hidden = "networks.init_args.hidden_units"
    assert rllib_options({"model": "rllib"}, keys)[2:] == shlex.split(
        f"--model.networks model/flatten_concat --model.networks.policy.{hidden} [8,8] "
        f"--model.networks.critic.{hidden} [8,8]"
    )
    assert rllib_options({"model": "rllib"}, {**keys, "model.vf_share_layers": True})[2:] == shlex.split(
        f"--model.networks model/flatten_concat_shared_embedding --model.networks.policy.{hidden} [8,8]"
    )


@pytest.mark.parametrize(
    ("groups", "keys", "message"),
    [
        ({"algorithm": "ppo"}, {}, "algorithm=ppo is not a component of RLlib: use rllib/algorithm"),
        ({"policy": "random_policy"}, {}, "policy=random_policy is not a component of RLlib: omit it"),
        ({}, {"rllib/runner": "cluster"}, "there is no rllib/runner 'cluster'; there are dev, local"),
        ({}, {"rllib/algorithm": "qqqqqqqq"}, "there is no rllib/algorithm 'qqqqqqqq'; there are .*ppo"),
        ({"model": "rllib"}, {"model.use_lstm": True}, "model.use_lstm is not translated for model=rllib: only "),
    ],
)
def test_what_cannot_be_translated_is_named(groups: dict[str, str], keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        rllib_options(groups, keys)
