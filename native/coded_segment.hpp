// A coded segment, and what its arrays hold. probing.hpp finds the few documents worth scoring, reranking.hpp scores them.
#pragma once

#include <cstdint>

#include "byte_kernels.hpp"

namespace weft {

// All arrays are borrowed, checked by the caller, and outlive the calls that are given it.
struct CodedSegment {
    int64_t dim;                 // of the codes, a multiple of 4
    int64_t documents;
    int64_t filled;              // documents with tokens
    const int64_t* offsets;      // (documents + 1)
    int bits;                    // per coordinate: 8, or 4 or 2 for residuals
    const uint8_t* codes;        // (tokens, dim): 128 + round(x · scale); or (tokens, packed_width(dim, bits))
    float scale;
    double norm;                 // no coded vector, decoded, is longer, in units of 1 / scale
    int64_t cells;
    const uint8_t* cell_codes;   // (cells, dim)
    const int32_t* cell_starts;  // (cells + 1): the centroids of a cell
    const int32_t* cell_blocks;  // (cells + 1): its blocks of 8 in centroid_codes
    const uint8_t* centroid_codes;
    const int64_t* list_starts;  // (centroids + 1)
    const int32_t* lists;        // documents of a centroid, ascending; or null and
    const uint16_t* steps;       // from one listed document to the next, beginning at −1; 0: kLongStep on, and none there
    const uint8_t* lifts;        // (cells): what a cell's spread adds to a similarity, see `cell_lift`; or null
    // Sketches (byte_kernels.hpp), or null:
    const int8_t* codebooks;     // (dim / 4, 16, 4)
    const uint8_t* sketches;     // (tokens, sketch_width(dim))
    // With saliences that weigh, or null:
    const float* saliences;      // (tokens)
    const float* mean_weights;   // (documents) their means
    const uint8_t* list_weights; // beside each entry of the lists, in `weight_unit`: the mean of a document's tokens there
    float weight_unit;
    // With residuals only:
    int64_t centroids;
    const uint8_t* centroid_rows;    // (centroids, dim): the same codes as centroid_codes
    const int8_t* levels;            // (kTables, kLevels)
    const uint8_t* token_centroids;  // (tokens, kLabelBytes): kCentroidBits of centroid, 2 of the table of levels; low byte first
};
constexpr double kCodeNorm = 290;  // whoever codes vectors scales the longest to this norm at most; rounding adds √dim/2
constexpr int kTables = 4;         // of levels
constexpr int kCentroidBits = 22;  // of a token's label; the two above them are its table
constexpr int kLabelBytes = 3;
constexpr int kLongStep = 65535;   // what a step of 0 is worth

}  // namespace weft
