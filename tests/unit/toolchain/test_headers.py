from pathlib import Path

import pytest

from ptxbench.toolchain import headers
from ptxbench.toolchain.headers import header_choices

MAIN = "#include <tvm/ffi/tvm_ffi.h>\n"


@pytest.mark.parametrize(
    ("source", "choices"),
    [
        ("int x;", ("light",)),
        ("#include <tvm/ffi/extra/c_env_api.h>\n", ("light",)),
        (MAIN + "void run(tvm::ffi::TensorView);", ("light", "full")),
        (MAIN + '  #  include "tvm/ffi/container/tensor.h"\n', ("light", "full")),
        (MAIN + "#include <tvm/ffi/container/array.h>\n", ("full",)),
        (MAIN + "tvm::ffi::Tensor t;", ("full",)),
        (MAIN + "namespace ffi = tvm::ffi; ffi::Array<int> a;", ("full",)),
        (MAIN + "TVM_FFI_ICHECK_NOTNULL(p);", ("full",)),
    ],
)
def test_choices(source: str, choices: tuple[str, ...]):
    assert header_choices(source) == choices


def test_every_light_header_exists_in_the_full_ones(tools):
    for name in headers.light_headers():
        assert (tools.tvm_ffi.include_dir / name).is_file(), name


def test_links_lead_to_the_headers(tools, tmp_path: Path):
    headers.link_headers(tmp_path, tools.tvm_ffi.include_dir)
    light, full = headers.include_dirs("light")
    assert (tmp_path / light / "tvm/ffi/tvm_ffi.h").read_text().startswith("// A light front")
    assert (tmp_path / full / "tvm/ffi/c_api.h").is_file()
    assert headers.include_dirs("full") == (full,)


def test_the_digest_follows_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    digests = []
    for text in ("a", "b"):
        (tmp_path / "x.h").write_text(text)
        monkeypatch.setattr(headers, "LIGHT_DIR", tmp_path)
        headers.light_headers.cache_clear()
        headers.light_digest.cache_clear()
        digests.append(headers.light_digest())
    monkeypatch.undo()
    headers.light_headers.cache_clear()
    headers.light_digest.cache_clear()
    assert len({*digests, headers.light_digest()}) == 3
