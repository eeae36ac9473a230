import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from ptxbench.agent.extraction import extract
from ptxbench.agent.prompt import TEMPLATE_VERSION, first_messages, identity
from ptxbench.cases import Case, load_suite
from ptxbench.errors import InputError
from ptxbench.packs import Pack, estimate_tokens, load_pack
from ptxbench.records import BuildStatus, Candidate, Reply
from ptxbench.toolchain import Toolchain
from ptxbench.toolchain.cache import BuildCache
from ptxbench.toolchain.discovery import discover
from ptxbench.trace.definition import DType, TensorSpec
from ptxbench.verdict.metrics import TARGET_SPEEDUP
from tests.unit.agent.prompt_pins import PINS, current
from tests.unit.factories import GEMM, ROOT, suite_case
from tests.unit.toolchain.parts import shared_cache

CASES = load_suite(ROOT, "primary").table


@pytest.fixture(scope="module")
def pack() -> Pack:
    return load_pack(ROOT, "h100", "full")


def texts(case: Case, variant: str = "none", level: Any = "full") -> tuple[str, str]:
    system, user = first_messages(case, variant, load_pack(ROOT, case.arch.name, level))
    assert (system.role, user.role) == ("system", "user")
    return system.content, user.content


def test_no_prompt_changes_without_its_version():
    pinned, found = yaml.safe_load(PINS.read_text()), current()
    same_versions = (pinned["template"], pinned["packs"]) == (found["template"], found["packs"])
    if pinned != found and same_versions:
        changed = [
            name
            for part in ("knowledge", "prompts")
            for name in found[part]
            if found[part][name] != pinned[part].get(name)
        ]
        pytest.fail(
            f"{len(changed)} prompts changed, {changed[:3]} among them: raise TEMPLATE_VERSION in agent/prompt.py (for "
            "agent/prompt_texts, their assembly, definitions) or `version` in knowledge_packs/<arch>/pack.yaml (for "
            "packs and variants), then run `python -m tests.unit.agent.prompt_pins`"
        )
    assert pinned == found, "versions were raised: run `python -m tests.unit.agent.prompt_pins`"


def test_system_is_instructions_pack_example_target_in_this_order(pack: Pack):
    system, _ = texts(suite_case())
    headings = [
        "# Rules",
        "# Hopper (H100/H200): knowledge pack",
        "## Worked example of the kernel ABI",
        "# Target",
    ]
    places = [system.index(heading) for heading in headings]
    assert places == sorted(places)
    assert pack.text.strip() in system
    assert system.startswith("You write CUDA kernels with inline PTX for NVIDIA Hopper (H100/H200), `sm_90a`.")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.arch.name}-{case.name}")
def test_the_user_message_says_all_of_the_definition(case: Case):
    _, user = texts(case)
    definition = case.definition
    assert definition.reference.strip() in user
    assert (definition.description or "") in user
    rows = re.findall(
        r"^\| (\d+) \| (\w+) \| (input|output) \| (\w+) \| \[([^]]*)\] \| \[([^]]*)\] \|", user, re.MULTILINE
    )
    assert [row[1] for row in rows] == [*definition.inputs, *definition.outputs]
    assert [row[0] for row in rows] == [str(index) for index in range(len(rows))]
    assert {row[1]: row[3] for row in rows} == case.dtypes()
    shapes = {**case.input_shapes(), **case.output_shapes()}
    assert {row[1]: row[5] for row in rows} == {
        name: ", ".join(map(str, shape or ())) for name, shape in shapes.items()
    }
    for name, size in case.axes.items():
        kind = "const" if name in definition.const_axes else "var"
        assert re.search(rf"^- {name} = {size}\b.*, {kind}\b", user, re.MULTILINE)
    for name, size in case.shrunk_axes.items():
        assert re.search(rf"^- {name} = .*\b{size} when", user, re.MULTILINE)
    assert f"{case.flops:,} FLOP" in user
    assert "0.01 + 0.01 * |reference|" in user
    assert f"`{case.baseline.call}` ({case.baseline.library})" in user


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.arch.name}-{case.name}")
def test_the_target_is_the_architectures(case: Case):
    system, _ = texts(case)
    target = system[system.index("# Target") :]
    for family in (*case.arch.selected, *case.arch.not_selected):
        assert f"`{family}`" in target
    assert f"{TARGET_SPEEDUP} times" in target
    assert case.arch.gencode in system


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.arch.name}-{case.name}")
def test_a_variant_adds_its_text_to_the_user_message_and_nothing_else(case: Case):
    plain = texts(case)
    pack = load_pack(ROOT, case.arch.name, "full")
    for variant in case.variants[1:]:
        system, user = texts(case, variant)
        assert system == plain[0]
        assert user == f"{plain[1]}\n{pack.variants[variant]}\n"


