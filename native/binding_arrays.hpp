// What the bindings ask of the arrays they are given, and how they give arrays back.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <utility>
#include <vector>

template <class T, int Dimensions = 1>
using Input = nanobind::ndarray<const T, nanobind::ndim<Dimensions>, nanobind::c_contig, nanobind::device::cpu>;
template <class T, int Dimensions = 1>
using Output = nanobind::ndarray<T, nanobind::ndim<Dimensions>, nanobind::c_contig, nanobind::device::cpu>;

inline void require(bool condition, const char* message) {
    if (!condition) throw nanobind::value_error(message);
}

// A new NumPy array that owns the values: all of them, or in rows of `width`.
template <class T, class... Width>
auto to_numpy(std::vector<T> values, size_t rows, Width... width) {
    auto held = std::make_unique<std::vector<T>>(std::move(values));
    held->reserve(1);  // an array needs an address, even if nothing is there
    T* data = held->data();
    nanobind::capsule owner(held.get(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    held.release();
    return nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1 + sizeof...(Width)>>(data, {rows, width...}, owner);
}
template <class T>
auto to_numpy(std::vector<T> values) {
    const size_t count = values.size();
    return to_numpy(std::move(values), count);
}
