// The kernels as a Python module: functions that JAX's foreign function interface calls.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <atomic>
#include <cstring>

#include "kernels.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

using Images = ffi::Buffer<ffi::F32, 4>;
using Key = ffi::Buffer<ffi::U32, 1>;
using Scalar = ffi::Buffer<ffi::F32, 0>;
using Vector = ffi::Buffer<ffi::F32, 1>;
using Matrix = ffi::Buffer<ffi::F32, 2>;
using Gradients = ffi::Buffer<ffi::F32, 5>;

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

// The kernels for this processor; none if it has neither AVX-512 nor AVX2.
std::atomic<const Kernels*> chosen{has_avx512() ? &avx512_kernels
                                   : has_avx2() ? &avx2_kernels
                                                : nullptr};
thread_local Scratch scratch;

ffi::Error refuse(const char* why) { return ffi::Error::InvalidArgument(why); }

// Runs a kernel; no exception may cross into XLA.
template <typename Run>
ffi::Error guarded(Run run) {
  const Kernels* kernels = chosen;
  if (kernels == nullptr) return refuse("this processor has no such instructions");
  try {
    scratch.start();
    run(*kernels);
  } catch (const std::bad_alloc&) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory for a convolution");
  }
  return ffi::Error::Success();
}

Shape shape_of(ffi::Span<const int64_t> in, ffi::Span<const int64_t> out, int64_t kernel,
               int64_t top, int64_t left) {
  return {in[0], in[1], in[2], in[3], out[1], out[2], out[3], kernel, top, left};
}

bool fits(const Shape& s, int64_t width) {
  return (s.kernel == 3 || s.kernel == 5) && s.kernel == width && s.out_channels % 16 == 0;
}

ffi::Error convolve(Images x, Images kernel, ffi::Result<Images> y, int64_t top,
                    int64_t left, bool turned) {
  const auto k = kernel.dimensions();
  const Shape s = shape_of(x.dimensions(), y->dimensions(), k[0], top, left);
  if (!fits(s, k[1]) || s.in_channels % 16 != 0 || k[turned ? 3 : 2] != s.in_channels ||
      k[turned ? 2 : 3] != s.out_channels || s.batch != y->dimensions()[0])
    return refuse("a convolution of these shapes is not among the fast ones");
  return guarded([&](const Kernels& kernels) {
    kernels.convolve(s, x.typed_data(), kernel.typed_data(), turned, y->typed_data(),
                     scratch);
  });
}

ffi::Error kernel_gradients(Images x, Images d, Images mask, ffi::Result<Gradients> g,
                            ffi::Result<Vector> squares, int64_t top, int64_t left) {
  const auto k = g->dimensions();
  const Shape s = shape_of(x.dimensions(), d.dimensions(), k[1], top, left);
  if (!fits(s, k[2]) || k[3] != s.in_channels || k[4] != s.out_channels ||
      s.batch != d.dimensions()[0] || s.batch != k[0] || s.batch != squares->dimensions()[0] ||
      mask.dimensions()[0] != k[1] || mask.dimensions()[1] != k[2] ||
      mask.dimensions()[2] != k[3] || mask.dimensions()[3] != k[4])
    return refuse("kernel gradients of these shapes are not among the fast ones");
  return guarded([&](const Kernels& kernels) {
    kernels.kernel_gradients(s, x.typed_data(), d.typed_data(), mask.typed_data(),
                             g->typed_data(), squares->typed_data(), scratch);
  });
}

ffi::Error weighted_sum(Vector factors, Matrix gradients, ffi::Result<Vector> total) {
  const auto size = gradients.dimensions();
  if (size[0] != factors.dimensions()[0] || size[1] != total->dimensions()[0])
    return refuse("factors, gradients and their sum must have sizes that fit");
  return guarded([&](const Kernels& kernels) {
    kernels.weighted_sum(size[0], size[1], factors.typed_data(), gradients.typed_data(),
                         total->typed_data());
  });
}

