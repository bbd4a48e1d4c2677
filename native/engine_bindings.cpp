// weft._native.Engine: a coded segment's arrays, checked so that nothing in them leads out of bounds, and searches over them.
#include "engine_bindings.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <memory>
#include <optional>
#include <vector>

#include "cpu.hpp"
#include "engine.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T, int Dimensions>
using Input = nb::ndarray<const T, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;

void require(bool condition, const char* message) {
    if (!condition) throw nb::value_error(message);
}

template <class T>
void check_starts(const Input<T, 1>& starts, int64_t end, const char* message) {
    const auto count = static_cast<int64_t>(starts.shape(0));
    bool good = count >= 1 && starts.data()[0] == 0;
    for (int64_t i = 1; good && i < count; ++i) good = starts.data()[i - 1] <= starts.data()[i];
    require(good && starts.data()[count - 1] == end, message);
}

// A new NumPy array that owns a copy of the values.
template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(const std::vector<T>& values) {
    auto owned = std::make_unique<T[]>(values.size());
    std::copy(values.begin(), values.end(), owned.get());
    nb::capsule owner(owned.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned.release(), {values.size()}, owner);
}

class Engine {
public:
    Engine(Input<int64_t, 1> offsets, Input<uint8_t, 2> codes, float scale, Input<uint8_t, 2> cell_codes,
           Input<int32_t, 1> cell_starts, Input<int32_t, 1> cell_blocks, Input<uint8_t, 1> centroid_codes,
           Input<int64_t, 1> list_starts, Input<int32_t, 1> lists)
        : offsets_(offsets), codes_(codes), cell_codes_(cell_codes), cell_starts_(cell_starts), cell_blocks_(cell_blocks),
          centroid_codes_(centroid_codes), list_starts_(list_starts), lists_(lists) {
        const auto dim = static_cast<int64_t>(codes.shape(1));
        const auto cells = static_cast<int64_t>(cell_codes.shape(0));
        const auto centroids = static_cast<int64_t>(list_starts.shape(0)) - 1;
        require(dim > 0 && dim % 4 == 0, "codes must have a multiple of 4 columns");
        require(scale > 0, "scale must be positive");
        check_starts(offsets, static_cast<int64_t>(codes.shape(0)), "offsets must rise from 0 to the number of tokens");
        require(static_cast<int64_t>(offsets.shape(0)) - 1 <= INT32_MAX, "a segment has at most 2^31 - 1 documents");
        require(static_cast<int64_t>(cell_codes.shape(1)) == dim, "cells must have the dimension of the codes");
        require(static_cast<int64_t>(cell_starts.shape(0)) == cells + 1 && static_cast<int64_t>(cell_blocks.shape(0)) == cells + 1,
                "cell_starts and cell_blocks must have an entry per cell and one more");
        check_starts(cell_starts, centroids, "cell_starts must rise from 0 to the number of centroids");
        require(static_cast<int64_t>(centroid_codes.shape(0)) % (weft::kBlock * dim) == 0, "centroids must come in blocks of 8");
        check_starts(cell_blocks, static_cast<int64_t>(centroid_codes.shape(0)) / (weft::kBlock * dim),
                     "cell_blocks must rise from 0 to the number of blocks");
        for (int64_t c = 0; c < cells; ++c)
            require(cell_starts.data()[c + 1] - cell_starts.data()[c] <=
                        (cell_blocks.data()[c + 1] - cell_blocks.data()[c]) * weft::kBlock,
                    "a cell's centroids must fit its blocks");
        check_starts(list_starts, static_cast<int64_t>(lists.shape(0)), "list_starts must rise from 0 to the number of listings");
        const auto documents = static_cast<int64_t>(offsets.shape(0)) - 1;
        for (size_t l = 0; l < lists.shape(0); ++l)
            require(0 <= lists.data()[l] && lists.data()[l] < documents, "lists must name documents");
        data_ = {dim,
                 documents,
                 offsets.data(),
                 codes.data(),
                 scale,
                 cells,
                 cell_codes.data(),
                 cell_starts.data(),
                 cell_blocks.data(),
                 centroid_codes.data(),
                 list_starts.data(),
                 lists.data()};
    }

    auto candidates(const Input<float, 2>& query, const std::optional<Input<uint8_t, 1>>& allowed, int64_t cells,
                    int64_t centroids, int64_t count) const {
        check_query(query);
        require(!allowed || static_cast<int64_t>(allowed->shape(0)) == data_.documents, "allowed must have an entry per document");
        const weft::ByteKernels& kernels = *weft::active_level().bytes;
        std::vector<int32_t> found;
        {
            const nb::gil_scoped_release release;
            found = weft::find_candidates(kernels, data_, query.data(), static_cast<int64_t>(query.shape(0)),
                                          allowed ? allowed->data() : nullptr, {cells, centroids, count});
        }
        return to_numpy(found);
    }

    auto rerank(const Input<float, 2>& query, const Input<int32_t, 1>& listed, int64_t keep, int64_t patience) const {
        check_query(query);
        check_listed(listed);
        const weft::ByteKernels& kernels = *weft::active_level().bytes;
        weft::Reranked result;
        {
            const nb::gil_scoped_release release;
            result = weft::rerank(kernels, data_, query.data(), static_cast<int64_t>(query.shape(0)), listed.data(),
                                  static_cast<int64_t>(listed.shape(0)), {patience, keep});
        }
        std::vector<int32_t> documents;
        std::vector<float> scores;
        for (const weft::Scored& s : result.documents) {
            documents.push_back(s.document);
            scores.push_back(s.score);
        }
        return nb::make_tuple(to_numpy(documents), to_numpy(scores), result.error);
    }

    void decode(const Input<int32_t, 1>& listed, const nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>& out) const {
        check_listed(listed);
        int64_t rows = 0;
        for (size_t l = 0; l < listed.shape(0); ++l)
            rows += data_.offsets[listed.data()[l] + 1] - data_.offsets[listed.data()[l]];
        require(static_cast<int64_t>(out.shape(0)) == rows && static_cast<int64_t>(out.shape(1)) == data_.dim,
                "out must have a row per token of the listed documents");
        const nb::gil_scoped_release release;
        weft::decode(data_, listed.data(), static_cast<int64_t>(listed.shape(0)), out.data());
    }

private:
    void check_query(const Input<float, 2>& query) const {
        require(static_cast<int64_t>(query.shape(1)) == data_.dim, "the query must have the dimension of the codes");
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
    Input<int32_t, 1> lists_;
    weft::EngineData data_{};
};

}  // namespace

void bind_engine(nb::module_& module) {
    nb::class_<Engine>(module, "Engine")
        .def(nb::init<Input<int64_t, 1>, Input<uint8_t, 2>, float, Input<uint8_t, 2>, Input<int32_t, 1>, Input<int32_t, 1>,
                      Input<uint8_t, 1>, Input<int64_t, 1>, Input<int32_t, 1>>(),
             "offsets"_a, "codes"_a, "scale"_a, "cell_codes"_a, "cell_starts"_a, "cell_blocks"_a, "centroid_codes"_a,
             "list_starts"_a, "lists"_a)
        .def("candidates", &Engine::candidates, "query"_a, "allowed"_a.none(), "cells"_a, "centroids"_a, "count"_a)
        .def("rerank", &Engine::rerank, "query"_a, "listed"_a, "keep"_a, "patience"_a)
        .def("decode", &Engine::decode, "listed"_a, "out"_a);
}
