// weft._native.CorpusIndex: an index of the corpus' n-grams over borrowed arrays; every call takes many states and releases the GIL.
#include "corpus_index_bindings.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "binding_arrays.hpp"
#include "seal.hpp"
#include "corpus_index.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using AnyInput = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Made = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

constexpr int64_t kMostRows = (int64_t{1} << 31) - 1;
constexpr int64_t kReadTogether = 64;  // documents
constexpr int64_t kMostRate = 65536;   // steps from a row to one whose position is stored

template <class Array>
int64_t length(const Array& array) {
    return static_cast<int64_t>(array.shape(0));
}

template <class T>
Made<T> to_numpy(weft::Buffer<T>& values) {
    const auto size = static_cast<size_t>(values.size());
    T* data = values.release();
    if (data == nullptr) data = static_cast<T*>(std::malloc(sizeof(T)));
    nb::capsule owner(data, [](void* p) noexcept { std::free(p); });
    return Made<T>(data, {size}, owner);
}

template <class T>
Made<T> to_numpy(std::vector<T>&& values) {
    auto kept = std::make_unique<std::vector<T>>(std::move(values));
    nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    std::vector<T>* data = kept.release();
    return Made<T>(data->data(), {data->size()}, owner);
}

void check_rising(const int64_t* values, int64_t count, int64_t first, int64_t last, const char* message) {
    bool good = count >= 1 && values[0] == first && values[count - 1] == last;
    for (int64_t i = 1; good && i < count; ++i) good = values[i - 1] <= values[i];
    require(good, message);
}

struct Common {
    Input<int64_t> starts;
    Input<int32_t> tokens;
    Input<uint32_t> first;
    Input<int32_t> symbols;
    Input<int64_t> head_first;
    Input<uint32_t> head_lows;
    Input<int64_t> head_offsets;
    AnyInput head_symbols;
    Input<uint32_t> head_stops;

    void check(int64_t rows, bool wide) const {
        const int64_t size = length(tokens), documents = length(starts) - 1;
        require(0 < rows && rows <= kMostRows, "a text must have from 1 to 2^31 - 1 symbols");
        require(documents >= 0, "starts must have an entry per document and one more");
        bool good = starts.data()[0] == 1 && starts.data()[documents] == rows;
        for (int64_t d = 0; good && d < documents; ++d) good = starts.data()[d] < starts.data()[d + 1];
        require(good, "starts must rise from 1 to the number of symbols, a separator after each document");
        require(length(first) == size + 2 && first.data()[size + 1] == rows, "first must have two entries more than tokens");
        for (int64_t c = 0; c <= size; ++c) require(first.data()[c] <= first.data()[c + 1], "first must rise");
        for (int64_t t = 0; t < length(symbols); ++t)
            require(0 <= symbols.data()[t] && symbols.data()[t] <= size, "symbols must not exceed the number of tokens");
        const int64_t heads = length(head_lows);
        require(length(head_first) >= 1, "head_first must have an entry per depth and one more");
        check_rising(head_first.data(), length(head_first), 0, heads, "head_first must rise from 0 to the number of heads");
        require(length(head_offsets) == heads + 1, "head_offsets must have an entry per head and one more");
        check_rising(head_offsets.data(), heads + 1, 0, length(head_stops), "head_offsets must rise to the number of stops");
        require(length(head_symbols) == length(head_stops), "head_symbols and head_stops must be of one length");
        require(head_symbols.dtype() == (wide ? nb::dtype<uint32_t>() : nb::dtype<uint16_t>()),
                "head_symbols must be of the text's type");
    }
    weft::Alphabet alphabet() const {
        return {length(tokens), tokens.data(), first.data(), length(symbols), symbols.data()};
    }
    weft::Heads heads() const {
        return {length(head_first) - 1, head_first.data(), head_lows.data(), head_offsets.data(), head_symbols.data(),
                head_stops.data()};
    }
};

Common common(Input<int64_t> starts, Input<int32_t> tokens, Input<uint32_t> first, Input<int32_t> symbols,
              Input<int64_t> head_first, Input<uint32_t> head_lows, Input<int64_t> head_offsets, AnyInput head_symbols,
              Input<uint32_t> head_stops) {
    return {starts, tokens, first, symbols, head_first, head_lows, head_offsets, head_symbols, head_stops};
}

