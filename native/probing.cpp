// Probing: from query tokens over cells and centroids to the documents worth scoring.
#include "probing.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <utility>

#include "byte_layout.hpp"
#include "byte_query.hpp"
#include "sketching.hpp"

namespace weft {
namespace {

struct Visit {  // query token → cell, with its centroids' similarities from `start`
    int32_t token;
    int32_t cell;
    int64_t start;
};

// The documents with the largest sums, as keys that compare as the documents do: sum, then the lower document.
class Best {
public:
    explicit Best(int64_t wanted) : wanted_(static_cast<size_t>(wanted)), room_(2 * wanted_ + 64) {}

    // What a document of a higher number must exceed to count.
    uint32_t floor() const { return floor_; }

    void add(uint32_t sum, int64_t document) {
        keys_.push_back(uint64_t{sum} << 32 | (UINT32_MAX - static_cast<uint32_t>(document)));
        if (keys_.size() < room_) return;
        const auto least = keys_.begin() + static_cast<ptrdiff_t>(wanted_ - 1);
        std::nth_element(keys_.begin(), least, keys_.end(), std::greater<>());
        floor_ = static_cast<uint32_t>(*least >> 32);
        keys_.resize(wanted_);
    }

    // After `in_order`: of the documents that it returned, the same sums in the upper half.
    const std::vector<uint64_t>& keys() const { return keys_; }
    // After `in_order`: the sum of the last document, if as many were found as were wanted; else −1.
    int64_t last() const { return last_; }

    // Keeps what reaches `least`.
    std::vector<int32_t> in_order(int64_t least) {
        std::sort(keys_.begin(), keys_.end(), std::greater<>());
        keys_.resize(std::min(keys_.size(), wanted_));
        last_ = keys_.size() == wanted_ ? static_cast<int64_t>(keys_.back() >> 32) : -1;
        while (!keys_.empty() && static_cast<int64_t>(keys_.back() >> 32) < least) keys_.pop_back();
        std::vector<int32_t> documents(keys_.size());
        for (size_t i = 0; i < keys_.size(); ++i)
            documents[i] = static_cast<int32_t>(UINT32_MAX - static_cast<uint32_t>(keys_[i]));
        return documents;
    }

private:
    size_t wanted_, room_;
    uint32_t floor_ = 0;
    int64_t last_ = -1;
    std::vector<uint64_t> keys_;
};

// So few documents are sketched one and all even under a bar: probing would cost more.
constexpr int64_t kFew = 48;

bool eligible(const CodedSegment& data, const uint8_t* allowed, int64_t d) {
    return (allowed == nullptr || allowed[d] != 0) && data.offsets[d] < data.offsets[d + 1];
}

// Probing, page by page. A document's row of 32 bytes holds how far its best centroid exceeds the imputed similarity of each
// token; the sum of a row is the imputed score less what every document has in common. Memory is kept between queries.
class Prober {
public:
    std::vector<int32_t> run(const ByteKernels& kernels, const CodedSegment& data, const ByteQuery& query, const uint8_t* allowed,
                             const Probe& probe, Bar& last) {
        kernels_ = kernels;
        data_ = data;
        probe_ = probe;
        if (!clean_) {  // the last run ended early, out of memory
            rows_.clear();
            sums_.clear();
        }
        clean_ = false;
        const bool weighs = probe.weighing != nullptr;
        grow(rows_, weighs ? 0 : data.documents * kPage, uint8_t{0});
        grow(sums_, weighs ? 0 : data.documents, 0u);
        if (weighs) weighed_.start(data);
        grow(cell_rows_, query.pages() * data.cells * kPage, uint8_t{0});
        Best best(probe.candidates);
        // Similarities are bytes of dot products with the query at its common scale.
        const double unit = query.tokens() > 0 ? (1 << kRowShift) * query.inverse_scale(0) / data.scale : 0;
        int64_t imputed = 0;
        last.imputed.clear();
        for (int64_t p = 0; p < query.pages(); ++p) {
            const QueryPage& page = query.page(p);
            visit_cells(page, cell_rows(p));
            score_centroids(page);
            imputed += choose_centroids(page.lanes, p * kPage, unit, last.imputed);
            raise_documents(rows_.data());
            if (weighs)
                weighed_.end_page(data, *probe.weighing, imputed_, p * kPage, page.lanes);
            else if (p + 1 < query.pages()) kernels.drain_sums(rows_.data(), data.documents, sums_.data());
        }
        clean_ = true;
        if (weighs) return best_weighed(allowed);
        drain_best(allowed, best);
        const double least = unit > 0 ? probe.least.promise / unit - static_cast<double>(imputed) : -INFINITY;
        std::vector<int32_t> found = best.in_order(least > 0 ? static_cast<int64_t>(std::min(least, 4e9)) : 0);
        if (best.last() >= 0) last.promise = static_cast<double>(best.last() + imputed) * unit;
        imputed_sum_ = static_cast<double>(imputed) * unit;
        promises_.clear();
        for (size_t i = 0; i < found.size(); ++i)
            promises_.push_back(static_cast<double>(best.keys()[i] >> 32) * unit + imputed_sum_);
        return found;
    }

