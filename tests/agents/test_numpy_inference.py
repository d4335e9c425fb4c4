"""Acting in NumPy gives what acting in torch gives, for networks as they are now, and is left to torch otherwise."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from maze_pl.agents import TorchPolicy
from maze_pl.agents.numpy_inference import NumpyNetwork
from maze_pl.agents.numpy_sampling import NumpySampler, Sampling
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import EpsilonGreedyProbabilityDistribution
from maze_pl.distributions.distribution_mapper import DistributionMapper
from maze_pl.modules import FlatAdam
from maze_pl.perception import FlattenConcatPolicyNet

ACTIVATIONS = [nn.Tanh, nn.ReLU, nn.ELU, nn.Sigmoid, nn.SiLU, nn.LeakyReLU, nn.Identity]
HEADS: dict[str, tuple[spaces.Space[Any], int]] = {
    "one": (spaces.Discrete(4, start=-1), 4),
    "several": (spaces.MultiDiscrete([[2, 3], [4, 2]]), 11),
    "bits": (spaces.MultiBinary([2, 3]), 6),
    "steer": (spaces.Box(-1.0, 1.0, (3,)), 6),
    "matrix": (spaces.Box(-1.0, 1.0, (3, 4)), 24),
}
OBSERVATION = {"x": (4,), "grid": (2, 3), "number": ()}


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@st.composite
def cases(draw: st.DrawFn) -> tuple[TorchPolicy, dict[str, np.ndarray], float, int]:
    """A policy in double precision, where rounding decides nothing, with observations, temperature and seed."""
    heads = draw(st.lists(st.sampled_from(sorted(HEADS)), min_size=1, max_size=3, unique=True))
    masked = [head for head in heads if head in ("one", "several", "bits") and draw(st.booleans())]
    names = draw(st.lists(st.sampled_from(sorted(OBSERVATION)), min_size=1, max_size=3, unique=True))
    hidden = draw(st.lists(st.integers(1, 9), max_size=2))
    seed, n = draw(st.integers(0, 2**31)), draw(st.integers(1, 9))
    torch.manual_seed(seed)
    network = FlattenConcatPolicyNet(
        {name: OBSERVATION[name] for name in names},
        {head: (HEADS[head][1],) for head in heads},
        draw(st.sampled_from(ACTIVATIONS)),
        hidden,
    )
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    rng = np.random.default_rng(seed)
    number = spaces.Discrete(5)
    box = {name: spaces.Box(-9.0, 9.0, OBSERVATION[name]) if name != "number" else number for name in names}
    observation = {name: rng.standard_normal((n, *OBSERVATION[name])) for name in names}
    if "number" in names:
        observation["number"] = rng.integers(0, 5, n)
    for head in masked:
        box[head] = spaces.MultiBinary(HEADS[head][1])
        observation[head] = rng.integers(0, 2, (n, HEADS[head][1])).astype(np.int8)
    actions = spaces.Dict({head: HEADS[head][0] for head in heads})
    spec = Spec({0: StepSpec(spaces.Dict(box), actions, masks={head: head for head in masked})})
    return TorchPolicy([network], spec).double().eval(), observation, draw(st.floats(0.1, 10.0)), seed


@settings(max_examples=60, deadline=None)
@given(cases(), st.booleans())
def test_actions_are_those_of_the_distributions_for_the_same_random_numbers(case, deterministic) -> None:
    policy, observation, temperature, seed = case
    assert NumpyNetwork(policy.networks[0][0]).logits(observation) is not None
    own, reference = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
    batch = PolicyBatch(0, observation, np.zeros(len(next(iter(observation.values())))))
    with torch.no_grad():
        distribution = policy.distribution(0, tensors(observation), temperature=temperature)
        for _ in range(2):
            expected = distribution.deterministic_sample() if deterministic else distribution.sample(reference)
            action = policy.act(batch, deterministic=deterministic, temperature=temperature, generator=own).action
            assert list(action) == list(expected)
            for head, array in action.items():
                assert array.dtype == expected[head].numpy().dtype
                np.testing.assert_allclose(array, expected[head].numpy(), rtol=1e-9, atol=1e-9)
            step = policy.act(
                batch, deterministic=True, temperature=temperature, generator=own, with_log_prob=True
            )  # draws nothing
            np.testing.assert_allclose(step.log_prob, distribution.log_prob(tensors(step.action)), rtol=1e-5)
    assert torch.equal(own.get_state(), reference.get_state())


def sample(logits: np.ndarray, space: spaces.Space[Any], mask: np.ndarray | None, temperature: float) -> np.ndarray:
    sampler = NumpySampler(
        DistributionMapper(spaces.Dict({"a": space}), masks={"a": "m"} if mask is not None else None)
    )
    allowed = {} if mask is None else {"a": mask == 1}
    sampling = Sampling(False, temperature, torch.Generator().manual_seed(0))
    action = sampler.choose({"a": logits}, allowed, sampling)
    assert action is not None
    return action["a"]


def test_single_precision_differs_from_torch_at_ties_only() -> None:
    torch.manual_seed(0)
    spec = Spec({0: StepSpec(spaces.Dict({"x": spaces.Box(-1, 1, (4,))}), spaces.Dict({"a": spaces.Discrete(5)}))})
    policy = TorchPolicy([FlattenConcatPolicyNet({"x": (4,)}, {"a": (5,)}, nn.Tanh, [64, 64])], spec).eval()
    observation = {"x": np.random.default_rng(0).standard_normal((20_000, 4), dtype=np.float32)}
    own, reference = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    action = policy.act(PolicyBatch(0, observation, np.zeros(1)), generator=own).action["a"]
    expected = policy.distribution(0, tensors(observation)).sample(reference)["a"].numpy()
    assert np.mean(action != expected) < 1e-3


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
@pytest.mark.parametrize("mask", [None, [1, 0, 1, 1], [0, 0, 0, 0]])
def test_options_come_as_often_as_their_probabilities_say(mask, temperature) -> None:
    n, logits = 100_000, np.array([0.5, 2.0, -1.0, 0.0], np.float32)
    rows = None if mask is None else np.tile(np.array(mask, np.int8), (n, 1))
    action = sample(np.tile(logits, (n, 1)), spaces.Discrete(4), rows, temperature)
    allowed = np.ones(4, bool) if mask is None or not any(mask) else np.array(mask, bool)
    weight = np.exp(logits / temperature) * allowed if mask is None or any(mask) else np.ones(4)
    probability = weight / weight.sum()
    frequency = np.bincount(action, minlength=4) / n
    assert (frequency[~allowed] == 0).all()
    assert (np.abs(frequency - probability) < 5 * np.sqrt(probability * (1 - probability) / n) + 1e-9).all()


@pytest.mark.parametrize("temperature", [1.0, 0.1, 10.0])
@pytest.mark.parametrize("config", [None, [{"action_head": "a", "distribution": EpsilonGreedyProbabilityDistribution}]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mask_holds_if_the_network_masks_all_that_it_allows(dtype: Any, config: Any, temperature: float) -> None:
    if config and temperature != 1.0:
        return  # left to the distribution
    n, space = 4_000, spaces.MultiDiscrete([4, 4])
    logits = np.random.default_rng(0).standard_normal((n, 8)).astype(dtype)
    logits[: n // 2, 1:3] = np.finfo(dtype).min
    logits[n // 2 :, 1:3] = -np.inf
    mask = np.ones((n, 8), bool)
    mask[:, [0, 3]] = False
    mapper = DistributionMapper(spaces.Dict({"a": space}), config, masks={"a": "m"})
    for deterministic in (False, True):
        generators = [torch.Generator().manual_seed(1) for _ in range(2)]
        sampler = NumpySampler(mapper)
        found = sampler.choose({"a": logits}, {"a": mask}, Sampling(deterministic, temperature, generators[0], 0.5))
        assert found is not None
        masks = {"a": torch.from_numpy(mask)}
        joint = mapper.logits_dict_to_distribution({"a": torch.from_numpy(logits)}, temperature, masks)
        joint.distributions["a"].exploration = 0.5
        expected = joint.deterministic_sample() if deterministic else joint.sample(generators[1])
        assert np.isin(found["a"][:, 0], [1, 2]).all()
        differs = found["a"] != expected["a"].numpy()
        assert differs.mean() < (1e-3 if dtype == np.float32 else 1e-9)


def test_bits_and_normal_numbers_have_their_moments() -> None:
    n, logits = 100_000, np.array([0.0, 2.0, -2.0], np.float32)
    mask = np.tile(np.array([1, 1, 0], np.int8), (n, 1))
    bits = sample(np.tile(logits, (n, 1)), spaces.MultiBinary(3), mask, 1.0)
    np.testing.assert_allclose(bits.mean(0), [0.5, 1 / (1 + np.exp(-2.0)), 0.0], atol=0.01)
    parameters = np.array([3.0, -1.0, np.log(0.5), np.log(2.0)], np.float32)
    normal = sample(np.tile(parameters, (n, 1)), spaces.Box(-1, 1, (2,)), None, 4.0)
    np.testing.assert_allclose(normal.mean(0), [3.0, -1.0], atol=0.06)
    np.testing.assert_allclose(normal.std(0), [1.0, 4.0], rtol=0.02)


def test_extreme_outputs_give_no_warnings() -> None:
    logits = np.array([[np.inf, -np.inf, 1e30], [-3e38, 3e38, 0.0], [np.nan, 0.0, 0.0]], np.float32)
    for space in (spaces.Discrete(3), spaces.MultiBinary(3)):
        assert sample(logits, space, np.ones((3, 3), np.int8), 0.1).shape[0] == 3
    assert sample(100 * np.ones((2, 4), np.float32), spaces.Box(-1, 1, (2,)), None, 1.0).shape == (2, 2)


# -------------------------------------------------------------------------------------------- which networks, and when


class Network(nn.Module):
    """A user's network; `extra` acts on what comes out of its layers."""

    scale: Any

    def __init__(self, *layers: nn.Module, extra: Callable[[Network, Tensor], Tensor] = lambda self, x: x) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), *layers)
        self.head = nn.Linear(8, 3)
        self.extra = extra
        self.settings = {"depth": [1, 2], "activation": torch.tanh}

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        latent = torch.cat([observation[name] for name in sorted(observation)], dim=-1)
        return {"a": self.head(self.extra(self, torch.tanh(self.body(latent))))}