class CorpusIndex {
public:
    // The arrays that a text and its methods borrow stay alive with it.
    struct Fm {
        Input<uint64_t> lines, marks;
        Input<uint32_t> zeros, leaves, values, rows;
    };

    static CorpusIndex suffix(const Common& shared, AnyInput text, Input<uint32_t> suffixes) {
        const bool wide = text.dtype() == nb::dtype<uint32_t>();
        require(wide || text.dtype() == nb::dtype<uint16_t>(), "text must be uint16 or uint32");
        const int64_t rows = length(text);
        shared.check(rows, wide);
        require(length(suffixes) == rows, "suffixes must have an entry per symbol of the text");
        const weft::Alphabet alphabet = shared.alphabet();
        const int64_t documents = length(shared.starts) - 1;
        CorpusIndex made(shared);
        if (wide)
            made.text_ = std::make_unique<weft::SuffixIndex<uint32_t>>(
                rows, alphabet, shared.heads(), documents, shared.starts.data(), static_cast<const uint32_t*>(text.data()),
                suffixes.data());
        else
            made.text_ = std::make_unique<weft::SuffixIndex<uint16_t>>(
                rows, alphabet, shared.heads(), documents, shared.starts.data(), static_cast<const uint16_t*>(text.data()),
                suffixes.data());
        made.symbols_ = text;
        made.suffixes_ = suffixes;
        return made;
    }

    static CorpusIndex fm(const Common& shared, const Fm& arrays, int64_t rate, int64_t origin) {
        require(length(shared.starts) >= 1, "starts must have an entry per document and one more");
        const int64_t documents = length(shared.starts) - 1, rows = shared.starts.data()[documents];
        const bool wide = shared.head_symbols.dtype() == nb::dtype<uint32_t>();
        shared.check(rows, wide);
        const int64_t levels = length(arrays.zeros), words = weft::bit_lines(rows) * weft::kLineWords;
        require(1 <= levels && levels <= 32 && length(arrays.lines) == levels * words, "lines must have a row per level");
        require(length(arrays.leaves) == length(shared.tokens) + 1, "leaves must have one entry more than tokens");
        require(length(arrays.marks) == words, "marks must have a bit per row");
        require(1 <= rate && rate <= kMostRate && length(arrays.rows) == documents,
                "rows must have an entry per document, and rate be from 1 to 65536");
        require(0 <= origin && origin < rows, "origin must be a row");
        const weft::Wavelet wavelet{levels, arrays.lines.data(), arrays.zeros.data(), arrays.leaves.data()};
        const weft::Samples samples{rate, arrays.marks.data(), length(arrays.values), arrays.values.data(), origin, arrays.rows.data()};
        CorpusIndex made(shared);
        made.fm_ = arrays;
        const auto make = wide ? &weft::make_fm<uint32_t> : &weft::make_fm<uint16_t>;
        made.text_ = make(rows, shared.alphabet(), shared.heads(), documents, shared.starts.data(), wavelet, samples);
        return made;
    }

    nb::tuple advance(const Input<int64_t>& low, const Input<int64_t>& high, const Input<int32_t>& depth,
                      const std::optional<Input<int64_t>>& beams, const Input<int32_t>& tokens) const {
        check_states(low, high, depth);
        const int64_t count = length(tokens), states = length(low);
        require(beams ? length(*beams) == count : states == count, "there must be a token for each beam");
        for (int64_t i = 0; beams && i < count; ++i)
            require(0 <= beams->data()[i] && beams->data()[i] < states, "beams must name rows of the state");
        std::vector<int64_t> lows(static_cast<size_t>(count)), highs(static_cast<size_t>(count));
        std::vector<int32_t> depths(static_cast<size_t>(count));
        {
            const nb::gil_scoped_release release;
            const int64_t* of = beams ? beams->data() : nullptr;
            std::vector<weft::Range> made(static_cast<size_t>(count));
            text_->extend({low.data(), high.data(), depth.data(), states}, of, tokens.data(), count, made.data());
            for (size_t i = 0; i < made.size(); ++i) {
                lows[i] = made[i].low;
                highs[i] = made[i].high;
                depths[i] = depth.data()[of == nullptr ? static_cast<int64_t>(i) : of[i]] + 1;
            }
        }
        return nb::make_tuple(to_numpy(std::move(lows)), to_numpy(std::move(highs)), to_numpy(std::move(depths)));
    }

