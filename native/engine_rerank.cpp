// Scoring documents from their codes: integer sum-of-max, and decoding.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>

#include "byte_query.hpp"
#include "engine.hpp"

namespace weft {
namespace {

// The byte rows of one document after another: in place, or expanded from residuals into a buffer.
class Rows {
public:
    Rows(const ByteKernels& kernels, const EngineData& data) : kernels_(kernels), data_(data) {}

    const uint8_t* of(int32_t document) {
        const int64_t first = data_.offsets[document], last = data_.offsets[document + 1];
        if (data_.bits == 8) return data_.codes + first * data_.dim;
        constexpr int64_t kAhead = 8;  // tokens whose centroid is asked of memory before its turn
        const int64_t width = packed_width(data_.dim, data_.bits);
        if (buffer_.size() < static_cast<size_t>((last - first) * data_.dim))
            buffer_.resize(static_cast<size_t>((last - first) * data_.dim));
        uint8_t* out = buffer_.data();
        for (int64_t t = first; t < last; ++t, out += data_.dim) {
            if (t + kAhead < last) {
                const uint8_t* next = data_.centroid_rows + centroid(label(t + kAhead)) * data_.dim;
                for (int64_t x = 0; x < data_.dim; x += 64) __builtin_prefetch(next + x);
            }
            const uint32_t of_token = label(t);
            kernels_.expand(data_.codes + t * width, data_.bits, data_.levels + (of_token >> kCentroidBits) * kLevels,
                            data_.centroid_rows + centroid(of_token) * data_.dim, data_.dim, out);
        }
        return buffer_.data();
    }

    void prefetch(int32_t document) const {
        const int64_t width = data_.bits == 8 ? data_.dim : packed_width(data_.dim, data_.bits);
        const int64_t first = data_.offsets[document], last = data_.offsets[document + 1];
        for (int64_t at = first * width; at < last * width; at += 64) __builtin_prefetch(data_.codes + at);
        if (data_.bits != 8)
            for (int64_t at = first * 3; at < last * 3; at += 64) __builtin_prefetch(data_.token_centroids + at);
    }

private:
    uint32_t label(int64_t token) const {
        const uint8_t* at = data_.token_centroids + token * 3;
        return at[0] | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16;
    }
    // Checked here and not when the segment is opened, which would read a label of every token.
    int64_t centroid(uint32_t label) const {
        return std::min<int64_t>(label & ((uint32_t{1} << kCentroidBits) - 1), data_.centroids - 1);
    }

    const ByteKernels& kernels_;
    const EngineData& data_;
    std::vector<uint8_t> buffer_;
};

}  // namespace

Reranked rerank(const ByteKernels& kernels, const EngineData& data, const float* query, int64_t tokens,
                const int32_t* listed, int64_t count, const Rerank& settings) {
    const ByteQuery bytes(query, tokens, data.dim, data.norm, false);
    Rows rows(kernels, data);
    const auto better = [](const Scored& a, const Scored& b) {
        return a.score != b.score ? a.score > b.score : a.document < b.document;
    };
    std::vector<Scored> scored;
    scored.reserve(static_cast<size_t>(count));
    std::vector<float> best;  // a heap of the best `keep` scores, the least on top
    int64_t useless = 0;
    for (int64_t c = 0; c < count; ++c) {
        if (settings.patience > 0 && useless >= settings.patience) break;
        if (c + 1 < count) rows.prefetch(listed[c + 1]);
        const int64_t length = data.offsets[listed[c] + 1] - data.offsets[listed[c]];
        const uint8_t* document = length > 0 && tokens > 0 ? rows.of(listed[c]) : nullptr;
        double sum = 0;
        for (int64_t p = 0; p < bytes.pages() && document != nullptr; ++p) {
            alignas(32) int32_t maxima[kPage];
            kernels.maxima(document, length, bytes.page(p), maxima);
            for (int i = 0; i < bytes.page(p).lanes; ++i) sum += maxima[i] * bytes.inverse_scale(p * kPage + i);
        }
        const auto score = static_cast<float>(sum / data.scale);
        scored.push_back({listed[c], score});
        if (settings.patience <= 0) continue;
        const bool room = static_cast<int64_t>(best.size()) < settings.keep;
        if (room || (!best.empty() && score > best.front())) {
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
    const auto kept = static_cast<ptrdiff_t>(std::clamp<int64_t>(settings.keep, 0, static_cast<int64_t>(scored.size())));
    std::partial_sort(scored.begin(), scored.begin() + kept, scored.end(), better);
    scored.resize(static_cast<size_t>(kept));
    // |max_j q·x_j − max_j q̂·x_j| ≤ |q − q̂| · max|x|; then what single precision can lose: in our own score the last digit,
    // in sums over coordinates and tokens one unit in 2^24 of Σ|q||x| for each addition.
    const double additions = static_cast<double>(data.dim + tokens + 16);
    const double error = (bytes.rounding() + bytes.norms() * additions * FLT_EPSILON) * data.norm / data.scale;
    return {std::move(scored), static_cast<float>(error * (1 + FLT_EPSILON)) + FLT_MIN};
}

void decode(const ByteKernels& kernels, const EngineData& data, const int32_t* listed, int64_t count, float* out) {
    const float inverse = 1 / data.scale;
    Rows rows(kernels, data);
    for (int64_t c = 0; c < count; ++c) {
        if (c + 1 < count) rows.prefetch(listed[c + 1]);
        const int64_t bytes = (data.offsets[listed[c] + 1] - data.offsets[listed[c]]) * data.dim;
        const uint8_t* from = bytes > 0 ? rows.of(listed[c]) : nullptr;
        for (int64_t x = 0; x < bytes; ++x) *out++ = static_cast<float>(from[x] - 128) * inverse;
    }
}

}  // namespace weft
