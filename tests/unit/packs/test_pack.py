import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.packs import LEVELS, Pack, estimate_tokens, load_pack
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


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("level", LEVELS)
def test_the_interim_packs_say_so_in_their_first_line(arch: str, level):
    pack = load_pack(ROOT, arch, level)
    first = pack.text.split("\n")[0]
    assert pack.interim
    assert "interim" in first
    assert pack.version in first
    assert pack.name in first


def test_sizes_are_those_of_a_stand_in():
    assert 6_000 < estimate_tokens(load_pack(ROOT, "h100", "full").text) < 9_000
    assert 3_000 < estimate_tokens(load_pack(ROOT, "b200", "full").text) < 6_500


def test_parameters_come_from_the_architecture():
    text = load_pack(ROOT, "h100", "params").text
    assert "4096 FLOP per SM and clock" in text
    assert "arch=compute_90a,code=sm_90a" in text
    assert "$" not in text


def test_a_pack_that_is_no_stand_in_does_not_say_so(checkout: Path, folder: Path):
    _edit(folder / "pack.yaml", "interim: true", "interim: false")
    pack = load_pack(checkout, "h100", "full")
    assert not pack.interim
    assert "interim knowledge pack" not in pack.text


def test_variants_are_the_files_of_their_folder(checkout: Path, folder: Path):
    (folder / "variants" / "new.md").write_text("\n## A new one\n\n")
    assert load_pack(checkout, "h100", "params").variants["new"] == "## A new one"
    shutil.rmtree(folder / "variants")
    assert load_pack(checkout, "h100", "params").variants == {}


def test_every_edit_changes_the_hash(checkout: Path, folder: Path):
    before = load_pack(checkout, "h100", "full")
    _edit(folder / "contracts.md", "mbarrier", "mbarriers")
    assert load_pack(checkout, "h100", "full").sha256 != before.sha256
    assert load_pack(checkout, "h100", "templates").sha256 == load_pack(ROOT, "h100", "templates").sha256


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no pack": (lambda folder: (folder / "pack.yaml").unlink(), r"pack\.yaml: expected the knowledge pack of h100"),
    "unknown key": (
        lambda folder: _edit(folder / "pack.yaml", "interim:", "interm:"),
        r"pack\.yaml:4: `interm`: .*the unknown key 'interm'.*Did you mean 'interim'",
    ),
    "missing text": (
        lambda folder: (folder / "contracts.md").unlink(),
        r"`contracts\[0\]`: expected a text beside pack.yaml; found 'contracts.md', which does not exist",
    ),
    "path": (
        lambda folder: _edit(folder / "pack.yaml", "[contracts.md]", "[../b200/contracts.md]"),
        r"`contracts\[0\]`: expected a name that can be a file name",
    ),
    "empty text": (lambda folder: (folder / "templates.md").write_text("\n \n"), r"templates\.md: expected a text"),
    "placeholder": (
        lambda folder: (folder / "params.md").write_text("$sm has $sms SMs"),
        r"params\.md: expected placeholders among \$title.*found the placeholder \$sms",
    ),
    "bare dollar": (lambda folder: (folder / "params.md").write_text("costs 5 $ only"), r"found a bare \$"),
    "not UTF-8": (lambda folder: (folder / "contracts.md").write_bytes(b"\xff"), r"expected UTF-8 text"),
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
