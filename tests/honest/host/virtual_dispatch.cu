// A class hierarchy, std::function, std::variant and a lambda stand between the call and the launch.
#include "hopper_gemm_kernel.cuh"
#include "tile_gemm.cuh"
#include <functional>
#include <memory>
#include <variant>

namespace {

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual bool applicable(const Gemm& p) const = 0;
  virtual void execute(const Gemm& p) const = 0;
};

class Target final : public Strategy {
 public:
  bool applicable(const Gemm& p) const override { return p.m >= 256; }
  void execute(const Gemm& p) const override { wg::launch(p); }
};

class Generic final : public Strategy {
 public:
  bool applicable(const Gemm&) const override { return true; }
  void execute(const Gemm& p) const override { mma::launch(p); }
};

struct Refused {
  int m;
};
using Choice = std::variant<Refused, std::function<void()>>;

Choice chosen(const Gemm& p) {
  static const std::unique_ptr<Strategy> strategies[] = {std::make_unique<Target>(), std::make_unique<Generic>()};
  for (const auto& strategy : strategies)
    if (strategy->applicable(p)) return std::function<void()>([&strategy, p] { strategy->execute(p); });
  return Refused{p.m};
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Choice choice = chosen(gemm_of(A, B, C));
  if (const Refused* refused = std::get_if<Refused>(&choice)) TVM_FFI_THROW(ValueError) << "no strategy for M = " << refused->m;
  std::get<std::function<void()>>(choice)();
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
