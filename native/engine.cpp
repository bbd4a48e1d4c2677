#include "engine.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>

namespace weft {
namespace {

constexpr int64_t kQueryLimit = 63;  // |coded query coordinate|: a pair of products then fits 16 bits

// The largest query norm, in coded units, that keeps dot() within 16 bits: codes have a norm of at most
// kCodeNorm + √dim/2 (rounding), and the query adds its own rounding.
constexpr double kCodeNorm = 290;  // index/codec.py scales the longest stored vector to this
double query_norm(int64_t dim) {
    const double rounding = std::sqrt(static_cast<double>(dim)) / 2;
    return 32767 / (kCodeNorm + rounding) - rounding;
}

// The largest value that at least `wanted` entries of a histogram reach.
int threshold(const uint32_t* histogram, int64_t wanted) {
    int64_t seen = 0;
    for (int value = 255; value > 0; --value)
        if ((seen += histogram[value]) >= wanted) return value;
    return 0;
}

struct Visit {  // query token → cell, with its centroids' similarities from `start`
    int32_t token;
    int32_t cell;
    int64_t start;
};

// One page's probing. A document's row of 32 bytes holds how far its best centroid exceeds the imputed similarity of each
// token; the sum of a row is the imputed score less what every document has in common. Memory is kept between queries.
class Prober {
public:
    // Adds to sums[d] what document d's rows come to.
    void run(const ByteKernels& kernels, const EngineData& data, const Probe& probe, const QueryPage& page, int tokens,
             uint32_t* sums) {
        kernels_ = kernels;
        data_ = data;
        probe_ = probe;
        if (slots_.size() < static_cast<size_t>(data.cell_starts[data.cells]))
            slots_.resize(static_cast<size_t>(data.cell_starts[data.cells]), -1);
        rows_.assign(static_cast<size_t>(data.documents) * kPage, 0);
        visit_cells(page, tokens);
        score_centroids(page, tokens);
        choose_centroids(tokens);
        raise_documents(rows_.data());
        kernels.add_sums(rows_.data(), data.documents, sums);
        for (const int32_t centroid : touched_) slots_[centroid] = -1;
    }

private:
    void visit_cells(const QueryPage& page, int tokens) {
        cell_rows_.resize(static_cast<size_t>(data_.cells) * kPage);
        kernels_.similarities(data_.cell_codes, data_.cells, page, cell_rows_.data());
        histograms_.assign(static_cast<size_t>(kPage) * 256, 0);
        for (int64_t c = 0; c < data_.cells; ++c)
            for (int i = 0; i < tokens; ++i) ++histograms_[i * 256 + cell_rows_[c * kPage + i]];
        uint8_t least[kPage];
        for (int i = 0; i < tokens; ++i)
            least[i] = static_cast<uint8_t>(threshold(&histograms_[i * 256], std::min(probe_.cells, data_.cells)));

        // Cell by cell, so that a cell's centroids are read once for all the tokens that want them.
        visits_.clear();
        std::fill(lengths_, lengths_ + kPage, 0);
        for (int64_t c = 0; c < data_.cells; ++c) {
            const int64_t size = (data_.cell_blocks[c + 1] - data_.cell_blocks[c]) * kBlock;
            for (int i = 0; i < tokens; ++i) {
                if (cell_rows_[c * kPage + i] < least[i]) continue;
                visits_.push_back({i, static_cast<int32_t>(c), lengths_[i]});
                lengths_[i] += size;
            }
        }
    }

    void score_centroids(const QueryPage& page, int tokens) {
        stride_ = *std::max_element(lengths_, lengths_ + tokens);
        values_.resize(static_cast<size_t>(stride_) * tokens);
        for (const Visit& visit : visits_) {
            const int64_t first = data_.cell_blocks[visit.cell], last = data_.cell_blocks[visit.cell + 1];
            kernels_.block_similarities(data_.centroid_codes + first * kBlock * data_.dim, last - first, page, visit.token,
                                        &values_[visit.token * stride_ + visit.start]);
        }
    }

    // Keep, for each token, the centroids strictly above its probe_.centroids-th similarity: that one is imputed.
    void choose_centroids(int tokens) {
        std::fill(histograms_.begin(), histograms_.end(), 0u);
        for (int i = 0; i < tokens; ++i)
            for (int64_t v = 0; v < lengths_[i]; ++v) ++histograms_[i * 256 + values_[i * stride_ + v]];
        uint8_t imputed[kPage];
        for (int i = 0; i < tokens; ++i)
            imputed[i] = static_cast<uint8_t>(threshold(&histograms_[i * 256], probe_.centroids));

        touched_.clear();
        excess_.clear();
        for (const Visit& visit : visits_) {
            const int32_t first = data_.cell_starts[visit.cell], count = data_.cell_starts[visit.cell + 1] - first;
            const uint8_t* value = &values_[visit.token * stride_ + visit.start];
            for (int32_t c = 0; c < count; ++c) {
                if (value[c] <= imputed[visit.token]) continue;
                int32_t& slot = slots_[first + c];
                if (slot < 0) {
                    slot = static_cast<int32_t>(touched_.size());
                    touched_.push_back(first + c);
                    excess_.resize(excess_.size() + kPage, 0);
                }
                excess_[static_cast<size_t>(slot) * kPage + visit.token] =
                    static_cast<uint8_t>(value[c] - imputed[visit.token]);
            }
        }
    }

