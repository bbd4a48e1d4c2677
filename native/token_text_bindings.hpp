// The Python class of token_text.hpp.
#pragma once

#include <nanobind/nanobind.h>

void bind_token_text(nanobind::module_& module);
