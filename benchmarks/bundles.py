"""Time of one decision of a bundle: a bare call of ONNX Runtime, and the runtime; and of importing the runtime.

Prints one line of JSON: by name, medians of processor time, in microseconds unless the name says otherwise. The network
is that of ppo_cartpole.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import onnxruntime
from torch import nn

from maze_pl.agents import TorchPolicy
from maze_pl.bundle.traced_policy import traced
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.perception import FlattenConcatPolicyNet
from maze_pl_runtime import Policy

CHUNK = 200
ROUNDS = 60
IMPORT = "import time; start = time.process_time(); import maze_pl_runtime; print(time.process_time() - start)"


def chunk(function):
    """Microseconds of processor time of a call, over a chunk of calls."""
    start = time.process_time()
    for _ in range(CHUNK):
        function()
    return 1e6 * (time.process_time() - start) / CHUNK


def importing():
    """Microseconds of processor time of importing the runtime, in a new process."""
    result = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    return 1e6 * float(result.stdout)


def main():
    env = make_wrapped(lambda: GymMazeEnv("CartPole-v1"))
    network = FlattenConcatPolicyNet({"observation": (4,)}, {"action": (2,)}, nn.Tanh, [64, 64])
    parts = traced(TorchPolicy([network], Spec.of(env)).eval(), env)
    policy = Policy(parts.described(), parts.members)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    (graph,) = parts.members.values()
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    observation = {"observation": np.zeros(4, np.float32)}
    feed = {"observation/observation": np.zeros((1, 4), np.float32), "uniforms": np.zeros((1, 1))}
    outputs = ["action/action", "parameters/action"]
    contenders = {
        "bare call of ONNX Runtime": lambda: session.run(outputs, feed),
        "Policy.act": lambda: policy.act(observation),
        "Policy.act, sampled": lambda: policy.act(observation, deterministic=False),
    }
    found = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, function in contenders.items():
            found[name].append(chunk(function))
    figures = {name: statistics.median(values) for name, values in found.items()}
    figures["importing maze_pl_runtime, in milliseconds"] = statistics.median(importing() for _ in range(5)) / 1e3
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
