import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.toolchain import fatbin
from ptxbench.toolchain.lexer import tokenize
from ptxbench.toolchain.screen import (
    HeaderFolders,
    screen_object,
    screen_shared_object,
    screen_source,
    screen_translation,
)
from ptxbench.toolchain.translation import Inclusion, Translation


@pytest.fixture
def folders(tmp_path: Path) -> HeaderFolders:
    return HeaderFolders(tmp_path / "build", (Path("../cuda"), tmp_path / "cuda/cccl", tmp_path / "std"))


@pytest.fixture
def screen(folders: HeaderFolders) -> Callable[..., list[tuple[str, int | None]]]:
    """Rules and lines that a source's own text and inclusions meet."""

    def run(source: str, *inclusions: Inclusion) -> list[tuple[str, int | None]]:
        translation = Translation(tuple(tokenize(source)), inclusions)
        return [(finding.rule, finding.line) for finding in screen_translation(translation, folders, source)]

    return run


Screen = Callable[..., list[tuple[str, int | None]]]


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('void* h = dlopen("x", 1);', "dynamic-loading"),
        ("auto f = &dlsym;", "dynamic-loading"),
        ('ffi::Module::LoadFromFile("x");', "dynamic-loading"),
        ("cuModuleLoadDataEx(&m, image, 0, 0, 0);", "device-code-loading"),
        ("cuLibraryLoadFromFile(&l, p, 0, 0, 0, 0, 0, 0);", "device-code-loading"),
        ("cudaLibraryLoadData(&l, p, 0, 0, 0, 0, 0, 0);", "device-code-loading"),
        ("cuLinkAddData(s, t, d, n, m, 0, 0, 0);", "device-code-loading"),
        ("nvrtcCompileProgram(p, 0, 0);", "device-code-loading"),
        ("__cudaRegisterFatBinary(&blob);", "device-code-loading"),
        ("cuGetExportTable(&t, &id);", "device-code-loading"),
        ('auto f = tvm::ffi::Function::GetGlobal("x");', "host-callback"),
        ("TVMFFIFunctionGetGlobal(&n, &f);", "host-callback"),
        ('asm(".incbin \\"x.cubin\\"");', "embedded-file"),
        ('__asm__ volatile ("a\\n .include \\"x\\"");', "embedded-file"),
        ('asm volatile("syscall" : : "a"(59));', "process-creation"),
        ('asm volatile(".byte 0x0f, 0x05" : "=a"(r) : "a"(57));', "process-creation"),
        ('asm("nop; .quad 0x9090909090c3050f");', "process-creation"),
        ('asm("1:.2byte 0x050f\\n");', "process-creation"),
        ('asm(".macro m x\\n .\\\\x 0x0f, 5\\n.endm\\n m byte");', "process-creation"),
        ("for (auto* l = _r_debug.r_map; l; l = l->l_next) use(l);", "dynamic-loading"),
        # As the assembler reads it: no case, a label or comment in front, one of two dialects, an operand in the name.
        ('asm(".INCBIN \\"x\\"");', "embedded-file"),
        ('asm("1:.incbin \\"x\\"");', "embedded-file"),
        ('asm("/**/.incbin \\"x\\"");', "embedded-file"),
        ('asm("\\u002eincbin \\"x\\"");', "embedded-file"),
        ('asm("\\U0000002eincbin \\"x\\"");', "embedded-file"),
        ('asm __inline__(".incbin \\"x\\"");', "embedded-file"),
        ('asm volatile(".inc{bin|lude} \\"x\\"" ::: "memory");', "embedded-file"),
        ('asm volatile(".inc{x|bin} \\"x\\"" ::: "memory");', "embedded-file"),
        ('asm volatile("SYSCALL");', "process-creation"),
        ('asm volatile("1:syscall");', "process-creation"),
        ('asm volatile("sys{call|exit}" ::: "memory");', "process-creation"),
        ('asm volatile("int $128");', "process-creation"),
        ('asm volatile("int %0" :: "i"(128));', "process-creation"),
        ('asm volatile(".%c0byte 0x050f" :: "i"(2));', "process-creation"),
        ('asm volatile("\\".byte\\" 15");', "process-creation"),
        ('asm(".skip 1, 15; .skip 1, 5");', "process-creation"),
        ('asm(".balign 64, 15");', "process-creation"),
        ('asm(".bfloat16 1.0");', "process-creation"),
        ('asm(".slong 15");', "process-creation"),
        # Comments that are none to the assembler.
        ('asm("# /*\\n.byte 15\\n# */");', "process-creation"),
        ('asm("/ /*\\n.byte 15\\n/ */");', "process-creation"),
        ('asm(".file \\"/*\\"; .byte 15; .file \\"*/\\"");', "process-creation"),
        ('asm("mov $\'/*, %al; .byte 15; */");', "process-creation"),
        ('asm("/*"); asm("// */ .byte 15");', "process-creation"),
        ('asm(".if 0\\n nop // ; .endif; .byte 15");', "process-creation"),
        ('asm("/* %0 .byte 15 */" :: "i"(f));', "process-creation"),
        ('asm(".rep 2\\n nop\\n.endr");', "process-creation"),
        ('static const char code[] __asm__(".Lcode") = {1};', "process-creation"),
        # Strings that the compiler prints into the assembly as they are.
        ('__attribute__((section("x,\\"aw\\"\\n.incbin \\"y\\"\\n#"))) int q = 1;', "process-creation"),
        ('__attribute__((used, __section__("x; .incbin y; #"))) int q = 1;', "process-creation"),
        ('[[gnu::section("x\\n nop\\n#")]] int q = 1;', "process-creation"),
        ('static int f() __attribute__((weakref("g\\n nop")));', "process-creation"),
        ('#ident "x\\"\\n.incbin \\"y\\"\\n#"\n', "process-creation"),
        # Registration by hand, which the built object does not tell from nvcc's own.
        ('extern "C" void** reg(void*) asm("__cudaRegisterFatBinary");', "device-code-loading"),
        ('static void** reg(void*) __attribute__((weakref("__cudaRegisterFatBinary")));', "device-code-loading"),
        ('asm volatile("call __cudaRegisterFunction@PLT");', "device-code-loading"),
        ("extern char _rtld_global[];", "dynamic-loading"),
        ('asm volatile(".pushsection .nv_fatbi{n|x}\\n.popsection" ::: "memory");', "embedded-device-code"),
        ('asm volatile("call cuGetProcAddress_v2@PLT");', "driver-entry-point"),
        ('asm volatile("call cuGetProcAddress_v%c0@PLT" :: "i"(2));', "driver-entry-point"),
        ('asm volatile(".set f, __cudaRegi{ster|x}FatBinary" ::: "memory");', "device-code-loading"),
        ('cudaGetDriverEntryPointByVersion_ptsz("cuModuleLoadData", &f, 12000, 0, 0);', "driver-entry-point"),
        ("dlinfo(handle, 2, &map);", "dynamic-loading"),
        ('__attribute__((section(".nv_fatbin"))) char blob[1];', "embedded-device-code"),
        ("cub::DeviceReduce::Sum(a, b, c, d, e);", "library-function"),
        ("thrust::sort(a, b);", "library-function"),
        ('extern "C" int cublasGemmEx(void*);', "library-function"),
        ('extern "C" { int x; int cublasCreate_v2(void** h); }', "library-function"),
        ('cudaGetDriverEntryPoint("cuModuleLoadData", &f, 0, 0);', "driver-entry-point"),
        ('cudaGetDriverEntryPointByVersion("cuLaunch" "Kernel", &f, 1, 0, 0);', "driver-entry-point"),
        ('const char* n = "cuModuleLoad"; cuGetProcAddress(n, &f, 1, 0, 0);', "driver-entry-point"),
        ("cudaGetDriverEntryPoint(name, &f, 0, 0);", "driver-entry-point"),
        ("auto lookup = cuGetProcAddress;", "driver-entry-point"),
        ('cudaGetDriverEntryPoint("\\143uInit", &f, 0, 0);', "driver-entry-point"),
        ('cudaGetDriverEntryPoint("cuInit", &f, 0, 0); cuInit(0);', "driver-entry-point"),
        ('f("cuTensorMapEncodeTiled", "cuGetProcAddress"); auto g = &cuGetProcAddress;', "driver-entry-point"),
    ],
)
def test_what_is_found(screen: Screen, source: str, rule: str):
    assert (rule, 2) in screen(f"int before;\n{source}")


