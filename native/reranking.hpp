// Scoring documents from their codes: sum-of-max in integers, best candidates first; the top few again with the unrounded query.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "coded_segment.hpp"
#include "stopping.hpp"

namespace weft {

struct Rerank {
    int64_t patience;  // stop after so many documents in a row that did not enter the best `keep`, or fell short of `least`; 0
                       // never stops
    int64_t keep;      // documents whose integer score is returned
    const float* missing = nullptr;  // for each query token, what it counts at the least (XTR eq. 4); none: what it finds
    float least = -INFINITY;  // a document that all but surely scores less is not scored with the unrounded query
    const float* estimates = nullptr;  // of the listed documents, falling: scoring stops by them
    Stop stop{};
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
    int64_t scored = 0;         // documents, before scoring stopped
};
Reranked rerank(const ByteKernels&, const CodedSegment&, const float* query, int64_t tokens, const int32_t* listed,
                int64_t count, const Rerank&);

// Sum-of-max of the listed documents with the unrounded query, in single precision; 0 for those without tokens.
void score_codes(const ByteKernels&, const CodedSegment&, const float* query, int64_t tokens, const int32_t* listed, int64_t count,
                 float* scores);

// Both: the best `keep` by integers, ranked by the scores of `score_codes`, with the pairs of tokens these are sums of.
struct BestDocuments {
    std::vector<Scored> documents;    // best first; ties go to the lower document
    std::vector<int32_t> tokens;      // (documents, query tokens): the document token that counts, by its place in the document,
                                      // the first of equals; −1 where something stands in, or in a document without tokens
    std::vector<float> similarities;  // (documents, query tokens): what it counts; their sum in double precision is the score
    float error;                      // these as in `Reranked`
    int64_t scored;
};
BestDocuments best_documents(const ByteKernels&, const CodedSegment&, const float* query, int64_t tokens, const int32_t* listed,
                             int64_t count, const Rerank&);

// The vectors behind the codes: (token of the listed documents, dim) floats.
void decode(const ByteKernels&, const CodedSegment&, const int32_t* listed, int64_t count, float* out);

}  // namespace weft
