"""Documents of the episode viewer that are made up, for tests of the page."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

PICTURE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfz0AEYBxVSF+FAAhKDveksOjmAAAAAElFTkSuQmCC"
)
HOSTILE = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror='window.hacked=1'>",
    "\u2028window.hacked=1\u2029//",
    "'\"--><svg onload=window.hacked=1>]]>{{script}}",
    "javascript:window.hacked=1",
    "__proto__",
)


def array(values: ArrayLike, dtype: str = "float32", encoding: str = "deflate") -> dict[str, Any]:
    """An array as documents hold it."""
    content = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
    data = content.tobytes() if encoding == "raw" else zlib.compress(content.tobytes())
    return {
        "dtype": dtype,
        "shape": list(content.shape),
        "data": base64.b64encode(data).decode("ascii"),
        "encoding": encoding,
    }


def softmax(logits: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Probabilities of the allowed options."""
    weights = np.exp(logits - logits.max(-1, keepdims=True)) * allowed
    return weights / weights.sum(-1, keepdims=True)


def categorical(
    rows: int, size: int, generator: np.random.Generator, labels: list[str] | None = None
) -> dict[str, Any]:
    """A masked categorical head whose most likely action is taken, except every seventh time."""
    allowed = generator.random((rows, size)) < 0.7
    allowed[np.arange(rows), generator.integers(size, size=rows)] = True
    probabilities = softmax(generator.normal(size=(rows, size)) * 1.5, allowed)
    likely = probabilities.argmax(-1)
    action = likely.copy()
    for row in range(6, rows, 7):
        options = np.flatnonzero(allowed[row])
        action[row] = options[(np.flatnonzero(options == likely[row])[0] + 1) % len(options)]
    return {
        "kind": "categorical",
        "labels": labels,
        "sizes": [size],
        "probabilities": array(probabilities),
        "allowed": array(allowed, "uint8"),
        "action": array(action[:, None], "int32"),
        "most_likely": array(likely[:, None], "int32"),
        "family": None,
        **dict.fromkeys(("low", "high", "density_x", "density")),
    }


def continuous(rows: int, width: int, generator: np.random.Generator) -> dict[str, Any]:
    """A head of normal distributions between -2 and 2."""
    mean = generator.uniform(-1.5, 1.5, size=(rows, width, 1))
    x = np.broadcast_to(np.linspace(-2, 2, 33), (rows, width, 33))
    density = np.exp(-0.5 * ((x - mean) / 0.4) ** 2) / (0.4 * np.sqrt(2 * np.pi))
    return {
        "kind": "continuous",
        "labels": None,
        "sizes": [],
        "probabilities": None,
        "allowed": None,
        "action": array(np.clip(mean[..., 0] + 0.4 * generator.normal(size=(rows, width)), -2, 2)),
        "most_likely": array(mean[..., 0]),
        "family": "normal",
        "low": [-2.0] * width,
        "high": [2.0] * width,
        "density_x": array(x),
        "density": array(density),
    }


def observation(kind: str, values: np.ndarray, **described: Any) -> dict[str, Any]:
    """An observation; its first axis are the acts."""
    described = {"low": None, "high": None, "labels": None, **described}
    return {"kind": kind, "shape": list(values.shape[1:]), "values": array(values), **described}


def head_of_kind(kind: str, rows: int, generator: np.random.Generator) -> dict[str, Any]:
    """A head of one of the other kinds."""
    if kind == "multi_categorical":
        probabilities = np.concatenate(
            [softmax(generator.normal(size=(rows, n)), np.ones((rows, n))) for n in (3, 4)], -1
        )
        action = np.stack([probabilities[:, :3].argmax(-1), probabilities[:, 3:].argmax(-1)], -1)
        sizes = [3, 4]
    elif kind == "bernoulli":
        is_set = generator.random((rows, 5))
        probabilities = np.stack([1 - is_set, is_set], -1).reshape(rows, 10)
        action = is_set > 0.5
        sizes = [2] * 5
    else:
        return {
            **categorical(rows, 2, generator),
            **{"kind": "other", "sizes": [], "probabilities": None, "allowed": None},
        }
    return {
        **categorical(rows, sum(sizes), generator),
        **{"kind": kind, "sizes": sizes, "probabilities": array(probabilities), "allowed": None},
        "action": array(action, "int32"),
        "most_likely": array(action, "int32"),
    }


