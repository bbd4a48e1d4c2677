// Every kernel that this machine can run, and the shapes of those it cannot, against a double loop.
// Prints one line per kernel; exits with 1 and the first differences if any disagrees.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cpu.hpp"
#include "parallel.hpp"
#include "scoring.hpp"

extern const weft::Kernels kWideKernels;   // 16 lanes on any machine
extern const weft::Kernels kPlainKernels;  // no vector types

namespace {

int failures = 0;

void expect(bool good, const std::string& what) {
    if (good) return;
    if (++failures <= 10) std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

// The meaning of an IEEE half, from its definition.
double half_value(uint16_t bits) {
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                             : exponent == 31 ? (fraction ? NAN : INFINITY)
                                              : std::ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

// Exactly as long as its contents, so that AddressSanitizer sees a read beyond the end.
template <class T>
struct Exact {
    explicit Exact(const std::vector<T>& values) : data(new T[values.size()]) {
        std::copy(values.begin(), values.end(), data.get());
    }
    std::unique_ptr<T[]> data;
};

struct Case {
    int64_t dim;
    std::vector<int64_t> query_lengths, lengths;
    int k;         // 0: the maximum
    bool half, salient;
    int values;    // coordinates are integers in [-values, values] / 4, or all negative products if 0
};

std::vector<int64_t> sums(const std::vector<int64_t>& lengths) {
    std::vector<int64_t> offsets{0};
    for (int64_t length : lengths) offsets.push_back(offsets.back() + length);
    return offsets;
}

void check(const char* name, const weft::Kernels& kernels, const Case& c, std::mt19937& random) {
    const auto query_offsets = sums(c.query_lengths), offsets = sums(c.lengths);
    const auto coordinate = [&](bool document) {
        if (c.values == 0) return document ? -0.25f * static_cast<float>(1 + random() % 8) : 0.5f;
        return 0.25f * static_cast<float>(static_cast<int>(random() % (2 * c.values + 1)) - c.values);
    };
    std::vector<float> query_values, values, query_salience, salience;
    for (int64_t i = 0; i < query_offsets.back() * c.dim; ++i) query_values.push_back(coordinate(false));
    for (int64_t i = 0; i < query_offsets.back(); ++i) query_salience.push_back(0.5f * (random() % 4));
    for (int64_t i = 0; i < offsets.back(); ++i) salience.push_back(0.5f * (random() % 4));
    std::vector<uint16_t> halves;
    for (int64_t i = 0; i < offsets.back() * c.dim; ++i) {
        if (c.half) {  // any finite half below 32, subnormals among them
            halves.push_back(static_cast<uint16_t>((random() % 0x5000) | (random() % 2 ? 0x8000 : 0)));
            values.push_back(static_cast<float>(half_value(halves.back())));
        } else {
            values.push_back(coordinate(true));
        }
    }
    std::vector<int32_t> k;
    for (int64_t length : c.lengths) k.push_back(static_cast<int32_t>(std::min<int64_t>(c.k, length)));

    const Exact<float> exact_queries(query_values), exact_values(values), exact_salience(salience);
    const Exact<uint16_t> exact_halves(halves);
    const Exact<int64_t> exact_offsets(offsets);
    const int64_t B = static_cast<int64_t>(c.query_lengths.size()), N = static_cast<int64_t>(c.lengths.size());
    const weft::Queries queries{exact_queries.data.get(), query_offsets.data(), B, c.salient ? query_salience.data() : nullptr};
    const void* document_values = exact_values.data.get();
    if (c.half) document_values = exact_halves.data.get();
    const weft::Documents documents{document_values, c.half, c.dim, exact_offsets.data.get(), N,
                                    c.salient ? exact_salience.data.get() : nullptr, c.k ? k.data() : nullptr};
    std::vector<float> scores(B * N, -1), masses(B * N, -1), again(B * N, -1), again_masses(B * N, -1);
    weft::score(kernels, queries, documents, scores.data(), masses.data(), 1);
    weft::score(kernels, queries, documents, again.data(), again_masses.data(), 3);

    const std::string what = std::string(name) + " dim " + std::to_string(c.dim) + " k " + std::to_string(c.k) +
                             (c.half ? " half" : "") + (c.salient ? " salient" : "");
    expect(scores == again && masses == again_masses, what + ": three threads differ from one");
    for (int64_t b = 0; b < B; ++b) {
        for (int64_t d = 0; d < N; ++d) {
            double sum = 0, mass = 0, scale = 1;
            for (int64_t i = query_offsets[b]; i < query_offsets[b + 1]; ++i) {
                std::vector<std::pair<double, int64_t>> row;  // (-similarity, token): sorts as the rule says
                for (int64_t j = offsets[d]; j < offsets[d + 1]; ++j) {
                    double s = 0;
                    for (int64_t x = 0; x < c.dim; ++x) s += double{query_values[i * c.dim + x]} * values[j * c.dim + x];
                    row.emplace_back(-s, j);
                    scale = std::max(scale, std::fabs(s));
                }
                std::sort(row.begin(), row.end());
                row.resize(std::min<size_t>(row.size(), std::max(c.k, 1)));
                for (const auto& [negative, j] : row) {
                    const double u = c.salient ? double{query_salience[i]} * salience[j] : 1.0;
                    sum -= u * negative;
                    mass += u;
                }
            }
            const double tolerance = 1e-5 * scale * (1 + mass);
            expect(std::fabs(scores[b * N + d] - sum) <= tolerance,
                   what + ": score " + std::to_string(scores[b * N + d]) + " is not " + std::to_string(sum));
            // With random halves a rounded tie may choose another token, and so another salience.
            expect(c.half || std::fabs(masses[b * N + d] - mass) <= 1e-4 * (1 + mass), what + ": mass");
        }
    }
}

// All 65,536 halves through a kernel: the similarity of a one-dimensional token with the query 1 is the token.
void check_halves(const char* name, const weft::Kernels& kernels) {
    std::vector<uint16_t> halves(65536);
    std::vector<int64_t> offsets(65537);
    for (int i = 0; i < 65536; ++i) halves[i] = static_cast<uint16_t>(i);
    for (int i = 0; i <= 65536; ++i) offsets[i] = i;
    const float one = 1;
    const int64_t query_offsets[] = {0, 1};
    std::vector<float> scores(65536);
    weft::score(kernels, {&one, query_offsets, 1, nullptr},
                {halves.data(), true, 1, offsets.data(), 65536, nullptr, nullptr}, scores.data(), nullptr, 1);
    for (int i = 0; i < 65536; ++i) {
        const double value = half_value(static_cast<uint16_t>(i));
        if (value == value) expect(scores[i] == value, std::string(name) + ": half pattern " + std::to_string(i));
    }
}

void check_all(const char* name, const weft::Kernels& kernels) {
    const int before = failures;
    std::mt19937 random(7);
    const std::vector<int64_t> lengths{0, 1, 5, 6, 7, 0, 0, 13, 30, 1, 70, 11, 12, 2, 0};
    const std::vector<std::vector<int64_t>> batches{{1}, {7, 0, 9}, {16}, {0}, {17, 33}, {64, 3}, {2, 2, 61, 5}};
    for (int64_t dim : {1, 16, 37}) {
        for (const auto& batch : batches) {
            for (int k : {0, 1, 2, 5, 8, 9, 65}) {
                for (bool half : {false, true}) {
                    for (bool salient : {false, true}) {
                        check(name, kernels, {dim, batch, lengths, k, half, salient, 2}, random);
                    }
                }
                check(name, kernels, {dim, batch, lengths, k, false, false, 0}, random);
            }
        }
    }
    check_halves(name, kernels);
    std::printf("%s: %d lanes, tiles of %d x %d: %s\n", name, kernels.lanes, kernels.tile_rows, kernels.tile_vectors,
                failures == before ? "ok" : "FAILED");
}

void check_parallel() {
    bool caught = false;
    try {
        weft::run_parallel(100, 4, [](weft::Pieces& pieces) {
            for (int64_t piece; (piece = pieces.next()) >= 0;) {
                if (piece == 42) throw std::runtime_error("piece 42");
            }
        });
    } catch (const std::runtime_error& error) {
        caught = std::strcmp(error.what(), "piece 42") == 0;
    }
    expect(caught, "an exception in a worker reaches the caller");
}

}  // namespace

int main() {
    for (const weft::Level& level : weft::supported_levels()) check_all(level.name, *level.kernels);
    check_all("wide", kWideKernels);
    check_all("plain", kPlainKernels);
    check_parallel();
    if (failures) std::fprintf(stderr, "%d checks failed\n", failures);
    return failures ? 1 : 0;
}
