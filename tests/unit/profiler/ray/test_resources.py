"""Kinds of GPU as a cluster names them."""

import json
import subprocess
import sys

from ptxbench.profiler.ray import resources
from ptxbench.profiler.ray.resources import counted, kinds, resource_for
from tests.conftest import ROOT, compute_capability
from tests.unit.factories import GEMM, suite_case


def test_a_case_wants_the_kind_that_its_nodes_name():
    assert counted([(9, 0), (9, 0)]) == {"gpu_sm90": 2}
    assert counted([]) == {}
    assert resource_for(suite_case(GEMM)) == "gpu_sm90"
    assert resource_for(suite_case(GEMM, "b200")) == "gpu_sm100"


def test_a_node_of_two_kinds_is_refused(monkeypatch, capsys):
    """Ray would hand out its GPUs without looking at the kind."""
    monkeypatch.setattr(resources, "capabilities_here", lambda: [(9, 0), (7, 5), (9, 0)])
    assert resources.main() == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "expected GPUs of one kind on a node, found 1 gpu_sm75, 2 gpu_sm90" in told.err


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