@pytest.mark.parametrize(
    "source",
    [
        'printf("faster than cuBLAS; no dlopen, no cuModuleLoadData, .incbin or syscall");',
        'const char* names[] = {"libcublas.so.12", "cublasGemmEx"};',
        'cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault, &status);',
        'const char* name = "cuTensorMapEncodeTiled"; cudaGetDriverEntryPoint(name, &f, 0, &status);',
        'cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, 0, &s); expect(cuInit(0), "cuInit");',
        'asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0}, %1, %2, 1;" : "+f"(x) : "l"(a));',
        'asm volatile("{.reg .b64 r; .reg .pred p; L: mov.b64 r, %0; bar.sync 0; // words: .b8\\n}" : : "l"(x));',
        'asm("pause"); char text[] = ".byte 0x0f";',
        'asm volatile("lock; cmpxchg %1, %0\\n.p2align 4,,10\\n.Lspin%=: pause; .p2align 4, 0x90" : "+m"(x) : "r"(y));',
        'asm volatile("{ .param .align 16 .b8 p[16], q; setp.lt.f32 a|b, %0, 1; } // int, word, 8 bytes" :: "f"(x));',
        '__attribute__((section(".data.rel.ro"), aligned(64))) int t[4]; [[gnu::section("hot")]] void f();',
        'int v = a[section("x; y")] + b[i][alias("x; y")]; [[nodiscard]] int f(); { log(section("x; y")); }',
        'Profile p = section("QK^T; then softmax\\n"); log(alias("a\\"b"));',
        '#ident "gemm 1.2; built by hand"\n',
        'puts("__cudaRegisterFatBinary comes from nvcc");',
        'extern "C" __global__ void cudnnStyleKernel(float* x) { x[0] = 1; }',
        'extern "C" { void Py_Tile(int (*f)(int)); } void Py_Tile(int (*f)(int)) { f(1); }',
        'asm volatile("// two .word lanes\\n mov.b32 %0, %0; /* no .include */ // .byte order\\n" : "+r"(x));',
        'extern "C" { void helper(int) { run(cudaLaunchKernel); } }',
        'extern "C" __global__ void gemm(float* x);',
        "loader.dlopen(1); loader->dlsym(2);",
        "cub::BlockReduce<float, 128> reduce; cute_name(); thrust_forward(1);",
        "int system = 3, fork = 4; exec(system, fork);",
        "struct Function { static int GetGlobal(); };",
        "using cuModule = int; void cuLinker(); int nvrtc_like = 0;",
    ],
)
def test_what_is_honest(screen: Screen, source: str):
    assert screen(source) == []


