// Where retrieved tokens come from (token_retrieval.hpp): a scan of a coded segment's tokens, in bytes.
#pragma once

#include <cstdint>

#include "coded_segment.hpp"
#include "token_retrieval.hpp"

namespace weft {

// Add the tokens of all allowed documents that can be among the best, with their similarities to the unrounded query. Which can be is
// told by products with the rounded query: none is missed if `certain`, and otherwise none but by an error of four times the usual.
void scan_tokens(const ByteKernels&, const CodedSegment&, const float* query, const uint8_t* allowed, int64_t base, bool certain,
                 TokenRetrieval& into);

// Add the best of some tokens, by products with the rounded query: what is usually lost by that is a thousandth, both ways. For the
// k′-th similarity among them only, so they are added as tokens of document 0.
void sample_tokens(const ByteKernels&, const CodedSegment&, const float* query, const int64_t* tokens, int64_t count,
                   TokenRetrieval& into);

}  // namespace weft
