// The shape of AVX-512 with whatever registers the target has: the same code paths, on any machine.
#define WEFT_LEVEL wide
#define WEFT_LANES 16
#define WEFT_TILE_ROWS 12
#define WEFT_TILE_VECTORS 2
#include "score_kernel.hpp"

extern const weft::Kernels kWideKernels;
const weft::Kernels kWideKernels = weft::wide::kKernels;