    nb::tuple continuations(const Input<int64_t>& low, const Input<int64_t>& high, const Input<int32_t>& depth, bool counted) const {
        check_states(low, high, depth);
        const int64_t count = length(low);
        std::vector<int64_t> offsets(static_cast<size_t>(count) + 1, 0);
        weft::Continuations out{{}, {}, counted};
        {
            const nb::gil_scoped_release release;
            text_->continuations({low.data(), high.data(), depth.data(), count}, out, offsets.data());
        }
        return nb::make_tuple(to_numpy(std::move(offsets)), to_numpy(out.tokens), to_numpy(out.counts));
    }

    // One n-gram's count. Too short a call for releasing the GIL to pay.
    int64_t count(const std::vector<int64_t>& tokens) const {
        weft::Range range{0, text_->rows()};
        for (size_t t = 0; t < tokens.size() && range.low < range.high; ++t) {
            const bool known = 0 <= tokens[t] && tokens[t] < text_->vocabulary();
            range = text_->extend(range, static_cast<int64_t>(t), known ? static_cast<int32_t>(tokens[t]) : -1);
        }
        return range.high - range.low;
    }

    // The ranges of whole n-grams, given end to end.
    nb::tuple find(const Input<int64_t>& offsets, const Input<int32_t>& tokens) const {
        require(length(offsets) >= 1, "offsets must have an entry per n-gram and one more");
        check_rising(offsets.data(), length(offsets), 0, length(tokens), "offsets must rise from 0 to the number of tokens");
        const int64_t count = length(offsets) - 1;
        std::vector<int64_t> lows(static_cast<size_t>(count)), highs(static_cast<size_t>(count));
        {
            const nb::gil_scoped_release release;
            for (int64_t i = 0; i < count; ++i) {
                weft::Range range{0, text_->rows()};
                const int64_t begin = offsets.data()[i], end = offsets.data()[i + 1];
                for (int64_t t = begin; t < end && range.low < range.high; ++t) range = text_->extend(range, t - begin, tokens.data()[t]);
                lows[static_cast<size_t>(i)] = range.low;
                highs[static_cast<size_t>(i)] = range.high;
            }
        }
        return nb::make_tuple(to_numpy(std::move(lows)), to_numpy(std::move(highs)));
    }

    // The first `limit` occurrences by row; below 0: all of them.
    nb::tuple locate(const Input<int64_t>& low, const Input<int64_t>& high, const Input<int32_t>& depth, int64_t limit) const {
        check_states(low, high, depth);
        const int64_t count = length(low);
        std::vector<int64_t> offsets(static_cast<size_t>(count) + 1, 0);
        weft::Buffer<int64_t> documents;
        weft::Buffer<int32_t> positions;
        bool good = true;
        {
            const nb::gil_scoped_release release;
            for (int64_t i = 0; i < count; ++i) {
                const int64_t begin = low.data()[i], end = high.data()[i];
                const int64_t stop = depth.data()[i] == 0 ? begin : limit < 0 || limit > end - begin ? end : begin + limit;
                for (int64_t row = begin; row < stop; ++row) {
                    const int64_t at = text_->position(row, depth.data()[i]);
                    good &= at >= 0 && text_->documents() > 0;
                    if (!good) break;
                    const int64_t document = text_->document_of(at);
                    documents.push(document);
                    positions.push(static_cast<int32_t>(at - text_->starts()[document]));
                }
                offsets[static_cast<size_t>(i) + 1] = documents.size();
            }
        }
        require(good, "the arrays of the text are damaged");
        return nb::make_tuple(to_numpy(std::move(offsets)), to_numpy(documents), to_numpy(positions));
    }

    nb::tuple read(const Input<int64_t>& documents) const {
        check_documents(documents);
        const int64_t count = length(documents);
        std::vector<int64_t> offsets(static_cast<size_t>(count) + 1, 0);
        for (int64_t i = 0; i < count; ++i)
            offsets[static_cast<size_t>(i) + 1] = offsets[static_cast<size_t>(i)] + text_->length(documents.data()[i]);
        weft::Buffer<int32_t> tokens;
        {
            const nb::gil_scoped_release release;
            text_->read(documents.data(), count, tokens.reserve(offsets.back()));
            tokens.commit(offsets.back());
        }
        return nb::make_tuple(to_numpy(std::move(offsets)), to_numpy(tokens));
    }

