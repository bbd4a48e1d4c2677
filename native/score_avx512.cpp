// AVX-512 (F, BW, VL, DQ): 24 accumulators, 2 query vectors and a broadcast in 32 registers.
#define WEFT_LEVEL avx512
#define WEFT_LANES 16
#define WEFT_TILE_ROWS 12
#define WEFT_TILE_VECTORS 2
#include "score_kernel.hpp"

const weft::Kernels weft::kAvx512Kernels = weft::avx512::kKernels;
