"""Messages for exceptions that end a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.config.messages import explain, message_of


def test_a_number_that_is_too_large_is_not_reported_as_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = []
    for kind, text in ((OverflowError, "intermediate overflow in fsum"), (MemoryError, "8 EiB")):
        error = kind(text)
        frames = compile("raise error", "arithmetic.py", "exec")
        with pytest.raises(kind):
            exec(frames, {"__package__": "maze_pl", "error": error})
        assert error.__traceback__ is not None
        errors.append(message_of(error.with_traceback(error.__traceback__.tb_next)))
    assert errors == ["a number is too large: intermediate overflow in fsum", "not enough memory: 8 EiB"]


@pytest.mark.parametrize(
    ("message", "words", "expected"),
    [
        (
            "validate.data, validate.model",
            ["validate", "--run=r"],
            "r/config.yaml is damaged: it has no data and model",
        ),
        ("fit.data", ["fit", "--resume=r"], "r/config.yaml is damaged: it has no data"),
        ("validate.data", ["validate"], "no run given: use the RUN_DIR of a trained agent"),
        ("fit.data", ["fit", "--run_dir=r"], "no configuration given: use --config NAME"),
        ("fit.model", ["fit", "--config={model: null}"], "the configuration has no model: use `model: {class_path"),
    ],
)
def test_sections_that_a_run_lacks_are_no_sign_that_no_run_was_named(
    message: str, words: list[str], expected: str
) -> None:
    text = f"the following arguments are required: {message}"
    assert explain(text, words=words).startswith(expected)


@pytest.mark.parametrize(
    ("owner", "option", "meant"),
    [
        ("ReplayDataModule", "n_envs", "num_actors"),
        ("ReplayDataModule", "num_envs", "num_actors"),
        ("RolloutDataModule", "num_actors", "n_envs"),
        ("RolloutDataModule", "num_envs", "n_envs"),
    ],
)
def test_the_option_of_another_data_module_leads_to_that_of_this_one(owner: str, option: str, meant: str) -> None:
    path = f"maze_pl.datamodules.{owner}"
    text = explain(f"Problem with given class_path '{path}':\n  Option '{option}' is not accepted")
    assert text.endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("tests.config.test_messages.mak_env", "; did you mean tests.config.test_messages.make_env?"),
        ("tests.config.test_mesages.make_env", "; did you mean tests.config.test_messages?"),
        ("unknown_package.module.GymMazeEnv", "no attribute"),
        ("maze_pl.envs.GymMazEnv", "; did you mean maze_pl.envs.GymMazeEnv?"),
    ],
)
def test_names_in_the_packages_of_a_user_are_not_compared_with_those_of_maze_pl(path: str, meant: str) -> None:
    text = explain(f"Problem with given class_path '{path}':\n  module has no attribute")
    assert text.endswith(meant)


def make_env(days: int = 3) -> object:
    return days


def test_an_unknown_argument_in_a_file_is_compared_with_those_of_the_function() -> None:
    value = f"Namespace(init_args=Namespace(dayz=3), class_path='{__name__}.make_env')"
    text = explain(f"Problem with given class_path 'a.Data':\n  Option 'dayz' is not accepted. Got value: {value}")
    assert text == f" ({__name__}.make_env): Option 'dayz' is not accepted; did you mean days?"


@pytest.mark.parametrize(
    ("details", "message"),
    [
        (
            ["- Expected a <class 'list'>", "Given value: {'class_path': 'a.Wrapper', 'init_args': {}}"],
            "data: expected a list: write `- ` before the first line of each entry, and indent its other lines; "
            "got {'class_path': 'a.Wrapper', 'init_args': {}}",
        ),
        (
            ["- Not a valid subclass of Model", "- a class path (str)", "Given value: {'init_args': None, 'lr': 1}"],
            "data: init_args is empty: indent the options of the class below it; got {'init_args': None, 'lr': 1}",
        ),
        (
            ["Unable to load config 'max_epochs 5'", '- Parser key "data": Unable to load config "max_epochs 5"'],
            "data: expected options, such as `max_epochs: 5`, but 'max_epochs 5' has no colon",
        ),
        (
            ["- Expected a dot import path string: my env", "Given value: my env"],
            "data: expected a class path (package.module.Class), got my env",
        ),
    ],
)
def test_mistakes_in_files_come_with_what_to_change(details: list[str], message: str) -> None:
    assert explain("\n".join(['Parser key "data":', *details])) == message


def test_a_python_file_in_place_of_a_class_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_envs.py").write_text("class Maze: ...\n", encoding="utf-8")
    lines = ['Parser key "env":', "- Invalid content in sub-config file my_envs.py: expected <document start>"]
    text = explain("\n".join([*lines, "in line 1", "Given value: my_envs.py"]))
    near = "name a class or function with its module, such as my_envs.Maze"
    assert text == f"env: my_envs.py is a file of Python code, not of options; {near}"
