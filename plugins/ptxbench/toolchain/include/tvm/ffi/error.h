// Light TVM-FFI, errors: the exception class, TVM_FFI_THROW and the checks. See tvm_ffi.h.
#ifndef PTXBENCH_LIGHT_TVM_FFI_ERROR_H_
#define PTXBENCH_LIGHT_TVM_FFI_ERROR_H_

#include <tvm/ffi/c_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#if (defined(TVM_FFI_DLL_EXPORT_INCLUDE_METADATA) && TVM_FFI_DLL_EXPORT_INCLUDE_METADATA) || \
    (defined(TVM_FFI_ALWAYS_LOG_BEFORE_THROW) && TVM_FFI_ALWAYS_LOG_BEFORE_THROW)
#error "tvm_ffi light headers: this switch needs the full headers"
#endif

namespace tvm::ffi {

/// An error with a kind (the Python exception it becomes), a message and a backtrace.
class Error : public std::exception {
 public:
  Error(std::string kind, std::string message, std::string backtrace)
      : kind_(std::move(kind)), message_(std::move(message)), backtrace_(std::move(backtrace)) {}

  std::string kind() const { return kind_; }
  std::string message() const { return message_; }
  std::string backtrace() const { return backtrace_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string kind_, message_, backtrace_;
};

namespace detail {

/// Appends values as `std::ostream` would print them, without the price of <sstream>.
class Message {
 public:
  Message& operator<<(const char* text) { return append(text); }
  Message& operator<<(const signed char* text) { return append(reinterpret_cast<const char*>(text)); }
  Message& operator<<(const unsigned char* text) { return append(reinterpret_cast<const char*>(text)); }
  Message& operator<<(const std::string& text) { return append(text); }
  Message& operator<<(char value) { return append(std::string(1, value)); }
  Message& operator<<(signed char value) { return append(std::string(1, static_cast<char>(value))); }
  Message& operator<<(unsigned char value) { return append(std::string(1, static_cast<char>(value))); }
  Message& operator<<(bool value) { return append(value ? "1" : "0"); }
  Message& operator<<(std::nullptr_t) { return append("nullptr"); }
  Message& operator<<(float value) { return *this << static_cast<double>(value); }
  Message& operator<<(double value) { return print("%g", value); }
  Message& operator<<(long double value) { return print("%Lg", value); }
  Message& operator<<(const void* value) { return value == nullptr ? append("0") : print("%p", value); }

  template <typename T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  Message& operator<<(T value) {
    return append(std::to_string(value));
  }

  // Unscoped only, as with a stream: CUDA's status codes print as numbers.
  template <typename T, std::enable_if_t<std::is_enum_v<T> && std::is_convertible_v<T, long long>, int> = 0>
  Message& operator<<(T value) {
    return append(std::to_string(+value));
  }

  Message& operator<<(const DLDataType& dtype) {
    TVMFFIAny text;
    if (TVMFFIDataTypeToString(&dtype, &text) != 0) return append("?");
    if (text.type_index == kTVMFFISmallStr) return append(std::string(text.v_bytes, text.small_str_len));
    const TVMFFIByteArray* bytes = TVMFFIBytesGetByteArrayPtr(text.v_obj);
    append(std::string(bytes->data, bytes->size));
    TVMFFIObjectDecRef(text.v_obj);
    return *this;
  }

  std::string take() { return std::move(text_); }

 private:
  template <typename T>
  Message& append(const T& text) {
    text_ += text;
    return *this;
  }

  template <typename T>
  Message& print(const char* format, T value) {
    char buffer[64];
    std::snprintf(buffer, sizeof(buffer), format, value);
    return append(static_cast<const char*>(buffer));
  }

  std::string text_;
};

/// Throws at the end of the full expression that streamed into it.
class ErrorBuilder {
 public:
  ErrorBuilder(const char* kind, const TVMFFIByteArray* backtrace)
      : kind_(kind), backtrace_(backtrace->data, backtrace->size) {}
  [[noreturn]] ~ErrorBuilder() noexcept(false) { throw Error(kind_, message_.take(), backtrace_); }
  Message& stream() { return message_; }

