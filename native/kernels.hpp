// What a SIMD level offers: one table of functions, filled by the file compiled for that level.
//
// Only plain data may be declared here. The files that include this header are compiled with different
// instruction sets, so an inline function would exist in several copies, and the linker keeps one of them,
// perhaps the one that this machine cannot run.
#pragma once

#include <cstdint>

namespace weft {

// Whole documents [first_document, last_document) of a ragged collection, row-major: token t starts at
// values + t * dim, document d is tokens [offsets[d], offsets[d + 1]).
struct DocumentBlock {
    const void* values;     // float, or IEEE half as 16-bit patterns
    bool half;
    int64_t dim;
    const int64_t* offsets;
    const float* salience;  // one weight per token, or null for all ones
    const int32_t* k;       // how many tokens each document may align per query token; null means one
    int64_t first_document;
    int64_t last_document;
};

// A run of query tokens, one per lane, transposed into panels of `tile_vectors` vectors (the last panel may
// have fewer). A panel holds, for x = 0 .. dim-1, coordinate x of all its lanes. Lanes beyond the last query
// token are zero; whatever is computed for them is never read.
struct QueryGroup {
    const float* panels;
    int vectors;
};

// Memory the kernels work in, so that they never allocate.
struct Workspace {
    float* tile;   // tile_rows * dim floats
    float* state;  // 2 * kMaxFusedK * vectors * lanes floats
};

// Σ_{j selected} u_j S_ij and Σ_{j selected} u_j of every document (rows) and lane (columns). The rows of empty
// documents are left alone. `masses` is written only where the block has saliences.
struct RowScores {
    float* sums;
    float* masses;
};

// Largest k whose best k similarities are kept beside the multiplication; a larger k is selected from a
// stored similarity matrix.
constexpr int kMaxFusedK = 64;

struct Kernels {
    int lanes;         // floats per vector
    int tile_rows;     // document tokens multiplied at once
    int tile_vectors;  // query vectors multiplied at once
    void (*row_scores)(const DocumentBlock&, const QueryGroup&, const Workspace&, const RowScores&);
    // S of the block's tokens (rows) and the group's lanes (columns)
    void (*similarities)(const DocumentBlock&, const QueryGroup&, const Workspace&, float* out);
};

extern const Kernels kBaselineKernels;
#if defined(WEFT_HAVE_AVX2)
extern const Kernels kAvx2Kernels;
#endif
#if defined(WEFT_HAVE_AVX512)
extern const Kernels kAvx512Kernels;
#endif
#if defined(WEFT_HAVE_NEON)
extern const Kernels kNeonKernels;
#endif

}  // namespace weft
