// weft._native.Engine: a coded segment's arrays, checked so that nothing in them leads out of bounds, and searches over them.
#include "engine_bindings.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "binding_arrays.hpp"
#include "byte_layout.hpp"
#include "byte_query.hpp"
#include "cpu.hpp"
#include "probing.hpp"
#include "reranking.hpp"
#include "token_sample.hpp"
#include "token_scan.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T>
void check_starts(const Input<T, 1>& starts, int64_t end, const char* message) {
    const auto count = static_cast<int64_t>(starts.shape(0));
    bool good = count >= 1 && starts.data()[0] == 0;
    for (int64_t i = 1; good && i < count; ++i) good = starts.data()[i - 1] <= starts.data()[i];
    require(good && starts.data()[count - 1] == end, message);
}

auto columns(const std::vector<weft::Scored>& scored) {
    std::vector<int32_t> documents;
    std::vector<float> scores;
    for (const weft::Scored& s : scored) {
        documents.push_back(s.document);
        scores.push_back(s.score);
    }
    return std::make_pair(to_numpy(std::move(documents)), to_numpy(std::move(scores)));
}

using Listing = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Optional = std::optional<T>;

using Flags = Optional<Input<uint8_t, 1>>;

class Engine {
public:
    Engine(Input<int64_t, 1> offsets, Input<uint8_t, 2> codes, float scale, Input<uint8_t, 2> cell_codes,
           Input<int32_t, 1> cell_starts, Input<int32_t, 1> cell_blocks, Input<uint8_t, 1> centroid_codes,
           Input<int64_t, 1> list_starts, Listing lists, Optional<double> norm, Optional<Input<uint8_t, 2>> centroid_rows,
           Optional<Input<int8_t, 2>> levels, Optional<Input<uint8_t, 2>> token_centroids, Optional<Input<float, 1>> spread,
           Optional<Input<int8_t, 3>> codebooks, Optional<Input<uint8_t, 2>> sketches, Optional<Input<float, 1>> saliences,
           Optional<Input<float, 1>> mean_weights, Optional<Input<uint8_t, 1>> list_weights, float weight_unit)
        : offsets_(offsets), codes_(codes), cell_codes_(cell_codes), cell_starts_(cell_starts), cell_blocks_(cell_blocks),
          centroid_codes_(centroid_codes), list_starts_(list_starts), lists_(lists), centroid_rows_(centroid_rows),
          levels_(levels), token_centroids_(token_centroids), codebooks_(codebooks), sketches_(sketches), saliences_(saliences),
          mean_weights_(mean_weights), list_weights_(list_weights) {
        const auto dim = static_cast<int64_t>(cell_codes.shape(1));
        const auto tokens = static_cast<int64_t>(codes.shape(0));
        require(dim > 0 && dim % weft::kDimMultiple == 0 && dim <= weft::kMaxDim, "codes must have a multiple of 4 columns, at most 16384");
        require(std::isfinite(scale) && scale > 0, "scale must be positive");
        require(!norm || (std::isfinite(*norm) && *norm >= 0), "norm must be finite and not negative");
        check_starts(offsets, tokens, "offsets must rise from 0 to the number of tokens");
        require(static_cast<int64_t>(offsets.shape(0)) - 1 <= INT32_MAX, "a segment has at most 2^31 - 1 documents");
        data_.dim = dim;
        data_.documents = static_cast<int64_t>(offsets.shape(0)) - 1;
        for (int64_t d = 0; d < data_.documents; ++d) {
            const int64_t length = offsets.data()[d + 1] - offsets.data()[d];
            require(length <= INT32_MAX, "a document has at most 2^31 - 1 tokens");
            data_.filled += length > 0;
        }
        data_.offsets = offsets.data();
        data_.bits = 8;
        data_.codes = codes.data();
        data_.scale = scale;
        data_.norm = norm ? *norm : weft::kCodeNorm + std::sqrt(static_cast<double>(dim)) / 2;
        set_cells();
        set_lists();
        if (spread) set_lifts(*spread);
        set_weights(tokens, weight_unit);
        if (sketches) {
            set_sketches(tokens);
        } else {
            require(!codebooks, "codebooks go with sketches");
        }
        if (levels) {
            set_residuals(tokens);
        } else {
            require(!centroid_rows && !token_centroids, "centroid_rows and token_centroids go with levels");
            require(static_cast<int64_t>(codes.shape(1)) == dim, "cells must have the dimension of the codes");
        }
    }

