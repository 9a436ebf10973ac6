"""Plays one episode with an exported policy, in a program that knows nothing of tianji.

`tianji export RUN --onnx`, then `python run_exported.py RUN/policy.onnx`.
"""

import sys

import gymnasium
import numpy as np
import onnxruntime

if len(sys.argv) != 2:
    sys.exit("usage: python run_exported.py POLICY.onnx (of a Gymnasium environment)")
policy = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
env = gymnasium.make(policy.get_modelmeta().custom_metadata_map["environment"])
(obs, _), total, ended = env.reset(seed=0), 0.0, False
while not ended:
    action = policy.run(["action"], {"obs": np.asarray(obs, np.float32)[None]})[0][0]
    obs, reward, terminated, truncated, _ = env.step(action)
    total, ended = total + float(reward), terminated or truncated
print(f"return {total:g}")