def plain_episode(name: str, n: int, seed: int = 0, size: int = 4) -> dict[str, Any]:
    """An episode of a flat environment: one act per env step, a vector as observation, one categorical head."""
    generator = np.random.default_rng(seed)
    reward = np.where(generator.random(n) < 0.2, -1.0, 0.5)
    n_events = n // 2
    labels = ["position", "velocity", "angle", "angular velocity"]
    return {
        "name": name,
        "policy": "trained",
        "seed": seed,
        "episode_id": f"{seed}-0",
        "return": float(reward.sum()),
        "n_env_steps": n,
        "end": "terminated",
        "kpis": {"wins": 3.5},
        "running_kpis": {"wins": array(np.linspace(0, 3.5, n))},
        "step_keys": ["0"],
        "acts": {
            "n": n,
            "env_step": array(np.arange(n), "int32"),
            "step_key": array(np.zeros(n), "int32"),
            "agent": array(np.zeros(n), "int32"),
            "reward": array(reward),
            "value": array(np.cumsum(reward[::-1])[::-1] + generator.normal(size=n)),
        },
        "observations": {"0": {"state": observation("vector", generator.normal(size=(n, 4)), labels=labels)}},
        "heads": {"0": {"direction": categorical(n, size, generator, None)}},
        "env_steps": {"reward": array(reward), "parts": {"goal": array(reward * 2), "time": array(-reward)}},
        "events": {
            "names": ["Game.hit", "Game.miss"],
            "env_step": array(np.arange(n_events) * 2, "int32"),
            "name": array(np.arange(n_events) % 2, "int32"),
            "attributes": [{"power": i % 9, "by": "left" if i % 3 else "right"} for i in range(n_events)],
        },
        "pictures": None,
    }


def structured_episode(name: str, n_steps: int, seed: int = 0) -> dict[str, Any]:
    """An episode with two sub-steps, of which the second has two agents, and every kind of observation and head."""
    generator = np.random.default_rng(seed)
    n = 3 * n_steps
    step_key = np.tile([0, 1, 1], n_steps)
    plan, move = n_steps, 2 * n_steps
    episode = plain_episode(name, n_steps, seed)
    cells = np.zeros((plan, 6, 6))
    cells[np.arange(plan), generator.integers(6, size=plan), generator.integers(6, size=plan)] = 1
    sizes = generator.integers(0, 40, size=(plan, 12, 3)).astype(float)
    return episode | {
        "step_keys": ["plan", "move"],
        "acts": {
            "n": n,
            "env_step": array(np.repeat(np.arange(n_steps), 3), "int32"),
            "step_key": array(step_key, "int32"),
            "agent": array(np.tile([0, 0, 1], n_steps), "int32"),
            "reward": array(generator.normal(size=n)),
            "value": array(np.where(step_key == 0, generator.normal(size=n), np.nan)),
        },
        "observations": {
            "plan": {
                "inventory": observation("matrix", sizes, low=0.0, high=40.0),
                "map": observation("matrix", cells),
                "weather": observation(
                    "discrete", generator.integers(3, size=(plan, 1)), labels=["dry", "wet", "snow"]
                ),
                "budget": observation("scalar", generator.uniform(0, 100, size=(plan, 1)), low=0.0, high=100.0),
            },
            "move": {
                "rays": observation("vector", generator.random((move, 64)), low=0.0, high=1.0),
                "mask": observation("mask", generator.integers(2, size=(move, 12))),
                "camera": {
                    "kind": "image",
                    "shape": [1, 1, 3],
                    "low": 0.0,
                    "high": 255.0,
                    "labels": None,
                    "pictures": [PICTURE] * move,
                },
            },
        },
        "heads": {
            "plan": {
                "order": categorical(plan, 120, generator),
                "rotate": categorical(plan, 2, generator, ["no", "yes"]),
                "tools": head_of_kind("bernoulli", plan, generator),
            },
            "move": {
                "force": continuous(move, 2, generator),
                "gear": head_of_kind("multi_categorical", move, generator),
                "code": head_of_kind("other", move, generator),
            },
        },
        "pictures": {
            "source": "renderer",
            "alt": None,
            "index": array(np.zeros(n_steps + 1), "int32"),
            "per": "env_step",
            "images": [PICTURE],
        },
    }


def document(
    *episodes: dict[str, Any], title: str = "Episodes", pairs: list[list[int]] | None = None
) -> dict[str, Any]:
    """A document with these episodes."""
    return {
        "format": "maze_pl episodes",
        "version": 1,
        "title": title,
        "created_by": "maze_pl 0.1.0",
        "episodes": list(episodes),
        "pairs": pairs or [],
    }
