// Probing: from query tokens over cells and centroids to the documents worth scoring.
#include "engine.hpp"

#include <algorithm>
#include <cstddef>

#include "byte_query.hpp"

namespace weft {
namespace {

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
    void run(const ByteKernels& kernels, const EngineData& data, const Probe& probe, const QueryPage& page, uint32_t* sums) {
        kernels_ = kernels;
        data_ = data;
        probe_ = probe;
        if (!clean_) {  // the last run ended early, out of memory
            slots_.clear();
            rows_.clear();
        }
        clean_ = false;
        if (slots_.size() < static_cast<size_t>(data.cell_starts[data.cells]))
            slots_.resize(static_cast<size_t>(data.cell_starts[data.cells]), -1);
        if (rows_.size() < static_cast<size_t>(data.documents) * kPage) rows_.resize(static_cast<size_t>(data.documents) * kPage, 0);
        visit_cells(page, page.lanes);
        score_centroids(page, page.lanes);
        choose_centroids(page.lanes);
        raise_documents(rows_.data());
        kernels.drain_sums(rows_.data(), data.documents, sums);
        for (const int32_t centroid : touched_) slots_[centroid] = -1;
        clean_ = true;
    }

private:
    void visit_cells(const QueryPage& page, int tokens) {
        cell_rows_.resize(static_cast<size_t>(data_.cells) * kPage);
        kernels_.similarities(data_.cell_codes, data_.cells, page, cell_rows_.data());
        histograms_.assign(static_cast<size_t>(kPage) * 256, 0);
        for (int64_t c = 0; c < data_.cells; ++c)
            for (int i = 0; i < tokens; ++i) ++histograms_[i * 256 + cell_rows_[c * kPage + i]];
        uint8_t least[kPage];
        for (int i = 0; i < tokens; ++i)  // at least 1: a token near nothing, or zero, must not visit everything
            least[i] = static_cast<uint8_t>(std::max(1, threshold(&histograms_[i * 256], probe_.cells)));

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
                                        values_.data() + visit.token * stride_ + visit.start);
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
            const uint8_t* value = values_.data() + visit.token * stride_ + visit.start;
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
        const size_t count = touched_.size();
        List lists[kRowsAhead + 1];
        for (size_t t = 0; t < count + kRowsAhead; ++t) {
            if (t + kListAhead < count) prefetch_list(touched_[t + kListAhead]);
            if (t < count) {
                const List& next = lists[t % (kRowsAhead + 1)] = list(touched_[t], t % (kRowsAhead + 1));
                for (int64_t l = 0; l < std::min<int64_t>(48, next.length); ++l)
                    __builtin_prefetch(rows + int64_t{next.documents[l]} * kPage, 1);
            }
            if (t < kRowsAhead) continue;
            const List& now = lists[(t - kRowsAhead) % (kRowsAhead + 1)];
            kernels_.raise(rows, now.documents, now.length, &excess_[(t - kRowsAhead) * kPage]);
        }
    }

    struct List {
        const int32_t* documents;
        int64_t length;
    };

    List list(int32_t centroid, size_t buffer) {
        const int64_t first = data_.list_starts[centroid], length = data_.list_starts[centroid + 1] - first;
        if (data_.steps == nullptr) return {data_.lists + first, length};
        std::vector<int32_t>& documents = unpacked_[buffer];
        if (documents.size() < static_cast<size_t>(length)) documents.resize(static_cast<size_t>(length));
        int32_t* out = documents.data();
        int32_t at = -1;
        for (int64_t l = 0; l < length; ++l) {
            const int32_t step = data_.steps[first + l];
            at += step != 0 ? step : 65535;
            *out = at;
            out += step != 0;
        }
        return {documents.data(), out - documents.data()};
    }

    void prefetch_list(int32_t centroid) const {
        const int64_t first = data_.list_starts[centroid];
        if (data_.steps != nullptr) __builtin_prefetch(data_.steps + first);
        else __builtin_prefetch(data_.lists + first);
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
    std::vector<int32_t> unpacked_[4];
    bool clean_ = true;             // slots_ all −1, rows_ all 0
};

bool eligible(const EngineData& data, const uint8_t* allowed, int64_t d) {
    return (allowed == nullptr || allowed[d] != 0) && data.offsets[d] < data.offsets[d + 1];
}

// The eligible documents with the largest sums, best first, ties by document. Sums of documents not allowed become 0.
std::vector<int32_t> largest(const EngineData& data, const uint8_t* allowed, std::vector<uint32_t>& sums, int64_t wanted) {
    if (allowed != nullptr)
        for (int64_t d = 0; d < data.documents; ++d) sums[d] = allowed[d] != 0 ? sums[d] : 0;
    // Documents without tokens are in no list: they have sum 0, which is counted but never needed. `eligible` reads more
    // memory than the sums themselves, and is asked only of the few that reach `least`.
    std::vector<uint32_t> histogram(*std::max_element(sums.begin(), sums.end()) + size_t{1}, 0);
    for (const uint32_t sum : sums) ++histogram[sum];
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

std::vector<int32_t> find_candidates(const ByteKernels& kernels, const EngineData& data, const float* query, int64_t tokens,
                                     const uint8_t* allowed, const Probe& probe) {
    int64_t number = data.filled;
    if (allowed != nullptr) {
        number = 0;
        for (int64_t d = 0; d < data.documents; ++d) number += eligible(data, allowed, d);
    }
    std::vector<uint32_t> sums(static_cast<size_t>(data.documents), 0);
    if (number > probe.candidates && probe.candidates > 0 && tokens > 0) {
        static thread_local Prober prober;
        const ByteQuery bytes(query, tokens, data.dim, data.norm, true);
        for (int64_t p = 0; p < bytes.pages(); ++p) prober.run(kernels, data, probe, bytes.page(p), sums.data());
    }
    if (number == 0 || probe.candidates <= 0) return {};
    return largest(data, allowed, sums, probe.candidates);
}

}  // namespace weft