ffi::Error add_noise(Vector total, Vector mask, Key key, Scalar scale,
                     ffi::Result<Vector> noisy, int64_t first, int64_t rounds) {
  const int64_t size = total.dimensions()[0];
  if (size != mask.dimensions()[0] || size != noisy->dimensions()[0] ||
      key.dimensions()[0] != 2 || (rounds != 20 && rounds != 13))
    return refuse("noise needs a mask of the same size, a key of two words, 13 or 20 rounds");
  const uint32_t* words = key.typed_data();
  const NoiseKey noise = {{words[0], words[1]}, static_cast<uint32_t>(first),
                          static_cast<int>(rounds), *scale.typed_data()};
  if (chosen == &avx2_kernels) return refuse("noise needs AVX-512");
  return guarded([&](const Kernels& kernels) {
    kernels.add_noise(noise, size, mask.typed_data(), total.typed_data(),
                      noisy->typed_data());
  });
}

XLA_FFI_DEFINE_HANDLER(convolve_handler, convolve,
                       ffi::Ffi::Bind()
                           .Arg<Images>()
                           .Arg<Images>()
                           .Ret<Images>()
                           .Attr<int64_t>("top")
                           .Attr<int64_t>("left")
                           .Attr<bool>("turned"));
XLA_FFI_DEFINE_HANDLER(gradients_handler, kernel_gradients,
                       ffi::Ffi::Bind()
                           .Arg<Images>()
                           .Arg<Images>()
                           .Arg<Images>()
                           .Ret<Gradients>()
                           .Ret<Vector>()
                           .Attr<int64_t>("top")
                           .Attr<int64_t>("left"));
XLA_FFI_DEFINE_HANDLER(sum_handler, weighted_sum,
                       ffi::Ffi::Bind().Arg<Vector>().Arg<Matrix>().Ret<Vector>());
XLA_FFI_DEFINE_HANDLER(noise_handler, add_noise,
                       ffi::Ffi::Bind()
                           .Arg<Vector>()
                           .Arg<Vector>()
                           .Arg<Key>()
                           .Arg<Scalar>()
                           .Ret<Vector>()
                           .Attr<int64_t>("first")
                           .Attr<int64_t>("rounds"));

bool add(PyObject* dict, const char* name, XLA_FFI_Handler* handler) {
  PyObject* capsule = PyCapsule_New(reinterpret_cast<void*>(handler), nullptr, nullptr);
  const bool added = capsule != nullptr && PyDict_SetItemString(dict, name, capsule) == 0;
  Py_XDECREF(capsule);
  return added;
}

PyObject* handlers(PyObject*, PyObject*) {
  PyObject* dict = PyDict_New();
  if (dict == nullptr || chosen == nullptr) return dict;
  if (!add(dict, "convolve", convolve_handler) ||
      !add(dict, "kernel_gradients", gradients_handler) ||
      !add(dict, "weighted_sum", sum_handler) ||
      (has_avx512() && !add(dict, "add_noise", noise_handler)))
    Py_CLEAR(dict);
  return dict;
}

PyObject* instructions(PyObject*, PyObject*) {
  const Kernels* kernels = chosen;
  return PyUnicode_FromString(kernels == &avx512_kernels ? "avx512"
                              : kernels == &avx2_kernels ? "avx2"
                                                         : "");
}

PyObject* choose(PyObject*, PyObject* name) {
  const char* wanted = PyUnicode_AsUTF8(name);
  if (wanted == nullptr) return nullptr;
  if (std::strcmp(wanted, "avx512") == 0 && has_avx512()) {
    chosen = &avx512_kernels;
  } else if (std::strcmp(wanted, "avx2") == 0 && has_avx2()) {
    chosen = &avx2_kernels;
  } else {
    PyErr_SetString(PyExc_ValueError, "this processor has no such instructions");
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"handlers", handlers, METH_NOARGS,
     "Functions for jax.ffi by name; none where the processor cannot run them."},
    {"instructions", instructions, METH_NOARGS, "Instruction set in use."},
    {"choose", choose, METH_O, "Takes another instruction set (for tests)."},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kernels", nullptr, -1, methods};

}  // namespace

PyMODINIT_FUNC PyInit_kernels(void) { return PyModule_Create(&definition); }
