"""Every model and critic that comes with maze_pl trains by the command in its first lines, and acts when loaded."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch

import maze_pl
from maze_pl.__main__ import main
from maze_pl.config import search_path

FOLDER = search_path.shipped_folder()
NAMES = sorted(f"{path.parent.name}/{path.stem}" for group in ("model", "critic") for path in FOLDER.glob(f"{group}/*"))
SMALL = [
    *("--data.n_envs", "2", "--data.n_rollout_steps", "10", "--data.epoch_length", "1", "--trainer.max_epochs", "1"),
    *("--data.evaluators", '{"eval": {"n_episodes": 1}}', "--model.batch_size", "20", "--model.capture", "off"),
]
SMALL_REPLAY = [
    *("--data.batch_size", "8", "--data.initial_buffer_size", "16", "--data.num_batches_per_iter", "2"),
    *("--data.epoch_length", "1", "--trainer.max_epochs", "1", "--data.evaluators", '{"eval": {"n_episodes": 1}}'),
]


def command(name: str) -> list[str]:
    """What the first lines of a file say."""
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    found = re.search(r"^#\s+maze-pl (fit .*)$", text, re.MULTILINE)
    assert found is not None
    return shlex.split(found[1])


def weights(path: str) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(path, weights_only=True)["state_dict"]
    return state


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "model/vector_obs" else pytest.mark.slow) for name in NAMES]
)
def test_a_model_trains_by_its_documented_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert any(argument == name for argument in command(name))
    small = SMALL_REPLAY if name.endswith("state_action") else SMALL
    if "pixel" in name:  # an episode of which takes long
        small = [*small, "--data.evaluators", "{}"]
    assert main([*command(name), *small, "--run_dir", "here"]) == 0
    agent, env = maze_pl.load("here"), maze_pl.load_env("here")
    saved = weights("here/checkpoints/last.ckpt")
    assert agent.state_dict().keys() == saved.keys()
    assert all(torch.equal(tensor, saved[key]) for key, tensor in agent.state_dict().items())
    observation, _ = env.reset(seed=0)
    remembers = {"policy_state": {}} if name.endswith(("memory", "transformer")) else {}
    assert env.action_space.contains(agent.act(observation, env.actor_id().step_key, **remembers))
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--model.networks", "model/flatten_concat_shared_embedding"],
        pytest.param(
            [
                "--model.networks",
                "model/vector_obs",
                "--model.networks.model_builder.shared_embedding_keys",
                "[latent]",
            ],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_shared_weights_are_one_after_a_run_was_resumed_and_loaded(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", "ppo_cartpole", *options, *SMALL, "--run_dir", "here"]) == 0
    assert main(["fit", "--resume", "here", "--trainer.max_epochs", "2"]) == 0
    agent = maze_pl.load("here/checkpoints/last.ckpt")
    of_policy = {id(parameter) for parameter in agent.policy.parameters()}
    assert agent.critic is not None
    shared = {name for name, parameter in agent.critic.named_parameters() if id(parameter) in of_policy}
    assert shared and shared < {name for name, _ in agent.critic.named_parameters()}
    saved = weights("here/checkpoints/last.ckpt")
    assert all(torch.equal(tensor, saved[key]) for key, tensor in agent.state_dict().items())
    groups = torch.load("here/checkpoints/last.ckpt", weights_only=True)["optimizer_states"][0]["param_groups"]
    indices = [index for group in groups for index in group["params"]]
    assert len(indices) == len(set(indices)) == len(list(agent.networks.parameters()))


def test_the_documented_models_are_there() -> None:
    models = {
        "flatten_concat",
        "flatten_concat_shared_embedding",
        "vector_obs",
        "vector_obs_rnn",
        "pixel_obs",
        "pixel_obs_rnn",
    }
    assert {f"model/{name}" for name in models} | {"critic/template_state", "critic/flatten_concat_shared"} <= set(
        NAMES
    )
