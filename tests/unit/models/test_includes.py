"""Headers put in where they are included: the result means what the files meant."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ptxbench.models.includes import MAX_LENGTH, Inlining

FILES = {
    "src/main.cu": """\
// #include "../inc/a.h"
/*
#include "../inc/a.h"
*/
static const char* text = "/*"; static const char* more = R"x(
#include "../inc/a.h"
)x";
#ifdef NEVER
  #include "../inc/a.h"
  #include "once.h"
#endif
  # include "../inc/a.h" // why
#include "once.h" /* a comment of
two lines */
#include "once.h"
#define ENTRY(x) case_##x
#include "list.inc"
#undef ENTRY
#define ENTRY(x) name_##x
#include "list.inc"
#include "root.h"
#include <stdint.h>
end A
""",
    "inc/a.h": '#ifndef A_H\n#define A_H\n#include "./a.h"\n#define A 1\na_h\n#endif',
    "src/once.h": "#pragma once\nonce_h // the last line",
    "src/list.inc": "ENTRY(one) ENTRY(two)\n",
    "root.h": "found from the root\n",
}


def test_what_is_put_in_where() -> None:
    inlining = Inlining(FILES)
    text = inlining.text("src/main.cu")
    assert inlining.used == set(FILES)
    # Comments and literals stay as they are, and put nothing in.
    assert text.startswith(FILES["src/main.cu"][: FILES["src/main.cu"].index("#ifdef NEVER")])
    assert "pragma" not in text
    assert "#include <stdint.h>" in text
    assert "// why" in text


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ preprocessor")
def test_the_preprocessor_sees_the_same(tmp_path: Path) -> None:
    for path, content in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(content)
    (tmp_path / "one.cu").write_text(Inlining(FILES).text("src/main.cu"))

    def words(path: str) -> list[str]:
        command = ["g++", "-E", "-P", "-x", "c++", "-I", str(tmp_path), str(tmp_path / path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    found = words("one.cu")
    assert found == words("src/main.cu")
    assert found.count("a_h") == found.count("once_h") == found.count("case_one") == found.count("name_one") == 1
    assert found[-2:] == ["end", "1"]


@pytest.mark.parametrize(
    ("included", "outside"),
    [
        ("../../x.h", True),
        ("../..", True),
        ("/etc/x.h", True),
        ("../x.h", False),
        ("x.h", False),
        ("b/../../x.h", False),
    ],
)
def test_what_is_outside_is_refused_and_what_is_unknown_left(included: str, outside: bool) -> None:
    line = f'#include "{included}"\n'
    inlining = Inlining({"src/main.cu": line})
    if outside:
        with pytest.raises(ValueError, match=r"src/main.cu includes '.*', which is outside of its sources"):
            inlining.text("src/main.cu")
    else:
        assert inlining.text("src/main.cu") == line


def test_headers_that_grow_without_end() -> None:
    files = {f"{n}.h": f'#include "{n + 1}.h"\n' * 2 for n in range(40)} | {"40.h": "x" * 100}
    with pytest.raises(ValueError, match=f"more than {MAX_LENGTH} characters"):
        Inlining(files).text("0.h")