    auto candidates(const Input<float, 2>& query, const Flags& allowed, int64_t cells, int64_t centroids, int64_t count) const {
        return to_numpy(find(query, allowed, {cells, centroids, count, 0, {}, {}}, {}).documents);
    }

    auto probe(const Input<float, 2>& query, const Flags& allowed, int64_t cells, int64_t centroids, int64_t count, int64_t keep,
               const Flags& checked, double promise, double sketch, const Optional<Input<float, 1>>& imputed,
               const Optional<Input<float, 1>>& floors, double sure, int64_t wanted, double reached, bool weighs,
               const Optional<Input<float, 1>>& weights, bool divides) const {
        require(!std::isnan(sure) && !std::isnan(reached), "sure and reached must be numbers");
        require(!weighs || (data_.list_weights != nullptr && keep == 0), "weighed documents have list_weights, and no sketch is looked at");
        const weft::Weighing weighing = checked_weighing(query, weights, divides);
        weft::Bar least{promise, sketch, {}};
        if (imputed) {
            require(imputed->shape(0) == query.shape(0), "imputed must have an entry per query token");
            least.imputed.assign(imputed->data(), imputed->data() + imputed->shape(0));
            for (const float value : least.imputed) require(std::isfinite(value), "imputed must be finite");
        }
        if (floors) {
            require(floors->shape(0) == query.shape(0), "floors must have an entry per query token");
            for (size_t i = 0; i < floors->shape(0); ++i) require(std::isfinite(floors->data()[i]), "floors must be finite");
        }
        const weft::Probe probe{cells, centroids, count, keep, std::move(least), {sure, wanted, reached}, floors ? floors->data() : nullptr,
                                weighs ? &weighing : nullptr};
        weft::Candidates found = find(query, allowed, probe, checked);
        return nb::make_tuple(to_numpy(found.documents), found.checked, found.last.promise, found.last.sketch,
                              to_numpy(std::move(found.last.imputed)), to_numpy(std::move(found.estimates)));
    }

    auto rerank(const Input<float, 2>& query, const Input<int32_t, 1>& listed, int64_t keep, int64_t patience) const {
        const weft::Reranked found = ranked(weft::rerank, query, listed, {patience, keep});
        const auto [documents, scores] = columns(found.documents);
        return nb::make_tuple(documents, scores, found.error);
    }

    auto best(const Input<float, 2>& query, const Input<int32_t, 1>& listed, int64_t keep, int64_t patience,
              const Optional<Input<float, 1>>& missing, float least, const Optional<Input<float, 1>>& estimates, double sure, int64_t wanted) const {
        if (missing) {
            require(missing->shape(0) == query.shape(0), "missing must have an entry per query token");
            for (size_t i = 0; i < missing->shape(0); ++i) require(std::isfinite(missing->data()[i]), "missing must be finite");
        }
        require(!std::isnan(sure), "sure must be a number");
        require(!estimates || estimates->shape(0) == listed.shape(0), "estimates must have an entry per listed document");
        weft::BestDocuments found = ranked(weft::best_documents, query, listed,
                                           {patience, keep, missing ? missing->data() : nullptr, least,
                                            estimates ? estimates->data() : nullptr, {sure, wanted, least}});
        const auto [documents, scores] = columns(found.documents);
        const size_t rows = found.documents.size(), width = query.shape(0);
        return nb::make_tuple(documents, scores, found.error, to_numpy(std::move(found.tokens), rows, width),
                              to_numpy(std::move(found.similarities), rows, width), found.scored);
    }

    auto rerank_weighed(const Input<float, 2>& query, const Input<int32_t, 1>& listed, int64_t keep,
                        const Optional<Input<float, 1>>& weights, bool divides) const {
        check_query(query);
        check_listed(listed);
        require(data_.saliences != nullptr, "weighed documents have saliences");
        const weft::Weighing weighing = checked_weighing(query, weights, divides);
        const weft::ByteKernels& kernels = *weft::active_level().bytes;
        std::vector<weft::Scored> found;
        {
            const nb::gil_scoped_release release;
            found = weft::rerank_weighed(kernels, data_, query.data(), static_cast<int64_t>(query.shape(0)), listed.data(),
                                         static_cast<int64_t>(listed.shape(0)), keep, weighing);
        }
        const auto [documents, scores] = columns(found);
        return nb::make_tuple(documents, scores);
    }

