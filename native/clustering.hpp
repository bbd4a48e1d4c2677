// Building codebooks from byte codes: which centroid is nearest, k-means, and sketches (byte_kernels.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "byte_kernels.hpp"

namespace weft {

// Byte codes (count, dim).
struct Codes {
    const uint8_t* rows;
    int64_t count;
    int64_t dim;  // a multiple of 4
};

// The nearest of the centroids (centroids, dim), signed bytes in the units of the codes less 128, and the squared distance to it.
void find_nearest(const ByteKernels&, const Codes&, const int8_t* centroids, int64_t count, int32_t* of, float* distance);

// k-means: `rounds` times every row goes to its nearest centroid, and a centroid to the mean of its rows, rounded; one without rows
// stays where it is.
void improve_centroids(const ByteKernels&, const Codes&, int8_t* centroids, int64_t count, int rounds);

// k-means of the sub-vectors that cells leave of rows: `rounds` times an entry goes to the mean of what is nearest to it, rounded.
void improve_codebooks(const ByteKernels&, const Codes&, const uint8_t* cells, const int32_t* of, int8_t* codebooks, int rounds);

// Sketches (rows, sketch_width(dim)) of rows whose cells are given, by the codebooks (dim / 4, 16, 4).
void make_sketches(const ByteKernels&, const Codes&, const uint8_t* cells, const int32_t* of, const int8_t* codebooks, uint8_t* out);

}  // namespace weft