    // What every document has in common in the last run, in units of scores.
    double imputed() const { return imputed_sum_; }

    // What the documents of the last run promised, in units of scores.
    const std::vector<double>& promises() const { return promises_; }

    // Only the similarities with the cells, for the sketches of documents that need no finding.
    void score_cells(const ByteKernels& kernels, const CodedSegment& data, const ByteQuery& query) {
        data_ = data;
        grow(cell_rows_, query.pages() * data.cells * kPage, uint8_t{0});
        for (int64_t p = 0; p < query.pages(); ++p) kernels.similarities(data.cell_codes, data.cells, query.page(p), cell_rows(p));
    }

    // The similarities of the last query's page p with all cells.
    uint8_t* cell_rows(int64_t page) { return cell_rows_.data() + page * data_.cells * kPage; }

private:
    template <class T>
    static void grow(std::vector<T>& values, int64_t size, T value) {
        if (values.size() < static_cast<size_t>(size)) values.resize(static_cast<size_t>(size), value);
    }

    void visit_cells(const QueryPage& page, uint8_t* rows) {
        kernels_.similarities(data_.cell_codes, data_.cells, page, rows);
        const uint8_t* ranked = rows;
        if (data_.lifts != nullptr) {
            grow(lifted_, data_.cells * kPage, uint8_t{0});
            kernels_.lift(rows, data_.cells, data_.lifts, lifted_.data());
            ranked = lifted_.data();
        }
        uint8_t least[kPage];
        kernels_.column_thresholds(ranked, data_.cells, probe_.cells, least);
        for (uint8_t& value : least) value = std::max<uint8_t>(value, 1);  // a token near nothing must not visit everything
        grow(masks_, data_.cells, 0u);
        kernels_.reach(ranked, data_.cells, least, masks_.data());

        // Cell by cell, so that a cell's centroids are read once for all the tokens that want them.
        const uint32_t lanes = page.lanes < kPage ? (uint32_t{1} << page.lanes) - 1 : ~uint32_t{0};
        visits_.clear();
        std::fill(lengths_, lengths_ + kPage, 0);
        for (int64_t c = 0; c < data_.cells; ++c) {
            const int64_t size = (int64_t{data_.cell_blocks[c + 1]} - data_.cell_blocks[c]) * kBlock;
            for (uint32_t mask = masks_[static_cast<size_t>(c)] & lanes; mask != 0; mask &= mask - 1) {
                const int i = __builtin_ctz(mask);
                visits_.push_back({i, static_cast<int32_t>(c), lengths_[i]});
                lengths_[i] += size;
            }
        }
    }

    void score_centroids(const QueryPage& page) {
        stride_ = *std::max_element(lengths_, lengths_ + page.lanes);
        grow(values_, stride_ * page.lanes, uint8_t{0});
        for (size_t v = 0; v < visits_.size(); ++v) {
            const Visit& visit = visits_[v];
            const int64_t first = data_.cell_blocks[visit.cell], last = data_.cell_blocks[visit.cell + 1];
            if (v + 1 < visits_.size() && visits_[v + 1].cell != visit.cell) prefetch_cell(visits_[v + 1].cell);
            kernels_.block_similarities(data_.centroid_codes + first * kBlock * data_.dim, last - first, page, visit.token,
                                        values_.data() + visit.token * stride_ + visit.start);
        }
    }

