// Token retrieval (XTR eq. 3) and scores from retrieved tokens alone (eq. 4), over any number of segments.
//
// Segments hand in tokens (token_scan.hpp); here the best k′ of each query token are kept and become scores of documents.
// Documents are counted through all segments.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

struct RetrievedToken {
    float similarity;
    int32_t document;
    int32_t position;  // in the document
};

// How scores come from retrieved tokens.
struct Imputing {
    const float* missing;  // (query tokens) m_i; null: what is missing does not count (eq. 2)
    bool divides_by_query; // Z = n; else Z = 1. Without m_i: Z is what counts, or 1
    int64_t wanted;        // documents
    const uint8_t* ranked; // (documents) which may be in the ranking; null: all
    const int64_t* lengths;// (documents) in tokens
};

struct TokenScores {
    std::vector<int32_t> documents;  // the best, best first; ties go to the lower document
    std::vector<float> scores;
    std::vector<float> values;       // (documents, query tokens): what each counts, −∞ where nothing does
    std::vector<int32_t> positions;  // (documents, query tokens): the token that counts; −1 where m_i stands in, or nothing
};

class TokenRetrieval {
public:
    TokenRetrieval(int64_t tokens, int64_t k_prime);

    int64_t tokens() const { return static_cast<int64_t>(kept_.size()); }
    int64_t k_prime() const { return k_prime_; }

    // What a token must reach to be among the best k′ of those added, as far as is known.
    void raise_floor(int64_t token, float least) {
        float& floor = floor_[static_cast<size_t>(token)];
        if (least > floor) floor = least;
    }
    float floor(int64_t token) const { return floor_[static_cast<size_t>(token)]; }
    void add(int64_t token, const RetrievedToken& found) {
        std::vector<RetrievedToken>& kept = kept_[static_cast<size_t>(token)];
        if (found.similarity < floor_[static_cast<size_t>(token)]) return;
        kept.push_back(found);
        if (kept.size() >= limit_) compact(token);
    }
    // Each query token's k′-th similarity; the least, where fewer tokens were added; 0 where none was. Call `settle` first.
    void settle();
    const std::vector<float>& last() const { return last_; }
    const std::vector<RetrievedToken>& of(int64_t token) const { return kept_[static_cast<size_t>(token)]; }

    // All documents with a retrieved token, and for each query token how many it retrieved there.
    struct Maxima {
        std::vector<int32_t> documents;
        std::vector<float> best;         // (documents, query tokens), −∞ where nothing was retrieved
        std::vector<int32_t> positions;  // of the best, the first of equals; −1
        std::vector<int32_t> found;      // empty unless asked for
    };
    Maxima maxima(int64_t documents, bool counted) const;

    TokenScores score(int64_t documents, const Imputing&) const;

private:
    void compact(int64_t token);

    int64_t k_prime_;
    size_t limit_;  // tokens kept before those beyond the best k′ are dropped
    std::vector<std::vector<RetrievedToken>> kept_;
    std::vector<float> floor_, last_;
};

}  // namespace weft
