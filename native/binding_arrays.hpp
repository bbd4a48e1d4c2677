// What the bindings ask of the arrays they are given.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

template <class T, int Dimensions = 1>
using Input = nanobind::ndarray<const T, nanobind::ndim<Dimensions>, nanobind::c_contig, nanobind::device::cpu>;
template <class T, int Dimensions = 1>
using Output = nanobind::ndarray<T, nanobind::ndim<Dimensions>, nanobind::c_contig, nanobind::device::cpu>;

inline void require(bool condition, const char* message) {
    if (!condition) throw nanobind::value_error(message);
}