    // SEAL's scores of some documents, and what they are the sums of: see seal.hpp.
    nb::tuple seal(const Input<int64_t>& documents, const Input<int64_t>& key_offsets, const Input<int32_t>& key_tokens,
                   const Input<double>& key_weights, const Input<double>& unigrams, double beta) const {
        check_documents(documents);
        const int64_t keys = length(key_weights), vocabulary = text_->vocabulary();
        require(length(key_offsets) == keys + 1, "key_offsets must have an entry per key and one more");
        check_rising(key_offsets.data(), keys + 1, 0, length(key_tokens), "key_offsets must rise to the number of tokens");
        require(length(unigrams) == vocabulary, "unigrams must have a weight per token of the vocabulary");
        for (int64_t t = 0; t < length(key_tokens); ++t)
            require(0 <= key_tokens.data()[t] && key_tokens.data()[t] < vocabulary, "keys must be of the vocabulary");
        for (int64_t k = 0; k < keys; ++k) {
            const int32_t *begin = key_tokens.data() + key_offsets.data()[k], *end = key_tokens.data() + key_offsets.data()[k + 1];
            require(begin < end, "keys must not be empty");
            require(k == 0 || std::lexicographical_compare(key_tokens.data() + key_offsets.data()[k - 1], begin, begin, end),
                    "keys must be in order, none twice");
        }
        const int64_t count = length(documents);
        std::vector<double> scores(static_cast<size_t>(count));
        std::vector<int64_t> offsets(static_cast<size_t>(count) + 1, 0);
        weft::Buffer<int32_t> key, position;
        weft::Buffer<double> cover;
        {
            const nb::gil_scoped_release release;
            weft::SealScorer scorer({keys, key_offsets.data(), key_tokens.data(), key_weights.data()}, {vocabulary, unigrams.data()},
                                    beta);
            std::vector<int32_t> tokens;
            const int32_t* next = nullptr;
            for (int64_t i = 0; i < count; ++i) {
                if (i % kReadTogether == 0) {
                    const int64_t some = std::min(count - i, kReadTogether);
                    int64_t all = 0;
                    for (int64_t d = i; d < i + some; ++d) all += text_->length(documents.data()[d]);
                    tokens.resize(static_cast<size_t>(all));
                    text_->read(documents.data() + i, some, tokens.data());
                    // A damaged alphabet must not lead beyond the vocabulary.
                    for (int32_t& token : tokens) token = token < vocabulary ? token : -1;
                    next = tokens.data();
                }
                const int64_t size = text_->length(documents.data()[i]);
                const weft::SealScore scored = scorer(next, size);
                next += size;
                scores[static_cast<size_t>(i)] = scored.score;
                for (const weft::SealHit& hit : scored.hits) {
                    key.push(hit.key);
                    position.push(hit.position);
                    cover.push(hit.cover);
                }
                offsets[static_cast<size_t>(i) + 1] = key.size();
            }
        }
        return nb::make_tuple(to_numpy(std::move(scores)), to_numpy(std::move(offsets)), to_numpy(key), to_numpy(position),
                              to_numpy(cover));
    }

private:
    explicit CorpusIndex(const Common& shared) : shared_(shared) {}

    void check_states(const Input<int64_t>& low, const Input<int64_t>& high, const Input<int32_t>& depth) const {
        require(low.shape(0) == high.shape(0) && low.shape(0) == depth.shape(0), "low, high and depth must be of one length");
        bool good = true;
        for (int64_t i = 0; i < length(low); ++i)
            good &= 0 <= low.data()[i] && low.data()[i] <= high.data()[i] && high.data()[i] <= text_->rows() && 0 <= depth.data()[i] &&
                    depth.data()[i] < INT32_MAX;
        require(good, "a state must be a range of the text's rows, of less than 2^31 - 1 tokens");
    }
    void check_documents(const Input<int64_t>& documents) const {
        for (int64_t i = 0; i < length(documents); ++i)
            require(0 <= documents.data()[i] && documents.data()[i] < text_->documents(), "documents must be numbers of documents");
    }

    Common shared_;
    AnyInput symbols_;
    Input<uint32_t> suffixes_;
    Fm fm_;
    std::unique_ptr<weft::CorpusIndex> text_;
};

