"""A sweep says if its trials are compared in different environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.cli.searched_environments import tell_searched_environments

FIT = ["fit", "--config", "ppo_cartpole"]
FIXED = ["--data.evaluators.eval.env", "env/gym_env", "--data.evaluators.other.n_episodes", "2"]

REFERRING = ["--data.evaluators", "{eval: {env: '${data.env}', wrappers: ['${data.wrappers.0}']}}"]
FIXED_AND_SAME = ["--data.evaluators", "{fixed: {env: env/gym_env}, eval: '${data.evaluators.fixed}'}"]
OF_VARIABLES = ["--config", "variables.yaml"]
PARTLY = ["--data.evaluators", "{eval: {env: {class_path: a.Env, init_args: {name: '${data.init_args.env.name}'}}}}"]

VARIABLES = """
variables: {name: CartPole-v1, limits: {steps: 9}, other: 1}
data:
  init_args:
    env: {class_path: maze_pl.envs.make_gym_maze_env, init_args: {name: "${variables.name}"}}
    wrappers:
      - class_path: maze_pl.envs.wrappers.TimeLimitWrapper
        init_args: {max_episode_steps: "${variables.limits.steps}"}
    evaluators:
      eval: {n_episodes: 2}
      same: {env: "${data.env}", wrappers: "${data.wrappers}"}
      partly: {env: {class_path: maze_pl.envs.make_gym_maze_env, init_args: {name: "${data.env.name}"}}}
      fixed: {env: {class_path: maze_pl.envs.make_gym_maze_env, init_args: {name: CartPole-v1}}}
"""


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
        (FIXED_AND_SAME, "data.env.name", "eval/return", None),
        (FIXED_AND_SAME, "data.evaluators.fixed.env.name", "eval/return", "env"),
        (FIXED_AND_SAME, "data.wrappers", "eval/return", "wrappers"),
        (OF_VARIABLES, "variables.name", "eval/return", "env"),
        (OF_VARIABLES, "variables.name", "same/return", "env"),
        (OF_VARIABLES, "variables.name", "partly/return", "env"),
        (OF_VARIABLES, "variables.name", "fixed/return", None),
        (OF_VARIABLES, "variables.limits.steps", "eval/return", "wrappers"),
        (OF_VARIABLES, "variables.limits", "same/return", "wrappers"),
        (OF_VARIABLES, "variables.other", "eval/return", None),
        (PARTLY, "data.env.name", "eval/return", "env"),
        (PARTLY, "data.env.seed", "eval/return", None),
    ],
)
def test_the_evaluator_and_its_option_are_named(
    words: list[str],
    option: str,
    metric: str,
    part: str | None,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("variables.yaml").write_text(VARIABLES, encoding="utf-8")
    tell_searched_environments([*FIT, *words], ["model.lr", option], [metric])
    output = capsys.readouterr().out
    assert output.startswith(f"{option} also changes the evaluator ") == (part is not None)
    assert f"data.evaluators.{metric.partition('/')[0].partition('_')[0]}.{part} gives it" in output or part is None
