// Finding the few documents worth scoring, and scoring them from byte codes.
//
//   candidates: query tokens → best cells → best centroids in them → documents listed there.
//               A document's similarity for a token is that of its best centroid probed, and for a token that probed none of
//               its centroids the similarity at which probing stopped: XTR's imputation (eq. 4), on centroids.
//   rerank:     sum-of-max over the candidates' codes in integers, best candidates first; the top few again with the
//               unrounded query and the alignment asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "byte_kernels.hpp"
#include "kernels.hpp"

namespace weft {

// A coded segment. All arrays are borrowed, checked by the caller, and outlive the calls below.
struct EngineData {
    int64_t dim;                 // of the codes, a multiple of 4
    int64_t documents;
    const int64_t* offsets;      // (documents + 1)
    const uint8_t* codes;        // (tokens, dim): 128 + round(x · scale)
    float scale;
    int64_t cells;
    const uint8_t* cell_codes;   // (cells, dim)
    const int32_t* cell_starts;  // (cells + 1): the centroids of a cell
    const int32_t* cell_blocks;  // (cells + 1): its blocks of 8 in centroid_codes
    const uint8_t* centroid_codes;
    const int64_t* list_starts;  // (centroids + 1)
    const int32_t* lists;        // documents of a centroid, ascending
};

// A query rounded to bytes, in pages of 32 tokens.
class ByteQuery {
public:
    // One scale for all tokens (`common`), so that similarities of different tokens can be added as bytes, or the best
    // scale of each token.
    ByteQuery(const float* values, int64_t tokens, int64_t dim, bool common);

    int64_t tokens() const { return tokens_; }
    int64_t pages() const { return static_cast<int64_t>(pages_.size()); }
    const QueryPage& page(int64_t p) const { return pages_[static_cast<size_t>(p)]; }
    float inverse_scale(int64_t token) const { return inverse_[static_cast<size_t>(token)]; }
    // Σ over the tokens of |q − q̂|, what rounding did to the query
    double rounding() const { return rounding_; }

private:
    int64_t tokens_;
    double rounding_ = 0;
    std::vector<int8_t> panels_, rows_;
    std::vector<int16_t> biases_;
    std::vector<float> inverse_;
    std::vector<QueryPage> pages_;
};

struct Probe {
    int64_t cells;       // probed per query token
    int64_t centroids;   // whose documents are looked at, per query token
    int64_t candidates;  // documents returned
};

// The most promising documents, best first, at most probe.candidates; only those with allowed[d] != 0 and tokens.
// Ties go to the lower document. With more candidates asked for than are allowed, all of them.
std::vector<int32_t> find_candidates(const ByteKernels&, const EngineData&, const float* query, int64_t tokens,
                                     const uint8_t* allowed, const Probe&);

struct Rerank {
    int64_t patience;  // stop after so many documents in a row that did not enter the best `keep`; 0 never stops
    int64_t keep;      // documents whose integer score is returned
};

struct Scored {
    int32_t document;
    float score;
};

// Integer sum-of-max of the listed documents, in the order given; the best `keep`, best first.
struct Reranked {
    std::vector<Scored> documents;
    float error;  // no score differs by more from sum-of-max of the unrounded query with the same codes
};
Reranked rerank(const ByteKernels&, const EngineData&, const float* query, int64_t tokens,
                           const int32_t* listed, int64_t count, const Rerank&);

// The vectors behind the codes: (token of the listed documents, dim) floats.
void decode(const EngineData&, const int32_t* listed, int64_t count, float* out);

}  // namespace weft