template <class Symbol>
nb::tuple build_fm(const Symbol* text, int64_t rows, const Input<int32_t>& suffixes, int64_t alphabet, int64_t rate) {
    int64_t levels = 1;
    while ((alphabet >> levels) != 0) ++levels;
    const int64_t words = weft::bit_lines(rows) * weft::kLineWords;
    std::vector<uint64_t> lines(static_cast<size_t>(levels * words)), marks(static_cast<size_t>(words));
    std::vector<uint32_t> zeros(static_cast<size_t>(levels)), leaves(static_cast<size_t>(alphabet) + 1), values;
    int64_t origin = 0;
    {
        const nb::gil_scoped_release release;
        std::vector<Symbol> transformed(static_cast<size_t>(rows));
        for (int64_t row = 0; row < rows; ++row) {
            const int64_t last = rows - 1 - suffixes.data()[row];  // the text's position where the backward suffix begins
            transformed[static_cast<size_t>(row)] = last + 1 < rows ? text[last + 1] : Symbol{0};
            if (last + 1 == rows) origin = row;
            if (last % rate == 0) {
                weft::set_bit(marks.data(), row);
                values.push_back(static_cast<uint32_t>(last / rate));
            }
        }
        weft::fill_ranks(marks.data(), rows);
        weft::build_wavelet(transformed.data(), rows, levels, alphabet, lines.data(), zeros.data(), leaves.data());
    }
    return nb::make_tuple(to_numpy(std::move(lines)), to_numpy(std::move(zeros)), to_numpy(std::move(leaves)),
                          to_numpy(std::move(marks)), to_numpy(std::move(values)), origin);
}

nb::tuple corpus_index_fm(AnyInput text, const Input<int32_t>& suffixes, int64_t alphabet, int64_t rate) {
    const bool wide = text.dtype() == nb::dtype<uint32_t>();
    require(wide || text.dtype() == nb::dtype<uint16_t>(), "text must be uint16 or uint32");
    const int64_t rows = length(text);
    require(0 < rows && rows <= kMostRows && length(suffixes) == rows, "suffixes must have an entry per symbol of the text");
    require(1 <= rate && rate <= kMostRate && 0 <= alphabet && alphabet < kMostRows, "rate must be from 1 to 65536");
    for (int64_t i = 0; i < rows; ++i)
        require(0 <= suffixes.data()[i] && suffixes.data()[i] < rows, "suffixes must be positions of the text");
    if (wide) return build_fm(static_cast<const uint32_t*>(text.data()), rows, suffixes, alphabet, rate);
    return build_fm(static_cast<const uint16_t*>(text.data()), rows, suffixes, alphabet, rate);
}

}  // namespace

void bind_corpus_index(nb::module_& module) {
    nb::class_<Common>(module, "CorpusIndexTables")
        .def(nb::new_(&common), "starts"_a, "tokens"_a, "first"_a, "symbols"_a, "head_first"_a, "head_lows"_a, "head_offsets"_a,
             "head_symbols"_a, "head_stops"_a);
    nb::class_<CorpusIndex>(module, "CorpusIndex")
        .def_static("suffix", &CorpusIndex::suffix, "tables"_a, "text"_a, "suffixes"_a)
        .def_static(
            "fm",
            [](const Common& shared, Input<uint64_t> lines, Input<uint32_t> zeros, Input<uint32_t> leaves, Input<uint64_t> marks,
               Input<uint32_t> values, Input<uint32_t> rows, int64_t rate, int64_t origin) {
                return CorpusIndex::fm(shared, {lines, marks, zeros, leaves, values, rows}, rate, origin);
            },
            "tables"_a, "lines"_a, "zeros"_a, "leaves"_a, "marks"_a, "values"_a, "rows"_a, "rate"_a, "origin"_a)
        .def("advance", &CorpusIndex::advance, "low"_a, "high"_a, "depth"_a, "beams"_a.none(), "tokens"_a)
        .def("continuations", &CorpusIndex::continuations, "low"_a, "high"_a, "depth"_a, "counted"_a)
        .def("count", &CorpusIndex::count, "tokens"_a)
        .def("find", &CorpusIndex::find, "offsets"_a, "tokens"_a)
        .def("locate", &CorpusIndex::locate, "low"_a, "high"_a, "depth"_a, "limit"_a)
        .def("read", &CorpusIndex::read, "documents"_a)
        .def("seal", &CorpusIndex::seal, "documents"_a, "key_offsets"_a, "key_tokens"_a, "key_weights"_a, "unigrams"_a, "beta"_a);
    module.def("corpus_index_fm", &corpus_index_fm, "text"_a, "suffixes"_a, "alphabet"_a, "rate"_a);
}
