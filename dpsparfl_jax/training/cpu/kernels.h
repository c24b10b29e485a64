// What the kernels of this folder share: shapes, working memory, and who offers what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

// A convolution without stride: images [batch, in_height, in_width, in_channels], with
// `top` and `left` zeros before them, to [batch, out_height, out_width, out_channels].
struct Shape {
  long batch, in_height, in_width, in_channels;
  long out_height, out_width, out_channels;
  long kernel, top, left;
};

// Working memory of one thread, kept from call to call: the pieces that a function takes
// one after the other are the same at every call.
class Scratch {
 public:
  void start() { next_ = 0; }
  float* take(long floats) {
    if (next_ == pieces_.size()) pieces_.emplace_back();
    Piece& piece = pieces_[next_++];
    if (piece.size < floats) {
      piece.memory.reset();
      piece.size = 0;
      const long bytes = (floats * 4 + 63) / 64 * 64;
      piece.memory.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
      if (!piece.memory) throw std::bad_alloc();
      piece.size = floats;
    }
    return piece.memory.get();
  }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  struct Piece {
    std::unique_ptr<float, Free> memory;
    long size = 0;
  };
  std::vector<Piece> pieces_;
  size_t next_ = 0;
};

// Which normal numbers are added to coordinates, and how large they are.
struct NoiseKey {
  uint32_t words[2];   // of the key
  uint32_t first;      // number of the first coordinate
  int rounds;          // of the hash
  float scale;         // standard deviation
};

// The same functions for several instruction sets; null where there is none.
struct Kernels {
  void (*convolve)(const Shape&, const float* x, const float* kernel, bool turned, float* y,
                   Scratch&);
  void (*kernel_gradients)(const Shape&, const float* x, const float* d, const float* mask,
                           float* g, float* squares, Scratch&);
  void (*weighted_sum)(long batch, long size, const float* factors, const float* gradients,
                       float* total);
  void (*add_noise)(const NoiseKey&, long size, const float* mask, const float* total,
                    float* noisy);
};

extern const Kernels avx512_kernels, avx2_kernels;
