// The form for compilers without vector types, in a shape no level uses.
#define WEFT_PLAIN_LANES
#define WEFT_LEVEL plain
#define WEFT_LANES 4
#define WEFT_TILE_ROWS 5
#define WEFT_TILE_VECTORS 3
#include "score_kernel.hpp"

extern const weft::Kernels kPlainKernels;
const weft::Kernels kPlainKernels = weft::plain::kKernels;
