// Rounding vectors to byte codes so that their own direction keeps its length.
#pragma once

#include <cstdint>

namespace weft {

// u = 128 + round(x·scale) for `count` vectors of `dim` floats, between 1 and 255.
//
// What matters of a token's rounding error is its product with a query token that is near to the token. So the error along the
// token itself is taken out: of the coordinates that lie near the middle between two codes, a few are rounded to the other side.
// Vectors that are codes already stay as they are.
void round_to_bytes(const float* vectors, int64_t count, int64_t dim, float scale, uint8_t* codes);

}  // namespace weft
