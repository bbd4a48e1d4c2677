// AVX2 with FMA and F16C: 12 accumulators, 2 query vectors and a broadcast in 16 registers.
#define WEFT_LEVEL avx2
#define WEFT_LANES 8
#define WEFT_TILE_ROWS 6
#define WEFT_TILE_VECTORS 2
#include "score_kernel.hpp"

const weft::Kernels weft::kAvx2Kernels = weft::avx2::kKernels;
