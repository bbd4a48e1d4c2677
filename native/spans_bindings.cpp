// weft._native.matched_words: what the server shows of each result.
#include "spans_bindings.hpp"

#include <nanobind/stl/optional.h>

#include <cmath>
#include <memory>
#include <optional>

#include "binding_arrays.hpp"
#include "spans.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

class PythonText : public weft::Text {
public:
    explicit PythonText(nb::str text) : text_(std::move(text)), length_(PyUnicode_GetLength(text_.ptr())) {}
    int64_t length() const override { return length_; }
    bool in_word(int64_t position) const override {
        const Py_UCS4 c = PyUnicode_ReadChar(text_.ptr(), static_cast<Py_ssize_t>(position));
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    }

private:
    nb::str text_;
    Py_ssize_t length_;
};

// A positive number to six digits, as Python's round gives it.
double rounded(double value) {
    const double scaled = value * 1e6, whole = std::floor(scaled), rest = scaled - whole;
    // Whole numbers over a million are the doubles nearest to their decimals. The product is off by less than 1e-3.
    if (scaled < 1e12 && std::fabs(rest - 0.5) > 1e-3) return (rest > 0.5 ? whole + 1 : whole) / 1e6;
    return nb::cast<double>(nb::module_::import_("builtins").attr("round")(value, 6));
}

nb::list matched_words(nb::handle make, nb::str text, const Input<uint8_t>& steps, const Input<uint8_t>& lengths,
                       const std::optional<Input<int32_t, 2>>& listed, int64_t first, int64_t stop, const Input<int32_t>& query_token,
                       const Input<int32_t>& document_token, const Input<float>& similarity, const std::optional<Input<float>>& weight,
                       double z) {
    const auto tokens = static_cast<int64_t>(steps.shape(0));
    require(static_cast<int64_t>(lengths.shape(0)) == tokens, "steps and lengths must have an entry for each token");
    require(0 <= first && first <= stop && stop <= tokens, "first and stop must be tokens");
    require(!listed || listed->shape(1) == 3, "listed must have three columns");
    const size_t count = query_token.shape(0);
    require(document_token.shape(0) == count && similarity.shape(0) == count && (!weight || weight->shape(0) == count),
            "pairs must have an entry in each array");
    for (size_t p = 0; p < count; ++p)
        require(document_token.data()[p] < stop - first, "document_token must name tokens of the document");
    const weft::PackedSpans packed{steps.data() + first, lengths.data() + first, stop - first, listed ? listed->data() : nullptr,
                                   listed ? static_cast<int64_t>(listed->shape(0)) : 0, first};
    const weft::Pairs pairs{query_token.data(), document_token.data(), similarity.data(), weight ? weight->data() : nullptr,
                            static_cast<int64_t>(count), z};
    nb::list made;
    for (const weft::Word& word : weft::matched_words(PythonText(std::move(text)), packed, pairs)) {
        nb::list queries;
        for (const int32_t query : word.queries) queries.append(query);
        made.append(make(word.start, word.stop, rounded(word.contribution), queries));
    }
    return made;
}

}  // namespace

void bind_spans(nb::module_& module) {
    module.def("matched_words", matched_words, "make"_a, "text"_a, "steps"_a.noconvert(), "lengths"_a.noconvert(),
               "listed"_a.noconvert().none(), "first"_a, "stop"_a, "query_token"_a.noconvert(), "document_token"_a.noconvert(),
               "similarity"_a.noconvert(), "weight"_a.noconvert().none(), "z"_a);
}
