"""References between values of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maze_pl import RunContext
from maze_pl.config.assembling import prepare
from maze_pl.config.search_path import ConfigurationError, parse


def make_env(name: str = "a", size: int = 3) -> None:
    """Return nothing, and have two options."""


def make_unnamed_env(size: int = 3) -> None:
    """Return nothing, and have one option."""


class NamedEnv:
    """A class with two options."""

    def __init__(self, name: str = "a", size: int = 3) -> None:
        pass


class UnnamedEnv:
    """A class with one option."""

    def __init__(self, size: int = 3) -> None:
        pass


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["2026-11-29", "007", "1e3", "run"])
def test_the_run_directory_is_a_text_whatever_it_looks_like(name: str) -> None:
    Path(name).mkdir()
    Path(name, "config.yaml").write_text("trainer: {max_epochs: 1}\n", encoding="utf-8")
    for option in ("--run_dir", "--resume"):
        words = prepare(["fit", option, name, "--best_checkpoint.dirpath", "${run_dir}/b"])
        assert words[-1] == f"--best_checkpoint.dirpath={name}/b"


def test_a_configuration_with_the_run_directory_can_be_used_without_one() -> None:
    Path("mine.yaml").write_text(
        "base: ppo_cartpole\n"
        "variables: {name: CartPole-v0}\n"
        "best_checkpoint: {dirpath: '${run_dir}/best'}\n"
        "data: {init_args: {env: {init_args: {name: '${variables.name}'}}}}\n",
        encoding="utf-8",
    )
    for command in ("check", "rollout", "compare"):
        written = prepare([command, "--config", "mine.yaml"]).written
        assert written["env"]["init_args"]["name"] == "CartPole-v0"
        assert "best_checkpoint" not in written
    with pytest.raises(ConfigurationError, match=r"mine\.yaml refers to run_dir, which is not set"):
        prepare(["fit", "--config", "mine.yaml"])
    command_line = RunContext(configuration="mine.yaml", run_dir="run", silent=True).command
    assert prepare(command_line).written["best_checkpoint"]["dirpath"] == "run/best"


def referring(*words: str, value: str, option: str = "--data.n_envs") -> Any:
    """Value of an option that refers to others, in a command that changes `ppo_cartpole`."""
    last = prepare(["fit", "--config", "ppo_cartpole", *words, option, value])[-1]
    return parse(last.removeprefix(f"{option}="))


def held_out(*words: str) -> Any:
    """Environment of an evaluator that refers to the one of training."""
    evaluators = referring(*words, value="{held: {env: '${data.env}'}}", option="--data.evaluators")
    return evaluators["held"]["env"]


def test_references_see_items_that_options_append() -> None:
    added = ("--data.wrappers+", "c.D")
    assert referring(*added, value="${data.wrappers}") == ["c.D"]
    options = (*added, "--data.wrappers.size", "5")
    assert referring(*options, value="${data.wrappers}") == [{"class_path": "c.D", "init_args": {"size": 5}}]
    assert referring("--data.wrappers", "[a.B]", *options, value="${data.wrappers.0}") == "a.B"
    held = ("--data.evaluators.held.wrappers", "${data.wrappers}", "--data.evaluators.held.wrappers+", "e.F")
    assert referring(*held, *added, value="${data.evaluators.held.wrappers}") == ["c.D", "e.F"]
    more = ("--data.wrappers+", "[e.F, g.H]")
    assert referring(*added, *more, value="${data.wrappers}") == ["c.D", "e.F", "g.H"]


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("{{class_path: {}}}", ["make_env", "make_unnamed_env"]),
        ("{{class_path: {}}}", ["NamedEnv", "UnnamedEnv"]),
        ("{}", ["make_env", "make_unnamed_env"]),
        ("{}", ["NamedEnv", "UnnamedEnv"]),
    ],
)
def test_references_see_arguments_of_a_replaced_class_that_the_new_one_has(form: str, names: list[str]) -> None:
    same, other = (("--data.env", form.format(f"{__name__}.{name}")) for name in names)
    assert referring(*same, value="${data.env.name}") == "CartPole-v1"
    without = {"class_path": f"{__name__}.{names[1]}", "init_args": {}}
    assert held_out(*other) == without
    assert held_out(*other, *same)["init_args"] == {}
    assert held_out(*other, "--data.env.size", "5")["init_args"] == {"size": 5}
    assert held_out("--data.env", f"{{class_path: {__name__}.make_env, name: a}}", *other) == without
    with pytest.raises(ConfigurationError, match=r"refers to data\.env\.name, which is not set"):
        referring(*other, value="${data.env.name}")
    assert referring("--data.env", form.format("missing.make_env"), value="${data.env.name}") == "CartPole-v1"


def test_a_function_that_is_named_by_its_path_alone_takes_over_arguments_if_it_makes_an_environment() -> None:
    path = f"{__name__}.make_env"
    named = ("--data.env", path)
    assert held_out(*named) == {"class_path": path, "init_args": {"name": "CartPole-v1"}}
    assert held_out(*named, "--data.env.size", "5")["init_args"] == {"name": "CartPole-v1", "size": 5}
    assert held_out("--data.env", "{init_args: {name: b}}", *named)["init_args"] == {"name": "b"}
    engine = ("--data.engine", f"{{class_path: {path}, init_args: {{name: b}}}}")
    other = f"{__name__}.make_unnamed_env"
    assert referring(*engine, "--data.engine", other, value="${data.engine}") == other


def test_references_see_the_whole_of_a_component_that_options_change_in_part() -> None:
    Path("mine.yaml").write_text(
        "base: ppo_cartpole\n"
        "variables: {env: {class_path: c.D, init_args: {name: q}}, options: {env: c.D}, path: c.D, w: [e.F, g.H]}\n",
        encoding="utf-8",
    )
    mine = ("--config", "mine.yaml")
    for env in ("c.D", "${variables.path}"):
        found = held_out(*mine, "--data.env", env, "--data.env.size", "5")
        assert found == {"class_path": "c.D", "init_args": {"name": "CartPole-v1", "size": 5}}
    changed = (*mine, "--data.env", "${variables.env}", "--data.env.size", "5")
    assert held_out(*changed) == {"class_path": "c.D", "init_args": {"name": "q", "size": 5}}
    assert referring(*changed, value="${data.env.name}-${data.env.size}") == "q-5"
    assert referring("--data.init_args", "${variables.options}", *mine, value="${data.env.name}") == "CartPole-v1"
    appended = (*mine, "--data.wrappers+", "${variables.w}", "--data.wrappers.size", "5")
    assert referring(*appended, value="${data.wrappers}") == [
        "e.F",
        {"class_path": "g.H", "init_args": {"size": 5}},
    ]
    assert referring(*appended, "--data.wrappers+", "i.J", value="${data.wrappers.2}") == "i.J"
    replaced = (*mine, "--data.wrappers", "[{class_path: e.F, init_args: {x: 1}}, i.J]")
    assert referring(*replaced, "--data.wrappers", "${variables.w}", value="${data.wrappers}") == [
        {"class_path": "e.F", "init_args": {"x": 1}},
        "g.H",
    ]
    with pytest.raises(ConfigurationError, match=r"variables\.env refers to data\.env\.x refers to variables\.env"):
        referring(*changed, "--variables.env", "${data.env.x}", value="${data.env.x}")


def test_a_reference_that_is_replaced_is_not_looked_up() -> None:
    first = ("--data.env.size", "${data.n_envs}")
    assert referring(*first, "--data.env.size", "5", value="${data.env.size}") == 5


def test_the_name_of_a_class_keeps_arguments_for_references_and_that_of_a_file_does_not() -> None:
    assert referring("--model", "A2C", value="${model.lr}") == 0.00025
    with pytest.raises(ConfigurationError, match=r"refers to model\.clip_range, which is not set"):
        referring("--model", "A2C", value="${model.clip_range}")
    assert referring("--model", "Missing", value="${model.clip_range}") == 0.2
    Path("demos.pt").touch()
    assert referring("--data.env", "demos.pt", value="${data.env}") == "demos.pt"


def test_classes_of_an_untrusted_run_are_not_imported_for_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("harmful.py").write_text("raise SystemExit('run')\n", encoding="utf-8")
    known = "{class_path: maze_pl.envs.make_gym_maze_env, init_args: {name: a}}"
    Path("first.yaml").write_text(f"data: {{init_args: {{env: {known}}}}}\n", encoding="utf-8")
    content = "data: {init_args: {env: {class_path: harmful.Env}, evaluators: {eval: {env: '${data.env}'}}}}\n"
    Path("config.yaml").write_text(f"base: first.yaml\n{content}", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    option = "--data.evaluators.eval.env"
    for words in ([], [option, known, option, "${data.env}"]):
        with pytest.raises(ConfigurationError, match=r"may execute any code: harmful\.Env"):
            prepare(["fit", "--resume", str(tmp_path), *words])


@pytest.mark.parametrize(
    "text",
    [
        "variables: {data: {class_path: a.B, init_args: {env: {class_path: c.D}}}}\ndata: '${variables.data}'\n",
        "variables: {options: {env: {class_path: c.D}}}\ndata: {class_path: a.B, init_args: '${variables.options}'}\n",
        "base: base.yaml\ndata: a.B\n",
        "base: base.yaml\nwandb: true\n",
        "base: base.yaml\nrun_dir: run\nwarm_start: other\n",
    ],
)
@pytest.mark.parametrize("command", ["check", "rollout", "compare"])
def test_other_commands_take_the_environment_of_any_training_configuration(command: str, text: str) -> None:
    Path("base.yaml").write_text("data: {class_path: a.B, init_args: {env: {class_path: c.D}}}\n", encoding="utf-8")
    Path("mine.yaml").write_text(text, encoding="utf-8")
    assert prepare([command, "--config", "mine.yaml"]).written == {"env": {"class_path": "c.D"}}


@pytest.mark.parametrize("command", ["check", "rollout", "compare"])
def test_references_see_options_of_commands_that_have_the_environment_at_the_top(command: str) -> None:
    Path("mine.yaml").write_text(
        "data: {class_path: a.B, init_args: {env: {class_path: c.D, init_args: {size: 3}}, "
        "wrappers: [{class_path: e.F, init_args: {size: '${data.env.size}'}}]}}\n",
        encoding="utf-8",
    )
    Path("other.yaml").write_text("env: {init_args: {size: 5}}\n", encoding="utf-8")
    for words in (
        ["--env.size", "5"],
        ["--data.env.size", "5"],
        ["--data.init_args.env.size", "5"],
        ["--config", "other.yaml"],
    ):
        prepared = prepare([command, "--config", "mine.yaml", *words])
        assert prepared.written["wrappers"] == [{"class_path": "e.F", "init_args": {"size": 5}}]
        assert prepared.written["env"]["init_args"] == {"size": 5}
    assert prepare([command, "--config", "mine.yaml", "--data.init_args.env.size", "5"])[-1] == "--env.size=5"
    last = ("--wrappers+", "g.H", "--env.n", "${data.wrappers.1}")
    assert prepare([command, "--config", "mine.yaml", *last])[-1] == "--env.n=g.H"


def test_a_class_path_that_is_a_reference_leaves_the_arguments_that_the_class_does_not_have() -> None:
    path = f"{__name__}.make_unnamed_env"
    Path("mine.yaml").write_text(
        f"base: ppo_cartpole\nvariables: {{maker: {path}, same: maze_pl.envs.make_gym_maze_env}}\n", encoding="utf-8"
    )
    mine = ("--config", "mine.yaml")
    for words in (
        ("--data.env", "{class_path: '${variables.maker}'}"),
        ("--data.env.class_path", "${variables.maker}"),
    ):
        assert held_out(*mine, *words) == {"class_path": path, "init_args": {}}
    assert referring(*mine, "--data.env.class_path", "${variables.same}", value="${data.env.name}") == "CartPole-v1"


def test_options_set_variables_that_references_lead_to() -> None:
    Path("mine.yaml").write_text(
        "base: ppo_cartpole\nvariables: {small: {n: 1}, chosen: '${variables.small}', items: [1]}\n",
        encoding="utf-8",
    )
    mine = ("--config", "mine.yaml")
    assert referring(*mine, "--variables.chosen.n", "2", value="${variables.chosen.n}") == 2
    assert referring(*mine, "--variables.chosen.n", "2", value="${variables.small.n}") == 1
    assert referring(*mine, "--variables.items+", "2", value="${variables.items}") == [1, 2]
    for option in ("--variables.chosen.m", "--variables.chosen.m+"):
        with pytest.raises(ConfigurationError, match=r"refers to variables\.chosen\.m, which is not set"):
            referring(*mine, option, "2", value="1")
