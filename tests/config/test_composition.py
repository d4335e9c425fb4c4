from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maze_pl.config.pieces import Piece, with_bases
from maze_pl.config.references import interpolate
from maze_pl.config.search_path import ConfigurationError, dump, parse


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: str, text: str) -> Path:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return target


def config(**content: Any) -> Piece:
    return Piece("--config", dump(content), content)


def option(name: str, text: str) -> Piece:
    return Piece(name, text, parse(text))


def filled(*pieces: Piece) -> list[Any]:
    return [piece.content for piece in interpolate(pieces)]


# ---------------------------------------------------------------------------------------------- files in files


def content(path: Path) -> Any:
    (piece,) = with_bases("--config", path)
    assert parse(str(piece.text)) == piece.content
    return piece.content


def test_texts_that_name_no_file_stay_as_they_are() -> None:
    whole = {"model": {"lr": 1e-3, "file": "none.yaml", "group": "not/there", "n": [3, "gym_env", "/env/x", "a//b"]}}
    assert content(write("plain.yaml", dump(whole))) == whole


def test_a_component_is_put_in_place_by_a_path_relative_to_the_file_that_names_it() -> None:
    write("configs/env/mine.yaml", "class_path: Env")
    write("parts/wrap/inner.yaml", "class_path: Inner")
    write("parts/outer.yaml", "{class_path: Outer, init_args: {inner: wrap/inner.yaml, env: env/mine}}")
    inside = {"inner": {"class_path": "Inner"}, "env": {"class_path": "Env"}}
    assert content(write("whole.yaml", "data: parts/outer.yaml")) == {
        "data": {"class_path": "Outer", "init_args": inside}
    }


def test_a_list_of_components_is_one_too_and_refers_to_what_the_whole_sets() -> None:
    write("parts/stack.yaml", '[{class_path: A}, {class_path: B, init_args: {x: "${variables.n}"}}]')
    path = write("a.yaml", "{variables: {n: 3}, wrappers: parts/stack.yaml}")
    wrappers = [{"class_path": "A"}, {"class_path": "B", "init_args": {"x": 3}}]
    assert filled(*with_bases("--config", path)) == [{"wrappers": wrappers}]


@pytest.mark.parametrize("start", ["b.yaml", "part/d"])
def test_components_that_refer_to_themselves_are_refused(start: str) -> None:
    write("b.yaml", "{class_path: B, init_args: {inner: c.yaml}}")
    write("c.yaml", "{class_path: C, init_args: {inner: b.yaml}}")
    write("configs/part/d.yaml", "[{class_path: D, init_args: {inner: e.yaml}}]")
    write("configs/part/e.yaml", "{class_path: E, init_args: {inner: part/d}}")
    with pytest.raises(ConfigurationError, match="refers back"):
        content(write("a.yaml", f"x: {start}"))


@pytest.mark.parametrize("text", ["{width: 3}", "[]", "[{class_path: A}, {width: 3}]", "just text", ""])
def test_other_files_are_handed_over_as_absolute_paths(text: str) -> None:
    other = write("folder/map.yaml", text)
    assert content(write("a.yaml", "file: folder/map.yaml")) == {"file": str(other.resolve())}


def test_a_group_beside_a_file_wins_over_one_of_the_current_project(project: Path) -> None:
    write("configs/env/mine.yaml", "class_path: Here")
    write("other/configs/env/mine.yaml", "[{class_path: There}]")
    path = write("other/configs/experiment/a.yaml", "env: env/mine")
    assert content(path) == {"env": [{"class_path": "There"}]}


# --------------------------------------------------------------------------------------------------------- bases


def test_bases_come_before_what_is_based_on_them_in_the_order_in_which_they_are_named() -> None:
    write("configs/first.yaml", "x: 1")
    write("configs/second.yaml", "base: first\nx: 2")
    write("configs/third.yaml", "x: 3")
    pieces = with_bases("--config", write("configs/deep/fourth.yaml", "base: [second, ../third.yaml]\nx: 4"))
    assert [piece.content for piece in pieces] == [{"x": 1}, {"x": 2}, {"x": 3}, {"x": 4}]
    assert pieces[0].path == Path("configs/first.yaml").resolve()
    assert pieces[3].text == "{x: 4}"


