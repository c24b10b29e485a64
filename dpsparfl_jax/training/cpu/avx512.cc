// The kernels for processors with AVX-512.
#include <immintrin.h>

#include "kernels.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,fma,prefer-vector-width=512")
#endif
#define NAMESPACE avx512
#define LANES 16
#define REGISTERS 32
#include "winograd.inc"
#include "convolution.inc"
#include "gradients.inc"
#include "noise.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif

const Kernels avx512_kernels = {avx512::convolve_any, avx512::kernel_gradients_any,
                                avx512::weighted_sum, avx512::add_noise};
