"""The texts of the packs: every CUDA block compiles, every wrapper reaches the assembler, facts agree."""

import re

import pytest

from ptxbench.cases import load_arch, load_suite
from ptxbench.packs import load_pack
from ptxbench.records import BuildStatus, Candidate
from ptxbench.toolchain import Toolchain
from ptxbench.toolchain.cache import BuildCache
from ptxbench.toolchain.discovery import discover
from tests.unit.factories import ROOT
from tests.unit.packs.parts import templates
from tests.unit.toolchain.parts import shared_cache

EXPORT = "\nstatic void run() {}\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);\n"

# What the templates' own kernel does not use. A device function that no kernel calls never reaches the assembler.
USES = {
    "h100": """
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    use(const __grid_constant__ CUtensorMap map, float* x) {
  Ring<4> ring;
  ring.next();
  if (threadIdx.x < 128) {
    fewer_registers<40>();
    mbar_arrive(8);
    mbar_wait(8, ring.phase);
    mbar_arrive_cluster(8, cluster_rank() ^ 1);
    tma_load_multicast(0, &map, 8, 0, 0, 3);
    bulk_load(0, x, 16, 8);
    tma_add(&map, 0, 0, 0);
    tma_wait_read<1>();
    named_arrive(1, 256);
  } else {
    more_registers<232>();
    named_sync(1, 256);
    float d[64];
    uint32_t p[32];
    wgmma_fence();
    wgmma_ss<0, 1>(d, make_desc(0), make_desc(1024, 8192), 0);
    wgmma_commit();
    wgmma_wait<0>();
    pin(d);
    pack_fragments(p, d);
    float o[64];
    wgmma_fence();
    for (int i = 0; i < 4; ++i) wgmma_rs<1>(o, p + 4 * i, make_desc(0, 8192) + 128 * i, i > 0);
    wgmma_commit();
    wgmma_wait<0>();
    pin(o);
    for (int i = 0; i < 64; ++i) x[i] = exp2_fast(o[i]);
  }
  cluster_sync();
}
template <int kTrans, int kRegisters>
__global__ void __launch_bounds__(128) use_width(float* x) {
  float d[kRegisters];
  wgmma_fence();
  wgmma_ss<kTrans, kTrans>(d, make_desc(0, 8192), make_desc(1024, 8192), 0);
  wgmma_commit();
  wgmma_wait<0>();
  pin(d);
  for (int i = 0; i < kRegisters; ++i) x[i] = d[i];
}
static CUtensorMap keep() { return make_map(nullptr, 64, 64, 64); }
static void use_all() {
  use<<<2, 384>>>(keep(), nullptr);
  use_width<1, 32><<<1, 128>>>(nullptr);
  use_width<1, 64><<<1, 128>>>(nullptr);
  use_width<0, 128><<<1, 128>>>(nullptr);
}
""",
    "b200": """
__global__ void use_pair(const __grid_constant__ CUtensorMap map) {
  tmem_alloc<2>(0, 64);
  tma_load_pair(0, &map, 8 & 0xFEFFFFFF, 0, 0);
  tma_load_multicast(0, &map, 8, 0, 0, 3);
  mma_ss<2>(0, make_desc(0), make_desc(64, 8192), make_idesc(256, 256, 1, 1), 1);
  mma_commit<2>(8);
  mma_commit_multicast<2>(8, 3);
  tmem_free<2>(0, 64);
  cluster_sync();
}
__global__ void use_single(const __grid_constant__ CUtensorMap map, uint32_t* x) {
  uint32_t v[32];
  for (int i = 0; i < 32; ++i) v[i] = x[i];
  tmem_store(0, v);
  mma_ts(0, 8, make_desc(64), make_idesc(128, 64), 1);
  mma_commit_multicast<1>(8, 3);
  tmem_load(v, 0);
  mbar_arrive(8);
  fence_async();
  tma_store(&map, 0, 0, 0);
  tma_commit();
  tma_wait_read<0>();
  for (int i = 0; i < 32; ++i) x[i] = v[i];
}
static CUtensorMap keep() { return make_map(nullptr, 64, 64, 64); }
static void use_all() {
  use_pair<<<2, 128>>>(keep());
  use_single<<<1, 128>>>(keep(), nullptr);
}
""",
}
SEEN = {
    "h100": {"HGMMA", "UTMALDG", "UTMASTG", "UTMAREDG", "USETMAXREG", "UBLKCP"},
    "b200": {"UTCHMMA", "UTCBAR", "LDTM", "STTM", "UTCATOMSWS", "UTMALDG", "UTMASTG"},
}


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return Toolchain(discover(), BuildCache(shared_cache(tmp_path_factory)))