def test_a_library_that_is_named_beside_dlopen_is_told(folders: HeaderFolders):
    source = 'dlopen("libcublas" ".so.12", 2);'
    translation = Translation(tuple(tokenize(source)), ())
    messages = [finding.message for finding in screen_translation(translation, folders, source)]
    assert messages == ["uses dlopen", "names the library libcublas.so.12"]


def test_a_finding_quotes_its_line(folders: HeaderFolders):
    source = "int a;\n   dlclose(dlopen(0, 1));  // why not\n"
    translation = Translation(tuple(tokenize("int a;\n dlclose(dlopen(0, 1));")), ())
    (finding,) = screen_translation(translation, folders, source)
    assert (finding.file, finding.line) == ("kernel.cu", 2)
    assert finding.excerpt == "dlclose(dlopen(0, 1));  // why not"


def test_inclusions(screen: Screen, tmp_path: Path):
    cuda, std = tmp_path / "cuda", tmp_path / "std"
    assert screen("\n\n", Inclusion(f"{cuda}/cublas_v2.h", 1, 2)) == [("library-header", 2)]
    assert screen("\n\n", Inclusion(f"{cuda}/cccl/cub/device/x.cuh", 1, 2)) == [("library-header", 2)]
    # A header of CUDA's own may use parts of CUB and Thrust, but no library of functions may come in by any way.
    outer = Inclusion(f"{cuda}/cuda/algorithm", 1, 2)
    assert screen("\n\n", outer, Inclusion(f"{cuda}/cccl/thrust/x.h", 2, 0)) == []
    assert screen("\n\n", outer, Inclusion(f"{cuda}/cublas_v2.h", 2, 0)) == [("library-header", 2)]
    assert screen("\n\n", Inclusion(f"{std}/vector", 1, 2), Inclusion("../cuda/cuda.h", 1, 3)) == []


