"""litellm, kept quiet."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

from ptxbench.errors import InputError
from ptxbench.models import litellm_library
from tests.conftest import ROOT
from tests.unit.models.parts import client, entry


@pytest.mark.parametrize("version", ["1.82.7", "1.82.8"])
def test_a_malicious_release_is_refused(monkeypatch, version):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    monkeypatch.setenv("MY_KEY", "k")
    with pytest.raises(InputError, match=rf"genuine release of litellm, found {version}, which steals .*Uninstall it"):
        client(entry("litellm", model="a/b", api_key_env="MY_KEY"))


def test_a_missing_package_is_said(monkeypatch):
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(InputError, match=r"expected the package litellm, found none; pip install 'ptxbench\[llm\]'"):
        litellm_library.check_installed("m")


def test_it_is_told_to_change_nothing():
    litellm = litellm_library.library()
    assert litellm.drop_params is False
    assert litellm.modify_params is False
    assert litellm.telemetry is False
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert litellm_library.library() is litellm


OPENED = """
import os, socket, sys
from pathlib import Path

def refuse(*arguments):
    raise AssertionError(f"a connection was made: {arguments}")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from ptxbench.models.entry import ModelEntry
from ptxbench.models.litellm_library import library
from ptxbench.models.registry import open_client

os.environ["MY_KEY"] = "k"
entry = ModelEntry(name="m", provider="litellm", model="openai/x", api_key_env="MY_KEY")
opened = open_client(entry, run_folder=Path())
print("litellm" in sys.modules)
library()
print("FROM_DOTENV" in os.environ)
opened.close()
"""


def test_opening_imports_nothing_and_importing_connects_to_nothing(tmp_path):
    (tmp_path / ".env").write_text("FROM_DOTENV=1\n")
    done = subprocess.run(
        [sys.executable, "-c", OPENED],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "plugins")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "False"]


def test_all_clients_share_one_loop_until_the_last_goes():
    first = litellm_library.acquire_loop()
    second = litellm_library.acquire_loop()
    assert first is second
    litellm_library.release_loop()
    third = litellm_library.acquire_loop()
    assert third is first
    litellm_library.release_loop()
    litellm_library.release_loop()
    fourth = litellm_library.acquire_loop()
    assert fourth is not first
    litellm_library.release_loop()
