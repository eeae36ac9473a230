"""What ``--run`` may name."""

from pathlib import Path

import pytest

from ptxbench.agent.run_names import resolve_run
from ptxbench.errors import InputError


def test_a_name_is_in_generated_and_a_path_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_run(tmp_path, "monday") == tmp_path / "generated" / "monday"
    assert resolve_run(tmp_path, "./monday") == tmp_path / "monday"
    assert resolve_run(tmp_path, "runs/../other/monday/") == tmp_path / "other" / "monday"
    assert resolve_run(tmp_path, "/data/runs/monday") == Path("/data/runs/monday")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert resolve_run(tmp_path, "~/monday") == Path("/home/somebody/monday")
    assert resolve_run(tmp_path, "~no_such_user/monday") == tmp_path / "~no_such_user" / "monday"


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "reference", "generated/reference", "./generated/reference", "generated/reference/"),
        *("generated/../generated/x/../reference", "generated/reference/h100", "link/reference"),
        *("examples", "link/examples"),
    ],
)
def test_the_reference_solutions_and_the_examples_together_are_no_run(tmp_path, monkeypatch, text):
    (tmp_path / "generated" / "reference").mkdir(parents=True)
    (tmp_path / "link").symlink_to("generated")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"expected a name of a run or a path; this one is reserved, choose another"):
        resolve_run(tmp_path, text)


def test_one_example_is_a_run(tmp_path):
    assert resolve_run(tmp_path, str(tmp_path / "generated" / "examples" / "x")).name == "x"
