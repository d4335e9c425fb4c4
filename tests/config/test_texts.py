"""Texts reach components as they were written, wherever they were written."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import yaml
from jsonargparse import Namespace

from maze_pl import RunContext
from maze_pl.cli.check import check, parsed
from maze_pl.cli.rollout_command import _NO_OPTIONS, _configured_policy, play
from maze_pl.config.assembling import prepare
from maze_pl.config.factories import Factory, with_factories
from maze_pl.config.search_path import read
from maze_pl.config.texts import TextKeepingParser, with_texts
from maze_pl.run_context.commands import assembled_configuration
from maze_pl.sweeps.sweep_file import parse_sweep

TEXTS = [
    "007",
    "08",
    "12",
    "null",
    "true",
    "yes",
    "1e3",
    "1e-3",
    "1.0",
    "0x1f",
    "2020-01-01",
    "[1]",
    "a: b",
    "# c",
    "x",
]


class RecordedEnv(gymnasium.Env[Any, Any]):
    """Environment that holds what its function was given."""

    def __init__(self, received: dict[str, Any]) -> None:
        self.received = received


def make_env(
    plain=None,  # type: ignore[no-untyped-def]
    text: str = "",
    either: int | str = "x",
    perhaps: str | None = None,
    several: list[Any] | None = None,
    numbers: dict[str, int] | None = None,
    count: int = 1,
    **further: Any,
) -> RecordedEnv:
    """Return an environment with the arguments."""
    named = {"plain": plain, "text": text, "either": either, "perhaps": perhaps, "several": several}
    return RecordedEnv({**named, "numbers": numbers, "count": count, **further})


class Layout:
    """Class that is instantiated at once."""

    def __init__(self, title=None, size: int | str = 1, **further: Any) -> None:  # type: ignore[no-untyped-def]
        self.received = {"title": title, "size": size, **further}


class Holder:
    """Class with a component of each kind."""

    def __init__(self, layout: Layout, env: Callable[[], gymnasium.Env[Any, Any]] | None = None) -> None:
        self.layout, self.env = layout, env


class Policy:
    """Policy with arguments of two types."""

    def __init__(self, label: str = "x", other: int | str = "y", **further: Any) -> None:
        self.received = {"label": label, "other": other, **further}


class NamedEnv(RecordedEnv):
    """Environment with arguments that the function has, too."""

    def __init__(self, either: int | str = "x", plain=None) -> None:  # type: ignore[no-untyped-def]
        super().__init__({"either": either, "plain": plain})


def make_with_others(**others: Any) -> RecordedEnv:
    """Return an environment, passing all arguments on."""
    return make_env(**others)


PATH = f"{__name__}.make_env"


def node_of(text: str) -> dict[str, Any]:
    named = {"plain": text, "text": text, "either": text, "perhaps": text, "several": [text, [text]]}
    return {"class_path": PATH, "init_args": named, "dict_kwargs": {"other": text, "nested": {"a": [text]}}}


def expected_of(text: str) -> dict[str, Any]:
    node = node_of(text)
    return {**node["init_args"], "numbers": None, "count": 1, **node["dict_kwargs"]}


def received(*words: str) -> dict[str, Any]:
    """Return what the environment of a command was given."""
    options, _ = parsed(check, "check", prepare(["check", *words]), description="Check.")
    result: dict[str, Any] = options["env"]().received
    return result


def same(found: Any, expected: Any) -> bool:
    """True for values that are equal and of equal types; 1, 1.0 and True differ."""
    return repr(found) == repr(expected)


def environment_of(content: dict[str, Any]) -> dict[str, Any]:
    """Return what the environment of a configuration is given, as YAML has it."""
    node = content["data"]["init_args"]["env"]
    return {**node["init_args"], **node.get("dict_kwargs", {})}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_files_and_options_stay_texts(text: str) -> None:
    Path("env.json").write_text(json.dumps({"env": node_of(text)}), encoding="utf-8")  # JSON quotes all texts
    assert same(received("--config", "env.json"), expected_of(text))
    assert same(received("--env", json.dumps(node_of(text))), expected_of(text))
    Path("bare.json").write_text(json.dumps({"env": {"class_path": PATH}}), encoding="utf-8")
    node = node_of(text)
    words = [f"--env.{name}={json.dumps(value)}" for name, value in node["init_args"].items()]
    words += [f"--env.dict_kwargs.{name}={json.dumps(value)}" for name, value in node["dict_kwargs"].items()]
    assert same(received("--config", "bare.json", *words), expected_of(text))


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("null", None),
        ("true", True),
        ("1e-3", 0.001),
        ("7", 7),
        ("[1, null]", [1, None]),
        ("'null'", "null"),
        ('"1e3"', "1e3"),
        ("2020-01-01", "2020-01-01"),
        ("None", "None"),
        ("", ""),
    ],
)
def test_words_of_a_command_are_read_as_yaml(word: str, value: Any) -> None:
    found = received("--env", PATH, "--env.plain", word, "--env.dict_kwargs.other", word)
    assert same((found["plain"], found["other"]), (value, value))


@pytest.mark.parametrize(
    "words",
    [
        [
            ("plain", "null", None),
            ("perhaps", "None", "None"),
            ("either", "1e3", "1e3"),
            ("several", "[1, null, None, '7', 1e-3]", [1, None, "None", "7", 0.001]),
            ("numbers", "null", None),
            ("dict_kwargs.other", "null", None),
        ],
        [
            ("plain", "None", "None"),
            ("perhaps", "null", None),
            ("numbers", "{a: 1}", {"a": 1}),
            ("dict_kwargs.other", "{a: [null, '7']}", {"a": [None, "7"]}),
        ],
    ],
)
def test_words_of_options_below_several_components_are_read_as_yaml(words: list[tuple[str, str, Any]]) -> None:
    node = json.dumps({"class_path": PATH, "init_args": {"perhaps": "a", "numbers": {"b": 2}}})
    command = ["fit", "--config", "ppo_cartpole", "--data.env", node]
    command += [f"--data.env.{name}={word}" for name, word, _ in words]
    found = environment_of(assembled_configuration(command, {}, is_silent=True))
    for name, _, value in words:
        assert same(found[name.removeprefix("dict_kwargs.")], value)


def test_annotations_decide_what_a_text_becomes() -> None:
    arguments = {"count": "5", "numbers": {"a": "6"}, "text": "7", "several": ["08", 9]}
    found = received("--env", json.dumps({"class_path": PATH, "init_args": arguments}))
    assert same([found[name] for name in ("count", "numbers", "text", "several")], [5, {"a": 6}, "7", ["08", 9]])
    assert same(received("--env", PATH, "--env.text", "1e3", "--env.either", "1e3")["text"], "1e3")


def test_a_later_value_replaces_a_text() -> None:
    first = json.dumps(node_of("007"))
    found = received("--env", first, "--env.plain", "8", "--env.either", "9", "--env.dict_kwargs.other", "null")
    assert same((found["plain"], found["either"], found["other"]), (8, 9, None))
    assert found["perhaps"] == "007"


def test_references_to_texts_are_texts() -> None:
    Path("env.yaml").write_text(
        f"variables: {{code: '007', size: 1e-3}}\n"
        f"env: {{class_path: {PATH}, init_args: {{plain: '${{variables.code}}'}}, "
        "dict_kwargs: {a: '${variables.code}', b: '${variables.size}'}}\n",
        encoding="utf-8",
    )
    found = received("--config", "env.yaml")
    assert same((found["plain"], found["a"], found["b"]), ("007", "007", 0.001))


def test_a_saved_configuration_and_its_reload_have_the_texts() -> None:
    for number, text in enumerate(TEXTS[::3]):
        options, saved = parsed(
            check, "check", prepare(["check", "--env", json.dumps(node_of(text))]), description="Check."
        )
        assert options["env"]().received == expected_of(text)
        node = yaml.safe_load(saved)["env"]
        found = {**node["init_args"], **node["dict_kwargs"]}
        assert same({name: found[name] for name in expected_of(text)}, expected_of(text))
        Path(f"{number}.yaml").write_text(saved, encoding="utf-8")
        assert same(received("--config", f"{number}.yaml"), expected_of(text))
        assert same(Factory.of(node)().received, expected_of(text))


def test_training_saves_the_texts_and_resumes_with_them() -> None:
    command = ["fit", "--config", "ppo_cartpole", "--data.env", json.dumps(node_of("1e3")), "--data.env.text", "'null'"]
    content = assembled_configuration(command, {}, is_silent=True)
    expected = {**expected_of("1e3"), "text": "null"}
    assert same({name: environment_of(content)[name] for name in expected}, expected)


def test_texts_from_python_stay_texts() -> None:
    given = {"plain": "null", "either": "12", "text": "1e3", "more": "08"}
    context = RunContext(
        env={"class_path": PATH, "init_args": {"several": ["007"]}, "dict_kwargs": {"other": "1e3", "size": "null"}},
        algorithm="ppo",
        overrides={
            **{f"env.{name}": given[name] for name in ("plain", "either", "text")},
            "env.dict_kwargs.more": given["more"],
            "env.count": "3",
        },
        silent=True,
    )
    found = environment_of(context.assembled())
    expected = {**given, "several": ["007"], "other": "1e3", "size": "null", "count": 3}
    assert same({name: found[name] for name in expected}, expected)


@pytest.mark.parametrize("text", ["Note: x", "- x", "x"])
def test_texts_from_python_that_only_look_like_lists_and_mappings_stay_texts(text: str) -> None:
    overrides = {"env.plain": text, "env.text": text, "env.dict_kwargs.other": text, "env.several": "[1, 2]"}
    context = RunContext(env={"class_path": PATH}, algorithm="ppo", overrides=overrides, silent=True)
    found = environment_of(context.assembled())
    assert same([found[name] for name in ("plain", "text", "other", "several")], [text, text, text, [1, 2]])


def test_sweeps_pass_texts_and_nulls_on_as_they_are() -> None:
    values: dict[str, Any] = {
        "data.env.plain": "08",
        "data.env.either": "12",
        "data.env.text": "1e3",
        "data.env.dict_kwargs.size": None,
        "data.env.dict_kwargs.name": "null",
        "data.env.dict_kwargs.code": "1e3",
    }
    fixed = {"data.env": {"class_path": PATH}}
    search = {option: [value] for option, value in values.items()}
    plan = parse_sweep({"config": "ppo_cartpole", "options": fixed, "search": search, "sampler": "grid"})
    words = plan.command(values, Path("trial"))
    found = environment_of(assembled_configuration(words, {}, is_silent=True))
    assert same([found[option.rpartition(".")[2]] for option in values], list(values.values()))


@pytest.mark.parametrize("text", ["007", "null", "1e3"])
def test_components_of_components_get_texts(text: str) -> None:
    layout = {
        "class_path": f"{__name__}.Layout",
        "init_args": {"title": text, "size": text},
        "dict_kwargs": {"other": text},
    }
    written = {
        "holder": {
            "class_path": f"{__name__}.Holder",
            "init_args": {"layout": layout, "env": node_of(text)},
        }
    }
    parser = TextKeepingParser(exit_on_error=False)
    parser.add_subclass_arguments(Holder, "holder")
    config = with_texts(parser.parse_object(copy.deepcopy(written)), written)
    holder = parser.instantiate(with_factories(config, written)).holder
    expected = {"title": text, "size": text, "other": text}
    assert same(holder.layout.received, expected)
    assert same(holder.env().received, expected_of(text))
    made = Factory(f"{__name__}.Holder", written["holder"]["init_args"])()
    assert same(made.layout.received, expected)
    assert same(made.env().received, expected_of(text))


def test_a_component_of_a_file_gets_its_numbers_and_texts() -> None:
    Path("policy.yaml").write_text(
        f"class_path: {PATH}\n"
        "init_args: {plain: 1e-3, several: [1e-3, '1e-3']}\n"
        "dict_kwargs: {a: 1e-3, b: '1e-3', c: 2020-01-01}\n",
        encoding="utf-8",
    )
    found = Factory.of(read(Path("policy.yaml")))().received
    names = ("plain", "several", "a", "b", "c")
    assert same([found[name] for name in names], [0.001, [0.001, "1e-3"], 0.001, "1e-3", "2020-01-01"])


@pytest.mark.parametrize("text", ["2020-01-01", "1e3", "logs"])
def test_a_folder_that_was_changed_after_parsing_stays_changed(text: str) -> None:
    logger = {"class_path": "maze_pl.callbacks.MetricsFile", "init_args": {"save_dir": text}}
    written = {"trainer": {"logger": logger}}
    for folder, expected in ((text, text), (f"{text}/seed_0", f"{text}/seed_0")):
        arguments = Namespace(save_dir=folder)
        config = Namespace(trainer=Namespace(logger=Namespace(class_path=logger["class_path"], init_args=arguments)))
        found = with_texts(config, written).trainer.logger
        assert {**vars(found.init_args), **found.get("dict_kwargs", {})} == {"save_dir": expected}


@pytest.mark.parametrize("text", TEXTS)
def test_policies_of_rollouts_get_texts(text: str) -> None:
    word = json.dumps(text)
    path = f"{__name__}.Policy"
    node = json.dumps({"class_path": path, "init_args": {"label": text, "other": text}, "dict_kwargs": {"more": text}})
    names = [f"--policy.{name}={word}" for name in ("label", "other", "dict_kwargs.more")]
    for words in (["--policy", node], ["--policy", path, *names]):
        command = prepare(["rollout", "--env", PATH, *words])
        options, saved = parsed(play, "rollout", command, _NO_OPTIONS, description="Play.")
        for policy in (options["policy"], yaml.safe_load(saved)["policy"]):
            received = _configured_policy(policy)().received
            assert same(received, {"label": text, "other": text, "more": text})


@pytest.mark.parametrize("text", TEXTS)
def test_arguments_that_a_function_passes_on_are_texts(text: str) -> None:
    found = received("--env", f"{__name__}.make_with_others", f"--env.either={json.dumps(text)}", "--env.count", "7")
    assert same((found["either"], found["count"]), (text, 7))


def test_texts_stay_texts_if_a_path_alone_replaces_that_of_their_component() -> None:
    node = json.dumps({"class_path": PATH, "init_args": {"either": "007", "plain": "08"}})
    found = received("--env", node, "--env", f"{__name__}.NamedEnv")
    assert same(found, {"either": "007", "plain": "08"})


def test_an_option_below_a_list_leaves_the_texts_in_it() -> None:
    layouts = [{"class_path": f"{__name__}.Layout", "init_args": {"title": "007", "size": "08"}} for _ in range(2)]
    words = ["check", "--env", PATH, "--wrappers", json.dumps(layouts), "--wrappers.size", "5"]
    command = prepare(words)
    sizes = [layout["init_args"]["size"] for layout in command.written["wrappers"]]
    assert same([sizes, command.written["wrappers"][0]], [["08", 5], layouts[0]])


@pytest.mark.parametrize("text", ["Note: x", "[1, 2]", "{a: b}", "- x"])
def test_sweeps_pass_texts_with_lists_and_mappings_on(text: str) -> None:
    fixed = {"data.env": {"class_path": PATH}, "data.env.plain": text, "data.env.text": text}
    search = {"data.env.dict_kwargs.other": [text]}
    plan = parse_sweep({"config": "ppo_cartpole", "options": fixed, "search": search, "sampler": "grid"})
    words = plan.command({"data.env.dict_kwargs.other": text}, Path("trial"))
    found = environment_of(assembled_configuration(words, {}, is_silent=True))
    assert same([found[name] for name in ("plain", "text", "other")], [text] * 3)