@pytest.mark.parametrize("arch", SEEN)
def test_templates_compile_and_give_the_instructions_they_are_for(toolchain: Toolchain, arch: str):
    source = templates(arch) + USES[arch] + EXPORT.replace("{}", "{ use_all(); }")
    build = toolchain.build(Candidate(source=source), load_arch(ROOT, arch)).build
    assert build.status is BuildStatus.OK, build.log
    assert "serialized" not in build.log.lower()
    assert build.toolchain.headers == "light"
    opcodes = {opcode for cubin in build.cubins for kernel in cubin.kernels for opcode in kernel.opcodes}
    assert SEEN[arch] <= opcodes


@pytest.mark.parametrize("arch", SEEN)
def test_every_template_is_used_by_a_kernel_that_is_compiled(arch: str):
    text = templates(arch)
    functions = re.findall(r"^(?:__device__ __forceinline__|inline)[^\n(;]*?\b(\w+)\(", text, re.MULTILINE)
    assert len(functions) > 15
    kernels = text[text.index("__global__") :] + USES[arch]
    called = {name for name in functions if re.search(rf"\b{name}(<[\w, ]+>)?\(", kernels)}
    # These are called by other templates that are.
    assert set(functions) - called <= {"pack_bf16", "stmatrix_x4"}


@pytest.mark.parametrize("arch", SEEN)
def test_templates_clobber_memory_wherever_they_have_an_effect(arch: str):
    statements = re.findall(r"asm volatile\((.*?)\);", templates(arch), re.DOTALL)
    assert len(statements) > 20
    without = [statement for statement in statements if '"memory"' not in statement]
    assert [statement for statement in without if "%%cluster_ctarank" not in statement] == []


@pytest.mark.parametrize("arch", SEEN)
def test_every_variant_of_the_suites_has_a_text_and_every_text_a_variant(arch: str):
    cases = load_suite(ROOT, "primary").cases(arch)
    named = {variant for case in cases for variant in case.variants} - {"none"}
    assert set(load_pack(ROOT, arch, "full").variants) == named


@pytest.mark.parametrize("arch", SEEN)
def test_variants_name_no_helper_of_the_templates(arch: str):
    """The level ``params`` has the schedules and not the templates."""
    helpers = set(re.findall(r"(?:__forceinline__|inline)[^\n(;]*?\b(\w+)\(", templates(arch)))
    for name, text in load_pack(ROOT, arch, "full").variants.items():
        assert {word for word in re.findall(r"`(\w+)`", text) if word in helpers} == set(), name


def test_the_pipelined_schedule_has_neither_error_of_the_published_one():
    text = load_pack(ROOT, "h100", "full").variants["flashattention-3-pipelined-schedule"]
    order = [
        "For j = 1 .. T_c - 1, **T_c - 1 included**",
        "**m_old = m**; m = max(m_old",
        "wait for the output product",
        "O = a O",
        "**P_cur = P_next**",
        "O = O + P_cur V_(T_c - 1)",
        "**O = O / l; LSE = m / sqrt(D) + ln(l).**",
    ]
    places = [text.index(step) for step in order]
    assert places == sorted(places)


def test_texts_hold_nothing_of_the_machine():
    for arch in SEEN:
        pack = load_pack(ROOT, arch, "full")
        for text in (pack.text, *pack.variants.values()):
            assert str(ROOT) not in text
            assert not re.search(r"(?<![\w.])/(?:home|usr|opt|work|tmp)/", text)
