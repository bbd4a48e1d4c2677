#include "byte_query.hpp"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

constexpr int64_t kQueryLimit = 63;  // |coded query coordinate|: a pair of products then fits 16 bits

// To the nearest integer, ties to even, for |x| < 2^51; unlike std::lrint it is never a call.
double round_even(double x) {
    constexpr double kMagic = 6755399441055744.0;  // 1.5 · 2^52: no bits are left for a fraction
    return (x + kMagic) - kMagic;
}

}  // namespace

ByteQuery::ByteQuery(const float* values, int64_t tokens, int64_t dim, double norm, bool common)
    : tokens_(tokens), inverse_(static_cast<size_t>(tokens)) {
    const int64_t pages = (tokens + kPage - 1) / kPage;
    panels_.assign(static_cast<size_t>(pages * kPage * dim), 0);
    rows_.assign(static_cast<size_t>(pages * kPage * dim), 0);
    biases_.assign(static_cast<size_t>(pages * kPage * 2), 0);
    // |dot| ≤ |u − 128| · |q̂|, and rounding lengthens the query by √dim/2 at most.
    const double limit = 32767 / std::max(norm, 1.0) - std::sqrt(static_cast<double>(dim)) / 2;
    std::vector<double> norms(static_cast<size_t>(tokens)), tops(static_cast<size_t>(tokens));
    for (int64_t t = 0; t < tokens; ++t) {
        double squared = 0, top = 0;
        for (int64_t x = 0; x < dim; ++x) {
            const double value = values[t * dim + x];
            squared += value * value;
            top = std::max(top, std::fabs(value));
        }
        norms[t] = std::sqrt(squared);
        tops[t] = top;
        norms_ += norms[t];
    }
    const double longest = tokens ? *std::max_element(norms.begin(), norms.end()) : 0;
    for (int64_t t = 0; t < tokens; ++t) {
        // With the common scale a rare large coordinate is cut at ±63: only the probing is touched by it.
        const double divisor = common ? longest : norms[t];
        double scale = divisor > 0 && limit > 0 ? limit / divisor : 0;
        if (!common && tops[t] > 0) scale = std::min(scale, kQueryLimit / tops[t]);
        const double inverse = scale > 0 ? 1 / scale : 0;
        inverse_[t] = inverse;
        const int64_t page = t / kPage, lane = t % kPage;
        const float* from = values + t * dim;
        int8_t* row = &rows_[(page * kPage + lane) * dim];
        double lost = 0;
        for (int64_t x = 0; x < dim; ++x) {
            const double code = std::clamp<double>(round_even(from[x] * scale), -kQueryLimit, kQueryLimit);
            row[x] = static_cast<int8_t>(code);
            lost += (from[x] - code * inverse) * (from[x] - code * inverse);
        }
        rounding_ += std::sqrt(lost);
        int32_t halves[2] = {0, 0};
        for (int64_t x = 0; x < dim; ++x) {
            panels_[page * kPage * dim + (x / 4 * kPage + lane) * 4 + x % 4] = row[x];
            halves[x % 4 / 2] += row[x];
        }
        for (int half = 0; half < 2; ++half)  // modulo 2^16: the sum it goes into is too
            biases_[(page * kPage + lane) * 2 + half] = static_cast<int16_t>(static_cast<uint16_t>(-128 * halves[half]));
    }
    for (int64_t p = 0; p < pages; ++p)
        pages_.push_back({&panels_[p * kPage * dim], &biases_[p * kPage * 2], &rows_[p * kPage * dim], dim,
                          static_cast<int>(std::min<int64_t>(kPage, tokens - p * kPage))});
}

}  // namespace weft
