// What a SIMD level offers the engine: arithmetic on vectors rounded to bytes, one table of functions per level.
//
// A coded coordinate is u = 128 + round(x · scale), a coded query coordinate q lies within ±63, and
//     dot(u, q) = Σ_d (u_d − 128) · q_d
// always fits 16 bits: byte_query.hpp picks the query's scale so that it must. Query tokens come in pages of 32 lanes.
//
// Only plain data here, as in kernels.hpp.
#pragma once

#include <cstdint>

namespace weft {

constexpr int kPage = 32;       // query tokens scored at once
constexpr int kBlock = 8;       // centroids scored at once
constexpr int kRowShift = 7;    // dot >> 7 is a similarity of 0 … 255; negative ones become 0

// 32 query tokens. dim is a multiple of 4; lanes beyond the last token are zero.
struct QueryPage {
    const int8_t* panel;     // (dim / 4, 32, 4): four coordinates of every token, then the next four
    const int16_t* bias;     // (32, 2): −128 · Σ q over the even and the odd pairs of coordinates, modulo 2^16
    const int8_t* tokens;    // (32, dim): the same numbers, a token at a time
    int64_t dim;
    int lanes;               // tokens in this page, 1 … 32: results of the lanes beyond are not computed
};

// Residual codes: `bits` (4 or 2) per coordinate, in groups of 32 coordinates of 4 · bits bytes. Coordinate j of a group is
// in byte j mod (4 · bits), at bit bits · (j div (4 · bits)): so that one shift per lane unpacks a group.
constexpr int kGroup = 32;
constexpr int kLevels = 16;  // bytes in a table of levels, of which the first 2^bits count
inline int64_t packed_width(int64_t dim, int bits) { return (dim + kGroup - 1) / kGroup * 4 * bits; }

struct ByteKernels {
    // best[i] = max over the rows of dot(row, token i), for the page's tokens; INT32_MIN where there are no rows
    void (*maxima)(const uint8_t* rows, int64_t count, const QueryPage&, int32_t* best);
    // out[r * 32 + i] = dot(row r, token i) >> 7, within 0 … 255
    void (*similarities)(const uint8_t* rows, int64_t count, const QueryPage&, uint8_t* out);
    // The same for one token and blocks of 8 vectors, stored (dim / 4, 8, 4) each: out[8 * block + lane]
    void (*block_similarities)(const uint8_t* blocks, int64_t count, const QueryPage&, int token, uint8_t* out);
    // rows[d] = max(rows[d], row) for the listed d, 32 bytes each
    void (*raise)(uint8_t* rows, const int32_t* listed, int64_t count, const uint8_t* row);
    // sums[r] += Σ of the 32 bytes of row r, which become 0 for the next query
    void (*drain_sums)(uint8_t* rows, int64_t count, uint32_t* sums);
    // out = the coded centroid + the level of each coordinate, held within 0 … 255
    void (*expand)(const uint8_t* packed, int bits, const int8_t* levels, const uint8_t* centroid, int64_t dim, uint8_t* out);
};

extern const ByteKernels kBaselineBytes;
#if defined(WEFT_HAVE_AVX2)
extern const ByteKernels kAvx2Bytes;
#endif

}  // namespace weft
