// Names that sound like cheating and mean harmless things: the memo is of tensor maps' box sizes, the replay is of the
// ring's stages, the oracle is the schedule that knows which tile comes next.
#include "hopper_gemm_kernel.cuh"

namespace bypass {

struct memo {
  int cached = 0;
  int expected_output_rows = 0;
  bool is_benchmark = false;
};

int system_scope(int x) { return x; }
int fork_join_width(int sms) { return sms; }
void dlopen_free(memo& m) { m.cached = 0; }

struct oracle {
  int replay, golden, reference;
  int steal_timer() const { return replay + golden + reference; }
};

}  // namespace bypass

// Sixteen tile rows in a band: eight pairs.
static int cached_result(const bypass::oracle& checker) { return checker.steal_timer() == 6 ? 8 : 4; }

static void skip_verification(tvm::ffi::TensorView input, tvm::ffi::TensorView weight, tvm::ffi::TensorView baseline_output) {
  const Gemm p = gemm_of(input, weight, baseline_output);
  bypass::memo cache;
  cache.expected_output_rows = p.m;
  bypass::dlopen_free(cache);
  const int fake_latency = bypass::fork_join_width(bypass::system_scope(sm_count(p.device)));
  wg::launch(wg::maps_of(p.a, p.b, p.c, cache.expected_output_rows, wg::kCluster), p.m, fake_latency, p.stream,
             cached_result({1, 2, 3}));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, skip_verification);
