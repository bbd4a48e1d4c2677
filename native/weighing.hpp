// Saliences that weigh scores (ALIGNER eq. 1–2): A = Ã ∘ (u_q ⊗ u_d). The query's are folded into its vectors, u_q,i · q_i; the
// documents' are those of the tokens that align, so a maximum must remember which token reached it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "coded_segment.hpp"
#include "reranking.hpp"

namespace weft {

// What a query asks of salient documents.
struct Weighing {
    const float* query;  // (query tokens) u_q, or null: all 1
    bool divides;        // by Z = ΣA, the sum of the weights; else scores are sums
    float mean = 1;      // of u_q

    // How many of so many centroids a query token looks at: heavy ones more, for what they find decides.
    int64_t of(int64_t centroids, int64_t token) const {
        if (query == nullptr || mean <= 0) return centroids;
        const float share = std::clamp(query[token] / mean, 0.5f, 4.0f);
        return std::max<int64_t>(static_cast<int64_t>(share * static_cast<float>(centroids)), 1);
    }
};

// Documents' rows while a segment is probed: how far the best centroid exceeds what is imputed for each of 32 query tokens, and
// the weight that the document's tokens have there. Memory is kept between queries.
class WeighedRows {
public:
    void start(const CodedSegment& data);

    // For the documents listed at a centroid, (32) `excess` over what is imputed.
    void raise(const int32_t* documents, const uint8_t* weights, int64_t length, const uint8_t* excess);

    // Ends a page of `lanes` query tokens, `first` and those after it: adds up what they found and clears the rows. Where a token
    // found nothing, `imputed` counts, with the document's mean weight.
    void end_page(const CodedSegment& data, const Weighing& weighing, const uint8_t* imputed, int64_t first, int lanes);

    // The score of a document, in the units of `imputed` (an average of them where Z divides), for documents that were found.
    bool found(int64_t document) const { return found_[static_cast<size_t>(document)] != 0; }
    float score(const CodedSegment& data, const Weighing& weighing, int64_t document) const;

private:
    std::vector<uint16_t> rows_;  // (documents, 32): excess · 256 + weight
    std::vector<float> sums_;     // (documents, 2): what was found beyond the imputed, of the score and of Z
    std::vector<uint8_t> found_;
    double imputed_ = 0, mass_ = 0;  // Σ imputed, Σ u_q
    float unit_ = 0;                 // of a weight in a list
};

// The best `keep` of the listed documents by 1/Z · Σ_i u_j(i) · q_i·x_j(i), j(i) the first of the tokens nearest to q_i, in integers;
// the query's weights are in its vectors already. Best first, ties go to the lower document; without tokens 0.
std::vector<Scored> rerank_weighed(const ByteKernels&, const CodedSegment&, const float* query, int64_t tokens, const int32_t* listed,
                                   int64_t count, int64_t keep, const Weighing&);

}  // namespace weft
