// The Python function that finds matched words: spans.hpp.
#pragma once

#include <nanobind/nanobind.h>

void bind_spans(nanobind::module_& module);