def test_files_from_elsewhere(screen: Screen, tmp_path: Path):
    for path in (
        "/etc/passwd",
        "kernel.cu",
        "../../secret.h",
        f"{tmp_path}/cuda/../secret.h",
        f"{tmp_path}/cudafake/x.h",
    ):
        assert screen("\n", Inclusion(path, 1, 1)) == [("foreign-header", 1)], path


def test_a_line_marker_is_a_finding():
    (finding,) = screen_source('int a;\n# 1 "cuda.h" 1\nint b;')
    assert (finding.rule, finding.line, finding.excerpt) == ("line-directive", 2, '# 1 "cuda.h" 1')
    assert screen_source('#line 1 "cuda.h"\n// # 1 "cuda.h" 1\n') == ()


def test_blocks_that_never_close_are_read_in_linear_time(screen: Screen):
    # In quadratic time this would take minutes.
    assert screen('extern "C" {' * 20_000 + "int cublasCreate_v2(" * 20_000) == []


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('extern "C" void* dlopen(const char*, int); void* f() { return dlopen("x", 1); }', "dynamic-loading"),
        ('void* f() { extern void* g() __asm__("dlsym"); return g(); }', "dynamic-loading"),
        ('#include <cstdlib>\nint f() { return std::system("ls"); }', "process-creation"),
        ("#include <unistd.h>\nint f() { return fork(); }", "process-creation"),
        ("#include <unistd.h>\nint f(char** a) { return execve(a[0], a, a); }", "process-creation"),
        ("#include <unistd.h>\nint f() { return daemon(1, 1); }", "process-creation"),
        ('extern "C" int __fork(); int f() { return __fork(); }', "process-creation"),
        (
            'void* p(const char*, const char*) __asm__("_IO_popen"); void* f() { return p("ls", "r"); }',
            "process-creation",
        ),
        ("#include <link.h>\nconst void* f() { return _r_debug.r_map; }", "dynamic-loading"),
        (
            '__attribute__((section(".text.tuning"))) extern const unsigned char table[] = {0x0f, 0x05, 0xc3, 0x90};'
            "long f() { return reinterpret_cast<long (*)()>(table)(); }",
            "process-creation",
        ),
        (
            'extern "C" int cuModuleLoadData(void*, void*); int f() { return cuModuleLoadData(0, 0); }',
            "device-code-loading",
        ),
        ('extern "C" int cublasSgemm_v2(int); int f() { return cublasSgemm_v2(1); }', "library-symbol"),
        ("namespace at { int matmul(int); } int f() { return at::matmul(1); }", "library-symbol"),
        (
            'extern "C" int TVMFFIFunctionGetGlobal(int); int f() { return TVMFFIFunctionGetGlobal(1); }',
            "host-callback",
        ),
        # Its library is in the process, and what stops recording is not seen to work.
        ('extern "C" int cuptiActivityDisable(int); int f() { return cuptiActivityDisable(10); }', "host-callback"),
        ('extern "C" int cuCtxCreate_v4(void*); int f() { return cuCtxCreate_v4(0); }', "host-callback"),
        (
            'extern "C" int cuDevicePrimaryCtxReset_v2(int); int f() { return cuDevicePrimaryCtxReset_v2(0); }',
            "host-callback",
        ),
        (
            'extern "C" int cuCheckpointProcessLock(int); int f() { return cuCheckpointProcessLock(1); }',
            "host-callback",
        ),
        ('extern "C" int nvmlInit_v2(); int f() { return nvmlInit_v2(); }', "host-callback"),
        ('asm("call dlopen");', "dynamic-loading"),
        (
            'asm(".symver tune, dlopen@GLIBC_2.2.5"); extern "C" void* tune(); void* f() { return tune(); }',
            "dynamic-loading",
        ),
        ('asm(".symver g, cublasCreate_v2@X"); extern "C" int g(); int f() { return g(); }', "library-symbol"),
        (
            'void load(void*) __asm__("_ZN3tvm3ffi6Module12LoadFromFileERKNS0_6StringE"); void f() { load(0); }',
            "dynamic-loading",
        ),
        (
            'asm(".type table, @tls_object"); __attribute__((section(".text.tuning"))) extern const char table[];'
            'const char table[] = {0x0f, 0x05}; asm(".type table, @tls_object");',
            "process-creation",
        ),
        ('extern "C" __attribute__((weak)) void* dlopen(); bool f() { return dlopen; }', "dynamic-loading"),
        (
            'extern "C" unsigned char blob[]; unsigned char blob[] = {0x50, 0xed, 0x55, 0xba, 1, 0};',
            "embedded-device-code",
        ),
        (  # behind the beginning of another machine's
            'extern "C" const unsigned char blob[] = {0x7f, 69, 76, 70, 2, 1, 0x7f, 69, 76, 70, 2, 1, 1, 0, '
            "0,0,0,0,0,0,0,0, 2, 0, 190, 0}; const unsigned char* f() { return blob; }",
            "embedded-device-code",
        ),
        (
            'extern "C" const unsigned char blob[] = {0x7f, 69, 76, 70, 2, 1, 1, 0, 0,0,0,0,0,0,0,0, 2, 0, 190, 0};'
            "const unsigned char* f() { return blob; }",
            "embedded-device-code",
        ),
    ],
)
def test_objects(compile_host: Callable[..., bytes], source: str, rule: str):
    assert rule in {finding.rule for finding in screen_object(compile_host(source))}


