// Finding the few documents worth scoring, and scoring them from byte codes.
//
//   candidates: query tokens → best cells → best centroids in them → documents listed there → the best by their sketches.
//               A document's similarity for a token is that of its best centroid probed, and for a token that probed none of
//               its centroids the similarity at which probing stopped: XTR's imputation (eq. 4), on centroids.
//   rerank:     sum-of-max over the candidates' codes in integers, best candidates first; the top few again with the
//               unrounded query and the alignment asked for.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "byte_kernels.hpp"

namespace weft {

// A coded segment. All arrays are borrowed, checked by the caller, and outlive the calls below.
struct EngineData {
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

// Of two cells equally near, the wider one is the more likely to hold a near token. kSpread is how much of a cell's spread, the
// root of its tokens' mean squared distance to it, counts as similarity: probing 8 cells then finds what 12 did before.
constexpr double kSpread = 0.32;
uint8_t cell_lift(double spread, int64_t dim, double norm);  // spread in the units of the codes

// What documents must reach, in units of scores: by their centroids (`promise`, with what is imputed for each query token), and by
// their sketches. The last candidate of one segment sets the bar for the next, and what was imputed there is imputed here, so that
// many segments score about as many documents as one would, and nearly the same.
struct Bar {
    double promise = -INFINITY;
    double sketch = -INFINITY;
    std::vector<float> imputed{};  // (query tokens), or empty
};

struct Probe {
    int64_t cells;       // probed per query token
    int64_t centroids;   // whose documents are looked at, per query token
    int64_t candidates;  // documents found by them
    int64_t sketched;    // of which so many are kept, the best by their sketches; 0: all, and no sketch is looked at
    Bar least{};         // what they must reach
};

struct Candidates {
    std::vector<int32_t> documents;
    bool checked;  // false: these documents' sketches must be checked before another try
    Bar last{};    // what the last one reached, where there were more than were asked for
};

// The most promising documents, best first, at most probe.candidates; only those with allowed[d] != 0 and tokens.
// Ties go to the lower document. With more candidates asked for than are allowed, all of them.
// With probe.sketched, at most that many, the best by sketch; ties go to the one that was found to be more promising.
// With a bar, only documents that reach it, however few.
Candidates find_candidates(const ByteKernels&, const EngineData&, const float* query, int64_t tokens, const uint8_t* allowed,
                           const Probe&, const uint8_t* sketch_checked);

struct Rerank {
    int64_t patience;  // stop after so many documents in a row that did not enter the best `keep`; 0 never stops
    int64_t keep;      // documents whose integer score is returned
    const float* missing = nullptr;  // for each query token, what it counts at the least (XTR eq. 4); none: what it finds
};

struct Scored {
    int32_t document;
    float score;
};

// Integer sum-of-max of the listed documents, in the order given; the best `keep`, best first.
struct Reranked {
    std::vector<Scored> documents;
    float error;  // no score differs by more from sum-of-max of the unrounded query with the same codes, be that computed
                  // exactly or in single precision
};
Reranked rerank(const ByteKernels&, const EngineData&, const float* query, int64_t tokens, const int32_t* listed,
                int64_t count, const Rerank&);

// Sum-of-max of the listed documents with the unrounded query, in single precision; 0 for those without tokens.
void score_codes(const ByteKernels&, const EngineData&, const float* query, int64_t tokens, const int32_t* listed, int64_t count,
                 float* scores);

// Both: the best `keep` by integers, ranked by the scores of `score_codes`, with the pairs of tokens these are sums of.
struct BestDocuments {
    std::vector<Scored> documents;    // best first; ties go to the lower document
    std::vector<int32_t> tokens;      // (documents, query tokens): the document token that counts, by its place in the document,
                                      // the first of equals; −1 where something stands in, or in a document without tokens
    std::vector<float> similarities;  // (documents, query tokens): what it counts; their sum in double precision is the score
    float error;                      // as in `Reranked`
};
BestDocuments best_documents(const ByteKernels&, const EngineData&, const float* query, int64_t tokens, const int32_t* listed,
                             int64_t count, const Rerank&);

// The vectors behind the codes: (token of the listed documents, dim) floats.
void decode(const ByteKernels&, const EngineData&, const int32_t* listed, int64_t count, float* out);

}  // namespace weft
