"""A sweep says if its trials are compared in different environments."""

from __future__ import annotations

import pytest

from maze_pl.cli.searched_environments import tell_searched_environments

FIT = ["fit", "--config", "ppo_cartpole"]
FIXED = ["--data.evaluators.eval.env", "env/gym_env", "--data.evaluators.other.n_episodes", "2"]

REFERRING = ["--data.evaluators", "{eval: {env: '${data.env}', wrappers: ['${data.wrappers.0}']}}"]
PARTLY = ["--data.evaluators", "{eval: {env: {class_path: a.Env, init_args: {name: '${data.init_args.env.name}'}}}}"]


@pytest.mark.parametrize(
    ("words", "option", "metric", "part"),
    [
        ([], "data.env.name", "eval/return", "env"),
        ([], "--data.init_args.env.init_args.name", "eval_BaseEnvEvents/reward/max", "env"),
        ([], "data.wrappers", "eval/kpi/cost", "wrappers"),
        ([], "data.env.name", "train/return", None),
        ([], "data.n_envs", "eval/return", None),
        (FIXED, "data.env.name", "eval/return", None),
        (FIXED, "data.env.name", "other/return", "env"),
        (FIXED, "data.evaluators.eval.env.name", "eval/return", "env"),
        (FIXED, "data.evaluators.eval.env.name", "other/return", None),
        (FIXED, "data.evaluators.eval.n_episodes", "eval/return", None),
        (FIXED, "data.evaluators.eval", "eval/return", None),
        (REFERRING, "data.env.name", "eval/return", "env"),
        (REFERRING, "data.env.init_args.name", "eval/return", "env"),
        (REFERRING, "data.env", "eval/return", "env"),
        (REFERRING, "data.wrappers+", "eval/return", "wrappers"),
        (REFERRING, "data.n_envs", "eval/return", None),
        (PARTLY, "data.env.name", "eval/return", "env"),
        (PARTLY, "data.env.seed", "eval/return", None),
    ],
)
def test_the_evaluator_and_its_option_are_named(
    words: list[str], option: str, metric: str, part: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_searched_environments([*FIT, *words], ["model.lr", option], [metric])
    output = capsys.readouterr().out
    assert output.startswith(f"{option} also changes the evaluator ") == (part is not None)
    assert f"data.evaluators.{metric.partition('/')[0].partition('_')[0]}.{part} gives it" in output or part is None
