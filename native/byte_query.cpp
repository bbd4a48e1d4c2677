#include "byte_query.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace weft {
namespace {

constexpr double kQueryLimit = 63;  // |coded query coordinate|: a pair of products then fits 16 bits

// To the nearest integer, ties to even, for |x| < 2^51; unlike std::lrint it is never a call.
double round_even(double x) {
    constexpr double kMagic = 6755399441055744.0;  // 1.5 · 2^52: no bits are left for a fraction
    return (x + kMagic) - kMagic;
}

}  // namespace

bool all_finite(const float* values, int64_t count) {
    uint32_t greatest = 0;  // of the bits without the sign, which are ordered as the numbers are: no branch, many at once
    for (int64_t x = 0; x < count; ++x) {
        uint32_t bits;
        std::memcpy(&bits, values + x, 4);
        greatest = std::max(greatest, bits & 0x7fffffffu);
    }
    return greatest < 0x7f800000u;
}

ByteQuery::ByteQuery(const float* values, int64_t tokens, int64_t dim, double norm, bool common)
    : tokens_(tokens), inverse_(static_cast<size_t>(tokens)), lost_(static_cast<size_t>(tokens)) {
    const int64_t pages = (tokens + kPage - 1) / kPage;
    panels_.assign(static_cast<size_t>(pages * kPage * dim), 0);
    rows_.assign(static_cast<size_t>(pages * kPage * dim), 0);
    biases_.assign(static_cast<size_t>(pages * kPage * 2), 0);
    // |dot| ≤ |u − 128| · |q̂|, and rounding lengthens the query by √dim/2 at most.
    const double limit = 32767 / std::max(norm, 1.0) - std::sqrt(static_cast<double>(dim)) / 2;
    std::vector<double> norms(static_cast<size_t>(tokens)), tops(static_cast<size_t>(tokens));
    for (int64_t t = 0; t < tokens; ++t) {
        double squared[4] = {}, top[4] = {};  // dim is a multiple of 4; four sums do not wait for each other
        for (int64_t x = 0; x < dim; x += 4) {
            for (int part = 0; part < 4; ++part) {
                const double value = values[t * dim + x + part];
                squared[part] += value * value;
                top[part] = std::max(top[part], std::fabs(value));
            }
        }
        norms[t] = std::sqrt((squared[0] + squared[1]) + (squared[2] + squared[3]));
        tops[t] = std::max(std::max(top[0], top[1]), std::max(top[2], top[3]));
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
        double lost[4] = {};
        int32_t halves[2] = {0, 0};
        for (int64_t x = 0; x < dim; x += 4) {
            for (int part = 0; part < 4; ++part) {
                double code = round_even(from[x + part] * scale);
                code = code < -kQueryLimit ? -kQueryLimit : code;
                code = code > kQueryLimit ? kQueryLimit : code;
                row[x + part] = static_cast<int8_t>(code);
                lost[part] += (from[x + part] - code * inverse) * (from[x + part] - code * inverse);
            }
            halves[0] += row[x] + row[x + 1];
            halves[1] += row[x + 2] + row[x + 3];
            std::memcpy(&panels_[page * kPage * dim + (x / 4 * kPage + lane) * 4], row + x, 4);
        }
        lost_[t] = std::sqrt((lost[0] + lost[1]) + (lost[2] + lost[3]));
        rounding_ += lost_[t];
        for (int half = 0; half < 2; ++half)  // modulo 2^16: the sum it goes into is too
            biases_[(page * kPage + lane) * 2 + half] = static_cast<int16_t>(static_cast<uint16_t>(-128 * halves[half]));
    }
    for (int64_t p = 0; p < pages; ++p)
        pages_.push_back({&panels_[p * kPage * dim], &biases_[p * kPage * 2], &rows_[p * kPage * dim], dim,
                          static_cast<int>(std::min<int64_t>(kPage, tokens - p * kPage))});
}

double ByteQuery::rounding(int64_t token) const {
    const double inverse = inverse_scale(token);
    return inverse > 0 ? lost_[static_cast<size_t>(token)] / inverse : std::numeric_limits<double>::infinity();
}

}  // namespace weft
