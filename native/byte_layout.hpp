// How wide the rows of byte_kernels.hpp are. A header of its own, because functions may not stand there: include it only where the
// compiler is given no instruction set.
#pragma once

#include <cstdint>

#include "byte_kernels.hpp"

namespace weft {

inline int64_t packed_width(int64_t dim, int bits) { return (dim + kGroup - 1) / kGroup * kGroup * bits / 8; }
inline int64_t sketch_width(int64_t dim) { return kCellBytes + (dim / kSubVector + 1) / 2; }

}  // namespace weft
