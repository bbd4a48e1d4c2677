// weft._native.nearest, improve_centroids, improve_codebooks and sketches: what building a coded segment takes; group_by_ward.
#include "clustering_bindings.hpp"

#include <cmath>

#include "binding_arrays.hpp"
#include "byte_layout.hpp"
#include "byte_query.hpp"
#include "clustering.hpp"
#include "cpu.hpp"
#include "grouping.hpp"
#include "rounding.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

constexpr int64_t kMostRows = int64_t{1} << 23;  // whose bytes a sum of 32 bits can hold

weft::Codes checked(const Input<uint8_t, 2>& codes) {
    const auto dim = static_cast<int64_t>(codes.shape(1));
    require(dim > 0 && dim % weft::kDimMultiple == 0 && dim <= weft::kMaxDim, "codes must have a multiple of 4 columns, at most 16384");
    return {codes.data(), static_cast<int64_t>(codes.shape(0)), dim};
}

void check_centroids(const weft::Codes& codes, size_t count, size_t dim) {
    require(static_cast<int64_t>(dim) == codes.dim, "centroids must have the dimension of the codes");
    require(count > 0 && count <= static_cast<size_t>(INT32_MAX), "there must be a centroid");
}

void nearest(const Input<uint8_t, 2>& rows, const Input<int8_t, 2>& centroids, const Output<int32_t, 1>& of,
             const Output<float, 1>& distance) {
    const weft::Codes codes = checked(rows);
    check_centroids(codes, centroids.shape(0), centroids.shape(1));
    require(of.shape(0) == rows.shape(0) && distance.shape(0) == rows.shape(0), "of and distance must have an entry for each row");
    const nb::gil_scoped_release release;
    weft::find_nearest(*weft::active_level().bytes, codes, centroids.data(), static_cast<int64_t>(centroids.shape(0)), of.data(),
                       distance.data());
}

void improve(const Input<uint8_t, 2>& rows, const Output<int8_t, 2>& centroids, int rounds) {
    const weft::Codes codes = checked(rows);
    check_centroids(codes, centroids.shape(0), centroids.shape(1));
    require(codes.count <= kMostRows, "there must be at most 2^23 rows");
    const nb::gil_scoped_release release;
    weft::improve_centroids(*weft::active_level().bytes, codes, centroids.data(), static_cast<int64_t>(centroids.shape(0)), rounds);
}

template <class T>
weft::Codes check_sketched(const Input<uint8_t, 2>& rows, const Input<uint8_t, 2>& cells, const Input<int32_t, 1>& of,
                           const Output<T, 3>& codebooks) {
    const weft::Codes codes = checked(rows);
    check_centroids(codes, cells.shape(0), cells.shape(1));
    require(static_cast<int64_t>(codebooks.shape(0)) == codes.dim / weft::kSubVector && codebooks.shape(1) == weft::kEntries &&
                codebooks.shape(2) == weft::kSubVector,
            "codebooks must have the shape (dim / 4, 16, 4)");
    require(of.shape(0) == rows.shape(0), "of must have an entry for each row");
    for (size_t r = 0; r < of.shape(0); ++r)
        require(of.data()[r] >= 0 && static_cast<size_t>(of.data()[r]) < cells.shape(0), "of must name cells");
    return codes;
}

void train(const Input<uint8_t, 2>& rows, const Input<uint8_t, 2>& cells, const Input<int32_t, 1>& of,
           const Output<int8_t, 3>& codebooks, int rounds) {
    const weft::Codes codes = check_sketched(rows, cells, of, codebooks);
    require(codes.count <= kMostRows, "there must be at most 2^23 rows");
    const nb::gil_scoped_release release;
    weft::improve_codebooks(*weft::active_level().bytes, codes, cells.data(), of.data(), codebooks.data(), rounds);
}

void sketches(const Input<uint8_t, 2>& rows, const Input<uint8_t, 2>& cells, const Input<int32_t, 1>& of,
              const Input<int8_t, 3>& codebooks, const Output<uint8_t, 2>& out) {
    const weft::Codes codes = check_sketched(rows, cells, of, codebooks);
    require(out.shape(0) == rows.shape(0) && static_cast<int64_t>(out.shape(1)) == weft::sketch_width(codes.dim),
            "out must have a row as wide as a sketch for each of codes");
    const nb::gil_scoped_release release;
    weft::make_sketches(*weft::active_level().bytes, codes, cells.data(), of.data(), codebooks.data(), out.data());
}

void round_rows(const Input<float, 2>& vectors, float scale, const Output<uint8_t, 2>& codes) {
    require(codes.shape(0) == vectors.shape(0) && codes.shape(1) == vectors.shape(1), "codes must have the shape of vectors");
    require(std::isfinite(scale), "scale must be finite");
    for (size_t x = 0; x < vectors.size(); ++x) require(std::isfinite(vectors.data()[x] * scale), "vectors must be finite");
    const nb::gil_scoped_release release;
    weft::round_to_bytes(vectors.data(), static_cast<int64_t>(vectors.shape(0)), static_cast<int64_t>(vectors.shape(1)), scale, codes.data());
}

void group(const Output<float, 2>& distance, const Output<float, 1>& weight, int64_t groups, const Output<int32_t, 1>& labels) {
    const auto count = static_cast<int64_t>(weight.shape(0));
    require(static_cast<int64_t>(distance.shape(0)) == count && static_cast<int64_t>(distance.shape(1)) == count &&
                static_cast<int64_t>(labels.shape(0)) == count,
            "distance must be square, with a weight and a label for each row");
    require(count <= INT32_MAX && groups >= 1, "there must be a group");
    for (int64_t i = 0; i < count; ++i) require(weight.data()[i] > 0, "weights must be positive");
    const nb::gil_scoped_release release;
    weft::group_by_ward(distance.data(), weight.data(), count, groups, labels.data());
}

}  // namespace

void bind_clustering(nb::module_& module) {
    module.def("nearest", nearest, "codes"_a, "centroids"_a, "of"_a, "distance"_a);
    module.def("improve_centroids", improve, "codes"_a, "centroids"_a, "rounds"_a);
    module.def("improve_codebooks", train, "codes"_a, "cells"_a, "of"_a, "codebooks"_a, "rounds"_a);
    module.def("sketches", sketches, "codes"_a, "cells"_a, "of"_a, "codebooks"_a, "out"_a);
    module.def("round_to_bytes", round_rows, "vectors"_a, "scale"_a, "codes"_a);
    module.def("group_by_ward", group, "distance"_a, "weight"_a, "groups"_a, "labels"_a);
}