X = {"x": np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)}


def expected(network: nn.Module) -> np.ndarray:
    with torch.no_grad():
        return network(tensors(X))["a"].numpy()


def traced(network: nn.Module) -> NumpyNetwork:
    plain = NumpyNetwork(network)
    logits = plain.logits(X)
    assert logits is not None
    np.testing.assert_allclose(logits["a"], expected(network), rtol=1e-5, atol=1e-6)
    return plain


def test_networks_of_users_are_recognised() -> None:
    traced(Network(nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 8)).eval())
    traced(Network(nn.Sequential(nn.Linear(8, 5), nn.ELU(), nn.Linear(5, 8)), extra=lambda self, x: x.relu()).eval())
    traced(Network(nn.Linear(8, 8, bias=False), Subclass(8, 8), nn.ReLU(inplace=True)).eval())
    traced(Network(extra=lambda self, x: x.sigmoid() if x.dim() == 2 and x.is_floating_point() else -x).eval())


class ThroughView(nn.Module):
    """Reads the input of an activation that changes it through a view."""

    def __init__(self, activation: Callable[..., Tensor]) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.activation = activation
        nn.init.ones_(self.body.weight)  # the sign of the output is that of the input
        nn.init.zeros_(self.body.bias)

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden = self.body(observation["x"]).unsqueeze(1)
        view = self.activation(hidden.flatten(1), inplace=True)
        return {"a": torch.cat([hidden.flatten(1), view], dim=-1)}


