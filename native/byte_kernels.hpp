// What a SIMD level offers the engine: arithmetic on vectors rounded to bytes, one table of functions per level.
//
// A coded coordinate is u = 128 + round(x · scale), a coded query coordinate q lies within ±63, and
//     dot(u, q) = Σ_d (u_d − 128) · q_d
// always fits 16 bits: byte_query.hpp picks the query's scale so that it must. Query tokens come in pages of 32 lanes.
//
// Only plain data here, and why: kernels.hpp. The widths of rows are functions, in byte_layout.hpp.
#pragma once

#include <cstdint>

namespace weft {

constexpr int kDimMultiple = 4;  // dimensions are multiples of it
constexpr int kPage = 32;        // query tokens scored at once
constexpr int kBlock = 8;        // centroids scored at once
constexpr int kRowShift = 7;     // dot >> 7 is a similarity of 0 … 255; negative ones become 0

// 32 query tokens; lanes beyond the last token are zero.
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

// A sketch is a token in half a byte per four coordinates: sub-vector s of what the token's cell leaves of it is the nearest of
// 16 entries of codebook s. Scored for 32 query tokens at once it is one row of the cell and a row of each sub-vector's table,
// added as signed bytes that stick at their ends: even sub-vectors onto the cell's row, odd ones onto zero, then both.
constexpr int kEntries = 16;
constexpr int kSubVector = 4;
constexpr int kCellBytes = 2;  // a sketch begins with the number of the token's cell, low byte first
// What a table's entry is of a dot product, and a sketch's cell row of a row of similarities (dot >> 7), in 1/2^15, rounded:
// the same unit, in which the ends are at 0.8 of the greatest product.
constexpr int kEntryShare = 172;
constexpr int kCellShare = 22016;

constexpr int kPanel = 16;  // centroids that tokens are compared with at once, where an index is built

struct ByteKernels {
    // best[i] = max(best[i], max over the rows of dot(row, token i)), for the page's tokens
    void (*maxima)(const uint8_t* rows, int64_t count, const QueryPage&, int32_t* best);
    // out[r * 32 + i] = dot(row r, token i)
    void (*dots)(const uint8_t* rows, int64_t count, const QueryPage&, int16_t* out);
    // bit i of masks[r]: dots[r * 32 + i] lies at most 2 · reach[i] below the greatest of its column
    void (*near)(const int16_t* dots, int64_t count, const int16_t* reach, uint32_t* masks);
    // bit i of masks[r]: dots[r * 32 + i] reaches least[i]
    void (*reached)(const int16_t* dots, int64_t count, const int16_t* least, uint32_t* masks);
    // out[i] = Σ (u − 128) · q_i in single precision, for the tokens i of a query (32, dim) whose bit is in the mask
    void (*products)(const uint8_t* row, const float* query, int64_t dim, uint32_t mask, float* out);
    // out[r * 32 + i] = dot(row r, token i) >> 7, within 0 … 255
    void (*similarities)(const uint8_t* rows, int64_t count, const QueryPage&, uint8_t* out);
    // The same for one token and blocks of 8 vectors, stored (dim / 4, 8, 4) each: out[8 * block + lane]
    void (*block_similarities)(const uint8_t* blocks, int64_t count, const QueryPage&, int token, uint8_t* out);
    // out = rows, where positive raised by their row's lift, 255 at the most
    void (*lift)(const uint8_t* rows, int64_t count, const uint8_t* lifts, uint8_t* out);
    // out[i] = the largest value that byte i of at least `wanted` rows reaches, 0 if there is none
    void (*column_thresholds)(const uint8_t* rows, int64_t count, int64_t wanted, uint8_t* out);
    // The same of single bytes
    uint8_t (*threshold)(const uint8_t* values, int64_t count, int64_t wanted);
    // bit i of masks[r]: byte i of row r reaches least[i]
    void (*reach)(const uint8_t* rows, int64_t count, const uint8_t* least, uint32_t* masks);
    // positions, ascending, of the values greater than `limit`; returns how many
    int64_t (*above)(const uint8_t* values, int64_t count, uint8_t limit, int32_t* positions);
    // rows[d] = max(rows[d], row) for the listed d, 32 bytes each
    void (*raise)(uint8_t* rows, const int32_t* listed, int64_t count, const uint8_t* row);
    // sums[r] += Σ of the 32 bytes of row r, which become 0 for the next query
    void (*drain_sums)(uint8_t* rows, int64_t count, uint32_t* sums);
    // out = the coded centroid + the level of each coordinate, held within 0 … 255
    void (*expand)(const uint8_t* packed, int bits, const int8_t* levels, const uint8_t* centroid, int64_t dim, uint8_t* out);
    // Sketch rows of cells from their similarities; 0 for the lanes beyond the page's tokens
    void (*sketch_cells)(const uint8_t* rows, int64_t count, int lanes, int8_t* out);
    // (dim / 4, 16, 32): the rows of all entries of the codebooks, (dim / 4, 16, 4) in the units of the codes
    void (*sketch_table)(const int8_t* codebooks, const QueryPage&, int8_t* table);
    // Σ over the 32 lanes of 128 + the best score of the tokens' sketches, `least` of the lane if that is more; for a cell beyond
    // the last, `last_cell` is taken
    uint32_t (*sketch_sum)(const uint8_t* sketches, int64_t count, int64_t sub_vectors, const int8_t* table,
                           const int8_t* cell_rows, int64_t last_cell, const int8_t* least);
    // out = (u − 128) · inverse
    void (*widen)(const uint8_t* codes, int64_t count, float inverse, float* out);
    // Centroids (count, dim), coordinates within ±127, laid out for `nearest` in count · dim numbers, count a multiple of 16
    void (*pack_centroids)(const int8_t* centroids, int64_t count, int64_t dim, int16_t* packed);
    // of[r] = the centroid c with the greatest 2 · Σ (u − 128) · c + bias[c], of equals the first, and that number
    void (*nearest)(const uint8_t* rows, int64_t count, int64_t dim, const int16_t* packed, const int32_t* bias, int64_t centroids,
                    int32_t* of, int32_t* greatest);
    // numbers[s] = which of the 16 entries of codebook s is nearest to sub-vector s of row − cell, of equals the first;
    // bias (sub-vectors, 16): −|entry|²
    void (*sketch_numbers)(const uint8_t* row, const uint8_t* cell, const int8_t* codebooks, const int32_t* bias, int64_t sub_vectors,
                           uint8_t* numbers);
};

extern const ByteKernels kBaselineBytes;
#if defined(WEFT_HAVE_AVX2)
extern const ByteKernels kAvx2Bytes;
#endif
#if defined(WEFT_HAVE_VNNI)
ByteKernels vnni_bytes(const ByteKernels& others);  // what VNNI does better, and of others what it does not
#endif
#if defined(WEFT_HAVE_NEON)
ByteKernels neon_bytes(const ByteKernels& others);      // what NEON does better
ByteKernels neon_dot_bytes(const ByteKernels& others);  // what its dot product does better
#endif

}  // namespace weft
