"""Components that are named by their class path alone, and get arguments later."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from maze_pl.cli.check import check, parsed
from maze_pl.config.assembling import prepare
from maze_pl.config.factories import Factory
from maze_pl.run_context.commands import assembled_configuration


class SizedEnv(gymnasium.Env[Any, Any]):
    """Environment with a size."""

    def __init__(self, size: int) -> None:
        self.size = size


def make_env(size: int = 1, **further: Any) -> SizedEnv:
    """Return an environment; further arguments make it larger."""
    return SizedEnv(size + sum(further.values()))


PATH = f"{__name__}.make_env"
LATER = [
    (["--env.size", "5"], 5),
    (["--env.init_args.size", "5"], 5),
    (["--env.dict_kwargs.more", "2"], 3),
    (["--env.size", "5", "--env.dict_kwargs.more", "2"], 7),
    (["--config", "{env: {init_args: {size: 5}}}"], 5),
    (["--env", "{init_args: {size: 5}}"], 5),
    ([], 1),
]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def size(*words: str) -> int:
    """Return the size of the environment of a command."""
    options, _ = parsed(check, "check", prepare(["check", *words]), description="Check.")
    made: int = options["env"]().size
    return made


@pytest.mark.parametrize(("later", "expected"), LATER)
def test_a_path_alone_gets_the_arguments_of_later_options(later: list[str], expected: int) -> None:
    assert size("--env", PATH, *later) == expected
    Path("env.yaml").write_text(f"env: {PATH}\n", encoding="utf-8")
    assert size("--config", "env.yaml", *later) == expected
    Path("data.yaml").write_text(f"data: {{init_args: {{env: {PATH}}}}}\n", encoding="utf-8")
    assert size("--config", "data.yaml", *later) == expected


@pytest.mark.slow
def test_a_path_alone_gets_the_arguments_of_a_derived_file_and_of_a_run() -> None:
    Path("base.yaml").write_text(f"base: ppo_cartpole\ndata: {{init_args: {{env: {PATH}}}}}\n", encoding="utf-8")
    Path("derived.yaml").write_text(
        "base: base.yaml\ndata: {init_args: {env: {init_args: {size: 5}}}}\n", encoding="utf-8"
    )
    for words, expected in ((["base.yaml"], 1), (["derived.yaml"], 5), (["base.yaml", "--data.env.size", "6"], 6)):
        content = assembled_configuration(["fit", "--config", *words], {}, is_silent=True)
        node = content["data"]["init_args"]["env"]
        assert node == {"class_path": PATH, "init_args": {"size": expected}}
    Path("run").mkdir()
    Path("run", "config.yaml").write_text(Path("base.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    assert size("run", "--trust", "--env.size", "7") == 7


def test_values_that_are_no_components_stay_texts() -> None:
    words = prepare(["fit", "--config", "{best_checkpoint: {monitor: eval.return}}", "--best_checkpoint.mode", "max"])
    assert words[1:] == ["--config={best_checkpoint: {monitor: eval.return}}", "--best_checkpoint.mode=max"]


UNTYPED = f"{__name__}.make_untyped"


def make_untyped(size=1):  # type: ignore[no-untyped-def]
    return SizedEnv(size)


def test_functions_without_annotation_make_environments_however_they_are_named() -> None:
    assert prepare(["check", "--env", PATH, "--wrappers", "[]"])[1:] == [
        f"--env={{class_path: {PATH}}}",
        "--wrappers=[]",
    ]
    Path("env.yaml").write_text(f"variables: {{mine: {UNTYPED}}}\nenv: ${{variables.mine}}\n", encoding="utf-8")
    for options in (["--env", UNTYPED], ["--env.class_path", UNTYPED], ["--config", "env.yaml"]):
        assert size(*options) == 1
    evaluators = f"{{eval: {{env: {UNTYPED}}}}}"
    data = f"data: {{init_args: {{env: {UNTYPED}, evaluators: {evaluators}}}}}"
    Path("data.yaml").write_text(f"base: ppo_auto\n{data}\n", encoding="utf-8")
    words = ["fit", "--config", "data.yaml", "--data.evaluators.other.env", UNTYPED]
    content = assembled_configuration(words, {}, is_silent=True)["data"]["init_args"]
    others = [content["evaluators"][name]["env"] for name in ("eval", "other")]
    assert [content["env"], *others] == [{"class_path": UNTYPED, "init_args": {"size": 1}}] * 3


class Sized:
    """Maker of environments, which is an object or has a method for them."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self) -> gymnasium.Env[Any, Any]:
        return SizedEnv(self.size)

    @staticmethod
    def small() -> gymnasium.Env[Any, Any]:
        return SizedEnv(2)

    @classmethod
    def large(cls, size: int = 4):  # type: ignore[no-untyped-def]
        return SizedEnv(size)