    void raise_documents(uint8_t* rows) {
        constexpr size_t kListAhead = 24, kRowsAhead = 3;  // far enough for memory to answer, near enough to stay cached
        for (size_t t = 0; t < touched_.size(); ++t) {
            if (t + kListAhead < touched_.size()) __builtin_prefetch(list(touched_[t + kListAhead]));
            if (t + kRowsAhead < touched_.size()) {
                const int32_t next = touched_[t + kRowsAhead];
                const int64_t some = std::min<int64_t>(48, list_length(next));
                for (int64_t l = 0; l < some; ++l) __builtin_prefetch(rows + int64_t{list(next)[l]} * kPage, 1);
            }
            kernels_.raise(rows, list(touched_[t]), list_length(touched_[t]), &excess_[t * kPage]);
        }
    }

    const int32_t* list(int32_t centroid) const { return data_.lists + data_.list_starts[centroid]; }
    int64_t list_length(int32_t centroid) const {
        return data_.list_starts[centroid + 1] - data_.list_starts[centroid];
    }

    ByteKernels kernels_{};
    EngineData data_{};
    Probe probe_{};
    std::vector<uint8_t> rows_, cell_rows_, values_, excess_;
    std::vector<uint32_t> histograms_;
    std::vector<Visit> visits_;
    int64_t lengths_[kPage] = {};
    int64_t stride_ = 0;
    std::vector<int32_t> slots_;    // centroid → its row in excess_, or -1
    std::vector<int32_t> touched_;  // slot → centroid
};

int tokens_of_page(int64_t tokens, int64_t page) {
    return static_cast<int>(std::min<int64_t>(kPage, tokens - page * kPage));
}

bool eligible(const EngineData& data, const uint8_t* allowed, int64_t d) {
    return (allowed == nullptr || allowed[d] != 0) && data.offsets[d] < data.offsets[d + 1];
}

// The eligible documents with the largest sums, best first, ties by document.
std::vector<int32_t> largest(const EngineData& data, const uint8_t* allowed, const std::vector<uint32_t>& sums, int64_t wanted) {
    std::vector<uint32_t> histogram(*std::max_element(sums.begin(), sums.end()) + size_t{1}, 0);
    for (int64_t d = 0; d < data.documents; ++d)
        if (eligible(data, allowed, d)) ++histogram[sums[d]];
    int64_t seen = 0;
    uint32_t least = static_cast<uint32_t>(histogram.size());
    while (least > 0 && seen < wanted) seen += histogram[--least];
    std::vector<int32_t> chosen;
    chosen.reserve(static_cast<size_t>(seen));
    for (int64_t d = 0; d < data.documents; ++d)
        if (sums[d] >= least && eligible(data, allowed, d)) chosen.push_back(static_cast<int32_t>(d));
    std::stable_sort(chosen.begin(), chosen.end(), [&](int32_t a, int32_t b) { return sums[a] > sums[b]; });
    if (static_cast<int64_t>(chosen.size()) > wanted) chosen.resize(static_cast<size_t>(wanted));
    return chosen;
}

}  // namespace

ByteQuery::ByteQuery(const float* values, int64_t tokens, int64_t dim, bool common)
    : tokens_(tokens), inverse_(static_cast<size_t>(tokens)) {
    const int64_t pages = (tokens + kPage - 1) / kPage;
    panels_.assign(static_cast<size_t>(pages * kPage * dim), 0);
    rows_.assign(static_cast<size_t>(pages * kPage * dim), 0);
    biases_.assign(static_cast<size_t>(pages * kPage * 2), 0);
    std::vector<double> norms(static_cast<size_t>(tokens)), tops(static_cast<size_t>(tokens));
    for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t x = 0; x < dim; ++x) {
            const double value = values[t * dim + x];
            norms[t] += value * value;
            tops[t] = std::max(tops[t], std::fabs(value));
        }
        norms[t] = std::sqrt(norms[t]);
    }
    const double longest = tokens ? *std::max_element(norms.begin(), norms.end()) : 0;
    for (int64_t t = 0; t < tokens; ++t) {
        // With the common scale a rare large coordinate is cut at ±63: only the probing is touched by it.
        const double norm = common ? longest : norms[t];
        double scale = norm > 0 ? query_norm(dim) / norm : 1;
        if (!common && tops[t] > 0) scale = std::min(scale, kQueryLimit / tops[t]);
        inverse_[t] = static_cast<float>(1 / scale);
        const int64_t page = t / kPage, lane = t % kPage;
        int32_t halves[2] = {0, 0};
        double squared = 0;
        for (int64_t x = 0; x < dim; ++x) {
            const int64_t rounded = std::lrint(values[t * dim + x] * scale);
            const auto code = static_cast<int8_t>(std::clamp<int64_t>(rounded, -kQueryLimit, kQueryLimit));
            panels_[page * kPage * dim + (x / 4 * kPage + lane) * 4 + x % 4] = code;
            rows_[(page * kPage + lane) * dim + x] = code;
            halves[x % 4 / 2] += code;
            const double lost = values[t * dim + x] - code / scale;
            squared += lost * lost;
        }
        rounding_ += std::sqrt(squared);
        for (int half = 0; half < 2; ++half)  // modulo 2^16: the sum it goes into is too
            biases_[(page * kPage + lane) * 2 + half] = static_cast<int16_t>(static_cast<uint16_t>(-128 * halves[half]));
    }
    for (int64_t p = 0; p < pages; ++p)
        pages_.push_back({&panels_[p * kPage * dim], &biases_[p * kPage * 2], &rows_[p * kPage * dim], dim});
}