@pytest.mark.parametrize("activation", [functional.relu, functional.elu, functional.silu, functional.leaky_relu])
def test_activations_in_place_change_all_views(activation: Callable[..., Tensor]) -> None:
    network = ThroughView(activation).eval()
    policy = NumpyNetwork(network)
    positive, negative = {"x": np.full((2, 4), 20.0, np.float32)}, {"x": np.full((2, 4), -1.0, np.float32)}
    for observation in (positive, negative):  # the network is traced with the first one, on which all agree
        with torch.no_grad():
            wanted = network(tensors(observation))["a"].numpy()
        found = policy.logits(observation)
        if found is not None:
            np.testing.assert_allclose(found["a"], wanted, rtol=1e-5)


def test_activations_in_place_are_recognised_where_nothing_else_reads_their_input() -> None:
    traced(Network(nn.ReLU(inplace=True), nn.Linear(8, 8), nn.SiLU(inplace=True), nn.ELU(inplace=True)).eval())
    again = Network(extra=lambda self, x: torch.cat([x, functional.relu(x, inplace=True)], dim=-1))
    again.head = nn.Linear(16, 3)
    traced(again.eval())


class OwnLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1.0


class Counting(nn.Linear):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


class Subclass(nn.Linear):
    pass


def caught(network: Network, x: Tensor) -> Tensor:
    try:
        return 2 * x
    except KeyError:
        return x.relu()