def test_only_the_top_of_a_file_has_a_base() -> None:
    path = write("a.yaml", "model: {base: env/gym_env_of_mine, base2: 1}")
    assert [piece.content for piece in with_bases("--config", path)] == [
        {"model": {"base": "env/gym_env_of_mine", "base2": 1}}
    ]


def test_the_same_base_may_be_reached_twice_but_not_in_a_circle() -> None:
    write("configs/root.yaml", "x: 1")
    write("configs/one.yaml", "base: root")
    write("configs/two.yaml", "base: root")
    assert len(with_bases("--config", write("configs/both.yaml", "base: [one, two]"))) == 5
    write("configs/root.yaml", "base: both")
    with pytest.raises(ConfigurationError, match="circular reference"):
        with_bases("--config", Path("configs/both.yaml"))


# ---------------------------------------------------------------------------------------------------- references


def test_a_reference_alone_keeps_its_type_and_one_in_text_becomes_text() -> None:
    whole = config(a=0.5, b=[1, {"c": None}], alone="${a}", list="${b}", item="${b.1.c}", text="x${a}-${b.0}")
    (content,) = filled(whole)
    assert content["alone"] == 0.5
    assert content["list"] == [1, {"c": None}]
    assert content["item"] is None
    assert content["text"] == "x0.5-1"


def test_references_see_what_takes_effect_in_the_end() -> None:
    first = config(data={"class_path": "D", "init_args": {"n": 1, "m": "${data.n}"}}, x="${model.lr}")
    second = config(data={"init_args": {"n": 2}}, model={"class_path": "M", "init_args": {"lr": 1}})
    pieces = filled(first, second, option("--model.lr", "3"), option("--data.init_args.k", "${data.n}"))
    assert pieces[0] == {"data": {"class_path": "D", "init_args": {"n": 1, "m": 2}}, "x": 3}
    assert pieces[3] == 2


EVALUATORS = {"eval": {"n_episodes": 20, "deterministic": True}, "other": {"n_episodes": 5}}
DATA = {"class_path": "D", "init_args": {"evaluators": EVALUATORS, "env": {"class_path": "E", "init_args": {"n": 1}}}}


@pytest.mark.parametrize(
    "later",
    [
        config(data={"init_args": {"evaluators": {"test": {"n_episodes": 3}}}}),
        config(data={"evaluators": {"test": {"n_episodes": 3}}}),
        option("--data.evaluators", "{test: {n_episodes: 3}}"),
        option("--data.init_args.evaluators", "{test: {n_episodes: 3}}"),
        option("--data", "{init_args: {evaluators: {test: {n_episodes: 3}}}}"),
    ],
)
def test_references_do_not_see_values_in_a_dictionary_that_is_replaced(later: Piece) -> None:
    first = config(data=DATA)
    assert filled(first, later, option("--n", "${data.evaluators.test.n_episodes}"))[-1] == 3
    assert filled(first, later, option("--n", "${data.env.n}"))[-1] == 1
    with pytest.raises(ConfigurationError, match=r"refers to data\.evaluators\.eval\.n_episodes, which is not set"):
        filled(first, later, option("--n", "${data.evaluators.eval.n_episodes}"))


def test_references_see_the_rest_of_what_is_changed_in_part() -> None:
    first = config(data=DATA, trainer={"max_epochs": 3, "logger": {"class_path": "L", "init_args": {"a": 1}}})
    later = [
        option("--data.evaluators.eval.n_episodes", "7"),
        config(data={"init_args": {"env": {"init_args": {"m": 2}}}}, trainer={"max_steps": 9}),
        config(data={"env": {"k": 3}}),
        option("--trainer.logger.init_args.b", "2"),
        option("--data.init_args.env", "{init_args: {l: 4}}"),
    ]
    values = {
        "data.evaluators.eval": {"n_episodes": 7, "deterministic": True},
        "data.evaluators.other.n_episodes": 5,
        "data.env.init_args": {"n": 1, "m": 2, "k": 3, "l": 4},
        "trainer.max_epochs": 3,
        "trainer.logger.init_args": {"a": 1, "b": 2},
    }
    for key, value in values.items():
        assert filled(first, *later, option("--x", f"${{{key}}}"))[-1] == value