std::vector<int32_t> find_candidates(const ByteKernels& kernels, const EngineData& data, const float* query, int64_t tokens,
                                     const uint8_t* allowed, const Probe& probe) {
    int64_t number = 0;
    for (int64_t d = 0; d < data.documents; ++d) number += eligible(data, allowed, d);
    std::vector<uint32_t> sums(static_cast<size_t>(data.documents), 0);
    if (number > probe.candidates && tokens > 0) {
        static thread_local Prober prober;
        const ByteQuery bytes(query, tokens, data.dim, true);
        for (int64_t p = 0; p < bytes.pages(); ++p)
            prober.run(kernels, data, probe, bytes.page(p), tokens_of_page(tokens, p), sums.data());
    }
    if (sums.empty()) return {};
    return largest(data, allowed, sums, probe.candidates);
}

Reranked rerank(const ByteKernels& kernels, const EngineData& data, const float* query, int64_t tokens,
                           const int32_t* listed, int64_t count, const Rerank& settings) {
    const ByteQuery bytes(query, tokens, data.dim, false);
    const auto better = [](const Scored& a, const Scored& b) {
        return a.score != b.score ? a.score > b.score : a.document < b.document;
    };
    std::vector<Scored> scored;
    scored.reserve(static_cast<size_t>(count));
    std::vector<float> best;  // a heap of the best `keep` scores, the least on top
    int64_t useless = 0;
    for (int64_t c = 0; c < count; ++c) {
        if (settings.patience > 0 && useless >= settings.patience) break;
        if (c + 1 < count)
            for (int64_t at = data.offsets[listed[c + 1]] * data.dim; at < data.offsets[listed[c + 1] + 1] * data.dim; at += 64)
                __builtin_prefetch(data.codes + at);
        const int64_t first = data.offsets[listed[c]], length = data.offsets[listed[c] + 1] - first;
        float score = 0;
        for (int64_t p = 0; p < bytes.pages() && length > 0; ++p) {
            alignas(32) int32_t maxima[kPage];
            kernels.maxima(data.codes + first * data.dim, length, bytes.page(p), maxima);
            for (int i = 0; i < tokens_of_page(tokens, p); ++i)
                score += static_cast<float>(maxima[i]) * bytes.inverse_scale(p * kPage + i);
        }
        score /= data.scale;
        scored.push_back({listed[c], score});
        const bool room = static_cast<int64_t>(best.size()) < settings.keep;
        if (room || score > best.front()) {
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
    const auto kept = static_cast<ptrdiff_t>(std::min<int64_t>(settings.keep, static_cast<int64_t>(scored.size())));
    std::partial_sort(scored.begin(), scored.begin() + kept, scored.end(), better);
    scored.resize(static_cast<size_t>(kept));
    // |max_j q·x_j − max_j q̂·x_j| ≤ |q − q̂| · max|x|; the last factor leaves room for the summation in floats.
    const double longest = (kCodeNorm + std::sqrt(static_cast<double>(data.dim)) / 2) / data.scale;
    return {std::move(scored), static_cast<float>(bytes.rounding() * longest * 1.0001 + 1e-5)};
}

void decode(const EngineData& data, const int32_t* listed, int64_t count, float* out) {
    const float inverse = 1 / data.scale;
    for (int64_t c = 0; c < count; ++c) {
        const uint8_t* from = data.codes + data.offsets[listed[c]] * data.dim;
        const uint8_t* end = data.codes + data.offsets[listed[c] + 1] * data.dim;
        for (; from < end; ++from) *out++ = static_cast<float>(*from - 128) * inverse;
    }
}

}  // namespace weft