    auto score(const Input<float, 2>& query, const Input<int32_t, 1>& listed) const {
        check_query(query);
        check_listed(listed);
        const weft::ByteKernels& kernels = *weft::active_level().bytes;
        std::vector<float> scores(listed.shape(0));
        {
            const nb::gil_scoped_release release;
            weft::score_codes(kernels, data_, query.data(), static_cast<int64_t>(query.shape(0)), listed.data(),
                              static_cast<int64_t>(listed.shape(0)), scores.data());
        }
        return to_numpy(scores);
    }

    void scan_tokens(weft::TokenRetrieval& into, const Input<float, 2>& query, const Flags& allowed, int64_t base,
                     bool certain) const {
        check_retrieval(into, query, allowed, base);
        const weft::ByteKernels& kernels = *weft::active_level().bytes;
        const nb::gil_scoped_release release;
        weft::scan_tokens(kernels, data_, query.data(), allowed ? allowed->data() : nullptr, base, certain, into);
    }

    void sample_tokens(weft::TokenRetrieval& into, const Input<float, 2>& query, const Input<int64_t, 1>& rows) const {
        check_query(query);
        require(static_cast<int64_t>(query.shape(0)) == into.tokens(), "the retrieval is of another query");
        check_rows(rows);
        const weft::ByteKernels& kernels = *weft::active_level().bytes;
        const nb::gil_scoped_release release;
        weft::sample_tokens(kernels, data_, query.data(), rows.data(), static_cast<int64_t>(rows.shape(0)), into);
    }

    // None where tokens do not say which cell they are of.
    std::unique_ptr<weft::TokenSample> token_sample(const Input<int64_t, 1>& rows) const {
        check_rows(rows);
        if (!weft::TokenSample::possible(data_)) return nullptr;
        const nb::gil_scoped_release release;
        return std::make_unique<weft::TokenSample>(*weft::active_level().bytes, data_, rows.data(), static_cast<int64_t>(rows.shape(0)));
    }

    bool retrieve_sampled(weft::TokenRetrieval& into, const Input<float, 2>& query, const weft::TokenSample& sample, int64_t cells) const {
        check_query(query);
        require(static_cast<int64_t>(query.shape(0)) == into.tokens(), "the retrieval is of another query");
        require(sample.cells() == data_.cells && sample.dim() == data_.dim, "the sample is of another segment");
        require(cells >= 1, "cells must be at least 1");
        const weft::ByteKernels& kernels = *weft::active_level().bytes;
        const nb::gil_scoped_release release;
        return sample.retrieve(kernels, data_, query.data(), std::min(cells, data_.cells), into);
    }

    void decode(const Input<int32_t, 1>& listed, const nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>& out) const {
        check_listed(listed);
        int64_t rows = 0;
        for (size_t l = 0; l < listed.shape(0); ++l)
            rows += data_.offsets[listed.data()[l] + 1] - data_.offsets[listed.data()[l]];
        require(static_cast<int64_t>(out.shape(0)) == rows && static_cast<int64_t>(out.shape(1)) == data_.dim,
                "out must have a row per token of the listed documents");
        const nb::gil_scoped_release release;
        weft::decode(*weft::active_level().bytes, data_, listed.data(), static_cast<int64_t>(listed.shape(0)), out.data());
    }

private:
    weft::Candidates find(const Input<float, 2>& query, const Flags& allowed, const weft::Probe& probe, const Flags& checked) const {
        check_query(query);
        check_flags(allowed, "allowed must have an entry per document");
        check_flags(checked, "checked must have an entry per document");
        const weft::ByteKernels& kernels = *weft::active_level().bytes;
        const nb::gil_scoped_release release;
        return weft::find_candidates(kernels, data_, query.data(), static_cast<int64_t>(query.shape(0)),
                                     allowed ? allowed->data() : nullptr, probe, checked ? checked->data() : nullptr);
    }

    template <class Result>
    Result ranked(Result (*function)(const weft::ByteKernels&, const weft::CodedSegment&, const float*, int64_t, const int32_t*, int64_t,
                                     const weft::Rerank&),
                  const Input<float, 2>& query, const Input<int32_t, 1>& listed, const weft::Rerank& how) const {
        check_query(query);
        check_listed(listed);
        const weft::ByteKernels& kernels = *weft::active_level().bytes;
        const nb::gil_scoped_release release;
        return function(kernels, data_, query.data(), static_cast<int64_t>(query.shape(0)), listed.data(),
                        static_cast<int64_t>(listed.shape(0)), how);
    }

