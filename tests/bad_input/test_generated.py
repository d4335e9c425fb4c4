"""Generated command lines and YAML files: none shows a trace, and what is refused leaves nothing but a log."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maze_pl.__main__ import main
from maze_pl.config.search_path import shipped_folder
from tests.bad_input.project import require_only_evidence, tree

pytestmark = pytest.mark.filterwarnings("ignore")

# No batches: a configuration that happens to be right is assembled and set up, but nothing is trained.
NOTHING_TRAINED = ["--trainer.limit_train_batches", "0", "--run_dir", "new"]
CLASS_PATHS = [
    *("maze_pl.modules.A2C", "maze_pl.modules.PPO", "maze_pl.modules.PPPO", "maze_pl.modules", "PPO", "ppo"),
    *("os.system", "builtins.exec", "builtins.dict", "subprocess.Popen", "pathlib.Path", "torch.nn.Linear", "a..b", ""),
    *("gymnasium.Env", "gymnasium.make", "maze_pl.envs.GymMazeEnv", "maze_pl.envs.wrappers.TimeLimitWrapper", "."),
    *("maze_pl.datamodules.RolloutDataModule", "pytorch_lightning.LightningModule", "no.such.Thing", "os", "é.Klasse"),
    *("maze_pl.perception.FlattenConcatPolicyNet", "maze_pl.perception.CustomModelComposer", "torch.nn.Tanh"),
]
SCALARS = [
    *(None, True, False, 0, 1, -1, 3, 10**18, 2**63, -(10**30), 0.0, 0.5, -0.5, 1.5, 1e308, 1e-308),
    *(
        float("nan"),
        float("inf"),
        float("-inf"),
        "",
        " ",
        "x",
        "auto",
        "null",
        "1e-3",
        "${a.b}",
        "${",
        "é\u2028\U0001f600",
    ),
    *("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "CartPole-v99", "a/b", "algorithm/ppo", "env/gym_env", "-", "--"),
]
MORE_OPTIONS = [
    *("trainer.max_epochs", "trainer.accelerator", "trainer.precision", "trainer.callbacks", "trainer.profiler"),
    *(
        "trainer.max_steps",
        "trainer.gradient_clip_val",
        "trainer.check_val_every_n_epoch",
        "trainer.val_check_interval",
    ),
    *(
        "trainer.limit_val_batches",
        "trainer.num_sanity_val_steps",
        "trainer.deterministic",
        "trainer.enable_checkpointing",
    ),
    *("early_stopping.patience", "early_stopping.monitor", "best_checkpoint.mode", "last_checkpoint.every_n_epochs"),
    *(
        "stop_at_return.threshold",
        "seed_everything",
        "model.capture",
        "model.spec",
        "model.target_kl",
        "model.lr_schedule",
    ),
    *(
        "data.action_masks",
        "data.max_agents",
        "data.seed",
        "data.evaluators",
        "data.wrappers",
        "data.env",
        "data",
        "model",
    ),
    *("model.networks", "model.class_path", "data.class_path", "trainer", "ckpt_path", "resume", "run", "warm_start"),
]
STRAY = [
    "stray",
    "--",
    "-",
    "-x",
    "--=1",
    "--model.",
    "--.lr=1",
    "--model..lr=1",
    "--print_config=x",
    "--foo",
    "--foo=1",
]

INTEGERS = [
    *("model.batch_size", "model.n_optimization_epochs", "model.critic_burn_in_epochs", "data.n_envs", "data.seed"),
    *("data.n_rollout_steps", "data.epoch_length", "data.n_normalization_samples", "early_stopping.patience"),
    *(
        "last_checkpoint.every_n_epochs",
        "trainer.max_epochs",
        "trainer.min_epochs",
        "trainer.max_steps",
        "trainer.min_steps",
    ),
    *("trainer.check_val_every_n_epoch", "trainer.val_check_interval", "trainer.log_every_n_steps", "seed_everything"),
    *("trainer.accumulate_grad_batches", "trainer.reload_dataloaders_every_n_epochs", "trainer.limit_val_batches"),
]
FLOATS = [
    *(
        "model.lr",
        "model.gamma",
        "model.gae_lambda",
        "model.policy_loss_coef",
        "model.value_loss_coef",
        "model.clip_range",
    ),
    *(
        "model.entropy_coef",
        "model.max_grad_norm",
        "model.value_clip_range",
        "model.target_kl",
        "early_stopping.min_delta",
    ),
    *(
        "stop_at_return.threshold",
        "trainer.gradient_clip_val",
        "trainer.limit_val_batches",
        "trainer.val_check_interval",
    ),
]
REALS = [-1.0, -0.5, 0.0, 1e-320, 0.5, 1.0, 1.5, 1e300]


def base() -> dict[str, Any]:
    content = yaml.safe_load((shipped_folder() / "ppo_cartpole.yaml").read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything inside of a configuration."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if key != "devices":  # as many processes as it says
            yield (*path, key)
            yield from places(value, (*path, key))


def at(node: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        node = node[key]
    return node


def misspelt(draw: Callable[[Any], Any], word: str) -> str:
    index = draw(st.integers(0, max(len(word) - 1, 0)))
    return draw(
        st.sampled_from(
            [word[:index] + word[index + 1 :], word[:index] + "x" + word[index:], word.upper(), word + ".a"]
        )
    )


VALUES = st.recursive(
    st.sampled_from([*SCALARS, *CLASS_PATHS]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["class_path", "init_args", "a", "eval", "0", "", "n_episodes"]), inner, max_size=2
        )
    ),
    max_leaves=4,
)


@st.composite
def configurations(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """The shipped configuration with something wrong, most likely."""
    config = base()
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(config)) or [()]))
        if not path:
            break
        parent, key = at(config, path[:-1]), path[-1]
        change = draw(st.sampled_from(["drop", "rename", "set", "set", "class", "wrap"]))
        value = copy.deepcopy(parent[key])
        if change == "drop":
            del parent[key]
        elif change == "rename" and isinstance(parent, dict):
            parent[misspelt(draw, str(key))] = parent.pop(key)
        elif change == "set":
            parent[key] = draw(VALUES)
        elif change == "class":
            parent[key] = {"class_path": draw(st.sampled_from(CLASS_PATHS)), "init_args": draw(VALUES)}
        else:
            parent[key] = draw(st.sampled_from([[value], {"a": value}, str(value), [value, value]]))
    return config


@st.composite
def files(draw: Callable[[Any], Any]) -> tuple[list[str], str]:
    """A command that reads a YAML file, and its text, which may be damaged."""
    text = yaml.safe_dump(draw(configurations()), allow_unicode=True, sort_keys=False)
    if draw(st.integers(0, 3)) == 0:
        index = draw(st.integers(0, len(text)))
        garbage = draw(
            st.sampled_from(["\t", "{", "]", ": ", "- ", "&a ", "*a", "!x ", "\x00", "'", "\n---\n", "<<: ", "? "])
        )
        text = text[:index] + garbage + text[index + draw(st.integers(0, 30)) :]
    return ["fit", "--config", "generated.yaml"], text


@st.composite
def command_lines(draw: Callable[[Any], Any]) -> tuple[list[str], str]:
    """A command that overrides options of the shipped configuration, in any order."""
    keys = [".".join(map(str, path)) for path in places(base()) if not any(isinstance(key, int) for key in path)]
    pairs = [["--config", "ppo_cartpole"]] if draw(st.integers(0, 9)) else []
    for _ in range(draw(st.integers(1, 3))):
        key = draw(st.sampled_from([*keys, *MORE_OPTIONS]))
        key = misspelt(draw, key) if draw(st.integers(0, 4)) == 0 else key
        value = draw(VALUES)
        text = value if isinstance(value, str) else json.dumps(value)
        pairs.append(
            draw(st.sampled_from([[f"--{key}", text], [f"--{key}={text}"], [f"--{key}+={text}"], [f"--{key}"]]))
        )
    if draw(st.integers(0, 5)) == 0:
        pairs.append([draw(st.sampled_from(STRAY))])
    command = draw(st.sampled_from(["fit", "fit", "fit", "fit", "validate", "test", "tset"]))
    return [command, *(token for pair in draw(st.permutations(pairs)) for token in pair)], ""


@st.composite
def numbers(draw: Callable[[Any], Any]) -> tuple[list[str], str]:
    """A command whose options are all of the right type."""
    chosen = draw(st.lists(st.sampled_from([*INTEGERS, *FLOATS]), min_size=1, max_size=3, unique=True))
    options = []
    for key in chosen:
        options += [
            f"--{key}",
            repr(draw(st.sampled_from([-1, 0, 1, 2, 7, 50, 10**18, 2**64] if key in INTEGERS else REALS))),
        ]
    if draw(st.booleans()):
        options += [
            "--data.env.name",
            draw(st.sampled_from(["Acrobot-v1", "Pendulum-v1", "Blackjack-v1", "CartPole", "v1"])),
        ]
    if draw(st.booleans()):
        options += [
            "--model",
            draw(st.sampled_from(["algorithm/a2c", "maze_pl.modules.A2C", "maze_pl.modules.AlgorithmModule"])),
        ]
    return ["fit", "--config", "ppo_cartpole", *options], ""


def executed(*arguments: object, **options: object) -> None:
    raise AssertionError(f"{arguments} was executed")


class NoProcess(subprocess.Popen[bytes]):
    """Starts nothing but Python, which libraries ask for its search path."""

    def __init__(self, command: Any = None, *arguments: Any, **options: Any) -> None:
        if not isinstance(command, list) or command[0] != sys.executable:
            executed(command)
        super().__init__(command, *arguments, **options)


def check(command: tuple[list[str], str]) -> None:
    arguments, text = command
    here, environment = Path.cwd(), dict(os.environ)
    error = io.StringIO()
    platform.platform()  # asks a program for the processor when it is called first
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])  # which the folder is added to
        patch.setattr(os, "system", executed)
        patch.setattr(subprocess, "Popen", NoProcess)
        patch.delenv("MAZE_PL_RUN_DIR", raising=False)
        Path("generated.yaml").write_text(text, encoding="utf-8")
        before = tree(Path(folder))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
            status = main([*arguments, *NOTHING_TRAINED])
        if status == 2:
            require_only_evidence(before, Path(folder))
    assert Path.cwd() == here
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)
    assert "Traceback" not in error.getvalue()
    assert status in (0, 1, 2)
    assert error.getvalue().count("maze-pl: error: ") == (status == 2)
    if status == 2:
        message = error.getvalue().partition("maze-pl: error: ")[2]
        assert 0 < len(message.splitlines()) <= 14


INPUTS = st.one_of(files(), command_lines(), numbers())


@pytest.mark.slow
@given(INPUTS)
@settings(max_examples=60, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_none_of_many_generated_inputs_shows_a_trace(command: tuple[list[str], str]) -> None:
    check(command)


@pytest.mark.slow
@pytest.mark.long
@given(INPUTS)
@settings(max_examples=1000, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_none_of_a_thousand_generated_inputs_shows_a_trace(command: tuple[list[str], str]) -> None:
    check(command)
