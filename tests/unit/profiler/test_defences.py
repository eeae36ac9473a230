"""Switching defences off: by known names only, for one process, and said in what it measures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError, InputError
from ptxbench.profiler import defences, local
from ptxbench.profiler.local import LocalProfiler
from tests.conftest import ROOT

SWITCHES = [
    *(ROOT / "plugins/ptxbench/profiler").glob("**/*.py"),
    *(ROOT / "plugins/ptxbench/selftest").glob("**/*.py"),
]
"""Where something may be done for a defence's sake."""


def test_all_are_on_until_one_is_switched_off() -> None:
    assert defences.switched_off() == ()
    assert all(defences.active(name) for name in defences.DEFENCES)


def test_an_unknown_name_is_said() -> None:
    with pytest.raises(InputError, match="found poison; there are screen, containment"):
        defences.known(["poison", "families"])
    with pytest.raises(KeyError):
        defences.active("poison")


def test_names_come_once_and_in_order() -> None:
    assert defences.known(["families", "screen", "families"]) == ("screen", "families")


def test_a_process_has_what_its_command_line_says() -> None:
    program = (
        "from ptxbench.profiler import defences as d; d.switch_off(['guard_bands']);"
        "print(d.active('guard_bands'), d.active('families'), d.switched_off())"
    )
    environment = {"PYTHONPATH": str(ROOT / "plugins"), "PATH": "/usr/bin:/bin"}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout == "False True ('guard_bands',)\n"


@pytest.mark.parametrize("name", list(defences.DEFENCES))
def test_every_switch_is_asked_somewhere(name: str) -> None:
    """A name that nobody asks for would switch nothing off."""
    asked = [path for path in SWITCHES if path.name != "defences.py" and f'"{name}"' in path.read_text()]
    assert asked, f"nothing depends on {name}"


ORACLE = """\
import json, sys
from multiprocessing.connection import Connection
channel = Connection(int(sys.argv[sys.argv.index("--fd") + 1]))
channel.recv_bytes()
told = [word for word in sys.argv[1:] if word != sys.argv[sys.argv.index("--fd") + 1]]
channel.send_bytes(json.dumps({"fault": {"kind": "told", "message": " ".join(told)}}).encode())
channel.recv_bytes()
"""


def test_the_oracle_is_told_what_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in answers with its own command line."""
    package = tmp_path / "ptxbench" / "profiler"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "oracle.py").write_text(ORACLE)
    monkeypatch.setattr(local, "device_present", lambda: True)
    monkeypatch.setattr(local, "import_path", lambda: str(tmp_path))
    profiler = LocalProfiler(root=tmp_path, without=["families", "guard_bands"], call_timeout_s=2.5)
    with pytest.raises(InfrastructureError) as told:
        profiler.health()
    profiler.close()
    assert str(told.value) == "--fd --call-timeout-s 2.5 --without=guard_bands --without=families"


def test_the_profiler_refuses_unknown_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "device_present", lambda: True)
    with pytest.raises(InputError, match="found luck"):
        LocalProfiler(root=tmp_path, without=["luck"])