    void prefetch_cell(int32_t cell) const {
        const int64_t bytes = kBlock * data_.dim, first = data_.cell_blocks[cell], last = data_.cell_blocks[cell + 1];
        for (int64_t at = first * bytes; at < last * bytes; at += 64) __builtin_prefetch(data_.centroid_codes + at);
    }

    // Keep, for each token, the centroids strictly above its probe_.centroids-th similarity, or above what the bar imputes: that is
    // imputed. Returns the sum, and adds them to `all` in units of scores.
    int64_t choose_centroids(int tokens, int64_t first, double unit, std::vector<float>& all) {
        uint8_t* imputed = imputed_;
        int64_t sum = 0;
        for (int i = 0; i < tokens; ++i) {
            if (probe_.least.imputed.empty() || unit <= 0) {
                const int64_t wanted = probe_.weighing == nullptr ? probe_.centroids : probe_.weighing->of(probe_.centroids, first + i);
                imputed[i] = kernels_.threshold(values_.data() + i * stride_, lengths_[i], wanted);
            } else {
                const double given = double{probe_.least.imputed[static_cast<size_t>(first + i)]} / unit + 0.5;
                imputed[i] = static_cast<uint8_t>(given > 0 ? std::min(given, 255.0) : 0);
            }
            sum += imputed[i];
            all.push_back(static_cast<float>(imputed[i] * unit));
        }
        touched_.clear();
        excess_.clear();
        int32_t cell = -1;
        for (const Visit& visit : visits_) {
            const int32_t first = data_.cell_starts[visit.cell], count = data_.cell_starts[visit.cell + 1] - first;
            if (visit.cell != cell) {  // a cell's visits follow each other
                slots_.assign(static_cast<size_t>(count), -1);
                grow(positions_, count, 0);
                cell = visit.cell;
            }
            const uint8_t* value = values_.data() + visit.token * stride_ + visit.start;
            const uint8_t base = imputed[visit.token];
            const int64_t found = kernels_.above(value, count, base, positions_.data());
            for (int64_t f = 0; f < found; ++f) {
                const int32_t c = positions_[static_cast<size_t>(f)];
                int32_t& slot = slots_[static_cast<size_t>(c)];
                if (slot < 0) {
                    slot = static_cast<int32_t>(touched_.size());
                    touched_.push_back(first + c);
                    __builtin_prefetch(data_.list_starts + first + c);
                    excess_.resize(excess_.size() + kPage, 0);
                }
                excess_[static_cast<size_t>(slot) * kPage + static_cast<size_t>(visit.token)] = static_cast<uint8_t>(value[c] - base);
            }
        }
        return sum;
    }

    void raise_documents(uint8_t* rows) {
        constexpr size_t kListAhead = 24, kRowsAhead = 3;  // far enough for memory to answer, near enough to stay cached
        const size_t count = touched_.size();
        List lists[kRowsAhead + 1];
        for (size_t t = 0; t < count + kRowsAhead; ++t) {
            if (t + kListAhead < count) prefetch_list(touched_[t + kListAhead]);
            if (t < count) {
                const List& next = lists[t % (kRowsAhead + 1)] = list(touched_[t], t % (kRowsAhead + 1));
                for (int64_t l = 0; l < (probe_.weighing != nullptr ? 0 : std::min<int64_t>(48, next.length)); ++l)
                    __builtin_prefetch(rows + int64_t{next.documents[l]} * kPage, 1);
            }
            if (t < kRowsAhead) continue;
            const List& now = lists[(t - kRowsAhead) % (kRowsAhead + 1)];
            if (probe_.weighing != nullptr)
                weighed_.raise(now.documents, now.weights, now.length, &excess_[(t - kRowsAhead) * kPage]);
            else
                kernels_.raise(rows, now.documents, now.length, &excess_[(t - kRowsAhead) * kPage]);
        }
    }

