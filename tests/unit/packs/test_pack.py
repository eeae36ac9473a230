import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.packs import LEVELS, Pack, load_pack, open_pack, render_part
from tests.unit.factories import ROOT

ARCHS = ("b200", "h100")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the packs only."""
    shutil.copytree(ROOT / "knowledge_packs", tmp_path / "knowledge_packs")
    return tmp_path


@pytest.fixture
def folder(checkout: Path) -> Path:
    return checkout / "knowledge_packs" / "h100"


@pytest.mark.parametrize("arch", ARCHS)
def test_levels_build_on_each_other(arch: str):
    params, templates, full = (load_pack(ROOT, arch, level) for level in LEVELS)
    assert templates.text.startswith(params.text.rstrip())
    assert full.text.startswith(templates.text.rstrip())
    assert len({params.sha256, templates.sha256, full.sha256}) == 3
    assert "## Templates" not in params.text
    assert "## Contracts" not in templates.text
    assert "## Contracts" in full.text


def test_the_first_line_names_the_pack(folder: Path):
    first = load_pack(ROOT, "h100", "full").text.split("\n")[0]
    assert first == "# Hopper (H100/H200): knowledge pack (h100 1.2)"


def test_an_interim_pack_says_so_in_its_first_line(checkout: Path, folder: Path):
    _edit(folder / "pack.yaml", "interim: false", "interim: true")
    pack = load_pack(checkout, "h100", "params")
    assert pack.interim
    assert "interim knowledge pack" in pack.text.split("\n")[0]


@pytest.mark.parametrize("arch", ARCHS)
def test_a_level_adds_exactly_its_section(arch: str):
    opened = open_pack(ROOT, arch)
    params, templates, full = (load_pack(ROOT, arch, level).text for level in LEVELS)
    assert templates == f"{params}\n{render_part(opened, 'templates')}\n"
    assert full == f"{templates}\n{render_part(opened, 'contracts')}\n"


def test_expert_guidance_is_a_section_of_its_own_that_is_asked_for():
    opened = open_pack(ROOT, "h100")
    for level in LEVELS:
        plain, guided = load_pack(ROOT, "h100", level), load_pack(ROOT, "h100", level, guidance=True)
        assert "Expert guidance" not in plain.text
        assert guided.text == f"{plain.text}\n{render_part(opened, 'guidance')}\n"
        assert guided.sha256 != plain.sha256
        assert guided.variants == plain.variants


def test_a_pack_without_guidance_says_so_where_it_is_asked_for():
    assert not open_pack(ROOT, "b200").file.guidance
    with pytest.raises(InputError, match=r"b200/pack\.yaml.*guidance.*expected texts of expert guidance.*found none"):
        load_pack(ROOT, "b200", "full", guidance=True)


def test_without_templates_schedules_say_whose_the_functions_are():
    params, full = (load_pack(ROOT, "h100", level).variants for level in ("params", "full"))
    assert params.keys() == full.keys()
    for name, text in full.items():
        note, _, rest = params[name].partition("\n\n")
        assert rest == text
        assert "you write them yourself" in note


def test_parameters_come_from_the_architecture():
    text = load_pack(ROOT, "h100", "params").text
    assert "4096 FLOP per SM and clock" in text
    assert "arch=compute_90a,code=sm_90a" in text
    assert "$" not in text


def test_headers_are_shown_without_guards_and_each_system_header_once():
    text = load_pack(ROOT, "h100", "templates").text
    assert "#pragma once" not in text
    assert '#include "' not in text
    assert text.count("#include <cuda.h>") == 1
    assert "### mbarrier.cuh\n\n```cuda\n// One thread. An mbarrier" in text


def test_a_schedule_may_be_several_texts(checkout: Path, folder: Path):
    (folder / "schedules" / "new.md").write_text("\n## A new one\n\n")
    _edit(
        folder / "pack.yaml",
        "schedules:\n",
        "schedules:\n  new: [schedules/new.md, schedules/cluster-multicast.md]\n",
    )
    variants = load_pack(checkout, "h100", "full").variants
    assert variants["new"] == f"## A new one\n\n{variants['cluster-multicast']}"


def test_every_edit_changes_the_hash(checkout: Path, folder: Path):
    before = load_pack(checkout, "h100", "full")
    _edit(folder / "contracts" / "memory.md", "mbarrier", "mbarriers")
    assert load_pack(checkout, "h100", "full").sha256 != before.sha256
    assert load_pack(checkout, "h100", "templates").sha256 == load_pack(ROOT, "h100", "templates").sha256


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no pack": (lambda folder: (folder / "pack.yaml").unlink(), r"pack\.yaml: expected the knowledge pack of h100"),
    "unknown key": (
        lambda folder: _edit(folder / "pack.yaml", "interim:", "interm:"),
        r"pack\.yaml:4: `interm`: .*the unknown key 'interm'.*Did you mean 'interim'",
    ),
    "missing text": (
        lambda folder: (folder / "contracts" / "roles.md").unlink(),
        r"`contracts\[3\]`: expected a text below the folder of pack.yaml; "
        r"found 'contracts/roles.md', which does not exist",
    ),
    "missing schedule": (
        lambda folder: (folder / "schedules" / "warp-specialization.md").unlink(),
        r"`schedules.warp-specialization\[0\]`: expected a text below the folder",
    ),
    "path": (
        lambda folder: _edit(folder / "pack.yaml", "contracts/roles.md", "../b200/contracts/pairs.md"),
        r"`contracts\[3\]`: expected a relative path below its root",
    ),
    "empty text": (
        lambda folder: (folder / "contracts" / "roles.md").write_text("\n \n"),
        r"roles\.md: expected a text",
    ),
    "placeholder": (
        lambda folder: (folder / "params.md").write_text("$sm has $sms SMs"),
        r"params\.md: expected placeholders among \$title.*found the placeholder \$sms",
    ),
    "bare dollar": (lambda folder: (folder / "params.md").write_text("costs 5 $ only"), r"found a bare \$"),
    "not UTF-8": (
        lambda folder: (folder / "contracts" / "roles.md").write_bytes(b"\xff"),
        r"expected UTF-8 text",
    ),
    "open bracket": (
        lambda folder: _edit(folder / "templates" / "roles.cuh", "{\n  asm", "{{\n  asm"),
        r"roles\.cuh:\d+: expected a construct that ends",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_pack_is_one_error(checkout: Path, folder: Path, name: str):
    break_it, message = BREAKS[name]
    break_it(folder)
    with pytest.raises(InputError, match=message):
        load_pack(checkout, "h100", "full")


def test_unknown_names(checkout: Path):
    with pytest.raises(InputError, match=r"unknown arch: .*found 'h10'\. Did you mean 'h100'"):
        load_pack(checkout, "h10", "full")
    with pytest.raises(
        InputError, match=r"unknown knowledge level: expected one of params, templates, full; found 'all'"
    ):
        load_pack(checkout, "h100", "all")  # type: ignore[arg-type]


def test_a_record():
    pack = load_pack(ROOT, "h100", "full")
    assert Pack.model_validate_json(pack.model_dump_json()) == pack


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
