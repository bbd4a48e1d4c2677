// A query rounded to bytes, so that its dot products with coded vectors fit 16 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "byte_kernels.hpp"

namespace weft {

// Whether none of the numbers is infinite or a NaN.
bool all_finite(const float* values, int64_t count);

constexpr int64_t kMaxDim = 16384;  // beyond, rounding alone would fill 16 bits

class ByteQuery {
public:
    // `norm`: of the longest coded vector, Σ (u − 128)² under the root. One scale for all tokens (`common`), so that
    // similarities of different tokens can be added as bytes, or the best scale of each token.
    ByteQuery(const float* values, int64_t tokens, int64_t dim, double norm, bool common);

    int64_t tokens() const { return tokens_; }
    int64_t pages() const { return static_cast<int64_t>(pages_.size()); }
    const QueryPage& page(int64_t p) const { return pages_[static_cast<size_t>(p)]; }
    double inverse_scale(int64_t token) const { return inverse_[static_cast<size_t>(token)]; }
    // |q − q̂|, what rounding did to a token, in units of its codes; infinite where nothing is left of it
    double rounding(int64_t token) const;
    // Σ over the tokens of |q − q̂|
    double rounding() const { return rounding_; }
    // Σ over the tokens of |q|
    double norms() const { return norms_; }

private:
    int64_t tokens_;
    double rounding_ = 0, norms_ = 0;
    std::vector<int8_t> panels_, rows_;
    std::vector<int16_t> biases_;
    std::vector<double> inverse_, lost_;
    std::vector<QueryPage> pages_;
};

}  // namespace weft
