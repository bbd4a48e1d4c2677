// Scoring documents from their codes: integer sum-of-max, and decoding.
#include "reranking.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <utility>

#include "byte_layout.hpp"
#include "byte_query.hpp"
#include "document_rows.hpp"

namespace weft {
namespace {

constexpr int64_t kSlice = 12;  // tokens scored between two requests to memory; a multiple of the kernels' tiles

bool better(const Scored& a, const Scored& b) { return a.score != b.score ? a.score > b.score : a.document < b.document; }

// XTR's imputation (eq. 4): what a query token found in a document, or what stands in where that is less. In units of the codes.
double imputed(double greatest, const float* missing, int64_t token, float scale) {
    return missing == nullptr ? greatest : std::max(greatest, double{missing[token]} * double{scale});
}

// A product and its token in one number, the greater for a greater product and, of equal ones, for the earlier token: a maximum
// of such numbers needs no branch, which nobody could predict.
int64_t key(float product, int64_t token) {
    const float sound = std::max(-FLT_MAX, product) + 0.0f;  // not a NaN, and no −0, which would be less than 0
    int32_t bits;
    std::memcpy(&bits, &sound, 4);
    return int64_t{bits ^ (bits >> 31 & INT32_MAX)} * (int64_t{1} << 32) + (INT32_MAX - token);
}
float product_of(int64_t key) {
    const auto ordered = static_cast<int32_t>(key >> 32);
    const int32_t bits = ordered ^ (ordered >> 31 & INT32_MAX);
    float product;
    std::memcpy(&product, &bits, 4);
    return product;
}
int32_t token_of(int64_t key) { return INT32_MAX - static_cast<int32_t>(key & INT32_MAX); }

// Sum-of-max with the unrounded query in single precision. Of a query token's similarities within a document, those to the
// rounded token say which can be the greatest: |q·x − q̂·x| ≤ |q − q̂| · |x|, so none that lies further than twice that below the
// greatest. Only these, a few of a hundred, are computed again.
class Scorer {
public:
    Scorer(const ByteKernels& kernels, const CodedSegment& data, const float* query, const ByteQuery& bytes,
           const float* missing = nullptr)
        : kernels_(kernels), data_(data), query_(query), bytes_(bytes), missing_(missing), rows_(kernels, data),
          reach_(static_cast<size_t>(bytes.pages() * kPage), 0) {
        for (int64_t i = 0; i < bytes.tokens(); ++i)  // rounded up, and more than single precision can lose
            reach_[static_cast<size_t>(i)] = static_cast<int16_t>(std::min(bytes.rounding(i) * data.norm * 1.001 + 2, 32767.0));
    }

    // The score, and for each query token the document token that counts, or −1, and how much it counts.
    float score(int32_t document, int32_t* counting, float* similarities) {
        const int64_t length = data_.offsets[document + 1] - data_.offsets[document];
        if (length == 0 || bytes_.tokens() == 0) {
            std::fill(counting, counting + bytes_.tokens(), -1);
            std::fill(similarities, similarities + bytes_.tokens(), 0.0f);
            return 0;
        }
        const uint8_t* rows = rows_.of(document);
        dots_.resize(static_cast<size_t>(length * kPage));
        masks_.resize(static_cast<size_t>(length));
        double sum = 0;
        for (int64_t p = 0; p < bytes_.pages(); ++p) {
            kernels_.dots(rows, length, bytes_.page(p), dots_.data());
            kernels_.near(dots_.data(), length, &reach_[static_cast<size_t>(p * kPage)], masks_.data());
            int64_t greatest[kPage];
            find_greatest(rows, length, p, greatest);
            float found[kPage];
            int32_t first[kPage];
            for (int i = 0; i < kPage; ++i) found[i] = product_of(greatest[i]) / data_.scale;
            for (int i = 0; i < kPage; ++i) first[i] = token_of(greatest[i]);
            const int lanes = bytes_.page(p).lanes;
            const float* missing = missing_ == nullptr ? nullptr : missing_ + p * kPage;
            for (int i = 0; i < lanes && missing != nullptr; ++i) {
                first[i] = missing[i] > found[i] ? -1 : first[i];
                found[i] = std::max(found[i], missing[i]);
            }
            for (int i = 0; i < lanes; ++i) sum += double{found[i]};
            std::copy_n(first, lanes, counting + p * kPage);
            std::copy_n(found, lanes, similarities + p * kPage);
        }
        return static_cast<float>(sum);
    }

private:
    // The greatest products of the page's tokens among those that `near` left.
    void find_greatest(const uint8_t* rows, int64_t length, int64_t p, int64_t* greatest) const {
        std::fill(greatest, greatest + kPage, key(-FLT_MAX, 0));
        const float* query = query_ + p * kPage * data_.dim;
        const int lanes = bytes_.page(p).lanes;
        const uint32_t used = lanes < kPage ? (uint32_t{1} << lanes) - 1 : ~uint32_t{0};
        float products[kPage];
        for (int64_t t = 0; t < length; ++t) {
            uint32_t mask = masks_[static_cast<size_t>(t)] & used;
            if (mask == 0) continue;
            kernels_.products(rows + t * data_.dim, query, data_.dim, mask, products);
            for (; mask != 0; mask &= mask - 1) {
                const int i = __builtin_ctz(mask);
                greatest[i] = std::max(greatest[i], key(products[i], t));
            }
        }
    }

