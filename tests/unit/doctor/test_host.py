"""Checks of the machine without its GPU."""

import pytest

from ptxbench.doctor import host, render
from ptxbench.doctor.check import Check, Status, answer_of, installed
from ptxbench.errors import InfrastructureError
from ptxbench.records import Containment


def test_no_host_compiler_is_named_and_costs_everything():
    cxx, cuda = host.check_compilers({"PATH": "/nowhere"})
    assert (cxx.status, cuda.status) == (Status.GAP, Status.GAP)
    assert "g++" in cxx.found
    assert "nothing can be built" in cxx.cost


def test_this_machine_compiles():
    cxx, cuda = host.check_compilers()
    assert cxx.status is Status.OK
    assert cuda.status is Status.OK, cuda.found
    assert cuda.found.startswith("nvcc 1")


def test_keys_are_named_and_never_shown():
    check = host.check_model_keys({"OPENAI_API_KEY": "sk-secret", "GEMINI_API_KEY": "", "HOME": "/home/me"})
    assert (check.status, check.found) == (Status.OK, "OPENAI_API_KEY")
    assert "secret" not in check.model_dump_json()
    assert host.check_model_keys({}).status is Status.GAP


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    check = host.check_runs(tmp_path / "file" / "generated")
    assert check.status is Status.GAP
    assert "Not a directory" in check.found
    assert host.check_runs(tmp_path / "generated").status is Status.OK
    assert list((tmp_path / "generated").iterdir()) == []


def test_packages_are_found_without_importing_them():
    found = installed("no-such-package", "pytest")
    assert found == f"pytest {pytest.__version__}"
    assert installed("no-such-package") is None


@pytest.mark.parametrize("command", [["no-such-program"], ["false"]])
def test_a_tool_that_does_not_answer(command):
    assert answer_of(command) is None


def test_rendering_says_what_a_gap_costs_and_how_to_close_it():
    lines = render(
        [
            Check(name="a", status=Status.OK, found="1"),
            Check(name="long name", status=Status.GAP, found="none", cost="time", remedy="buy one"),
            Check(name="b", status=Status.UNKNOWN, found="?", cost="doubt", remedy="look"),
        ]
    )
    assert lines[0] == "ok       a          1"
    assert lines[1] == "gap      long name  none"
    assert lines[2].strip() == "cost: time"
    assert lines[3].strip() == "to close: buy one"
    assert lines[-1] == "3 checks: 1 gaps, 1 unknown"


def test_containment_as_this_machine_has_it():
    check = host.check_containment()
    assert check.status in (Status.OK, Status.GAP)
    assert "parent_death" in check.found


def test_containment_that_lacks_layers_names_them_with_reasons(monkeypatch):
    found = Containment(active=("seccomp",), missing={"user": "Operation not permitted"})
    monkeypatch.setattr(host, "describe_here", lambda: found)
    check = host.check_containment()
    assert (check.status, check.found) == (
        Status.GAP,
        "1 layers: seccomp; without user (Operation not permitted)",
    )


def test_containment_that_cannot_be_told(monkeypatch):
    def fails():
        raise InfrastructureError("sandbox_failed", "no answer")

    monkeypatch.setattr(host, "describe_here", fails)
    assert host.check_containment().status is Status.UNKNOWN