def with_hook(network: Network) -> Network:
    network.head.register_forward_hook(lambda module, inputs, output: 2 * output)
    return network


def with_attribute(value: object) -> Network:
    network = Network()
    network.scale = value
    return network


def with_forward(network: Network) -> Network:
    network.forward = lambda observation: {"a": observation["x"][:, :3]}  # type: ignore[method-assign]
    return network


REFUSED: dict[str, Callable[[], nn.Module]] = {
    "statistics of batches": lambda: Network(nn.BatchNorm1d(8)),
    "normalisation": lambda: Network(nn.LayerNorm(8)),
    "a layer of the user": lambda: Network(OwnLinear(8, 8)),
    "a layer that changes": lambda: Network(Counting(8, 8)),
    "a parametrized layer": lambda: Network(parametrizations.weight_norm(nn.Linear(8, 8))),
    "a computed weight": lambda: Network(
        extra=lambda self, x: functional.linear(x, self.head.weight.T @ self.head.weight)
    ),
    "what the batch decides": lambda: Network(extra=lambda self, x: x if len(x) > 1 else x.relu()),
    "a number of the batch": lambda: Network(extra=lambda self, x: x if x[0, 0].item() > 0 else x.relu()),
    "a failure that is caught": lambda: Network(extra=caught),
    "values that decide": lambda: Network(extra=lambda self, x: x if x.sum() > 0 else -x),
    "random numbers": lambda: Network(extra=lambda self, x: x + torch.randn(8)),
    "arithmetic": lambda: Network(extra=lambda self, x: 2 * x),
    "parameters of its own": lambda: Network(extra=lambda self, x: x * self.head.weight[0]),
    "a hook": lambda: with_hook(Network()),
    "an object": lambda: with_attribute(object()),
    "a tensor": lambda: with_attribute(torch.zeros(2)),
    "another function": lambda: with_forward(Network()),
}


@pytest.mark.parametrize("build", REFUSED.values(), ids=list(REFUSED))
def test_networks_that_are_not_plain_are_left_to_torch(build) -> None:
    torch.manual_seed(0)
    network = build().eval()
    expected(network)
    before = torch.get_rng_state()
    plain = NumpyNetwork(network)
    assert plain.logits(X) is None
    assert plain.logits(X) is None
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_are_never_stale() -> None:
    torch.manual_seed(0)
    network = Network(nn.Tanh(), nn.Linear(8, 8)).eval()
    plain = traced(network)

    def agrees() -> bool:
        logits = plain.logits(X)
        assert logits is not None
        return bool(np.allclose(logits["a"], expected(network), rtol=1e-4, atol=1e-4))

    before = expected(network)
    with torch.no_grad():
        network.head.weight.add_(1.0)
    assert agrees()
    optimizer = FlatAdam(network.parameters(), lr=0.1)
    assert agrees()
    network(tensors(X))["a"].square().sum().backward()
    optimizer.step()
    assert agrees()
    network.body[0].bias.data = torch.ones(8)
    assert agrees()
    network.load_state_dict({name: 2 * value for name, value in network.state_dict().items()})
    assert agrees()
    network.load_state_dict({name: 2 * value for name, value in network.state_dict().items()}, assign=True)
    assert agrees()
    network.head.weight = nn.Parameter(torch.ones(3, 8))
    assert agrees()
    network.share_memory()
    assert agrees()
    assert not np.allclose(before, expected(network))
    network.double()
    logits = plain.logits(X)
    assert logits is not None and logits["a"].dtype == np.float64
    network.float()
    assert agrees()


def replace_layer(network: Any) -> None:
    network.body[1] = nn.ReLU().eval()


def replace_head(network: Any) -> None:
    network.head = nn.Linear(8, 3).eval()


