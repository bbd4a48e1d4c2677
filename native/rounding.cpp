#include "rounding.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace weft {
namespace {

constexpr float kMost = 127;   // codes are 128 ± 127
constexpr float kNear = 0.25f; // a coordinate that lies nearer to its code than this is not rounded the other way
constexpr float kEnough = 1.0f / 64;  // of a unit of the codes: an error along the token that needs no mending

// A coordinate that could be rounded the other way.
struct Turn {
    float price;  // how much the error grows, for a unit of it that is taken out along the token
    float gain;   // what is taken out along the token, in units of the codes
    int32_t at;
    int32_t step;
};

}  // namespace

void round_to_bytes(const float* vectors, int64_t count, int64_t dim, float scale, uint8_t* codes) {
    const auto size = static_cast<size_t>(dim);
    std::vector<float> rounded(size), error(size);
    std::vector<Turn> turns;
    turns.reserve(size);
    for (int64_t t = 0; t < count; ++t, vectors += dim, codes += dim) {
        float squares = 0, along = 0;
        for (size_t i = 0; i < size; ++i) {
            const float value = vectors[i] * scale;
            rounded[i] = std::min(std::max(std::nearbyint(value), -kMost), kMost);
            error[i] = value - rounded[i];
        }
        for (size_t i = 0; i < size; ++i) squares += vectors[i] * vectors[i];
        for (size_t i = 0; i < size; ++i) along += error[i] * vectors[i];
        const float norm = std::sqrt(squares);
        const float off = norm > 0 ? std::abs(along) / norm : 0;
        if (off > kEnough && off < INFINITY) {
            turns.clear();
            const float sign = (along > 0 ? 1.0f : -1.0f) / norm;
            for (size_t i = 0; i < size; ++i) {
                const float far = std::abs(error[i]);
                const float gain = (error[i] > 0 ? vectors[i] : -vectors[i]) * sign;
                // More than half a unit off it was cut at the end of the range, where no other code is.
                if (far < kNear || far > 0.5f || gain <= 0) continue;
                turns.push_back({(1 - 2 * far) / gain, gain, static_cast<int32_t>(i), error[i] > 0 ? 1 : -1});
            }
            std::sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) { return a.price != b.price ? a.price < b.price : a.at < b.at; });
            float left = off;
            for (const Turn& turn : turns) {
                if (left <= kEnough) break;
                float& code = rounded[static_cast<size_t>(turn.at)];
                if (turn.gain > left + kEnough || std::abs(code + static_cast<float>(turn.step)) > kMost) continue;
                code += static_cast<float>(turn.step);
                left -= turn.gain;
            }
        }
        for (size_t i = 0; i < size; ++i) codes[i] = static_cast<uint8_t>(static_cast<int32_t>(rounded[i]) + 128);
    }
}

}  // namespace weft