def test_arguments_of_a_replaced_class_are_kept_as_the_new_class_may_have_them() -> None:
    first = config(model={"class_path": "M", "init_args": {"lr": 1, "networks": {"class_path": "N"}}})
    later = option("--model", "{class_path: K, init_args: {gamma: 2}}")
    assert filled(first, later, option("--x", "${model.lr}"), option("--y", "${model.gamma}"))[2:] == [1, 2]


def test_references_lead_to_references_and_into_components() -> None:
    (content,) = filled(
        config(a="${b}", b="${c.d}", c={"init_args": {"d": {"e": "${f}"}}}, f=1, g="${c.init_args.d.e}")
    )
    assert (content["a"], content["b"], content["g"]) == ({"e": 1}, {"e": 1}, 1)


def test_the_run_directory_is_that_of_a_resumed_run_and_not_that_of_a_source() -> None:
    saved = config(run_dir=None)
    assert filled(saved, option("--resume", "runs/a"), option("--x", "${run_dir}/b"))[2] == "runs/a/b"
    assert filled(saved, option("--run_dir", "runs/c"), option("--x", "${run_dir}/b"))[2] == "runs/c/b"
    with pytest.raises(ConfigurationError, match="--x refers to run_dir, which is not set"):
        filled(saved, option("--warm_start", "runs/a"), option("--x", "${run_dir}/b"))


def test_variables_are_taken_out_and_set_by_options() -> None:
    pieces = interpolate(
        [
            config(variables={"n": 1, "inner": {"m": 2}}, x="${variables.n}", y="${variables.inner.m}"),
            option("--variables.n", "5"),
            config(variables={"inner": {"m": 7}}),
        ]
    )
    assert [(piece.option, piece.text) for piece in pieces] == [("--config", "{x: 5, y: 7}"), ("--config", "{}")]


def test_values_without_references_pass_untouched() -> None:
    pieces = [option("--a.b", "1e-3"), option("--x+", "[1]"), Piece("--flag", None), Piece(None, "word")]
    assert [piece.text for piece in interpolate(pieces)] == ["1e-3", "[1]", None, "word"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"x": "${y.z}"}, r"refers to y\.z, which is not set by any configuration file or option"),
        ({"x": "${}"}, "refers to , which"),
        ({"x": "${y.5}", "y": [1]}, r"refers to y\.5"),
        ({"lr": 1, "x": "${lrr}"}, "did you mean lr"),
        ({"x": "${x}"}, "x refers to x"),
        ({"x": "${y}", "y": ["${z}"], "z": "a${y}"}, "y refers to z refers to y|z refers to y refers to z"),
    ],
)
def test_references_that_lead_nowhere_are_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        filled(config(**content))


# ---------------------------------------------------------------------------------------------- files of Hydra


@pytest.mark.parametrize(
    "text",
    [
        "defaults:\n  - /env: mine\n  - override /algorithm: ppo\n",
        "# @package wrappers\nmaze.core.wrappers.TimeLimitWrapper:\n  max_episode_steps: 10\n",
        "# a comment\n#@package _global_\nalgorithm: {lr: 0.1}\n",
        "_target_: my_project.make_env\nsize: 3\n",
    ],
)
def test_files_for_hydra_are_refused_with_what_to_write(text: str) -> None:
    path = write("configs/env/mine.yaml", text)
    message = r"mine\.yaml is a file for Hydra, as Maze reads it: write `base` for `defaults`, `class_path` with"
    with pytest.raises(ConfigurationError, match=message):
        with_bases("--config", path)
    with pytest.raises(ConfigurationError, match=message):
        with_bases("--config", write("whole.yaml", "data: {env: env/mine}"))


def test_values_named_defaults_are_no_sign_of_hydra() -> None:
    whole = {"data": {"defaults": [1], "_target_": "x"}, "model": {"defaults": None}}
    assert content(write("plain.yaml", dump(whole))) == whole
