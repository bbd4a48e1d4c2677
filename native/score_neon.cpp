// ARM NEON: 24 accumulators, 4 query vectors and a broadcast in 32 registers.
#define WEFT_LEVEL neon
#define WEFT_LANES 4
#define WEFT_TILE_ROWS 6
#define WEFT_TILE_VECTORS 4
#include "score_kernel.hpp"

const weft::Kernels weft::kNeonKernels = weft::neon::kKernels;
