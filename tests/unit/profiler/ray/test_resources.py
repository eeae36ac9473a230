"""Kinds of GPU as a cluster names them."""

import json
import subprocess
import sys

from ptxbench.profiler.ray.resources import counted, kinds, resource_for
from tests.conftest import ROOT, compute_capability
from tests.unit.factories import GEMM, suite_case


def test_a_case_wants_the_kind_that_its_nodes_name():
    found = counted([(9, 0), (10, 0), (9, 0)])
    assert found == {"gpu_sm100": 1, "gpu_sm90": 2}
    assert resource_for(suite_case(GEMM)) == "gpu_sm90"
    assert resource_for(suite_case(GEMM, "b200")) == "gpu_sm100"


def test_other_resources_are_no_gpus():
    cluster = {"CPU": 8.0, "gpu_sm90": 2.0, "gpu_sm100": 0.5, "memory": 1e9, "node:10.0.0.1": 1.0, "GPU": 2.0}
    assert kinds(cluster) == {"gpu_sm90": 2}


def test_a_node_says_what_it_has():
    done = subprocess.run(
        [sys.executable, "-m", "ptxbench.profiler.ray.resources"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "plugins")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    here = json.loads(done.stdout)
    capability = compute_capability()
    assert (here == {}) == (capability is None)