 private:
  std::string kind_;
  std::string backtrace_;
  Message message_;
};

/// Outcome of a comparing check: converts to true when it failed, and then prints both sides.
class Comparison {
 public:
  Comparison() = default;
  template <typename X, typename Y>
  Comparison(const X& x, const Y& y) : failed_(true) {
    Message message;
    message << " (" << x << " vs. " << y << ") ";
    text_ = message.take();
  }
  explicit operator bool() const { return failed_; }
  const std::string& text() const { return text_; }

 private:
  bool failed_ = false;
  std::string text_;
};

// The int overload keeps class constants that have no address usable in a check.
#define PTXBENCH_TVM_FFI_DEFINE_COMPARE(name, op)                 \
  template <typename X, typename Y>                               \
  inline Comparison Compare##name(const X& x, const Y& y) {       \
    return (x op y) ? Comparison() : Comparison(x, y);            \
  }                                                               \
  inline Comparison Compare##name(int x, int y) { return (x op y) ? Comparison() : Comparison(x, y); }
PTXBENCH_TVM_FFI_DEFINE_COMPARE(LT, <)
PTXBENCH_TVM_FFI_DEFINE_COMPARE(GT, >)
PTXBENCH_TVM_FFI_DEFINE_COMPARE(LE, <=)
PTXBENCH_TVM_FFI_DEFINE_COMPARE(GE, >=)
PTXBENCH_TVM_FFI_DEFINE_COMPARE(EQ, ==)
PTXBENCH_TVM_FFI_DEFINE_COMPARE(NE, !=)
#undef PTXBENCH_TVM_FFI_DEFINE_COMPARE

}  // namespace detail

#define TVM_FFI_THROW(ErrorKind)                                                                              \
  ::tvm::ffi::detail::ErrorBuilder(#ErrorKind, TVMFFIBacktrace(__FILE__, __LINE__, __PRETTY_FUNCTION__, 0)) \
      .stream()

#define TVM_FFI_CHECK(cond, ErrorKind) \
  if (__builtin_expect(!(cond), 0)) TVM_FFI_THROW(ErrorKind) << "Check failed: (" #cond ") is false: "

#define PTXBENCH_TVM_FFI_COMPARE(name, op, x, y, ErrorKind)                     \
  if (auto ptxbench_tvm_ffi_failed = ::tvm::ffi::detail::Compare##name(x, y)) \
  TVM_FFI_THROW(ErrorKind) << "Check failed: " #x " " #op " " #y << ptxbench_tvm_ffi_failed.text() << ": "

#define TVM_FFI_CHECK_LT(x, y, ErrorKind) PTXBENCH_TVM_FFI_COMPARE(LT, <, x, y, ErrorKind)
#define TVM_FFI_CHECK_GT(x, y, ErrorKind) PTXBENCH_TVM_FFI_COMPARE(GT, >, x, y, ErrorKind)
#define TVM_FFI_CHECK_LE(x, y, ErrorKind) PTXBENCH_TVM_FFI_COMPARE(LE, <=, x, y, ErrorKind)
#define TVM_FFI_CHECK_GE(x, y, ErrorKind) PTXBENCH_TVM_FFI_COMPARE(GE, >=, x, y, ErrorKind)
#define TVM_FFI_CHECK_EQ(x, y, ErrorKind) PTXBENCH_TVM_FFI_COMPARE(EQ, ==, x, y, ErrorKind)
#define TVM_FFI_CHECK_NE(x, y, ErrorKind) PTXBENCH_TVM_FFI_COMPARE(NE, !=, x, y, ErrorKind)

#define TVM_FFI_ICHECK(x) TVM_FFI_CHECK(x, InternalError)
#define TVM_FFI_ICHECK_LT(x, y) TVM_FFI_CHECK_LT(x, y, InternalError)
#define TVM_FFI_ICHECK_GT(x, y) TVM_FFI_CHECK_GT(x, y, InternalError)
#define TVM_FFI_ICHECK_LE(x, y) TVM_FFI_CHECK_LE(x, y, InternalError)
#define TVM_FFI_ICHECK_GE(x, y) TVM_FFI_CHECK_GE(x, y, InternalError)
#define TVM_FFI_ICHECK_EQ(x, y) TVM_FFI_CHECK_EQ(x, y, InternalError)
#define TVM_FFI_ICHECK_NE(x, y) TVM_FFI_CHECK_NE(x, y, InternalError)

}  // namespace tvm::ffi

#endif  // PTXBENCH_LIGHT_TVM_FFI_ERROR_H_
