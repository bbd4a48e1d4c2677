// weft._native.TokenRetrieval: the best tokens of each query token, and scores of documents from them alone.
#include "token_bindings.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "binding_arrays.hpp"
#include "token_retrieval.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using weft::TokenRetrieval;

// Similarities (query tokens, tokens) of documents whose tokens begin at `offsets`, and which of all documents each of them is.
void add(TokenRetrieval& into, const Input<float, 2>& similarities, const Input<int64_t, 1>& offsets, const Input<int64_t, 1>& documents) {
    const auto tokens = static_cast<int64_t>(similarities.shape(1));
    const auto count = static_cast<int64_t>(documents.shape(0));
    require(static_cast<int64_t>(similarities.shape(0)) == into.tokens(), "the retrieval is of another query");
    bool good = static_cast<int64_t>(offsets.shape(0)) == count + 1 && offsets.data()[0] == 0 && offsets.data()[count] == tokens;
    for (int64_t d = 0; good && d < count; ++d) {
        good = offsets.data()[d] <= offsets.data()[d + 1] && 0 <= documents.data()[d] && documents.data()[d] <= INT32_MAX;
    }
    require(good, "offsets must rise from 0 to the number of tokens, one more than documents");
    const nb::gil_scoped_release release;
    for (int64_t i = 0; i < into.tokens(); ++i) {
        const float* row = similarities.data() + i * tokens;
        for (int64_t d = 0; d < count; ++d)
            for (int64_t t = offsets.data()[d]; t < offsets.data()[d + 1]; ++t)
                if (row[t] >= into.floor(i))
                    into.add(i, {row[t], static_cast<int32_t>(documents.data()[d]), static_cast<int32_t>(t - offsets.data()[d])});
    }
}

// Each query token keeps only what reaches its entry.
void raise_floors(TokenRetrieval& retrieval, const Input<float, 1>& floors) {
    require(static_cast<int64_t>(floors.shape(0)) == retrieval.tokens(), "floors must have an entry per query token");
    for (int64_t i = 0; i < retrieval.tokens(); ++i) retrieval.raise_floor(i, floors.data()[i]);
}

auto settle(TokenRetrieval& retrieval) {
    {
        const nb::gil_scoped_release release;
        retrieval.settle();
    }
    return to_numpy(std::vector<float>(retrieval.last()));
}

auto score(const TokenRetrieval& retrieval, const Input<int64_t, 1>& lengths, const std::optional<Input<float, 1>>& missing,
           bool divides_by_query, int64_t wanted, const std::optional<Input<uint8_t, 1>>& ranked) {
    require(!missing || static_cast<int64_t>(missing->shape(0)) == retrieval.tokens(), "missing must have an entry per query token");
    for (size_t i = 0; missing && i < missing->shape(0); ++i) require(std::isfinite(missing->data()[i]), "missing must be finite");
    require(!ranked || ranked->shape(0) == lengths.shape(0), "ranked must have an entry per document");
    const auto documents = static_cast<int64_t>(lengths.shape(0));
    for (int64_t i = 0; i < retrieval.tokens(); ++i)
        for (const weft::RetrievedToken& token : retrieval.of(i)) require(token.document < documents, "lengths must have an entry per document");
    weft::TokenScores found;
    {
        const nb::gil_scoped_release release;
        found = retrieval.score(documents, {missing ? missing->data() : nullptr, divides_by_query, std::max<int64_t>(wanted, 0),
                                            ranked ? ranked->data() : nullptr, lengths.data()});
    }
    const size_t rows = found.documents.size(), width = static_cast<size_t>(retrieval.tokens());
    return nb::make_tuple(to_numpy(std::move(found.documents)), to_numpy(std::move(found.scores)),
                          to_numpy(std::move(found.values), rows, width), to_numpy(std::move(found.positions), rows, width));
}

auto maxima(const TokenRetrieval& retrieval, int64_t documents) {
    for (int64_t i = 0; i < retrieval.tokens(); ++i)
        for (const weft::RetrievedToken& token : retrieval.of(i)) require(token.document < documents, "there are more documents");
    TokenRetrieval::Maxima found;
    {
        const nb::gil_scoped_release release;
        found = retrieval.maxima(documents, true);
    }
    const size_t rows = found.documents.size(), width = static_cast<size_t>(retrieval.tokens());
    return nb::make_tuple(to_numpy(std::move(found.documents)), to_numpy(std::move(found.best), rows, width),
                          to_numpy(std::move(found.positions), rows, width), to_numpy(std::move(found.found), rows, width));
}

// (query tokens, most): the best similarities, best first, −∞ where fewer were kept. Call `settle` first.
auto similarities(const TokenRetrieval& retrieval, int64_t most) {
    require(most >= 1 && most <= INT32_MAX, "most must be at least 1");
    const size_t rows = static_cast<size_t>(retrieval.tokens()), width = static_cast<size_t>(most);
    std::vector<float> found(rows * width, -std::numeric_limits<float>::infinity());
    {
        const nb::gil_scoped_release release;
        std::vector<float> row;
        for (size_t i = 0; i < rows; ++i) {
            row.clear();
            for (const weft::RetrievedToken& token : retrieval.of(static_cast<int64_t>(i))) row.push_back(token.similarity);
            const size_t count = std::min(width, row.size());
            std::partial_sort(row.begin(), row.begin() + static_cast<ptrdiff_t>(count), row.end(), std::greater<>());
            std::copy_n(row.begin(), count, found.begin() + static_cast<ptrdiff_t>(i * width));
        }
    }
    return to_numpy(std::move(found), rows, width);
}

}  // namespace

void bind_token_retrieval(nb::module_& module) {
    nb::class_<TokenRetrieval>(module, "TokenRetrieval")
        .def("__init__",
             [](TokenRetrieval* self, int64_t tokens, int64_t k_prime) {
                 require(tokens >= 0 && k_prime >= 1 && k_prime <= INT32_MAX, "k_prime must be at least 1");
                 new (self) TokenRetrieval(tokens, k_prime);
             },
             "tokens"_a, "k_prime"_a)
        .def("add", &add, "similarities"_a, "offsets"_a, "documents"_a)
        .def("raise_floors", &raise_floors, "floors"_a)
        .def("settle", &settle)
        .def("similarities", &similarities, "most"_a)
        .def("score", &score, "lengths"_a, "missing"_a.none(), "divides_by_query"_a, "wanted"_a, "ranked"_a.none())
        .def("maxima", &maxima, "documents"_a);
}
