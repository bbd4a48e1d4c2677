#include "weighing.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "byte_query.hpp"
#include "document_rows.hpp"

namespace weft {
namespace {

constexpr int64_t kWithin = 65535;  // tokens whose place fits the key of a maximum

// For 32 query tokens: the greatest dot product with a document's tokens, the first of equals, and which token it is.
struct Greatest {
    int32_t dot[kPage];
    int64_t token[kPage];
};

void find_greatest(const int16_t* dots, int64_t count, Greatest& out) {
    std::fill(out.dot, out.dot + kPage, INT32_MIN);
    std::fill(out.token, out.token + kPage, int64_t{0});
    for (int64_t first = 0; first < count; first += kWithin) {
        const int64_t length = std::min(kWithin, count - first);
        int32_t best[kPage];
        std::fill(best, best + kPage, INT32_MIN);
        for (int64_t t = 0; t < length; ++t) {  // product and place in one number, so that the compiler takes many maxima at once
            const int16_t* row = dots + (first + t) * kPage;
            const auto place = static_cast<int32_t>(kWithin - t);
            for (int i = 0; i < kPage; ++i) {
                const int32_t key = row[i] * 65536 + place;
                best[i] = key > best[i] ? key : best[i];
            }
        }
        for (int i = 0; i < kPage; ++i) {
            const int32_t place = best[i] & 65535, dot = (best[i] - place) / 65536;
            if (dot <= out.dot[i]) continue;
            out.dot[i] = dot;
            out.token[i] = first + kWithin - place;
        }
    }
}

float weight_of(const Weighing& weighing, int64_t token) { return weighing.query == nullptr ? 1.0f : weighing.query[token]; }

}  // namespace

void WeighedRows::start(const CodedSegment& data) {
    const auto documents = static_cast<size_t>(data.documents);
    rows_.assign(documents * kPage, 0);
    sums_.assign(documents * 2, 0);
    found_.assign(documents, 0);
    imputed_ = mass_ = 0;
    unit_ = data.weight_unit;
}

void WeighedRows::raise(const int32_t* documents, const uint8_t* weights, int64_t length, const uint8_t* excess) {
    uint16_t row[kPage];
    for (int i = 0; i < kPage; ++i) row[i] = static_cast<uint16_t>(excess[i] << 8);
    for (int64_t l = 0; l < length; ++l) {
        uint16_t* target = rows_.data() + int64_t{documents[l]} * kPage;
        for (int i = 0; i < kPage; ++i) {
            const auto key = static_cast<uint16_t>(row[i] | weights[l]);
            target[i] = key > target[i] ? key : target[i];
        }
        found_[static_cast<size_t>(documents[l])] = 1;
    }
}

void WeighedRows::end_page(const CodedSegment& data, const Weighing& weighing, const uint8_t* imputed, int64_t first, int lanes) {
    float query[kPage] = {};
    float base[kPage] = {};
    for (int i = 0; i < lanes; ++i) {
        query[i] = weight_of(weighing, first + i);
        base[i] = imputed[i];
        imputed_ += imputed[i];
        mass_ += query[i];
    }
    for (int64_t d = 0; d < data.documents; ++d) {
        if (found_[static_cast<size_t>(d)] == 0) continue;
        uint16_t* row = rows_.data() + d * kPage;
        const float mean = data.mean_weights[d];
        float sum = 0, mass = 0;
        for (int i = 0; i < kPage; ++i) {
            const int excess = row[i] >> 8;
            const float weight = static_cast<float>(row[i] & 255) * unit_;
            const float there = excess > 0 ? 1.0f : 0.0f;
            sum += there * (weight * (base[i] + static_cast<float>(excess)) - mean * base[i]);
            mass += there * query[i] * (weight - mean);
        }
        sums_[static_cast<size_t>(2 * d)] += sum;
        sums_[static_cast<size_t>(2 * d + 1)] += mass;
        std::memset(row, 0, kPage * sizeof(uint16_t));
    }
}

float WeighedRows::score(const CodedSegment& data, const Weighing& weighing, int64_t document) const {
    const double mean = data.mean_weights[document];
    const double sum = sums_[static_cast<size_t>(2 * document)] + mean * imputed_;
    if (!weighing.divides) return static_cast<float>(sum);
    const double mass = sums_[static_cast<size_t>(2 * document + 1)] + mean * mass_;
    return mass > 0 ? static_cast<float>(sum / mass) : 0.0f;
}

std::vector<Scored> rerank_weighed(const ByteKernels& kernels, const CodedSegment& data, const float* query, int64_t tokens,
                                   const int32_t* listed, int64_t count, int64_t keep, const Weighing& weighing) {
    const ByteQuery bytes(query, tokens, data.dim, data.norm, false);
    DocumentRows rows(kernels, data);
    std::vector<int16_t> dots;
    std::vector<Scored> scored;
    scored.reserve(static_cast<size_t>(count));
    for (int64_t c = 0; c < count; ++c) {
        const int64_t first = data.offsets[listed[c]], length = data.offsets[listed[c] + 1] - first;
        double sum = 0, mass = 0;
        const uint8_t* document = length > 0 && tokens > 0 ? rows.of(listed[c]) : nullptr;
        dots.resize(static_cast<size_t>(length * kPage));
        if (c + 1 < count) rows.prefetch(listed[c + 1]);
        for (int64_t p = 0; p < bytes.pages() && document != nullptr; ++p) {
            kernels.dots(document, length, bytes.page(p), dots.data());
            Greatest greatest;
            find_greatest(dots.data(), length, greatest);
            for (int i = 0; i < bytes.page(p).lanes; ++i) {
                const float weight = data.saliences[first + greatest.token[i]];
                sum += weight * (greatest.dot[i] * bytes.inverse_scale(p * kPage + i));
                mass += weight * weight_of(weighing, p * kPage + i);
            }
        }
        if (weighing.divides) sum = mass > 0 ? sum / mass : 0;
        const auto score = static_cast<float>(sum / data.scale);
        scored.push_back({listed[c], score == score ? score : 0.0f});  // a NaN has no place in an order
    }
    const auto kept = static_cast<ptrdiff_t>(std::clamp<int64_t>(keep, 0, static_cast<int64_t>(scored.size())));
    std::partial_sort(scored.begin(), scored.begin() + kept, scored.end(), [](const Scored& a, const Scored& b) {
        return a.score != b.score ? a.score > b.score : a.document < b.document;
    });
    scored.resize(static_cast<size_t>(kept));
    return scored;
}

}  // namespace weft
