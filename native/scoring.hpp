// Scores of ragged documents for ragged queries: rows of the SIMD kernels summed over the query tokens.
#pragma once

#include <cstdint>

#include "kernels.hpp"

namespace weft {

struct Queries {
    const float* values;  // (offsets[count], dim)
    const int64_t* offsets;
    int64_t count;
    const float* salience;  // one weight per token, or null for all ones
};

struct Documents {
    const void* values;  // (offsets[count], dim), float or IEEE half
    bool half;
    int64_t dim;
    const int64_t* offsets;
    int64_t count;
    const float* salience;
    const int32_t* k;  // 1 <= k[d] <= length of d (0 if empty), or null for the maximum
};

// Σ_i u_i Σ_{j ∈ top-k(i)} u_j S_ij, and, if `masses` is not null, Σ_i u_i Σ_{j ∈ top-k(i)} u_j: (queries,
// documents) both. Empty queries and documents score 0. The result is the same for every number of threads.
void score(const Kernels&, const Queries&, const Documents&, float* scores, float* masses, int threads);

// S: the similarities of all query tokens (rows) with all document tokens (columns). Each depends on its two tokens alone.
void similarities(const Kernels&, const Queries&, const Documents&, float* out);

// The selected pairs of one query: for document d, query token i and rank r they stand at
// starts[d] + i * k[d] + r, the most similar first, equal ones by document token.
struct Pairs {
    const int64_t* starts;
    int32_t* query_token;
    int32_t* document_token;
    float* similarity;
};
void align(const Kernels&, const Queries&, const Documents&, const Pairs&);

}  // namespace weft
