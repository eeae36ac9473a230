// Light TVM-FFI, functions: exporting one with typed parameters. See tvm_ffi.h.
#ifndef PTXBENCH_LIGHT_TVM_FFI_FUNCTION_H_
#define PTXBENCH_LIGHT_TVM_FFI_FUNCTION_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

namespace tvm::ffi {

namespace detail {

/// How a parameter type reads an argument: its name in messages, and `read`, which is false for a wrong type.
template <typename T, typename = void>
struct Parameter {
  static_assert(sizeof(T) == 0, "tvm_ffi light headers: this parameter type needs the full headers");
};

template <>
struct Parameter<DLTensor*> {
  static constexpr const char* name = "DLTensor*";
  static bool read(const TVMFFIAny& value, DLTensor** out) {
    if (value.type_index == kTVMFFIDLTensorPtr) {
      *out = static_cast<DLTensor*>(value.v_ptr);
      return true;
    }
    if (value.type_index != kTVMFFITensor) return false;
    *out = TVMFFITensorGetDLTensorPtr(value.v_obj);
    return true;
  }
  using Storage = DLTensor*;
};

template <>
struct Parameter<TensorView> : Parameter<DLTensor*> {};

template <>
struct Parameter<void*> {
  static constexpr const char* name = "void*";
  static bool read(const TVMFFIAny& value, void** out) {
    *out = value.type_index == kTVMFFIOpaquePtr ? value.v_ptr : nullptr;
    return value.type_index == kTVMFFIOpaquePtr || value.type_index == kTVMFFINone;
  }
  using Storage = void*;
};

template <typename T>
struct Parameter<T, std::enable_if_t<std::is_integral_v<T>>> {
  static constexpr const char* name = std::is_same_v<T, bool> ? "bool" : "int";
  static bool read(const TVMFFIAny& value, T* out) {
    *out = static_cast<T>(value.v_int64);
    return value.type_index == kTVMFFIInt || value.type_index == kTVMFFIBool;
  }
  using Storage = T;
};

template <typename T>
struct Parameter<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  static constexpr const char* name = "float";
  static bool read(const TVMFFIAny& value, T* out) {
    const bool integer = value.type_index == kTVMFFIInt || value.type_index == kTVMFFIBool;
    *out = integer ? static_cast<T>(value.v_int64) : static_cast<T>(value.v_float64);
    return integer || value.type_index == kTVMFFIFloat;
  }
  using Storage = T;
};

template <typename T>
constexpr const char* type_name() {
  if constexpr (std::is_void_v<T>) {
    return "void";
  } else {
    return Parameter<std::decay_t<T>>::name;
  }
}

/// The parameters of an exported function.
template <typename R, typename... Args>
struct Signature {
  static_assert(((!std::is_lvalue_reference_v<Args> || std::is_const_v<std::remove_reference_t<Args>>) && ...),
                "tvm_ffi light headers: parameters are passed by value or const reference");
  // 64-bit unsigned results can overflow the ABI's signed integer; the full headers check that.
  static_assert(std::is_void_v<R> || (std::is_arithmetic_v<R> && !std::is_same_v<R, unsigned long> &&
                                      !std::is_same_v<R, unsigned long long>),
                "tvm_ffi light headers: this result type needs the full headers");

  static std::string text(const char* function) {
    std::string text = std::string(function) + "(";
    size_t position = 0;
    ((text += (position == 0 ? "" : ", ") + std::to_string(position) + ": " + type_name<Args>(), ++position), ...);
    return text + ") -> " + type_name<R>();
  }
};

template <typename R, typename... Args>
Signature<R, Args...> signature(R (*)(Args...));
template <typename R, typename F, typename... Args>
Signature<R, Args...> signature(R (F::*)(Args...));
template <typename R, typename F, typename... Args>
Signature<R, Args...> signature(R (F::*)(Args...) const);

/// Converts itself to the parameter it is passed to, or throws TypeError.
template <typename Arg, typename Sig>
struct Argument {
  const char* function;
  const TVMFFIAny* args;
  size_t index;

