// The Python class of mapped_file.hpp.
#pragma once

#include <nanobind/nanobind.h>

void bind_mapped_file(nanobind::module_& module);