    const ByteKernels& kernels_;
    const CodedSegment& data_;
    const float* query_;
    const ByteQuery& bytes_;
    const float* missing_;
    DocumentRows rows_;
    std::vector<int16_t> reach_, dots_;
    std::vector<uint32_t> masks_;
};

// What an integer score is off at the most, of what it can be off: errors of many coordinates cancel.
constexpr float kOff = 0.25f;
constexpr int64_t kFirst = 16;  // see Stopping

Reranked rerank(const ByteKernels& kernels, const CodedSegment& data, const ByteQuery& bytes, const int32_t* listed, int64_t count,
                const Rerank& settings) {
    const int64_t tokens = bytes.tokens();
    // |max_j q·x_j − max_j q̂·x_j| ≤ |q − q̂| · max|x|; then what single precision can lose: in our own score the last digit,
    // in sums over coordinates and tokens one unit in 2^24 of Σ|q||x| for each addition.
    const double additions = static_cast<double>(data.dim + tokens + 16);
    const double bound = (bytes.rounding() + bytes.norms() * additions * FLT_EPSILON) * data.norm / data.scale;
    const float error = static_cast<float>(bound * (1 + FLT_EPSILON)) + FLT_MIN;
    DocumentRows rows(kernels, data);
    std::vector<Scored> scored;
    scored.reserve(static_cast<size_t>(count));
    std::vector<float> best;  // a heap of the best `keep` scores, the least on top
    int64_t useless = 0;
    Stopping stopping(settings.estimates == nullptr ? Stop{} : settings.stop, kFirst);
    for (int64_t c = 0; c < count; ++c) {
        if (settings.patience > 0 && useless >= settings.patience) break;
        if (stopping.on() && settings.estimates[c] < stopping.least()) break;
        const int64_t length = data.offsets[listed[c] + 1] - data.offsets[listed[c]];
        const uint8_t* document = length > 0 && tokens > 0 ? rows.of(listed[c]) : nullptr;
        double sum = 0;
        for (int64_t p = 0; p < bytes.pages() && document != nullptr; ++p) {
            alignas(32) int32_t maxima[kPage];
            std::fill(maxima, maxima + kPage, INT32_MIN);
            for (int64_t t = 0; t < length; t += kSlice) {
                // The next document is asked for bit by bit: memory answers only so many requests at a time.
                if (p == 0 && c + 1 < count) rows.prefetch(listed[c + 1], t, t + kSlice < length ? t + kSlice : INT64_MAX);
                kernels.maxima(document + t * data.dim, std::min(kSlice, length - t), bytes.page(p), maxima);
            }
            for (int i = 0; i < bytes.page(p).lanes; ++i)
                sum += imputed(maxima[i] * bytes.inverse_scale(p * kPage + i), settings.missing, p * kPage + i, data.scale);
        }
        const auto score = static_cast<float>(sum / data.scale);
        scored.push_back({listed[c], score});
        if (stopping.on()) stopping.saw(settings.estimates[c], score);
        if (settings.patience <= 0) continue;
        const bool room = static_cast<int64_t>(best.size()) < settings.keep;
        if (score + kOff * error >= settings.least && (room || (!best.empty() && score > best.front()))) {
            useless = 0;
            if (!room) {
                std::pop_heap(best.begin(), best.end(), std::greater<float>());
                best.pop_back();
            }
            best.push_back(score);
            std::push_heap(best.begin(), best.end(), std::greater<float>());
        } else {
            ++useless;
        }
    }
    const auto looked_at = static_cast<int64_t>(scored.size());
    const auto kept = static_cast<ptrdiff_t>(std::clamp<int64_t>(settings.keep, 0, static_cast<int64_t>(scored.size())));
    std::partial_sort(scored.begin(), scored.begin() + kept, scored.end(), better);
    scored.resize(static_cast<size_t>(kept));
    return {std::move(scored), error, looked_at};
}

}  // namespace

Reranked rerank(const ByteKernels& kernels, const CodedSegment& data, const float* query, int64_t tokens, const int32_t* listed,
                int64_t count, const Rerank& settings) {
    return rerank(kernels, data, ByteQuery(query, tokens, data.dim, data.norm, false), listed, count, settings);
}

void score_codes(const ByteKernels& kernels, const CodedSegment& data, const float* query, int64_t tokens, const int32_t* listed,
                 int64_t count, float* scores) {
    const ByteQuery bytes(query, tokens, data.dim, data.norm, false);
    Scorer scorer(kernels, data, query, bytes);
    std::vector<int32_t> counting(static_cast<size_t>(tokens));
    std::vector<float> similarities(static_cast<size_t>(tokens));
    for (int64_t c = 0; c < count; ++c) scores[c] = scorer.score(listed[c], counting.data(), similarities.data());
}

BestDocuments best_documents(const ByteKernels& kernels, const CodedSegment& data, const float* query, int64_t tokens,
                             const int32_t* listed, int64_t count, const Rerank& settings) {
    const ByteQuery bytes(query, tokens, data.dim, data.norm, false);
    Reranked found = rerank(kernels, data, bytes, listed, count, settings);
    while (!found.documents.empty() && found.documents.back().score + kOff * found.error < settings.least) found.documents.pop_back();
    const size_t kept = found.documents.size(), width = static_cast<size_t>(tokens);
    Scorer scorer(kernels, data, query, bytes, settings.missing);
    std::vector<int32_t> counting(kept * width);
    std::vector<float> similarities(kept * width);
    std::vector<std::pair<Scored, size_t>> order;  // with the row of what it is made of
    order.reserve(kept);
    for (size_t d = 0; d < kept; ++d) {
        const int32_t document = found.documents[d].document;
        order.push_back({{document, scorer.score(document, counting.data() + d * width, similarities.data() + d * width)}, d});
    }
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return better(a.first, b.first); });
    BestDocuments best{std::move(found.documents), std::vector<int32_t>(kept * width), std::vector<float>(kept * width), found.error, found.scored};
    for (size_t d = 0; d < kept; ++d) {
        best.documents[d] = order[d].first;
        const size_t row = order[d].second * width;
        std::copy_n(counting.data() + row, width, best.tokens.data() + d * width);
        std::copy_n(similarities.data() + row, width, best.similarities.data() + d * width);
    }
    return best;
}

void decode(const ByteKernels& kernels, const CodedSegment& data, const int32_t* listed, int64_t count, float* out) {
    const float inverse = 1 / data.scale;
    DocumentRows rows(kernels, data);
    for (int64_t c = 0; c < count; ++c) {
        if (c + 1 < count) rows.prefetch(listed[c + 1]);
        const int64_t bytes = (data.offsets[listed[c] + 1] - data.offsets[listed[c]]) * data.dim;
        if (bytes > 0) kernels.widen(rows.of(listed[c]), bytes, inverse, out);
        out += bytes;
    }
}

}  // namespace weft
