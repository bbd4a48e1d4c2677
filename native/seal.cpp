#include "seal.hpp"

#include <algorithm>
#include <numeric>

namespace weft {

SealScorer::SealScorer(SealKeys keys, SealUnigrams unigrams, double beta)
    : keys_(keys),
      unigrams_(unigrams),
      beta_(beta),
      first_(static_cast<size_t>(unigrams.vocabulary) + 1, 0),
      order_(static_cast<size_t>(keys.count)),
      used_(static_cast<size_t>(keys.count), 0),
      covered_(static_cast<size_t>(unigrams.vocabulary), 0),
      counted_(static_cast<size_t>(unigrams.vocabulary), 0) {
    for (int64_t k = 0; k < keys.count; ++k) ++first_[static_cast<size_t>(keys.tokens[keys.offsets[k]]) + 1];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    std::vector<int32_t> sorted(order_.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) { return keys.weights[a] > keys.weights[b]; });
    for (size_t place = 0; place < sorted.size(); ++place) order_[static_cast<size_t>(sorted[place])] = static_cast<int32_t>(place);
}

void SealScorer::find_matches(const int32_t* tokens, int64_t length) {
    matches_.clear();
    for (int64_t at = 0; at < length; ++at) {
        if (tokens[at] < 0) continue;
        int32_t low = first_[static_cast<size_t>(tokens[at])], high = first_[static_cast<size_t>(tokens[at]) + 1];
        // The keys low … high share the first `depth` tokens with the text at this place; the one that has no more comes first.
        for (int64_t depth = 1; low < high; ++depth) {
            if (keys_.offsets[low + 1] - keys_.offsets[low] == depth) {
                matches_.push_back({low, static_cast<int32_t>(at)});
                ++low;
            }
            if (at + depth >= length || tokens[at + depth] < 0) break;
            const auto token_of = [&](int32_t key) { return keys_.tokens[keys_.offsets[key] + depth]; };
            const int32_t token = tokens[at + depth];
            while (low < high && token_of(low) < token) ++low;
            while (low < high && token_of(high - 1) > token) --high;
        }
    }
}

SealScore SealScorer::operator()(const int32_t* tokens, int64_t length) {
    ++document_;
    find_matches(tokens, length);
    std::sort(matches_.begin(), matches_.end(), [&](const Match& a, const Match& b) {
        const int32_t left = order_[static_cast<size_t>(a.key)], right = order_[static_cast<size_t>(b.key)];
        return left != right ? left < right : a.position < b.position;
    });
    taken_.assign(static_cast<size_t>(length), 0);
    SealScore result{0, {}};

    std::vector<int32_t> distinct;
    for (const Match& match : matches_) {
        const int32_t* key = keys_.tokens + keys_.offsets[match.key];
        const auto size = static_cast<int64_t>(keys_.offsets[match.key + 1] - keys_.offsets[match.key]);
        const auto place = taken_.begin() + match.position;
        if (used_[static_cast<size_t>(match.key)] || std::any_of(place, place + size, [](char t) { return t != 0; })) continue;
        used_[static_cast<size_t>(match.key)] = 1;
        std::fill(place, place + size, 1);
        distinct.assign(key, key + size);
        std::sort(distinct.begin(), distinct.end());
        distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
        int64_t fresh = 0;
        for (const int32_t token : distinct) {
            fresh += covered_[static_cast<size_t>(token)] != document_;
            covered_[static_cast<size_t>(token)] = document_;
        }
        const double cover = 1 - beta_ + beta_ * static_cast<double>(fresh) / static_cast<double>(distinct.size());
        result.score += keys_.weights[match.key] * cover;
        result.hits.push_back({match.key, match.position, cover});
    }
    for (const SealHit& hit : result.hits) used_[static_cast<size_t>(hit.key)] = 0;

    for (int64_t at = 0; at < length; ++at) {
        const int32_t token = tokens[at];
        if (token < 0 || taken_[static_cast<size_t>(at)]) continue;
        const double weight = unigrams_.weights[token];
        if (!(weight > 0) || counted_[static_cast<size_t>(token)] == document_) continue;
        counted_[static_cast<size_t>(token)] = document_;
        const double cover = covered_[static_cast<size_t>(token)] == document_ ? 1 - beta_ : 1.0;
        result.score += weight * cover;
        result.hits.push_back({-1 - token, static_cast<int32_t>(at), cover});
    }
    return result;
}

}  // namespace weft