    void set_cells() {
        const auto cells = static_cast<int64_t>(cell_codes_.shape(0)), bytes = static_cast<int64_t>(centroid_codes_.shape(0));
        require(static_cast<int64_t>(cell_starts_.shape(0)) == cells + 1 && static_cast<int64_t>(cell_blocks_.shape(0)) == cells + 1,
                "cell_starts and cell_blocks must have an entry per cell and one more");
        require(list_starts_.shape(0) >= 1, "list_starts must have an entry per centroid and one more");
        data_.centroids = static_cast<int64_t>(list_starts_.shape(0)) - 1;
        check_starts(cell_starts_, data_.centroids, "cell_starts must rise from 0 to the number of centroids");
        require(bytes % (weft::kBlock * data_.dim) == 0, "centroids must come in blocks of 8");
        require(bytes / data_.dim <= INT32_MAX, "a segment has at most 2^31 - 1 centroids, its blocks filled up");
        check_starts(cell_blocks_, bytes / (weft::kBlock * data_.dim), "cell_blocks must rise from 0 to the number of blocks");
        const int32_t *starts = cell_starts_.data(), *blocks = cell_blocks_.data();
        for (int64_t c = 0; c < cells; ++c)
            require(int64_t{starts[c + 1]} - starts[c] <= (int64_t{blocks[c + 1]} - blocks[c]) * weft::kBlock,
                    "a cell's centroids must fit its blocks");
        data_.cells = cells;
        data_.cell_codes = cell_codes_.data();
        data_.cell_starts = starts;
        data_.cell_blocks = blocks;
        data_.centroid_codes = centroid_codes_.data();
    }

    void set_lists() {
        check_starts(list_starts_, static_cast<int64_t>(lists_.shape(0)), "list_starts must rise from 0 to the number of listings");
        data_.list_starts = list_starts_.data();
        if (lists_.dtype() == nb::dtype<int32_t>()) {
            data_.lists = static_cast<const int32_t*>(lists_.data());
            bool good = true;
            for (size_t l = 0; l < lists_.shape(0); ++l) good &= 0 <= data_.lists[l] && data_.lists[l] < data_.documents;
            require(good, "lists must name documents");
            return;
        }
        require(lists_.dtype() == nb::dtype<uint16_t>(), "lists must be int32 documents or uint16 steps");
        data_.steps = static_cast<const uint16_t*>(lists_.data());
        for (int64_t c = 0; c < data_.centroids; ++c) {
            int64_t at = -1;
            for (int64_t l = data_.list_starts[c]; l < data_.list_starts[c + 1]; ++l)
                at += data_.steps[l] != 0 ? data_.steps[l] : weft::kLongStep;
            require(at < data_.documents, "lists must name documents");
        }
    }

    void set_lifts(const Input<float, 1>& spread) {
        require(static_cast<int64_t>(spread.shape(0)) == data_.cells, "spread must have an entry per cell");
        for (int64_t c = 0; c < data_.cells; ++c) {
            require(std::isfinite(spread.data()[c]) && spread.data()[c] >= 0, "spread must be finite and not negative");
            lifts_.push_back(weft::cell_lift(double{spread.data()[c]} * data_.scale, data_.dim, data_.norm));
        }
        data_.lifts = lifts_.data();
    }

    void set_weights(int64_t tokens, float unit) {
        if (saliences_) {
            require(static_cast<int64_t>(saliences_->shape(0)) == tokens, "saliences must have an entry per token");
            data_.saliences = saliences_->data();
        }
        require(mean_weights_.has_value() == list_weights_.has_value(), "mean_weights go with list_weights");
        if (!list_weights_) return;
        require(list_weights_->shape(0) == lists_.shape(0), "list_weights must have an entry per listing");
        require(static_cast<int64_t>(mean_weights_->shape(0)) == data_.documents, "mean_weights must have an entry per document");
        for (int64_t d = 0; d < data_.documents; ++d)
            require(std::isfinite(mean_weights_->data()[d]) && mean_weights_->data()[d] >= 0, "mean_weights must be finite and not negative");
        require(std::isfinite(unit) && unit >= 0, "weight_unit must be finite and not negative");
        data_.mean_weights = mean_weights_->data();
        data_.list_weights = list_weights_->data();
        data_.weight_unit = unit;
    }

    static weft::Weighing checked_weighing(const Input<float, 2>& query, const Optional<Input<float, 1>>& weights, bool divides) {
        if (!weights) return {nullptr, divides};
        require(weights->shape(0) == query.shape(0), "weights must have an entry per query token");
        double sum = 0;
        for (size_t i = 0; i < weights->shape(0); ++i) {
            require(std::isfinite(weights->data()[i]) && weights->data()[i] >= 0, "weights must be finite and not negative");
            sum += weights->data()[i];
        }
        return {weights->data(), divides, static_cast<float>(sum / std::max<double>(static_cast<double>(weights->shape(0)), 1))};
    }