  operator std::decay_t<Arg>() const {
    typename Parameter<std::decay_t<Arg>>::Storage value{};
    if (!Parameter<std::decay_t<Arg>>::read(args[index], &value)) {
      const TVMFFIByteArray& found = TVMFFIGetTypeInfo(args[index].type_index)->type_key;
      TVM_FFI_THROW(TypeError) << "Mismatched type on argument #" << index << " when calling: `" << Sig::text(function)
                               << "`. Expected `" << type_name<Arg>() << "` but got `"
                               << std::string(found.data, found.size) << '`';
    }
    return value;
  }
};

template <typename R>
void store(TVMFFIAny* result, R value) {
  result->zero_padding = 0;
  if constexpr (std::is_floating_point_v<R>) {
    result->type_index = kTVMFFIFloat;
    result->v_float64 = static_cast<double>(value);
  } else {
    result->type_index = std::is_same_v<R, bool> ? kTVMFFIBool : kTVMFFIInt;
    result->v_int64 = static_cast<int64_t>(value);
  }
}

template <typename F, typename R, typename... Args, size_t... I>
void unpack(const F& callee, const char* function, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result,
            Signature<R, Args...>, std::index_sequence<I...>) {
  using Sig = Signature<R, Args...>;
  if (static_cast<size_t>(num_args) != sizeof...(Args)) {
    TVM_FFI_THROW(TypeError) << "Mismatched number of arguments when calling: `" << Sig::text(function)
                             << "`. Expected " << sizeof...(Args) << " but got " << num_args << " arguments";
  }
  if constexpr (std::is_void_v<R>) {
    callee(Argument<Args, Sig>{function, args, I}...);
  } else {
    store<R>(result, callee(Argument<Args, Sig>{function, args, I}...));
  }
}

template <typename F, typename R, typename... Args>
void unpack(const F& callee, const char* function, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result,
            Signature<R, Args...> kind) {
  unpack(callee, function, args, num_args, result, kind, std::index_sequence_for<Args...>{});
}

inline int raise(const std::string& kind, const std::string& message, const std::string& backtrace) {
  const TVMFFIByteArray parts[] = {
      {kind.data(), kind.size()}, {message.data(), message.size()}, {backtrace.data(), backtrace.size()}};
  TVMFFIObjectHandle error = nullptr;
  if (TVMFFIErrorCreate(&parts[0], &parts[1], &parts[2], &error) == 0) {
    TVMFFIErrorSetRaised(error);
    TVMFFIObjectDecRef(error);
  }
  return -1;
}

/// Calls `callee` with the C ABI's arguments; 0, or -1 with the error left for the caller as the ABI asks.
template <typename F>
int invoke(const F& callee, const char* function, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  try {
    if constexpr (std::is_pointer_v<F> || std::is_function_v<F>) {
      unpack(callee, function, args, num_args, result, decltype(signature(callee)){});
    } else {
      unpack(callee, function, args, num_args, result, decltype(signature(&F::operator())){});
    }
    return 0;
  } catch (const Error& error) {
    return raise(error.kind(), error.message(), error.backtrace());
  } catch (const std::exception& error) {
    return raise("InternalError", error.what(), "");
  }
}

}  // namespace detail

#define TVM_FFI_DLL_EXPORT_TYPED_FUNC(ExportName, Function)                                                       \
  extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_##ExportName(void*, const TVMFFIAny* args, int32_t num_args,      \
                                                           TVMFFIAny* result) {                                 \
    return ::tvm::ffi::detail::invoke(Function, #ExportName, args, num_args, result);                           \
  }
#define TVM_FFI_DLL_EXPORT_TYPED_FUNC_DOC(ExportName, DocString)

}  // namespace tvm::ffi

#endif  // PTXBENCH_LIGHT_TVM_FFI_FUNCTION_H_