CHANGES: dict[str, Callable[[Any], object]] = {
    "training mode": lambda network: network.train(),
    "training mode of a part": lambda network: network.body[2].train(),
    "a hook": lambda network: network.body[0].register_forward_hook(lambda module, inputs, output: -output),
    "a hook before": lambda network: network.head.register_forward_pre_hook(lambda module, inputs: None),
    "a layer": replace_layer,
    "the last layer": replace_head,
    "an attribute": lambda network: setattr(network, "extra", lambda self, x: -x),
    "an attribute that is a tensor": lambda network: setattr(network, "settings", torch.zeros(2)),
    "a setting": lambda network: network.settings["depth"].append(3),
    "another attribute": lambda network: setattr(network, "scale", 2.0),
    "a parametrization": lambda network: parametrizations.weight_norm(network.head),
    "a layer's shape": lambda network: setattr(network.head, "weight", nn.Parameter(torch.zeros(5, 8))),
}


FOLLOWED = [CHANGES[name] for name in ("a layer", "the last layer", "a setting", "another attribute")]


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_network_that_was_changed_is_watched_anew_or_left_to_torch(change) -> None:
    network = Network(nn.Tanh(), nn.Dropout(0.5)).eval()
    plain = traced(network)
    change(network)
    logits = plain.logits(X)
    assert (logits is not None) == (change in FOLLOWED)
    assert logits is None or np.allclose(logits["a"], expected(network), rtol=1e-5, atol=1e-6)


def test_evaluation_mode_and_hooks_that_come_and_go() -> None:
    network = Network(nn.Tanh(), nn.Dropout(0.5))
    plain = NumpyNetwork(network)
    assert plain.logits(X) is None
    network.eval()
    np.testing.assert_allclose(plain.logits(X)["a"], expected(network), rtol=1e-5, atol=1e-6)
    handle = network.register_forward_hook(lambda module, inputs, output: None)
    assert plain.logits(X) is None
    handle.remove()
    network.train()
    assert plain.logits(X) is None
    network.eval()
    assert plain.logits(X) is not None


def test_observations_may_change_their_type() -> None:
    network = Network().eval()
    plain = traced(network)
    wide = plain.logits({"x": X["x"].astype(np.float64)})
    assert wide is not None
    assert wide["a"].dtype == np.float32
    assert plain.logits({"x": np.ones((8, 4), np.int64)}) is None


def test_copies_use_their_own_weights() -> None:
    network = Network().eval()
    plain = traced(network)
    other = copy.deepcopy(plain)
    before = expected(network)
    with torch.no_grad():
        network.head.weight.zero_()
    np.testing.assert_allclose(other.logits(X)["a"], before, rtol=1e-5, atol=1e-6)
    assert not np.allclose(plain.logits(X)["a"], before)


def test_large_products_are_computed_by_torch_with_its_number_of_threads() -> None:
    torch.manual_seed(0)
    network = nn.Linear(64, 128)
    plain = NumpyNetwork(_DictNetwork(network).eval())
    large = np.random.default_rng(0).normal(size=(2048, 64)).astype(np.float32)
    read_only = large.copy()
    read_only.flags.writeable = False
    for rows in (large, read_only, large[::-1], np.asfortranarray(large), large[:, None]):
        logits = plain.logits({"observation": rows})
        assert logits is not None
        expected = network(torch.from_numpy(rows.copy())).detach().numpy()
        np.testing.assert_array_equal(logits["logits"], expected)


def test_logits_do_not_depend_on_the_number_of_threads() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 1), nn.Tanh())
    plain = NumpyNetwork(_DictNetwork(layers).eval())
    observation = {"observation": np.random.default_rng(0).normal(size=(2048, 2)).astype(np.float32)}
    before = torch.get_num_threads()
    logits = []
    try:
        for n_threads in (1, 8):
            torch.set_num_threads(n_threads)
            found = plain.logits(observation)
            assert found is not None
            logits.append(found["logits"])
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*logits)


def test_a_network_goes_through_numpy_only_where_no_gradient_is_wanted() -> None:
    network = nn.Linear(3, 2)
    owner = _DictNetwork(network)
    plain = NumpyNetwork(owner.eval())
    observation = {"observation": torch.randn(5, 3)}
    assert plain.outputs(observation) is None
    with torch.no_grad():
        outputs = plain.outputs(observation)
        assert outputs is not None
        torch.testing.assert_close(outputs["logits"], network(observation["observation"]))
        with torch.autocast("cpu", torch.bfloat16):
            assert plain.outputs(observation) is None
            assert plain.logits({"observation": observation["observation"].numpy()}) is None
        owner.train()
        assert plain.outputs(observation) is None, "a loss is computed by torch"


class _DictNetwork(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, observation: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"logits": self.layer(observation["observation"])}
