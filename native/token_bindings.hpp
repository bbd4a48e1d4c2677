// The Python class of a token retrieval: token_retrieval.hpp.
#pragma once

#include <nanobind/nanobind.h>

void bind_token_retrieval(nanobind::module_& module);
