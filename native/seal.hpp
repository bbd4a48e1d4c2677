// SEAL's score of a document: the best n-grams in it that do not overlap, and single tokens where none of them lies.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

struct SealKeys {
    int64_t count;
    const int64_t* offsets;  // (count + 1): a key's tokens; keys in lexicographic order, none empty, none twice
    const int32_t* tokens;
    const double* weights;   // (count): > 0
};

struct SealUnigrams {
    int64_t vocabulary;
    const double* weights;  // (vocabulary): 0 for tokens that do not count
};

struct SealHit {
    int32_t key;       // a key's number, or −1 − token
    int32_t position;  // where it begins in the document
    double cover;
};

struct SealScore {
    double score;
    std::vector<SealHit> hits;
};

// Keys in the order of their weights, ties to the lower number, each at most once, at its first place that overlaps none chosen
// before; then each token at most once, at its first uncovered place. What a choice adds is weight · cover,
// cover = 1 − β + β · (distinct tokens of it that no chosen key has) / (its distinct tokens).
class SealScorer {
public:
    SealScorer(SealKeys keys, SealUnigrams unigrams, double beta);
    SealScore operator()(const int32_t* tokens, int64_t length);

private:
    struct Match {
        int32_t key, position;
    };
    void find_matches(const int32_t* tokens, int64_t length);

    const SealKeys keys_;
    const SealUnigrams unigrams_;
    const double beta_;
    std::vector<int32_t> first_;   // (vocabulary + 1): the keys that begin with a token
    std::vector<int32_t> order_;   // (count): a key's place when sorted by weight
    std::vector<Match> matches_;
    std::vector<char> used_, taken_;          // by key, by position
    std::vector<int32_t> covered_, counted_;  // by token: the number of the last document where it was
    int32_t document_ = 0;
};

}  // namespace weft