def test_a_missing_variant_is_one_error(pack: Pack):
    with pytest.raises(
        InputError, match=r"knowledge_packs/h100/pack\.yaml: expected a schedule of .* 'faster'.*add it"
    ):
        first_messages(suite_case(), "faster", pack)


def test_levels_change_the_pack_and_nothing_else():
    full = texts(suite_case())
    for level in ("params", "templates"):
        pack = load_pack(ROOT, "h100", level)
        system, user = texts(suite_case(), level=level)
        assert system == full[0].replace(load_pack(ROOT, "h100", "full").text.strip(), pack.text.strip())
        assert user == full[1]


def test_scalars_and_constraints_are_shown(pack: Pack):
    case = suite_case()
    inputs = {**case.definition.inputs, "alpha": TensorSpec(shape=None, dtype=DType.FLOAT32, description="a | b")}
    changes = {"inputs": inputs, "constraints": ("M > 0",), "description": None}
    scalar = case.model_copy(update={"definition": case.definition.model_copy(update=changes)})
    user = first_messages(scalar, "none", pack)[1].content
    assert "| 2 | alpha | input | float32 | null (a scalar, by value) |  | a \\| b |" in user
    assert "Constraints: `M > 0`" in user


def test_numbers_of_the_protocol_come_from_the_case(pack: Pack):
    case = suite_case().model_copy(update={"iterations": 7, "warmup": 3, "trials": 2})
    assert "the median of 7 calls after 3 warm-ups, in 2 trials" in first_messages(case, "none", pack)[0].content


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.arch.name}-{case.name}")
def test_prompts_hold_nothing_of_the_machine_and_no_open_placeholder(case: Case):
    for variant in case.variants:
        for text in texts(case, variant):
            assert str(ROOT) not in text
            assert not re.search(r"(?<![\w.])/(?:home|usr|opt|work|tmp|root)/", text)
            assert not re.search(r"\$\w|\$\{", text)
            assert text.endswith("\n")
            assert estimate_tokens(text) < 30_000


def test_prompts_are_the_same_in_another_process_and_folder(tmp_path):
    program = f"""
import pathlib, sys
from ptxbench.agent.prompt import first_messages
from ptxbench.cases import load_suite
from ptxbench.packs import load_pack
from ptxbench.records import prompt_sha256
root = pathlib.Path(sys.argv[1])
case = load_suite(root, "primary").case({GEMM!r}, "h100")
print(prompt_sha256(first_messages(case, "cluster-multicast", load_pack(root, "h100", "full"))))
"""
    link = tmp_path / "elsewhere"
    link.symlink_to(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", program, str(link)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "plugins"), "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == current()["prompts"][f"h100 {GEMM} cluster-multicast"]


def test_identity_names_texts_and_level(pack: Pack):
    found = identity(pack)
    assert found.template == TEMPLATE_VERSION
    assert found.pack == f"h100 {pack.version}"
    assert (found.pack_sha256, found.level) == (pack.sha256, "full")


@pytest.mark.parametrize("arch", ["h100", "b200"])
def test_the_worked_example_is_an_answer_that_builds(arch: str, tmp_path_factory: pytest.TempPathFactory):
    system, _ = texts(suite_case(arch=arch), level="params")
    example = system[system.index("## Worked example") : system.index("# Target")]
    found = extract(Reply(text=example, ended="stop", finish_reason="stop", latency_s=0.0, model="m"))
    assert found.source is not None, found.error
    toolchain = Toolchain(discover(), BuildCache(shared_cache(tmp_path_factory)))
    build = toolchain.build(Candidate(source=found.source), suite_case(arch=arch).arch).build
    assert build.status is BuildStatus.OK, build.log
    assert build.toolchain.headers == "light"
    # It is of no workload, and brings none of the target's instructions.
    assert "scale_rows_n4096" not in {case.name for case in CASES}
    assert not any(
        case.arch.selects(opcode)
        for case in CASES
        for cubin in build.cubins
        for kernel in cubin.kernels
        for opcode in kernel.opcodes
    )