    struct List {
        const int32_t* documents;
        int64_t length;
        const uint8_t* weights;  // null where nothing weighs
    };

    List list(int32_t centroid, size_t buffer) {
        const int64_t first = data_.list_starts[centroid], length = data_.list_starts[centroid + 1] - first;
        const uint8_t* weights = probe_.weighing == nullptr ? nullptr : data_.list_weights + first;
        if (data_.steps == nullptr) return {data_.lists + first, length, weights};
        std::vector<int32_t>& documents = unpacked_[buffer];
        grow(documents, length, 0);
        std::vector<uint8_t>& beside = unpacked_weights_[buffer];
        grow(beside, weights == nullptr ? 0 : length, uint8_t{0});
        int32_t* out = documents.data();
        int32_t at = -1;
        for (int64_t l = 0; l < length; ++l) {
            const int32_t step = data_.steps[first + l];
            at += step != 0 ? step : kLongStep;
            *out = at;
            if (weights != nullptr) beside[static_cast<size_t>(out - documents.data())] = weights[l];
            out += step != 0;
        }
        return {documents.data(), out - documents.data(), beside.data()};
    }

    void prefetch_list(int32_t centroid) const {
        const int64_t first = data_.list_starts[centroid], last = data_.list_starts[centroid + 1];
        if (data_.steps != nullptr) {
            for (int64_t l = first; l < last; l += 32) __builtin_prefetch(data_.steps + l);
        } else {
            for (int64_t l = first; l < last; l += 16) __builtin_prefetch(data_.lists + l);
        }
    }

    // Sums and rows are read and become 0 in one go, a few cached pages at a time.
    void drain_best(const uint8_t* allowed, Best& best) {
        constexpr int64_t kSome = 1024, kStep = 16;
        for (int64_t first = 0; first < data_.documents; first += kSome) {
            const int64_t count = std::min(kSome, data_.documents - first);
            uint32_t* sums = sums_.data() + first;
            kernels_.drain_sums(rows_.data() + first * kPage, count, sums);
            for (int64_t d = 0; d < count; d += kStep) {
                const int64_t end = std::min(d + kStep, count);
                const auto floor = static_cast<int32_t>(best.floor());
                int32_t exceeding = 0;  // no branch, so that the compiler compares many at once: few exceed
                for (int64_t e = d; e < end; ++e) exceeding |= static_cast<int32_t>(sums[e]) > floor ? 1 : 0;
                if (exceeding == 0) continue;
                for (int64_t e = d; e < end; ++e)
                    if (sums[e] > best.floor() && (allowed == nullptr || allowed[first + e] != 0)) best.add(sums[e], first + e);
            }
            std::fill(sums, sums + count, 0u);
        }
    }

    // Scores above 0 compare as their bits do.
    std::vector<int32_t> best_weighed(const uint8_t* allowed) {
        Best best(probe_.candidates);
        for (int64_t d = 0; d < data_.documents; ++d) {
            if (!weighed_.found(d) || (allowed != nullptr && allowed[d] == 0)) continue;
            const float score = weighed_.score(data_, *probe_.weighing, d);
            uint32_t bits;
            std::memcpy(&bits, &score, 4);
            if (score > 0 && bits > best.floor()) best.add(bits, d);
        }
        return best.in_order(0);
    }

