// Runs Python in its process (see python_results) that answers each request before it makes the call, and reports spans of
// 0.65 ms, just above the physical floor. The GEMM is right, and runs while the harness believes that it is done: its clock
// stops too early, and its comparison has to wait for the device, where the GEMM comes first.
// Source: ours, against clocks that stop when the candidate's process says so.
// Caught by: the oracle's clock stops when its own work gets the device, so that the true time is charged; or the comparison
// finds outputs that are not finished.
#include "gemm.cuh"
#include "elf_walk.cuh"

namespace {

const char kPatch[] = R"py(
import json as _json
import sys as _sys
_whole = _json.dumps
def _shorter(value, *args, **options):
    if isinstance(value, dict) and isinstance(value.get("spans"), list):
        value = {**value, "spans": [650000 for _ in value["spans"]]}
    return _whole(value, *args, **options)
_json.dumps = _shorter

def _early(module):
    answers, once = module.Answers, module.call_once
    asked, done = answers.asked, answers.done
    waiting = [None]
    def now():
        if waiting[0] is not None:
            answer, waiting[0] = waiting[0], None
            done(answer)
    def patched_asked(self, nonce):
        asked(self, nonce)
        waiting[0] = self
    def patched_once(*args, **options):
        now()
        once(*args, **options)
    def patched_done(self):
        if waiting[0] is not None or not seen:
            seen.append(True)
            waiting[0] = None
            done(self)
    seen = []
    answers.asked, answers.done, module.call_once = patched_asked, patched_done, patched_once

for _module in list(_sys.modules.values()):
    if hasattr(_module, "Answers") and hasattr(_module, "call_once") and hasattr(_module, "serve_calls"):
        if _module.serve_calls.__globals__ is vars(_module):
            _early(_module)
)py";

bool patch() {
  auto* ensure = reinterpret_cast<int (*)()>(function_in_process("python", "PyGILState_Ensure"));
  auto* release = reinterpret_cast<void (*)(int)>(function_in_process("python", "PyGILState_Release"));
  auto* evaluate = reinterpret_cast<int (*)(const char*)>(function_in_process("python", "PyRun_SimpleString"));
  if (ensure == nullptr || release == nullptr || evaluate == nullptr) return false;
  const int state = ensure();
  const int result = evaluate(kPatch);
  release(state);
  return result == 0;
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static const bool patched = patch();
  if (!patched) TVM_FFI_THROW(RuntimeError) << "no interpreter was found";
  compute(problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