    void set_sketches(int64_t tokens) {
        require(static_cast<int64_t>(sketches_->shape(0)) == tokens &&
                    static_cast<int64_t>(sketches_->shape(1)) == weft::sketch_width(data_.dim),
                "sketches must have two bytes and half a byte per 4 dimensions for each token");
        require(codebooks_ && static_cast<int64_t>(codebooks_->shape(0)) == data_.dim / weft::kSubVector &&
                    codebooks_->shape(1) == weft::kEntries && codebooks_->shape(2) == weft::kSubVector,
                "codebooks must have 16 entries of 4 for every 4 dimensions");
        require(data_.cells > 0 || tokens == 0, "sketches need cells");
        data_.codebooks = codebooks_->data();
        data_.sketches = sketches_->data();
    }

    void set_residuals(int64_t tokens) {
        require(levels_->shape(0) == weft::kTables && (levels_->shape(1) == 16 || levels_->shape(1) == 4),
                "levels must be 4 tables of 16 or 4");
        data_.bits = levels_->shape(1) == 16 ? 4 : 2;
        // Tables of 16 bytes each, whatever the bits, for the kernels to load whole.
        for (size_t table = 0; table < weft::kTables; ++table)
            std::copy_n(levels_->data() + table * levels_->shape(1), levels_->shape(1), tables_ + table * weft::kLevels);
        data_.levels = tables_;
        require(static_cast<int64_t>(codes_.shape(1)) == weft::packed_width(data_.dim, data_.bits),
                "codes must have 4 bytes per bit for every 32 dimensions");
        require(token_centroids_ && static_cast<int64_t>(token_centroids_->shape(0)) == tokens && token_centroids_->shape(1) == weft::kLabelBytes,
                "token_centroids must have 3 bytes per token");
        require(centroid_rows_ && static_cast<int64_t>(centroid_rows_->shape(0)) == data_.centroids &&
                    static_cast<int64_t>(centroid_rows_->shape(1)) == data_.dim && (data_.centroids > 0 || tokens == 0),
                "centroid_rows must have a row of the dimension for each centroid");
        data_.token_centroids = token_centroids_->data();
        data_.centroid_rows = centroid_rows_->data();
    }

    void check_query(const Input<float, 2>& query) const {
        require(static_cast<int64_t>(query.shape(1)) == data_.dim, "the query must have the dimension of the codes");
        require(weft::all_finite(query.data(), static_cast<int64_t>(query.size())), "the query must be finite");
    }
    void check_retrieval(const weft::TokenRetrieval& into, const Input<float, 2>& query, const Flags& allowed, int64_t base) const {
        check_query(query);
        check_flags(allowed, "allowed must have an entry per document");
        require(static_cast<int64_t>(query.shape(0)) == into.tokens(), "the retrieval is of another query");
        require(0 <= base && base <= INT32_MAX - data_.documents, "documents must fit 31 bits");
    }
    void check_rows(const Input<int64_t, 1>& rows) const {
        bool good = true;
        for (size_t r = 0; r < rows.shape(0); ++r) good &= 0 <= rows.data()[r] && rows.data()[r] < data_.offsets[data_.documents];
        require(good, "rows must name tokens");
    }
    void check_flags(const Flags& flags, const char* message) const {
        require(!flags || static_cast<int64_t>(flags->shape(0)) == data_.documents, message);
    }
    void check_listed(const Input<int32_t, 1>& listed) const {
        for (size_t l = 0; l < listed.shape(0); ++l)
            require(0 <= listed.data()[l] && listed.data()[l] < data_.documents, "listed must name documents");
    }

    // Keep the arrays alive as long as the pointers into them.
    Input<int64_t, 1> offsets_;
    Input<uint8_t, 2> codes_, cell_codes_;
    Input<int32_t, 1> cell_starts_, cell_blocks_;
    Input<uint8_t, 1> centroid_codes_;
    Input<int64_t, 1> list_starts_;
    Listing lists_;
    Optional<Input<uint8_t, 2>> centroid_rows_;
    Optional<Input<int8_t, 2>> levels_;
    Optional<Input<uint8_t, 2>> token_centroids_;
    Optional<Input<int8_t, 3>> codebooks_;
    Optional<Input<uint8_t, 2>> sketches_;
    Optional<Input<float, 1>> saliences_, mean_weights_;
    Optional<Input<uint8_t, 1>> list_weights_;
    std::vector<uint8_t> lifts_;
    alignas(16) int8_t tables_[weft::kTables * weft::kLevels] = {};
    weft::CodedSegment data_{};
};

}  // namespace