    ByteKernels kernels_{};
    CodedSegment data_{};
    Probe probe_{};
    WeighedRows weighed_;
    uint8_t imputed_[kPage] = {};  // of the page at hand
    std::vector<uint8_t> rows_, cell_rows_, lifted_, values_, excess_;
    std::vector<uint32_t> masks_, sums_;
    std::vector<double> promises_;
    double imputed_sum_ = 0;
    std::vector<Visit> visits_;
    int64_t lengths_[kPage] = {};
    int64_t stride_ = 0;
    std::vector<int32_t> slots_;    // centroid of the cell at hand → its row in excess_, or -1
    std::vector<int32_t> touched_;  // slot → centroid
    std::vector<int32_t> positions_;
    std::vector<int32_t> unpacked_[4];
    std::vector<uint8_t> unpacked_weights_[4];
    bool clean_ = true;             // rows_ and sums_ all 0
};

// Documents that no list named come last, in their own order.
void fill_up(const CodedSegment& data, const uint8_t* allowed, int64_t wanted, std::vector<int32_t>& documents) {
    std::vector<bool> there(static_cast<size_t>(data.documents), false);
    for (const int32_t d : documents) there[static_cast<size_t>(d)] = true;
    for (int64_t d = 0; d < data.documents && static_cast<int64_t>(documents.size()) < wanted; ++d)
        if (!there[static_cast<size_t>(d)] && eligible(data, allowed, d)) documents.push_back(static_cast<int32_t>(d));
}

// No list should name a document without tokens; asked only of the few that were found.
void leave_out_empty(const CodedSegment& data, const uint8_t* allowed, std::vector<int32_t>& documents, std::vector<double>& promises) {
    size_t kept = 0;
    for (size_t i = 0; i < documents.size(); ++i) {
        if (!eligible(data, allowed, documents[i])) continue;
        documents[kept] = documents[i];
        if (!promises.empty()) promises[kept] = promises[i];
        ++kept;
    }
    documents.resize(kept);
    if (!promises.empty()) promises.resize(kept);
}

}  // namespace

uint8_t cell_lift(double spread, int64_t dim, double norm) {
    // The greatest coded query: the spread is that of a token along it.
    const double longest = 32767 / std::max(norm, 1.0) - std::sqrt(static_cast<double>(dim)) / 2;
    const double lift = kSpread * spread * longest / (1 << kRowShift);
    return lift > 0 ? static_cast<uint8_t>(std::min(lift, 255.0)) : uint8_t{0};
}

Candidates find_candidates(const ByteKernels& kernels, const CodedSegment& data, const float* query, int64_t tokens,
                           const uint8_t* allowed, const Probe& probe, const uint8_t* sketch_checked) {
    if (probe.candidates <= 0) return {{}, true, {}};
    static thread_local Prober thread_prober;
    static thread_local Sketcher thread_sketcher;
    Prober& prober = thread_prober;  // looked up once: each use of a thread's variable is a call in a shared library
    auto wanted = std::min(probe.candidates, data.documents);
    int64_t number = allowed == nullptr ? data.filled : 0;
    if (allowed != nullptr)  // are there more than will be looked at?
        for (int64_t d = 0; d < data.documents && number <= std::max(wanted, kFew); ++d) number += eligible(data, allowed, d);
    const bool barred = probe.least.promise > -INFINITY || probe.least.sketch > -INFINITY;
    if (barred && number <= kFew) wanted = std::max(wanted, number);
    const bool all = tokens == 0 || number <= (barred ? std::min(wanted, kFew) : wanted);
    const bool sketch = data.sketches != nullptr && probe.sketched > 0 && tokens > 0 &&
                        (barred || probe.sketched < std::min(number, wanted));
    std::vector<int32_t> documents;
    std::vector<double> promises;  // falling; empty where documents come in no order
    Bar last;
    if (all) fill_up(data, allowed, wanted, documents);
    if (all && !sketch) return {std::move(documents), true, last};
    const ByteQuery bytes(query, tokens, data.dim, data.norm, true);
    if (all) {
        prober.score_cells(kernels, data, bytes);
    } else {
        Probe within = probe;
        within.candidates = wanted;
        documents = prober.run(kernels, data, bytes, allowed, within, last);
        promises = prober.promises();
        leave_out_empty(data, allowed, documents, promises);
        if (!barred && static_cast<int64_t>(documents.size()) < wanted) fill_up(data, allowed, wanted, documents);
        if (probe.weighing == nullptr) promises.resize(documents.size(), prober.imputed());
    }
    if (!sketch) return {std::move(documents), true, last, {promises.begin(), promises.end()}};
    std::vector<int32_t> unchecked =
        thread_sketcher.run(kernels, data, bytes, prober.cell_rows(0), probe, promises, sketch_checked, documents, last);
    if (!unchecked.empty()) return {std::move(unchecked), false, {}};
    return {std::move(documents), true, last, thread_sketcher.estimates()};
}

}  // namespace weft
