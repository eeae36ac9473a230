"""Files of ``deploy/`` say what the product takes. No container or Slurm is here to run them."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import subprocess
import sys
import threading
import time
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import PurePosixPath

import pytest
import yaml

from ptxbench.arguments import TOKEN_VARIABLE
from ptxbench.cli import _parser
from ptxbench.service.command import settings_of
from ptxbench.service.guard import OPEN_PATHS
from ptxbench.service.settings import DEFAULT_DRAIN_S, DEFAULT_PORT
from ptxbench.toolchain.cache import CACHE_VARIABLE
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
KNOWN = {"FROM", "RUN", "ENV", "WORKDIR", "COPY", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, lines joined and comments left out."""
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in (line.strip().partition(" ") for line in lines)]


def only(name: str) -> str:
    (found,) = [rest for kind, rest in instructions() if kind == name]
    return found


def served() -> list[str]:
    """The command line that the container runs."""
    arguments: list[str] = json.loads(only("ENTRYPOINT")) + json.loads(only("CMD"))
    return arguments


def test_dockerfile_has_instructions_that_docker_knows():
    assert {name for name, _ in instructions()} == KNOWN
    assert instructions()[0][0] == "FROM"
    for name, rest in instructions():
        assert rest, name
        if name == "RUN":
            assert subprocess.run(["bash", "-n", "-c", rest], check=False).returncode == 0, rest


def test_what_is_copied_is_there_and_reaches_the_image():
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    kept = [line[1:] for line in ignored if line.startswith("!")]
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name, rest in instructions():
        if name != "COPY":
            continue
        *sources, target = shlex.split(rest)
        for source in sources:
            assert any(path == source or path.startswith(f"{source}/") for path in tracked), source
            assert any(fnmatch.fnmatch(source, pattern) for pattern in kept), source
            assert target in ("./", source), "each keeps its place in the checkout"
    assert PurePosixPath("conftest.py") in map(PurePosixPath, kept)


def test_packages_are_extras_of_the_project_in_pinned_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (install,) = [rest for name, rest in instructions() if name == "RUN" and "pip install" in rest]
    (extras,) = re.findall(r"-e '\.\[([^]]*)\]'", install)
    assert set(extras.split(",")) == {"toolchain", "gpu", "serve"}
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert install.count("pip install") == install.count("-c constraints.txt") == 2


def test_container_serves_with_options_that_exist(monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "a-token")
    program, *arguments = served()
    assert program == "ptxbench"
    options = _parser().parse_args(arguments)
    settings = settings_of(options, ROOT)
    assert (settings.port, settings.profiler, settings.token) == (DEFAULT_PORT, "local", "a-token")
    volumes = json.loads(only("VOLUME"))
    assert str(settings.store) in volumes
    environment = dict(word.split("=", 1) for word in shlex.split(only("ENV")))
    assert environment[CACHE_VARIABLE] in volumes
    assert only("EXPOSE") == str(DEFAULT_PORT)
    (path,) = re.findall(rf"127\.0\.0\.1:{DEFAULT_PORT}(/\w*)", only("HEALTHCHECK"))
    assert path in OPEN_PATHS
    assert only("USER") not in ("root", "0")


@pytest.mark.parametrize(("status", "healthy"), [("ok", True), ("draining", True), ("unavailable", False)])
def test_health_check_tells_a_service_that_cannot_work(status, healthy):
    class Health(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"status": status}).encode())

        def log_message(self, *_):
            return

    with HTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        (_, check) = only("HEALTHCHECK").split("CMD ", 1)
        program, *arguments = json.loads(check.replace(f":{DEFAULT_PORT}", f":{server.server_port}"))
        assert program == "python"
        assert (subprocess.run([sys.executable, *arguments], timeout=20).returncode == 0) is healthy


def test_compose_file_agrees_with_the_image():
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    (service,) = document["services"].values()
    context = (DEPLOY / service["build"]["context"]).resolve()
    assert context == ROOT.resolve()
    assert (context / service["build"]["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    assert service["ports"] == [f"127.0.0.1:{DEFAULT_PORT}:{DEFAULT_PORT}"]
    assert service["environment"][TOKEN_VARIABLE].startswith(f"${{{TOKEN_VARIABLE}:?"), "it must not start without"
    mounted = dict(volume.split(":") for volume in service["volumes"])
    assert mounted.keys() == document["volumes"].keys()
    assert sorted(mounted.values()) == sorted(json.loads(only("VOLUME")))
    assert float(service["stop_grace_period"].removesuffix("s")) > DEFAULT_DRAIN_S
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])


@pytest.fixture
def slurm_job(tmp_path, monkeypatch):
    """Slurm's and Ray's commands as programs that write down how they were called."""
    programs = {
        "scontrol": "echo node1; echo node2; echo node3",
        "srun": 'echo "srun $*" >> calls; while [[ $1 != bash ]]; do shift; done; "$@"',
        "ray": 'echo "auth $RAY_AUTH_MODE $(stat -c "%a %s" "$RAY_AUTH_TOKEN_PATH")" >> calls; echo "ray $*" >> calls',
        "python": 'echo "python $*" >> calls; [[ "$*" != *resources* ]] || echo "{\\"gpu_sm90\\": 8}"',
    }
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name, body in programs.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (folder / name).chmod(0o755)
    (folder / "activate").write_text(f"PATH={folder}:$PATH\n")
    job = {
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_ID": "1234567",
        "SLURM_JOB_NODELIST": "node[1-3]",
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_CPUS_PER_TASK": "64",
    }
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.parametrize("gpus", ["8", "h100:8"])
def test_slurm_script_starts_a_node_for_each_and_one_session(slurm_job, monkeypatch, gpus):
    monkeypatch.setenv("SLURM_GPUS_PER_NODE", gpus)
    command = ["bash", str(DEPLOY / "ray.sbatch"), "-m", "h100", "--run=fleet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 10  # its nodes are jobs in the background
    calls: list[str] = []
    while sum(call.startswith("ray ") for call in calls) < 3 and time.monotonic() < deadline:
        calls = (slurm_job / "calls").read_text().splitlines()
    rays = sorted(call for call in calls if call.startswith("ray "))
    own = '--block --num-cpus=64 --resources={"gpu_sm90": 8}'
    assert rays == [
        f"ray start --address=node1:24567 {own}",
        f"ray start --address=node1:24567 {own}",
        f"ray start --head --port=24567 --include-dashboard=false {own}",
    ]
    # Ray turns its token on where it finds one in the home folder, and then only at some of its ends.
    assert [call for call in calls if call.startswith("auth ")] == ["auth token 600 64"] * 3
    starts = [call for call in calls if call.startswith("srun ")]
    assert sorted(re.findall(r"--nodelist=(\w+)", " ".join(starts))) == ["node1", "node2", "node3"]
    assert all(f"--gpus-per-node={gpus} " in start for start in starts)
    assert "python -m pytest --profiler=ray --concurrency=48 -m h100 --run=fleet" in calls
