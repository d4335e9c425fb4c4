"""Bundles as policies: their probabilities, searches with them, and environments without their wrappers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.agents import TorchPolicy
from maze_pl.bundle.bundle_files import bundle_bytes
from maze_pl.bundle.traced_policy import traced
from maze_pl.comparison.compare import compare
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.envs import wrappers as ours
from maze_pl.envs.building import make_wrapped, wrapper_stack
from maze_pl.perception import FlattenConcatPolicyNet
from maze_pl.runs.bundle_policy import BundlePolicy, is_bundle
from maze_pl.runs.contained_wrappers import MakeWithout
from maze_pl.runs.rollout import rollout
from maze_pl.search import SearchError
from maze_pl_runtime import BundleError
from maze_pl_runtime.bundle_file import MANIFEST
from tests.bundle.written_bundles import BOX, MASK, STEP, graph, write_bundle

OBSERVATIONS = {
    "place": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "allowed": spaces.Box(0, 1, (3,), np.int8),
    "kind": spaces.Discrete(4, start=1),
}
TURN = {"turn": spaces.Discrete(3)}
HEADS = {"pick": spaces.Discrete(3, start=2), "dials": spaces.MultiDiscrete([2, 3]), "bits": spaces.MultiBinary(2)}


class Simulation(gymnasium.Env[Any, Any]):
    """Rewards the sum of all choices for three steps."""

    def __init__(self, heads: dict[str, spaces.Space[Any]]) -> None:
        self.observation_space = spaces.Dict(OBSERVATIONS)
        self.action_space = spaces.Dict(heads)

    def shown(self) -> dict[str, Any]:
        place = np.array([0.3 * self.time, -0.5], np.float32)
        return {"place": place, "allowed": np.array([1, 0, 1], np.int8), "kind": 2}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return self.shown(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        total = sum(float(np.sum(part)) for part in action.values())
        return self.shown(), total, self.time == 3, False, {}


def env_of(heads: dict[str, spaces.Space[Any]]) -> GymMazeEnv:
    return GymMazeEnv(Simulation(heads))


@pytest.mark.parametrize("keep", [False, True])
def test_masks_that_exist_only_with_the_wrappers_are_taken_out_with_them(keep: bool) -> None:
    entries: Any = [
        {"observation": "allowed", "class_path": ours.UnSqueezePreProcessor, "config": {"dim": 0}},
        {
            "observation": "allowed-unsqueeze",
            "class_path": ours.FlattenPreProcessor,
            "config": {"num_flatten_dims": 2},
        },
    ]
    entries[0]["keep_original"] = keep
    mask = "allowed" if keep else "allowed-unsqueeze-flatten"
    wrapper = partial(ours.PreProcessingWrapper, pre_processor_mapping=entries)
    outer = partial(ours.ActionMasksWrapper, action_masks={"turn": mask})
    env = make_wrapped(partial(env_of, TURN), [wrapper, outer])
    assert env.action_masks_dict == {0: {"turn": mask}}
    (name,) = [name for name in wrapper_stack(env) if name.endswith("PreProcessingWrapper")]
    spec = Spec.of(MakeWithout(partial(env_of, TURN), [wrapper, outer], removed=[name])())
    assert set(spec.steps[0].observation_space.spaces) == set(OBSERVATIONS)
    assert spec.steps[0].masks == ({"turn": "allowed"} if keep else {})


def name_of(kind: type[Any]) -> str:
    """Name of a wrapper in a stack that has only one of its class."""
    return f"{kind.__module__}.{kind.__qualname__}"


@pytest.mark.parametrize("is_logged", [False, True])
def test_monitoring_around_the_wrappers_of_a_bundle_sees_the_environment(tmp_path: Path, is_logged: bool) -> None:
    statistics = {"place": {"mean": np.array([9.0, 9.0]), "std": np.array([2.0, 2.0])}}
    configuration = {name: {"statistics": value} for name, value in statistics.items()}
    wrappers = [
        partial(ours.SplitActionsWrapper, split_config={"dial": {"left": {"indices": [0]}, "right": {"indices": [1]}}}),
        partial(ours.ObservationNormalizationWrapper, exclude=["allowed"], manual_config=configuration),
        partial(
            ours.MazeEnvMonitoringWrapper,
            observation_logging=is_logged,
            action_logging=is_logged,
            reward_logging=is_logged,
        ),
    ]
    heads: dict[str, spaces.Space[Any]] = {**TURN, "dial": spaces.MultiDiscrete([2, 3])}
    contained = [name_of(kind) for kind in (ours.ObservationNormalizationWrapper, ours.SplitActionsWrapper)]
    env = MakeWithout(partial(env_of, heads), wrappers, removed=contained)().env
    plain = env_of(heads)
    np.testing.assert_equal(env.reset(seed=0), plain.reset(seed=0))
    action = {"turn": 1, "dial": np.array([1, 2])}
    np.testing.assert_equal(env.step(action), plain.step(action))


def test_a_copy_of_a_bundle_is_that_which_was_read(tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "a.bundle")
    policy = BundlePolicy(path)
    sent = cloudpickle.dumps(policy)
    observation = {"place": np.zeros((1, 2)), "allowed": np.ones((1, 3), np.int8), "kind": np.array([1])}
    batch = PolicyBatch(0, observation, np.zeros(1, np.int64))
    path.write_bytes(b"another file")
    copied = cloudpickle.loads(sent)
    assert copied.manifest == policy.manifest and copied.path == policy.path
    assert copied.act(batch, deterministic=True).action == policy.act(batch, deterministic=True).action
    path.unlink()
    assert cloudpickle.loads(sent).manifest == policy.manifest
    with pytest.raises(ValueError, match=r"a.bundle cannot be read: No such file"):
        BundlePolicy(path)


def test_a_temperature_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "a.bundle")
    made = []

    def make() -> GymMazeEnv:
        made.append(True)
        return env_of(TURN)

    for policy in (path, str(path), BundlePolicy(path)):
        with pytest.raises(ValueError, match=r"^temperature=0.5: a bundle has the distributions of training"):
            rollout(make, policy, 1, temperature=0.5)
    assert not made


class Unknown(Simulation):
    """Shows a kind that its space does not have."""

    def shown(self) -> dict[str, Any]:
        return {**super().shown(), "kind": 9}


def test_what_a_bundle_refuses_is_told_as_it_is(tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "a.bundle")
    with pytest.raises(ValueError, match=r"^observation 'kind' must be integers from 1 to 4$"):
        rollout(lambda: GymMazeEnv(Unknown(TURN)), path, 1)


def test_probabilities_are_those_of_the_parameters(tmp_path: Path) -> None:
    policy = BundlePolicy(write_bundle(tmp_path / "a.bundle"))
    observation = {"place": np.log([[0.5, 0.1], [0.2, 0.3]]), "allowed": np.ones((2, 3)), "kind": np.array([1, 2])}
    found = policy.probabilities(PolicyBatch(0, observation, np.zeros(2, np.int64)))
    np.testing.assert_allclose(found["turn"], [[0.5, 0.1, 0.5], [0.2, 0.3, 0.2]], rtol=1e-5)
    with pytest.raises(ValueError, match="leave it at 1"):
        policy.probabilities(PolicyBatch(0, observation, np.zeros(2, np.int64)), 2.0)


def test_a_bundle_that_splits_actions_has_no_probabilities(tmp_path: Path) -> None:
    name = f"{ours.SplitActionsWrapper.__module__}.SplitActionsWrapper (1 of 2)"
    wrappers = [{"name": name, "is_included": True, "note": ""}]
    source = BundlePolicy(write_bundle(tmp_path / "a.bundle"))
    source.manifest["wrappers"] = wrappers
    with pytest.raises(ConfigurationError, match=r"has no probabilities .* SplitActionsWrapper"):
        source.probabilities(PolicyBatch(0, {}, np.zeros(1, np.int64)))


def test_a_bundle_with_a_state_cannot_be_searched(tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "a.bundle")
    assert STEP["observations"]["place"] == BOX and STEP["observations"]["allowed"] == MASK
    for search in ("best_of:2", "beam:2", "lookahead:policy"):
        with pytest.raises(SearchError, match="the bundle has a policy state"):
            rollout(partial(env_of, TURN), path, 1, search=search)


def test_a_bundle_is_compared(tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "a.bundle")
    assert is_bundle(path) and not is_bundle(tmp_path)
    (tmp_path / "text").write_text("hello")
    assert not is_bundle(tmp_path / "text")
    found = compare(str(path), baselines=["random"], env=partial(env_of, TURN), n_episodes=5, deterministic=True)
    played = rollout(partial(env_of, TURN), path, 5, deterministic=True)
    name = found.entries[0].name
    assert name.endswith("a.bundle")
    assert found.entry(name).metrics["return"].mean == np.mean([one.summary.reward for one in played])


def test_a_damaged_bundle_is_still_a_bundle_and_a_damaged_checkpoint_is_not(tmp_path: Path) -> None:
    content = write_bundle(tmp_path / "a.bundle").read_bytes()
    checkpoint = tmp_path / "last.ckpt"
    torch.save({"state_dict": {"weight": torch.zeros(100)}}, checkpoint)
    other = checkpoint.read_bytes()
    path = tmp_path / "file"
    for n_kept in (0, 60, len(content) // 2, len(content) - 1, len(content)):
        path.write_bytes(content[:n_kept])
        assert is_bundle(path)
    for n_kept in (60, len(other) // 2, len(other)):
        path.write_bytes(other[:n_kept])
        assert not is_bundle(path)
    checkpoint.write_bytes(b"")
    assert not is_bundle(checkpoint)
    for part, name in ((content, MANIFEST.encode()), (other, b"data.pkl")):
        listed = part.rindex(name)  # in the list of members at the end
        for place in range(listed - 60, listed + len(name)):
            path.write_bytes(part[:place] + bytes([part[place] ^ 0xFF]) + part[place + 1 :])
            assert is_bundle(path) == (part is content)


@pytest.mark.parametrize("n_kept", [0, 500])
def test_a_comparison_says_that_a_bundle_is_cut_off(tmp_path: Path, n_kept: int) -> None:
    path = write_bundle(tmp_path / "a.bundle")
    path.write_bytes(path.read_bytes()[:n_kept])
    for refused in (
        lambda: compare(str(path), baselines=["random"], env=partial(env_of, TURN), n_episodes=2),
        lambda: rollout(partial(env_of, TURN), path, 1),
    ):
        with pytest.raises(ValueError, match=r"a.bundle is not a bundle of `maze-pl export`, or was changed or cut"):
            refused()


@pytest.mark.parametrize(
    "wrappers", [None, "abc", {"name": "a"}, ["abc"], [{"name": 3, "is_included": True}], [{"name": "a"}]], ids=repr
)
def test_a_bundle_whose_wrappers_make_no_sense_is_refused(tmp_path: Path, wrappers: Any) -> None:
    path = tmp_path / "a.bundle"
    manifest = {"steps": [STEP]} if wrappers is None else {"steps": [STEP], "wrappers": wrappers}
    path.write_bytes(bundle_bytes(manifest, {"graphs/0.onnx": graph()}))
    for refused in (
        lambda: BundlePolicy(path),
        lambda: rollout(partial(env_of, TURN), path, 1),
    ):
        with pytest.raises(BundleError, match=r"a\.bundle is not a valid bundle: its manifest has no list `wrappers`"):
            refused()


def with_small_integers(spec: Spec) -> Spec:
    """The same sub-step with int32 in its discrete spaces."""
    step = spec.steps[0]
    parts = []
    for space in (step.observation_space, step.action_space):
        changed = {}
        for name, part in space.spaces.items():
            small = isinstance(part, spaces.Discrete)
            changed[name] = spaces.Discrete(part.n, start=part.start, dtype=np.int32) if small else part
        parts.append(spaces.Dict(changed))
    return Spec({0: replace(step, observation_space=parts[0], action_space=parts[1])})


def test_integers_of_another_type_are_no_difference(tmp_path: Path) -> None:
    policy = BundlePolicy(write_bundle(tmp_path / "a.bundle"))
    spec = Spec.of(env_of(TURN))
    policy.require_fit(spec)
    policy.require_fit(with_small_integers(spec))
    other = spaces.Dict(turn=spaces.Discrete(4, dtype=np.int32))
    with pytest.raises(ConfigurationError, match="in actions of sub-step 0"):
        policy.require_fit(Spec({0: replace(spec.steps[0], action_space=other)}))


@pytest.mark.slow
def test_bundles_describe_the_integers_that_they_take_and_return() -> None:
    heads: dict[str, spaces.Space[Any]] = {"pick": spaces.Discrete(3, start=2, dtype=np.int32)}
    env = make_wrapped(partial(env_of, heads))
    spec = Spec.of(env)
    policy = TorchPolicy([FlattenConcatPolicyNet(spec.steps[0].observation_shapes, {"pick": (3,)}, nn.Tanh, [4])], spec)
    (step,) = traced(policy.eval(), env).described()["steps"]
    assert step["actions"] == {"pick": {"type": "discrete", "n": 3, "start": 2}}


@pytest.mark.slow
def test_a_search_with_a_bundle_is_that_with_its_policy(tmp_path: Path) -> None:
    masks = {"pick": "allowed"}
    env = make_wrapped(partial(env_of, HEADS), action_masks=masks)
    spec = Spec.of(env)
    shapes = {head: (n,) for head, n in {"pick": 3, "dials": 5, "bits": 2}.items()}
    torch.manual_seed(0)
    policy = TorchPolicy([FlattenConcatPolicyNet(spec.steps[0].observation_shapes, shapes, nn.Tanh, [4])], spec)
    for parameter in policy.parameters():
        nn.init.normal_(parameter)
    parts = traced(policy.eval(), env)
    path = tmp_path / "a.bundle"
    path.write_bytes(bundle_bytes(parts.described(), parts.members))
    observation = {name: np.stack([value] * 2) for name, value in env.reset(seed=0)[0].items()}
    batch = PolicyBatch(0, observation, np.zeros(2, np.int64))
    expected = policy.probabilities(batch)
    found = BundlePolicy(path).probabilities(batch)
    assert found.keys() == expected.keys()
    for head, value in expected.items():
        for one, other in zip(found[head], value, strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, atol=1e-5)
    returns = []
    for one in (policy, path):
        options: Any = {"search": "beam:3", "action_masks": masks, "deterministic": True, "n_envs": 1}
        played = rollout(partial(env_of, HEADS), one, 2, **options)
        returns.append([trajectory.summary.reward for trajectory in played])
    assert returns[0] == returns[1]


def test_rollouts_play_on_with_a_mask_that_allows_nothing(tmp_path: Path) -> None:
    policy = BundlePolicy(write_bundle(tmp_path / "agent.bundle"))
    observation = {
        "place": np.zeros((2, 2), np.float32),
        "allowed": np.zeros((2, 3), np.int8),
        "kind": np.array([1, 2]),
    }
    batch = PolicyBatch(0, observation, np.zeros(2, np.int64))
    assert policy.act(batch, deterministic=True).action["turn"].tolist() == [0, 0]
    assert policy.probabilities(batch)["turn"].shape == (2, 3)
