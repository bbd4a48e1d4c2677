// Choosing documents by the sketches of their tokens (product quantisation), the most promising first.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "byte_layout.hpp"
#include "byte_query.hpp"
#include "coded_segment.hpp"
#include "probing.hpp"
#include "stopping.hpp"

namespace weft {

// The best probe.sketched of the documents by their sketches, of those that reach the bar.
class Sketcher {
public:
    // `cell_rows`: the query's similarities with all cells, page by page. `promises`: of the documents, falling; empty where they
    // come in no order. Returns documents whose sketches must be checked before another try.
    std::vector<int32_t> run(const ByteKernels& kernels, const CodedSegment& data, const ByteQuery& query, const uint8_t* cell_rows,
                             const Probe& probe, const std::vector<double>& promises, const uint8_t* checked,
                             std::vector<int32_t>& documents, Bar& last) {
        sub_vectors_ = data.dim / kSubVector;
        width_ = sketch_width(data.dim);
        // A sketch's sum has 128 more in each lane of each page; the rest is in parts of a dot product at the query's common scale.
        const double unit = 32768.0 / kEntryShare * query.inverse_scale(0) / data.scale;
        const double common = static_cast<double>(query.pages()) * kPage * 128;
        set_tables(kernels, data, query, cell_rows, probe, unit);
        keys_.clear();
        Stopping stopping(promises.empty() ? Stop{} : probe.stop, kFirst);
        for (size_t i = 0; i < documents.size(); ++i) {
            if (stopping.on() && i % kStep == 0 && promises[i] < stopping.least()) break;
            if (checked != nullptr && checked[documents[i]] == 0) {
                std::vector<int32_t> unchecked;
                const size_t end = stopping.on() ? std::min(std::max(2 * i, kCheckedAtOnce), documents.size()) : documents.size();
                for (size_t j = i; j < end; ++j)
                    if (checked[documents[j]] == 0) unchecked.push_back(documents[j]);
                return unchecked;
            }
            if (i + kAhead < documents.size()) prefetch(data, documents[i + kAhead]);
            const uint32_t sum = sketch(kernels, data, documents[i], query.pages());
            if (stopping.on()) stopping.saw(promises[i], (sum - common) * unit);
            keys_.push_back(uint64_t{sum} << 32 | (UINT32_MAX - i));
        }
        const int64_t wanted = probe.sketched, kept = std::min(wanted, static_cast<int64_t>(keys_.size()));
        const bool more = wanted < static_cast<int64_t>(keys_.size());
        std::partial_sort(keys_.begin(), keys_.begin() + kept, keys_.end(), std::greater<>());
        const auto score = [&](int64_t i) { return (static_cast<double>(keys_[static_cast<size_t>(i)] >> 32) - common) * unit; };
        if (more && kept > 0) last.sketch = score(kept - 1);
        found_.clear();
        estimates_.clear();
        // A few go on in any case: sketches by a codebook that has grown since it was trained are a little low.
        const int64_t always = wanted / kAlways;
        for (int64_t i = 0; i < kept && (i < always || score(i) >= probe.least.sketch); ++i) {
            found_.push_back(documents[UINT32_MAX - static_cast<uint32_t>(keys_[static_cast<size_t>(i)])]);
            estimates_.push_back(static_cast<float>(score(i)));
        }
        documents.assign(found_.begin(), found_.end());
        return {};
    }

    // The documents' scores by their sketches.
    const std::vector<float>& estimates() const { return estimates_; }

private:
    static constexpr size_t kAhead = 3, kStep = 16, kCheckedAtOnce = 512;
    static constexpr int64_t kFirst = 64;
    static constexpr int64_t kAlways = 6;  // one in so many of those asked for goes on whatever the bar

    void set_tables(const ByteKernels& kernels, const CodedSegment& data, const ByteQuery& query, const uint8_t* cell_rows,
                    const Probe& probe, double unit) {
        const int64_t pages = query.pages();
        tables_.resize(static_cast<size_t>(pages * sub_vectors_ * kEntries * kPage));
        cells_.resize(static_cast<size_t>(pages * data.cells * kPage));
        floors_.assign(static_cast<size_t>(pages * kPage), int8_t{-128});
        for (int64_t p = 0; p < pages; ++p) {
            kernels.sketch_table(data.codebooks, query.page(p), tables_.data() + p * sub_vectors_ * kEntries * kPage);
            const int64_t cells = p * data.cells * kPage;
            kernels.sketch_cells(cell_rows + cells, data.cells, query.page(p).lanes, cells_.data() + cells);
            for (int i = 0; probe.floors != nullptr && unit > 0 && i < query.page(p).lanes; ++i)
                floors_[static_cast<size_t>(p * kPage + i)] =
                    static_cast<int8_t>(std::clamp(std::floor(double{probe.floors[p * kPage + i]} / unit + 0.5), -128.0, 127.0));
        }
    }

    uint32_t sketch(const ByteKernels& kernels, const CodedSegment& data, int32_t document, int64_t pages) const {
        const int64_t first = data.offsets[document], count = data.offsets[document + 1] - first;
        uint32_t sum = 0;
        for (int64_t p = 0; p < pages; ++p)
            sum += kernels.sketch_sum(data.sketches + first * width_, count, sub_vectors_,
                                      tables_.data() + p * sub_vectors_ * kEntries * kPage, cells_.data() + p * data.cells * kPage,
                                      data.cells - 1, floors_.data() + p * kPage);
        return sum;
    }

    void prefetch(const CodedSegment& data, int32_t document) const {
        const int64_t first = data.offsets[document], last = data.offsets[document + 1];
        for (int64_t at = first * width_; at < last * width_; at += 64) __builtin_prefetch(data.sketches + at);
    }

    int64_t sub_vectors_ = 0, width_ = 0;
    std::vector<int8_t> tables_, cells_, floors_;  // of all pages
    std::vector<uint64_t> keys_;
    std::vector<int32_t> found_;
    std::vector<float> estimates_;
};

}  // namespace weft
