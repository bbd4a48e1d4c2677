#include "token_retrieval.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace weft {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

bool before(const RetrievedToken& a, const RetrievedToken& b) {
    if (a.similarity != b.similarity) return a.similarity > b.similarity;
    return a.document != b.document ? a.document < b.document : a.position < b.position;
}

// The rows that documents have, in the order in which they are first met. The table of all documents is kept between queries.
class Rows {
public:
    explicit Rows(int64_t documents) : of_(table()) {
        if (of_.size() < static_cast<size_t>(documents)) of_.resize(static_cast<size_t>(documents), -1);
    }
    ~Rows() {
        for (const int32_t d : documents_) of_[static_cast<size_t>(d)] = -1;
    }
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;

    // The row of a document, and whether it is new.
    std::pair<size_t, bool> of(int32_t document) {
        int32_t& row = of_[static_cast<size_t>(document)];
        if (row >= 0) return {static_cast<size_t>(row), false};
        row = static_cast<int32_t>(documents_.size());
        documents_.push_back(document);
        return {static_cast<size_t>(row), true};
    }
    void prefetch(int32_t document) const { __builtin_prefetch(&of_[static_cast<size_t>(document)]); }
    const std::vector<int32_t>& documents() const { return documents_; }

private:
    static std::vector<int32_t>& table() {
        static thread_local std::vector<int32_t> rows;
        return rows;
    }
    std::vector<int32_t>& of_;
    std::vector<int32_t> documents_;
};

}  // namespace

TokenRetrieval::TokenRetrieval(int64_t tokens, int64_t k_prime)
    : k_prime_(k_prime), limit_(2 * static_cast<size_t>(k_prime) + 64), kept_(static_cast<size_t>(tokens)),
      floor_(static_cast<size_t>(tokens), kNothing), last_(static_cast<size_t>(tokens), 0) {}

void TokenRetrieval::compact(int64_t token) {
    std::vector<RetrievedToken>& kept = kept_[static_cast<size_t>(token)];
    if (kept.size() <= static_cast<size_t>(k_prime_)) return;
    std::nth_element(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(k_prime_) - 1), kept.end(), before);
    kept.resize(static_cast<size_t>(k_prime_));
    floor_[static_cast<size_t>(token)] = kept.back().similarity;
}

void TokenRetrieval::settle() {
    for (int64_t i = 0; i < tokens(); ++i) {
        compact(i);
        std::vector<RetrievedToken>& kept = kept_[static_cast<size_t>(i)];
        float& last = last_[static_cast<size_t>(i)];
        last = 0;
        if (kept.empty()) continue;
        last = std::min_element(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.similarity < b.similarity; })
                   ->similarity;
    }
}

TokenRetrieval::Maxima TokenRetrieval::maxima(int64_t documents, bool counted) const {
    constexpr size_t kAhead = 8;
    Maxima found;
    Rows rows(documents);
    const size_t n = kept_.size();
    for (size_t i = 0; i < n; ++i) {
        const std::vector<RetrievedToken>& kept = kept_[i];
        for (size_t k = 0; k < kept.size(); ++k) {
            if (k + kAhead < kept.size()) rows.prefetch(kept[k + kAhead].document);
            const RetrievedToken& token = kept[k];
            const auto [row, fresh] = rows.of(token.document);
            if (fresh) {
                found.best.resize(found.best.size() + n, kNothing);
                found.positions.resize(found.positions.size() + n, -1);
                if (counted) found.found.resize(found.found.size() + n, 0);
            }
            float& best = found.best[row * n + i];
            int32_t& position = found.positions[row * n + i];
            if (counted) ++found.found[row * n + i];
            if (token.similarity > best || (token.similarity == best && token.position < position)) {
                best = token.similarity;
                position = token.position;
            }
        }
    }
    found.documents = rows.documents();
    return found;
}

TokenScores TokenRetrieval::score(int64_t documents, const Imputing& how) const {
    const size_t n = kept_.size();
    // A document all of whose tokens were retrieved has nothing missing: asked only where m_i can exceed what was retrieved.
    bool counted = false;
    for (size_t i = 0; how.missing != nullptr && i < n; ++i) counted |= how.missing[i] > last_[i];
    Maxima all = maxima(documents, counted);
    std::vector<std::pair<float, int32_t>> order;  // score, row
    for (size_t row = 0; row < all.documents.size(); ++row) {
        const int32_t document = all.documents[row];
        if (how.ranked != nullptr && how.ranked[document] == 0) continue;
        double sum = 0;
        int64_t counts = 0;
        for (size_t i = 0; i < n; ++i) {
            float& best = all.best[row * n + i];
            if (how.missing != nullptr && how.missing[i] > best &&
                !(counted && all.found[row * n + i] == how.lengths[document])) {
                best = how.missing[i];
                all.positions[row * n + i] = -1;
            }
            if (best == kNothing) continue;
            sum += double{best};
            ++counts;
        }
        const int64_t z = !how.divides_by_query ? 1 : how.missing != nullptr ? static_cast<int64_t>(n) : counts;
        order.emplace_back(static_cast<float>(sum / static_cast<double>(std::max<int64_t>(z, 1))), static_cast<int32_t>(row));
    }
    const auto better = [&](const auto& a, const auto& b) {
        if (a.first != b.first) return a.first > b.first;
        return all.documents[static_cast<size_t>(a.second)] < all.documents[static_cast<size_t>(b.second)];
    };
    const auto kept = static_cast<ptrdiff_t>(std::min<int64_t>(how.wanted, static_cast<int64_t>(order.size())));
    std::partial_sort(order.begin(), order.begin() + kept, order.end(), better);
    TokenScores scores;
    for (ptrdiff_t k = 0; k < kept; ++k) {
        const auto row = static_cast<size_t>(order[static_cast<size_t>(k)].second);
        scores.documents.push_back(all.documents[row]);
        scores.scores.push_back(order[static_cast<size_t>(k)].first);
        const auto first = static_cast<ptrdiff_t>(row * n), end = static_cast<ptrdiff_t>((row + 1) * n);
        scores.values.insert(scores.values.end(), all.best.begin() + first, all.best.begin() + end);
        scores.positions.insert(scores.positions.end(), all.positions.begin() + first, all.positions.begin() + end);
    }
    return scores;
}

}  // namespace weft
