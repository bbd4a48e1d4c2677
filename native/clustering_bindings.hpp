// The Python functions that build codebooks: clustering.hpp.
#pragma once

#include <nanobind/nanobind.h>

void bind_clustering(nanobind::module_& module);
