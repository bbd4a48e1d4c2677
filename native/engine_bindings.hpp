// The Python class of a coded segment, with what probing.hpp and reranking.hpp do with it.
#pragma once

#include <nanobind/nanobind.h>

void bind_engine(nanobind::module_& module);
