// The k′-th similarity of a collection by some of its tokens, laid out so that a query token compares only the near ones.
#pragma once

#include <cstdint>
#include <vector>

#include "coded_segment.hpp"
#include "token_retrieval.hpp"

namespace weft {

// Some tokens of a segment by their cells, in blocks of 8 as centroids are (byte_kernels.hpp): codes of their own.
class TokenSample {
public:
    // False for segments that do not say which cell a token is of: those without sketches or residuals.
    static bool possible(const CodedSegment& data) { return data.cells > 0 && (data.sketches != nullptr || data.bits != 8); }

    TokenSample(const ByteKernels&, const CodedSegment&, const int64_t* tokens, int64_t count);

    // Add each query token's best of the sample, in the place of document 0. Only `nearest` cells are visited: the
    // few of the best tokens that lie elsewhere should be less than what chance does to a sample. Similarities are
    // rounded to one in 255 and those of one step spread over it. False, and nothing added, where a query token is so far from
    // everything that its similarities cannot be told from 0.
    bool retrieve(const ByteKernels&, const CodedSegment&, const float* query, int64_t nearest, TokenRetrieval& into) const;

    int64_t cells() const { return static_cast<int64_t>(blocks_.size()) - 1; }
    int64_t dim() const { return dim_; }

private:
    int64_t dim_;
    std::vector<int32_t> blocks_;  // (cells + 1)
    std::vector<uint8_t> codes_;   // (blocks, dim / 4, 8, 4)
};

}  // namespace weft