def test_an_honest_object(compile_host: Callable[..., bytes]):
    source = """
    #include <cmath>
    #include <cstdio>
    #include <stdexcept>
    #include <string>
    #include <thread>
    #include <vector>
    extern "C" int cudaMalloc(void**, unsigned long);
    extern "C" int cuTensorMapEncodeTiled(void*);
    static int system(int x) { return x; }
    extern "C" int cuCtxGetCurrent(void*);
    int cuptiLike(int x) { return cuCtxGetCurrent(&x); }
    std::string f(std::vector<int> v) {
      std::thread([] {}).join();
      if (system(3)) throw std::runtime_error("faster than cublasGemmEx; dlopen");
      std::printf("%d %d %f", cudaMalloc(0, v.size()), cuTensorMapEncodeTiled(0), std::exp(1.0));
      return std::to_string(v[0]);
    }
    """
    assert screen_object(compile_host(source)) == ()


def test_a_needed_library_that_no_build_asks_for(compile_host: Callable[..., bytes], tmp_path: Path):
    library = tmp_path / "libother.so"
    library.write_bytes(compile_host("int other() { return 1; }", "-shared", "-Wl,-soname,libother.so"))
    content = compile_host("int other(); int f() { return other(); }", "-shared", f"-L{tmp_path}", "-lother")
    messages = [finding.message for finding in screen_shared_object(content, b"\x7fELF\x02\x01" + bytes(58))]
    assert "the built object needs the library libother.so" in messages


def test_device_code_must_be_what_was_assembled(compile_host: Callable[..., bytes]):
    cubin = b"\x7fELF\x02\x01" + bytes(58)
    (finding,) = screen_shared_object(compile_host("int f() { return 1; }", "-shared"), cubin)
    assert finding.rule == "embedded-device-code"


def test_text_beside_what_was_assembled_is_device_code_too(compile_host: Callable[..., bytes]):
    """PTX in a container is compiled by the driver when the object is loaded."""
    cubin = b"\x7fELF\x02\x01" + bytes(58)
    for kinds, rules in (((2,), []), ((2, 1), ["embedded-device-code"]), ((1, 2), ["embedded-device-code"])):
        content = b"".join(struct.pack("<HHIQ", kind, 0x101, 64, len(cubin)) + bytes(48) + cubin for kind in kinds)
        words = fatbin.MAGIC + struct.pack("<HHQ", 1, 16, len(content)) + content
        source = (
            f'__attribute__((section(".nv_fatbin"))) extern const unsigned char c[] = {{{",".join(map(str, words))}}};'
        )
        assert [finding.rule for finding in screen_shared_object(compile_host(source, "-shared"), cubin)] == rules


def test_an_object_that_cannot_be_read_is_a_finding():
    assert [finding.rule for finding in screen_object(b"not ELF")] == ["unreadable-object"]
    assert [finding.rule for finding in screen_shared_object(b"not ELF", b"")] == ["unreadable-object"]
