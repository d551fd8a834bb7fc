"""Graphs compute by the kernels that eager execution has."""

import subprocess
import sys


def test_a_process_that_computes_in_a_graph_first_gets_its_kernels_too():
    program = """
import subprocess
import sys
import adjoint as ad
from adjoint.ir import compute
graph = ad.Graph()
with graph:
    x = graph.input(ad.ones(64), name="x")
    y = (x * 2).exp()
for n in range(4):
    x.set(ad.full((64,), float(n)))
    y.sum().item()
assert compute.accelerate.__name__ == "accelerate", compute.accelerate
assert len(compute._preparations) == 1, compute._preparations
"""
    subprocess.run([sys.executable, "-c", program], check=True)