void bind_engine(nb::module_& module) {
    // What Python must know of the layout to write it.
    module.attr("DIM_MULTIPLE") = weft::kDimMultiple;
    module.attr("MAX_DIM") = weft::kMaxDim;
    module.attr("CODE_NORM") = weft::kCodeNorm;
    module.attr("BLOCK") = weft::kBlock;
    module.attr("LONG_STEP") = weft::kLongStep;
    module.attr("GROUP") = weft::kGroup;
    module.attr("TABLES") = weft::kTables;
    module.attr("CENTROID_BITS") = weft::kCentroidBits;
    module.attr("LABEL_BYTES") = weft::kLabelBytes;
    module.attr("SPREAD") = weft::kSpread;
    module.attr("ENTRIES") = weft::kEntries;
    module.attr("SUB_VECTOR") = weft::kSubVector;
    module.attr("CELL_BYTES") = weft::kCellBytes;
    nb::class_<weft::TokenSample>(module, "TokenSample");
    nb::class_<Engine>(module, "Engine")
        .def(nb::init<Input<int64_t, 1>, Input<uint8_t, 2>, float, Input<uint8_t, 2>, Input<int32_t, 1>, Input<int32_t, 1>,
                      Input<uint8_t, 1>, Input<int64_t, 1>, Listing, Optional<double>, Optional<Input<uint8_t, 2>>,
                      Optional<Input<int8_t, 2>>, Optional<Input<uint8_t, 2>>, Optional<Input<float, 1>>,
                      Optional<Input<int8_t, 3>>, Optional<Input<uint8_t, 2>>, Optional<Input<float, 1>>, Optional<Input<float, 1>>,
                      Optional<Input<uint8_t, 1>>, float>(),
             "offsets"_a, "codes"_a, "scale"_a, "cell_codes"_a, "cell_starts"_a, "cell_blocks"_a, "centroid_codes"_a,
             "list_starts"_a, "lists"_a, "norm"_a = nb::none(), "centroid_rows"_a = nb::none(), "levels"_a = nb::none(),
             "token_centroids"_a = nb::none(), "spread"_a = nb::none(), "codebooks"_a = nb::none(), "sketches"_a = nb::none(),
             "saliences"_a = nb::none(), "mean_weights"_a = nb::none(), "list_weights"_a = nb::none(), "weight_unit"_a = 0.0f)
        .def("candidates", &Engine::candidates, "query"_a, "allowed"_a.none(), "cells"_a, "centroids"_a, "count"_a)
        .def("probe", &Engine::probe, "query"_a, "allowed"_a.none(), "cells"_a, "centroids"_a, "count"_a, "keep"_a,
             "checked"_a.none(), "promise"_a = -INFINITY, "sketch"_a = -INFINITY, "imputed"_a.none() = nb::none(), "floors"_a.none() = nb::none(),
             "sure"_a = INFINITY, "wanted"_a = 0, "reached"_a = -INFINITY, "weighs"_a = false, "weights"_a.none() = nb::none(), "divides"_a = false)
        .def("rerank_weighed", &Engine::rerank_weighed, "query"_a, "listed"_a, "keep"_a, "weights"_a.none(), "divides"_a)
        .def("rerank", &Engine::rerank, "query"_a, "listed"_a, "keep"_a, "patience"_a)
        .def("best", &Engine::best, "query"_a, "listed"_a, "keep"_a, "patience"_a, "missing"_a = nb::none(),
             "least"_a = -INFINITY, "estimates"_a = nb::none(), "sure"_a = INFINITY, "wanted"_a = 0)
        .def("score", &Engine::score, "query"_a, "listed"_a)
        .def("scan_tokens", &Engine::scan_tokens, "into"_a, "query"_a, "allowed"_a.none(), "base"_a, "certain"_a)
        .def("sample_tokens", &Engine::sample_tokens, "into"_a, "query"_a, "rows"_a)
        .def("token_sample", &Engine::token_sample, "rows"_a)
        .def("retrieve_sampled", &Engine::retrieve_sampled, "into"_a, "query"_a, "sample"_a, "cells"_a)
        .def("decode", &Engine::decode, "listed"_a, "out"_a);
}
