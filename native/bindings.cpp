// The Python module weft._native: checks that no array can lead the kernels out of bounds, releases the GIL,
// and calls scoring.hpp. Its users are weft.kernels, which allocates the results, and the tests.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "binding_arrays.hpp"
#include "cpu.hpp"
#include "clustering_bindings.hpp"
#include "engine_bindings.hpp"
#include "token_bindings.hpp"
#include "mapped_file_bindings.hpp"
#include "scoring.hpp"
#include "corpus_index_bindings.hpp"
#include "spans_bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Values = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class Array>
int64_t length(const Array& array, int axis = 0) {
    return static_cast<int64_t>(array.shape(axis));
}

template <class T>
const T* data_or_null(const std::optional<Input<T, 1>>& array) {
    return array ? array->data() : nullptr;
}

void check_offsets(const Input<int64_t, 1>& offsets, int64_t tokens, const char* message) {
    bool good = length(offsets) >= 1 && offsets.data()[0] == 0;
    for (int64_t i = 1; good && i < length(offsets); ++i) good = offsets.data()[i - 1] <= offsets.data()[i];
    require(good && offsets.data()[length(offsets) - 1] == tokens, message);
}

weft::Queries make_queries(const Input<float, 2>& values, const Input<int64_t, 1>& offsets,
                           const std::optional<Input<float, 1>>& salience) {
    check_offsets(offsets, length(values), "query_offsets must rise from 0 to the number of query tokens");
    require(!salience || length(*salience) == length(values), "query_salience must have one entry per token");
    return {values.data(), offsets.data(), length(offsets) - 1, data_or_null(salience)};
}

weft::Documents make_documents(const Values& values, const Input<int64_t, 1>& offsets,
                               const std::optional<Input<float, 1>>& salience,
                               const std::optional<Input<int32_t, 1>>& k, int64_t query_dim) {
    const bool half = values.dtype() == nb::dlpack::dtype{static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    require(half || values.dtype() == nb::dtype<float>(), "documents must be float32 or float16");
    require(length(values, 1) == query_dim, "queries and documents must have the same dimension");
    check_offsets(offsets, length(values), "offsets must rise from 0 to the number of document tokens");
    const int64_t count = length(offsets) - 1;
    require(!salience || length(*salience) == length(values), "salience must have one entry per token");
    require(!k || length(*k) == count, "k must have one entry per document");
    for (int64_t d = 0; k && d < count; ++d) {
        const int64_t tokens = offsets.data()[d + 1] - offsets.data()[d], chosen = k->data()[d];
        require(tokens == 0 || (1 <= chosen && chosen <= tokens), "k must lie between 1 and the document's length");
    }
    return {values.data(), half, query_dim, offsets.data(), count, data_or_null(salience), data_or_null(k)};
}

void score(const Input<float, 2>& queries, const Input<int64_t, 1>& query_offsets,
           const std::optional<Input<float, 1>>& query_salience, const Values& documents,
           const Input<int64_t, 1>& offsets, const std::optional<Input<float, 1>>& salience,
           const std::optional<Input<int32_t, 1>>& k, const Output<float, 2>& out,
           const std::optional<Output<float, 2>>& mass, int threads) {
    const weft::Queries q = make_queries(queries, query_offsets, query_salience);
    const weft::Documents d = make_documents(documents, offsets, salience, k, length(queries, 1));
    require(length(out) == q.count && length(out, 1) == d.count, "out must have shape (queries, documents)");
    require(!mass || (length(*mass) == q.count && length(*mass, 1) == d.count),
            "mass must have shape (queries, documents)");
    require(threads >= 1, "threads must be at least 1");
    const weft::Kernels& kernels = *weft::active_level().kernels;
    float* masses = mass ? mass->data() : nullptr;
    const nb::gil_scoped_release released;
    weft::score(kernels, q, d, out.data(), masses, threads);
}

void align(const Input<float, 2>& query, const Values& documents, const Input<int64_t, 1>& offsets,
           const std::optional<Input<int32_t, 1>>& k, const Input<int64_t, 1>& starts,
           const Output<int32_t, 1>& query_token, const Output<int32_t, 1>& document_token,
           const Output<float, 1>& similarity) {
    const int64_t query_offsets[] = {0, length(query)};
    const weft::Queries q{query.data(), query_offsets, 1, nullptr};
    const weft::Documents d = make_documents(documents, offsets, std::nullopt, k, length(query, 1));
    require(length(starts) == d.count + 1 && starts.data()[0] == 0, "starts must begin at 0, one entry more than documents");
    for (int64_t i = 0; i < d.count; ++i) {
        const int64_t tokens = d.offsets[i + 1] - d.offsets[i], chosen = tokens == 0 ? 0 : d.k ? d.k[i] : 1;
        require(starts.data()[i + 1] - starts.data()[i] == length(query) * chosen, "starts must leave n * k places");
    }
    const int64_t pairs = starts.data()[d.count];
    require(length(query_token) == pairs && length(document_token) == pairs && length(similarity) == pairs,
            "query_token, document_token and similarity must have starts[-1] entries");
    const weft::Kernels& kernels = *weft::active_level().kernels;
    const nb::gil_scoped_release released;
    weft::align(kernels, q, d, {starts.data(), query_token.data(), document_token.data(), similarity.data()});
}

void similarities(const Input<float, 2>& query, const Values& documents, const Input<int64_t, 1>& offsets,
                  const Output<float, 2>& out) {
    const int64_t query_offsets[] = {0, length(query)};
    const weft::Queries q{query.data(), query_offsets, 1, nullptr};
    const weft::Documents d = make_documents(documents, offsets, std::nullopt, std::nullopt, length(query, 1));
    require(length(out) == length(query) && length(out, 1) == length(documents), "out must have shape (query tokens, document tokens)");
    const weft::Kernels& kernels = *weft::active_level().kernels;
    const nb::gil_scoped_release released;
    weft::similarities(kernels, q, d, out.data());
}

}  // namespace

NB_MODULE(_native, module) {
    nb::set_leak_warnings(false);  // an index that was never closed is still mapped when Python ends: no leak
    module.doc() = "C++ kernels of weft: see weft.kernels.";
    bind_token_retrieval(module);
    bind_engine(module);
    bind_clustering(module);
    bind_mapped_file(module);
    bind_corpus_index(module);
    bind_spans(module);
    module.def("simd_level", [] { return std::string(weft::active_level().name); });
    module.def("simd_levels", [] {
        std::vector<std::string> names;
        for (const weft::Level& level : weft::supported_levels()) names.emplace_back(level.name);
        return names;
    });
    module.def("score", &score, "queries"_a.noconvert(), "query_offsets"_a.noconvert(),
               "query_salience"_a.noconvert().none(), "documents"_a.noconvert(), "offsets"_a.noconvert(),
               "salience"_a.noconvert().none(), "k"_a.noconvert().none(), "out"_a.noconvert(),
               "mass"_a.noconvert().none(), "threads"_a);
    module.def("similarities", &similarities, "query"_a.noconvert(), "documents"_a.noconvert(), "offsets"_a.noconvert(),
               "out"_a.noconvert());
    module.def("align", &align, "query"_a.noconvert(), "documents"_a.noconvert(), "offsets"_a.noconvert(),
               "k"_a.noconvert().none(), "starts"_a.noconvert(), "query_token"_a.noconvert(),
               "document_token"_a.noconvert(), "similarity"_a.noconvert());
}
