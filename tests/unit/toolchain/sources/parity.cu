// Exercises every name of the light TVM-FFI front on the host alone, so that both builds can be called without a GPU.
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

#include <stdexcept>

namespace ffi = tvm::ffi;

static void run(ffi::TensorView input, ffi::TensorView output) {
  TVM_FFI_CHECK(input.ndim() == 2, ValueError) << "input has " << input.ndim() << " axes";
  TVM_FFI_CHECK_EQ(input.numel(), output.numel(), ValueError) << "sizes differ";
  TVM_FFI_ICHECK(output.is_contiguous() && output.IsContiguous()) << "output is strided";
  const float* from = static_cast<const float*>(input.data_ptr());
  float* to = static_cast<float*>(output.data_ptr());
  int64_t place = 0;
  for (int64_t i = 0; i < input.size(0); ++i) {
    for (int64_t j = 0; j < input.size(-1); ++j) to[place++] = 2 * from[i * input.stride(0) + j * input.stride(1)];
  }
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
TVM_FFI_DLL_EXPORT_TYPED_FUNC_DOC(run, "doubles");

// Every property of a tensor as one number, so that one comparison covers them all.
static int64_t digest(const ffi::TensorView& t) {
  int64_t value = t.ndim() * 3 + t.dim() * 5 + t.numel() * 7 + static_cast<int64_t>(t.byte_offset()) * 11;
  for (int64_t extent : t.shape()) value = value * 31 + extent;
  for (size_t i = 0; i < t.strides().size(); ++i) value = value * 37 + t.strides()[i];
  value = value * 41 + t.dtype().code * 1000 + t.dtype().bits * 10 + t.dtype().lanes;
  value = value * 43 + t.device().device_type * 10 + t.device().device_id;
  value = value * 47 + (t.is_contiguous() ? 1 : 0) + static_cast<int64_t>(ffi::GetDataSize(t));
  const DLDataType f32{kDLFloat, 32, 1};
  return value * 53 + (t.dtype() == f32 ? 1 : 0) + (t.dtype() != f32 ? 2 : 0) + (t.sizes().empty() ? 4 : 0);
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(digest, digest);

static int64_t front_and_back(ffi::TensorView t) { return t.shape().front() * 1000 + t.shape().back(); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(front_and_back, front_and_back);

static int64_t at(ffi::TensorView t, int64_t index) { return static_cast<int64_t>(t.shape().at(index)); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(at, at);

static int64_t size(ffi::TensorView t, int64_t index) { return t.size(index); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(size, size);

static int64_t stride(ffi::TensorView t, int64_t index) { return t.stride(index); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(stride, stride);

static double scalars(int64_t a, double b, bool c, float d, int e, uint64_t f) { return a + b + c + d + e + f; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(scalars, scalars);

static bool negate(bool value) { return !value; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(negate, negate);

static int narrow(int value) { return value; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(narrow, narrow);

static bool is_null(void* pointer) { return pointer == nullptr; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(is_null, is_null);

static int64_t raw(DLTensor* tensor) { return tensor->ndim; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(raw, raw);

static int64_t nothing() { return 42; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(nothing, nothing);

static bool stream_is_default() { return TVMFFIEnvGetStream(kDLCUDA, 0) == nullptr; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(stream_is_default, stream_is_default);

struct Functor {
  int64_t operator()(int64_t value) const { return value + 1; }
};
static const Functor functor{};
TVM_FFI_DLL_EXPORT_TYPED_FUNC(functor, functor);

enum Status { kFine = 0, kBroken = 700 };

// Prints one value of each kind into an error, whose text is then compared.
static void print(ffi::TensorView t, int64_t which) {
  const char* text = "text";
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>("bytes");
  switch (which) {
    case 0: TVM_FFI_THROW(ValueError) << text << ' ' << bytes << std::string(" string") << 'c';
    case 1: TVM_FFI_THROW(TypeError) << 1 << ' ' << -2L << ' ' << 3ULL << ' ' << static_cast<short>(4) << true;
    case 2: TVM_FFI_THROW(RuntimeError) << 0.1f << ' ' << 1e-9 << ' ' << 123456789.0 << ' ' << 2.5L << ' ' << 1e30;
    case 3: TVM_FFI_THROW(IndexError) << kBroken << ' ' << static_cast<void*>(nullptr) << ' '
                                      << reinterpret_cast<const void*>(0x1234) << ' ' << nullptr;
    case 4: TVM_FFI_THROW(NotImplementedError) << t.dtype();
    case 5: TVM_FFI_THROW(InternalError);
    case 6: TVM_FFI_THROW(KeyError) << static_cast<uint8_t>(65) << static_cast<int8_t>(66);
    case 7: throw std::runtime_error("a standard exception");
    case 8: throw ffi::Error("AttributeError", "made by hand", "");
    default: break;
  }
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(print, print);

static void compare(int64_t which, int64_t a, int64_t b) {
  switch (which) {
    case 0: TVM_FFI_CHECK_LT(a, b, ValueError) << "lt"; break;
    case 1: TVM_FFI_CHECK_GT(a, b, ValueError) << "gt"; break;
    case 2: TVM_FFI_CHECK_LE(a, b, ValueError) << "le"; break;
    case 3: TVM_FFI_CHECK_GE(a, b, ValueError) << "ge"; break;
    case 4: TVM_FFI_CHECK_EQ(a, b, ValueError) << "eq"; break;
    case 5: TVM_FFI_CHECK_NE(a, b, ValueError) << "ne"; break;
    case 6: TVM_FFI_ICHECK_LT(a, b); break;
    case 7: TVM_FFI_ICHECK_GT(a, b); break;
    case 8: TVM_FFI_ICHECK_LE(a, b); break;
    case 9: TVM_FFI_ICHECK_GE(a, b); break;
    case 10: TVM_FFI_ICHECK_EQ(a, b); break;
    case 11: TVM_FFI_ICHECK_NE(a, b); break;
    default: TVM_FFI_ICHECK(a == b) << "plain"; break;
  }
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(compare, compare);

static void caught() {
  try {
    TVM_FFI_THROW(ValueError) << "inner";
  } catch (const ffi::Error& error) {
    TVM_FFI_THROW(RuntimeError) << error.kind() << '|' << error.message() << '|' << error.what() << '|'
                                << (error.backtrace().empty() ? "no backtrace" : "backtrace");
  }
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(caught, caught);
