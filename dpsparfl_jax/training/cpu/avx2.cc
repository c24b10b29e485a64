// The kernels for processors with AVX2.
#include "kernels.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define NAMESPACE avx2
#define LANES 8
#define REGISTERS 16
#include "winograd.inc"
#include "convolution.inc"
#include "gradients.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif

const Kernels avx2_kernels = {avx2::convolve_any, avx2::kernel_gradients_any,
                              avx2::weighted_sum, nullptr};
