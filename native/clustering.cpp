#include "clustering.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "byte_layout.hpp"

namespace weft {
namespace {

// Centroids laid out for a level, filled up to whole panels with some that are never the nearest.
class Packed {
public:
    Packed(const ByteKernels& kernels, const int8_t* centroids, int64_t count, int64_t dim)
        : rounded_((count + kPanel - 1) / kPanel * kPanel), packed_(static_cast<size_t>(rounded_ * dim)),
          bias_(static_cast<size_t>(rounded_), INT32_MIN / 2) {
        std::vector<int8_t> padded(static_cast<size_t>(rounded_ * dim), 0);
        std::copy_n(centroids, count * dim, padded.begin());
        kernels.pack_centroids(padded.data(), rounded_, dim, packed_.data());
        for (int64_t c = 0; c < count; ++c) {
            int32_t squared = 0;
            for (int64_t x = 0; x < dim; ++x) squared += int32_t{centroids[c * dim + x]} * centroids[c * dim + x];
            bias_[static_cast<size_t>(c)] = -squared;
        }
    }

    void nearest(const ByteKernels& kernels, const Codes& codes, int32_t* of, int32_t* greatest) const {
        kernels.nearest(codes.rows, codes.count, codes.dim, packed_.data(), bias_.data(), rounded_, of, greatest);
    }

private:
    int64_t rounded_;
    std::vector<int16_t> packed_;
    std::vector<int32_t> bias_;
};

// −|entry|² of codebooks
std::vector<int32_t> entry_bias(const int8_t* codebooks, int64_t sub_vectors) {
    std::vector<int32_t> bias(static_cast<size_t>(sub_vectors * kEntries), 0);
    for (size_t e = 0; e < bias.size(); ++e)
        for (size_t x = 0; x < kSubVector; ++x) bias[e] -= int32_t{codebooks[e * kSubVector + x]} * codebooks[e * kSubVector + x];
    return bias;
}

int8_t rounded_mean(int32_t sum, int32_t count, int centre) {
    const long mean = std::lround(static_cast<double>(sum) / count - centre);
    return static_cast<int8_t>(std::clamp(mean, -127L, 127L));
}

}  // namespace

void find_nearest(const ByteKernels& kernels, const Codes& codes, const int8_t* centroids, int64_t count, int32_t* of, float* distance) {
    std::vector<int32_t> greatest(static_cast<size_t>(codes.count));
    Packed(kernels, centroids, count, codes.dim).nearest(kernels, codes, of, greatest.data());
    for (int64_t r = 0; r < codes.count; ++r) {
        const uint8_t* row = codes.rows + r * codes.dim;
        int32_t squared = 0;
        for (int64_t x = 0; x < codes.dim; ++x) squared += (int32_t{row[x]} - 128) * (int32_t{row[x]} - 128);
        distance[r] = static_cast<float>(squared - greatest[static_cast<size_t>(r)]);
    }
}

void improve_centroids(const ByteKernels& kernels, const Codes& codes, int8_t* centroids, int64_t count, int rounds) {
    std::vector<int32_t> of(static_cast<size_t>(codes.count)), greatest(of.size());
    std::vector<int32_t> sums(static_cast<size_t>(count * codes.dim)), sizes(static_cast<size_t>(count));
    for (int round = 0; round < rounds; ++round) {
        Packed(kernels, centroids, count, codes.dim).nearest(kernels, codes, of.data(), greatest.data());
        std::fill(sums.begin(), sums.end(), 0);
        std::fill(sizes.begin(), sizes.end(), 0);
        for (int64_t r = 0; r < codes.count; ++r) {
            const uint8_t* row = codes.rows + r * codes.dim;
            int32_t* sum = sums.data() + int64_t{of[static_cast<size_t>(r)]} * codes.dim;
            for (int64_t x = 0; x < codes.dim; ++x) sum[x] += row[x];
            ++sizes[static_cast<size_t>(of[static_cast<size_t>(r)])];
        }
        for (int64_t c = 0; c < count; ++c) {
            const int32_t size = sizes[static_cast<size_t>(c)];
            if (size == 0) continue;
            for (int64_t x = c * codes.dim; x < (c + 1) * codes.dim; ++x)
                centroids[x] = rounded_mean(sums[static_cast<size_t>(x)], size, 128);
        }
    }
}

void improve_codebooks(const ByteKernels& kernels, const Codes& codes, const uint8_t* cells, const int32_t* of, int8_t* codebooks,
                       int rounds) {
    const int64_t sub_vectors = codes.dim / kSubVector;
    std::vector<uint8_t> numbers(static_cast<size_t>(sub_vectors));
    std::vector<int32_t> sums(static_cast<size_t>(sub_vectors * kEntries * kSubVector)), sizes(static_cast<size_t>(sub_vectors * kEntries));
    for (int round = 0; round < rounds; ++round) {
        const std::vector<int32_t> bias = entry_bias(codebooks, sub_vectors);
        std::fill(sums.begin(), sums.end(), 0);
        std::fill(sizes.begin(), sizes.end(), 0);
        for (int64_t r = 0; r < codes.count; ++r) {
            const uint8_t *row = codes.rows + r * codes.dim, *cell = cells + int64_t{of[r]} * codes.dim;
            kernels.sketch_numbers(row, cell, codebooks, bias.data(), sub_vectors, numbers.data());
            for (int64_t s = 0; s < sub_vectors; ++s) {
                const auto entry = static_cast<size_t>(s * kEntries + numbers[static_cast<size_t>(s)]);
                for (size_t x = 0; x < kSubVector; ++x)
                    sums[entry * kSubVector + x] += row[s * kSubVector + static_cast<int64_t>(x)] - cell[s * kSubVector + static_cast<int64_t>(x)];
                ++sizes[entry];
            }
        }
        for (size_t e = 0; e < sizes.size(); ++e)
            for (size_t x = 0; x < kSubVector && sizes[e] > 0; ++x)
                codebooks[e * kSubVector + x] = rounded_mean(sums[e * kSubVector + x], sizes[e], 0);
    }
}

void make_sketches(const ByteKernels& kernels, const Codes& codes, const uint8_t* cells, const int32_t* of, const int8_t* codebooks,
                   uint8_t* out) {
    const int64_t sub_vectors = codes.dim / kSubVector, width = sketch_width(codes.dim);
    const std::vector<int32_t> bias = entry_bias(codebooks, sub_vectors);
    std::vector<uint8_t> numbers(static_cast<size_t>(sub_vectors + 1), 0);  // one more, where they are odd
    for (int64_t r = 0; r < codes.count; ++r) {
        kernels.sketch_numbers(codes.rows + r * codes.dim, cells + int64_t{of[r]} * codes.dim, codebooks, bias.data(), sub_vectors,
                               numbers.data());
        uint8_t* sketch = out + r * width;
        sketch[0] = static_cast<uint8_t>(of[r]);
        sketch[1] = static_cast<uint8_t>(of[r] >> 8);
        for (int64_t s = 0; s < sub_vectors; s += 2)
            sketch[kCellBytes + s / 2] =
                static_cast<uint8_t>(numbers[static_cast<size_t>(s)] | numbers[static_cast<size_t>(s + 1)] << 4);
    }
}

}  // namespace weft
