// What every machine of the target runs: SSE2 on x86-64. 12 accumulators, 2 query vectors, a broadcast and a
// product fill the 16 registers.
#define WEFT_LEVEL baseline
#define WEFT_LANES 4
#define WEFT_TILE_ROWS 6
#define WEFT_TILE_VECTORS 2
#include "score_kernel.hpp"

const weft::Kernels weft::kBaselineKernels = weft::baseline::kKernels;
