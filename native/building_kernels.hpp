// The byte kernels that build an index, in plain C++ that the compiler vectorises: for the levels without a form of their own.
//
// Included in the files of these levels, each in a namespace of its own, for the reason that kernels.hpp gives.
#include <cstdint>

#include "byte_kernels.hpp"

namespace weft::WEFT_LEVEL {
namespace {

void pack_centroids(const int8_t* centroids, int64_t count, int64_t dim, int16_t* packed) {
    for (int64_t x = 0; x < count * dim; ++x) packed[x] = centroids[x];
}

void nearest(const uint8_t* rows, int64_t count, int64_t dim, const int16_t* packed, const int32_t* bias, int64_t centroids, int32_t* of,
             int32_t* greatest) {
    constexpr int64_t kRows = 32;  // that stay in cache while all centroids pass
    constexpr int64_t kSome = 256;
    alignas(64) int16_t centred[kRows * kSome];
    for (int64_t first = 0; first < count; first += kRows) {
        const int64_t some = first + kRows < count ? kRows : count - first;
        for (int64_t r = 0; r < some; ++r) greatest[first + r] = INT32_MIN, of[first + r] = 0;
        if (dim <= kSome)
            for (int64_t r = 0; r < some; ++r)
                for (int64_t x = 0; x < dim; ++x) centred[r * kSome + x] = static_cast<int16_t>(rows[(first + r) * dim + x] - 128);
        for (int64_t c = 0; c < centroids; ++c) {
            const int16_t* centroid = packed + c * dim;
            for (int64_t r = 0; r < some; ++r) {
                int32_t dot = 0;
                if (dim <= kSome) {
                    const int16_t* row = centred + r * kSome;
                    for (int64_t x = 0; x < dim; ++x) dot += int32_t{row[x]} * centroid[x];
                } else {
                    const uint8_t* row = rows + (first + r) * dim;
                    for (int64_t x = 0; x < dim; ++x) dot += (int32_t{row[x]} - 128) * centroid[x];
                }
                const int32_t value = 2 * dot + bias[c];
                if (value > greatest[first + r]) greatest[first + r] = value, of[first + r] = static_cast<int32_t>(c);
            }
        }
    }
}

void sketch_numbers(const uint8_t* row, const uint8_t* cell, const int8_t* codebooks, const int32_t* bias, int64_t sub_vectors,
                    uint8_t* numbers) {
    for (int64_t s = 0; s < sub_vectors; ++s) {
        int32_t residual[kSubVector];
        for (int x = 0; x < kSubVector; ++x) {
            const int difference = row[s * kSubVector + x] - cell[s * kSubVector + x];
            residual[x] = difference < -127 ? -127 : difference > 127 ? 127 : difference;
        }
        const int8_t* entry = codebooks + s * kEntries * kSubVector;
        int32_t greatest = INT32_MIN;
        for (int e = 0; e < kEntries; ++e, entry += kSubVector) {
            int32_t value = bias[s * kEntries + e];
            for (int x = 0; x < kSubVector; ++x) value += 2 * residual[x] * entry[x];
            if (value > greatest) greatest = value, numbers[s] = static_cast<uint8_t>(e);
        }
    }
}

}  // namespace
}  // namespace weft::WEFT_LEVEL
