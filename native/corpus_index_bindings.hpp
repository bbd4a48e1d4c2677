// The Python class of corpus_index.hpp.
#pragma once

#include <nanobind/nanobind.h>

void bind_corpus_index(nanobind::module_& module);