SIZED = Sized(7)


@functools.lru_cache
def make_cached(size: int = 3) -> gymnasium.Env[Any, Any]:
    return SizedEnv(size)


@pytest.mark.parametrize(
    ("name", "expected"), [("SIZED", 7), ("make_cached", 3), ("Sized.small", 2), ("Sized.large", 4)]
)
def test_objects_and_methods_make_environments(name: str, expected: int) -> None:
    path = f"{__name__}.{name}"
    Path("env.yaml").write_text(f"env: {path}\n", encoding="utf-8")
    for options in (["--env", path], ["--config", "env.yaml"]):
        assert size(*options) == expected


def test_methods_take_arguments_and_are_loaded_by_their_path() -> None:
    path = f"{__name__}.Sized.large"
    assert size("--env", path, "--env.size", "5") == 5
    made = pickle.loads(pickle.dumps(Factory.of({"class_path": path, "init_args": {"size": 5}})))()
    assert isinstance(made, SizedEnv) and made.size == 5


def test_names_of_modules_may_begin_with_a_capital_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    Path("sizes_of_envs").mkdir()
    Path("sizes_of_envs", "Maker.py").write_text(f"from {__name__} import make_untyped\n", encoding="utf-8")
    assert size("--env", "sizes_of_envs.Maker.make_untyped") == 1
    assert size("--env", "sizes_of_envs.Maker.make_untyped", "--env.size", "5") == 5


def test_objects_that_make_environments_are_loaded_by_their_path() -> None:
    node = {"class_path": f"{__name__}.make_cached", "init_args": {"size": 5}}
    made = pickle.loads(pickle.dumps(Factory.of(node)))()
    assert isinstance(made, SizedEnv) and made.size == 5
    words = ["fit", "--config", "ppo_auto", "--data.env", f"{__name__}.SIZED"]
    saved = assembled_configuration(words, {}, is_silent=True)["data"]["init_args"]["env"]
    assert saved == {"class_path": f"{__name__}.SIZED"}


@pytest.mark.parametrize("option", ["--wrappers", "--wrappers+"])
def test_a_path_alone_in_a_list_gets_the_options_of_the_last_item(option: str) -> None:
    value = '["a.First", "a.Last"]'
    words = prepare(["check", "--env", PATH, option, value, "--wrappers.size", "5", "--wrappers+", "a.Next"])
    assert words[2:] == [f"{option}=[a.First, {{class_path: a.Last}}]", "--wrappers.size=5", "--wrappers+=a.Next"]
    assert prepare(["check", "--env", PATH, "--wrappers+", "a.Last", "--wrappers.size", "5"])[2:] == [
        "--wrappers+={class_path: a.Last}",
        "--wrappers.size=5",
    ]
    words = prepare(["check", "--env", PATH, option, '["a.Last"]', "--wrappers.init_args.size", "5"])
    assert words.written["wrappers"] == [{"class_path": "a.Last", "init_args": {"size": 5}}]


def test_the_path_of_a_class_stays_a_text_as_an_option() -> None:
    words = prepare(["check", "--env", PATH, "--env.class_path", PATH, "--env.size", "5"])
    assert words[2:] == [f"--env.class_path={PATH}", "--env.size=5"]


def test_automatic_networks_take_options_by_their_word() -> None:
    words = ["fit", "--config", "{model: {networks: auto}}", "--model.networks.hidden_units", "[8]"]
    option = "--config={model: {networks: {class_path: maze_pl.perception.AutomaticModelComposer}}}"
    assert prepare(words)[1:] == [option, "--model.networks.hidden_units=[8]"]
    assert prepare(words[:3])[1:] == ["--config={model: {networks: auto}}"]
    content = assembled_configuration(["fit", "--config", "ppo_auto", *words[3:]], {}, is_silent=True)
    assert content["model"]["init_args"]["networks"]["init_args"]["hidden_units"] == [8]
