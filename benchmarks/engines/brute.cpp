// Brute-force MaxSim for AVX2: float16 vectors with fp32 arithmetic ("exact"), and 8-bit codes.
//
// These are the honest baselines of the benchmark: the exact answers, the re-ranking that any engine may add, and the
// int8 full scan whose time is the unit that figures are quoted in. workload.py compiles this file for the machine it runs on.
//
// Vectors have 128 dimensions and length 1; a query has at most 32 tokens, held in groups of 8 (one per SIMD lane), the last
// group filled up with zero rows whose maxima are never read.

#include <immintrin.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int kDim = 128;
constexpr int kQuery = 32;  // longest query
constexpr int kLanes = 8;   // query tokens in one register

// -- float16 documents, float32 query ---------------------------------------------------------------------------------

struct QueryF32 {
    alignas(64) float by_dim[kDim * kQuery];  // [dimension][query token]
    int tokens, groups;

    QueryF32(const float* query, int n) : tokens(n), groups((n + kLanes - 1) / kLanes) {
        std::memset(by_dim, 0, sizeof by_dim);
        for (int i = 0; i < n; i++)
            for (int d = 0; d < kDim; d++) by_dim[d * kQuery + i] = query[i * kDim + d];
    }
};

// Raises the maxima of 16 query tokens by six document tokens: 12 accumulators, so that 6 broadcasts and 2 loads feed 12
// multiply-adds, with no register spilled.
__attribute__((noinline)) void tile_f16(const float (*wide)[kDim], const float* query, float* maxima) {
    __m256 sum[6][2];
    for (auto& row : sum) row[0] = row[1] = _mm256_setzero_ps();
#pragma GCC unroll 2
    for (int d = 0; d < kDim; d++) {
        const __m256 q0 = _mm256_load_ps(query + d * kQuery), q1 = _mm256_load_ps(query + d * kQuery + kLanes);
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++) {
            const __m256 x = _mm256_broadcast_ss(wide[j] + d);
            sum[j][0] = _mm256_fmadd_ps(x, q0, sum[j][0]);
            sum[j][1] = _mm256_fmadd_ps(x, q1, sum[j][1]);
        }
    }
    for (int g = 0; g < 2; g++) {
        __m256 most = _mm256_loadu_ps(maxima + g * kLanes);
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++) most = _mm256_max_ps(most, sum[j][g]);
        _mm256_storeu_ps(maxima + g * kLanes, most);
    }
}

// maxima[i] = max over the n document tokens of <query token i, document token>; `maxima` has room for 32.
void maxima_f16(const uint16_t* tokens, int n, const QueryF32& query, float* maxima) {
    std::fill_n(maxima, kQuery, -INFINITY);
    alignas(32) float wide[6][kDim];
    for (int t = 0; t < n; t += 6) {
        for (int j = 0; j < 6; j++) {  // past the end, the last token again
            const uint16_t* token = tokens + static_cast<size_t>(std::min(t + j, n - 1)) * kDim;
            for (int d = 0; d < kDim; d += 8)
                _mm256_store_ps(wide[j] + d, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(token + d))));
        }
        for (int g = 0; g < query.groups; g += 2) tile_f16(wide, query.by_dim + g * kLanes, maxima + g * kLanes);
    }
}

float maxsim_f16(const uint16_t* tokens, int n, const QueryF32& query) {
    float maxima[kQuery];
    maxima_f16(tokens, n, query, maxima);
    float sum = 0;
    for (int i = 0; i < query.tokens; i++) sum += maxima[i];
    return sum;
}

// -- 8-bit documents, 7-bit query -------------------------------------------------------------------------------------
//
// A document code is 128 + round(300 x), clipped to 1..255; a query code is round(s q) within -63..63. vpmaddubsw multiplies
// unsigned by signed bytes and adds pairs into 16 bits: 2 * 255 * 63 < 2^15, so that it never saturates. The pairs are summed
// in 16 bits, modulo 2^16, and start from minus the 128s' share, so that what counts is the true sum over the 64 dimensions
// of a lane: at most 300 |x| * s |q| and the rounding, which s <= 100 keeps below 2^15. One widening per token
// and 8 query tokens remains.

constexpr float kDocumentScale = 300.f;

int nearest(float x) { return _mm_cvtss_si32(_mm_set_ss(x)); }

struct QueryI8 {
    alignas(64) int8_t codes[kDim / 4 * kQuery * 4];  // [dimension / 4][query token][dimension % 4]
    alignas(64) int16_t start[kQuery * 2];            // -128 times the sum of the codes in each 16-bit lane
    float unit[kQuery];                               // integer sum -> similarity
    int tokens, groups;

    QueryI8(const float* query, int n) : tokens(n), groups((n + kLanes - 1) / kLanes) {
        std::memset(codes, 0, sizeof codes);
        std::memset(start, 0, sizeof start);
        for (int i = 0; i < n; i++) {
            float largest = 1e-9f;
            for (int d = 0; d < kDim; d++) largest = std::max(largest, std::fabs(query[i * kDim + d]));
            const float scale = std::min(63.f / largest, 100.f);
            unit[i] = 1.f / (scale * kDocumentScale);
            int sum[2] = {0, 0};
            for (int d = 0; d < kDim; d++) {
                const int code = nearest(query[i * kDim + d] * scale);
                codes[d / 4 * (kQuery * 4) + i * 4 + d % 4] = static_cast<int8_t>(code);
                sum[d % 4 / 2] += code;
            }
            for (int half = 0; half < 2; half++) start[i * 2 + half] = static_cast<int16_t>(static_cast<uint16_t>(-128 * sum[half]));
        }
    }
};

// Raises the maxima of `Groups` groups by `Tokens` document tokens. Out of line and with the maxima in memory, so that the
// compiler keeps every accumulator in a register.
template <int Tokens, int Groups>
__attribute__((noinline)) void tile_i8(const uint8_t* tokens, const int8_t* query, const int16_t* start, int32_t* maxima) {
    __m256i sum[Tokens][Groups];
#pragma GCC unroll 8
    for (int j = 0; j < Tokens; j++)
#pragma GCC unroll 2
        for (int g = 0; g < Groups; g++) sum[j][g] = _mm256_load_si256(reinterpret_cast<const __m256i*>(start) + g);
#pragma GCC unroll 1
    for (int d = 0; d < kDim; d += 4) {
        const __m256i* codes = reinterpret_cast<const __m256i*>(query + d * kQuery);
#pragma GCC unroll 8
        for (int j = 0; j < Tokens; j++) {
            int four;
            std::memcpy(&four, tokens + j * kDim + d, 4);
            const __m256i x = _mm256_set1_epi32(four);
#pragma GCC unroll 2
            for (int g = 0; g < Groups; g++)
                sum[j][g] = _mm256_add_epi16(sum[j][g], _mm256_maddubs_epi16(x, _mm256_load_si256(codes + g)));
        }
    }
    const __m256i one = _mm256_set1_epi16(1);
#pragma GCC unroll 2
    for (int g = 0; g < Groups; g++) {
        __m256i* most = reinterpret_cast<__m256i*>(maxima) + g;
        __m256i m = _mm256_load_si256(most);
#pragma GCC unroll 8
        for (int j = 0; j < Tokens; j++) m = _mm256_max_epi32(m, _mm256_madd_epi16(sum[j][g], one));
        _mm256_store_si256(most, m);
    }
}

template <int Groups>
void maxima_i8(const uint8_t* tokens, int n, const int8_t* query, const int16_t* start, int32_t* maxima) {
#ifdef __clang__
    constexpr int kTile = 5;
#else
    constexpr int kTile = 3;  // GCC 12 spills accumulators of larger tiles
#endif
    std::fill_n(maxima, Groups * kLanes, INT_MIN);
    int t = 0;
    for (; t + kTile <= n; t += kTile) tile_i8<kTile, Groups>(tokens + static_cast<size_t>(t) * kDim, query, start, maxima);
    for (; t < n; t++) tile_i8<1, Groups>(tokens + static_cast<size_t>(t) * kDim, query, start, maxima);
}

float maxsim_i8(const uint8_t* tokens, int n, const QueryI8& query) {
    alignas(32) int32_t maxima[kQuery];
    int g = 0;
    for (; g + 2 <= query.groups; g += 2) maxima_i8<2>(tokens, n, query.codes + g * 32, query.start + g * 16, maxima + g * 8);
    if (g < query.groups) maxima_i8<1>(tokens, n, query.codes + g * 32, query.start + g * 16, maxima + g * 8);
    float sum = 0;
    for (int i = 0; i < query.tokens; i++) sum += static_cast<float>(maxima[i]) * query.unit[i];
    return sum;
}

int length(const int64_t* offsets, int64_t document) { return static_cast<int>(offsets[document + 1] - offsets[document]); }

}  // namespace

extern "C" {

// scores[query][document]; 32 documents at a time for all queries, so that they stay in the cache.
void score_all_f16(const uint16_t* vectors, const int64_t* offsets, int64_t documents, const float* queries, const int32_t* lengths,
                   int64_t n, float* scores) {
    std::vector<QueryF32> prepared;
    prepared.reserve(n);
    for (int64_t i = 0; i < n; i++) prepared.emplace_back(queries + i * kQuery * kDim, lengths[i]);
    for (int64_t first = 0; first < documents; first += 32)
        for (int64_t i = 0; i < n; i++)
            for (int64_t d = first; d < std::min(documents, first + 32); d++)
                scores[i * documents + d] = maxsim_f16(vectors + offsets[d] * kDim, length(offsets, d), prepared[i]);
}

void score_some_f16(const uint16_t* vectors, const int64_t* offsets, const int32_t* which, int64_t count, const float* query, int n,
                    float* scores) {
    const QueryF32 prepared(query, n);
    for (int64_t i = 0; i < count; i++)
        scores[i] = maxsim_f16(vectors + offsets[which[i]] * kDim, length(offsets, which[i]), prepared);
}

// maxima[document][i] = max over the document's tokens of <probe i, token>, for a multiple of 32 probes.
void probe_maxima_f16(const uint16_t* vectors, const int64_t* offsets, int64_t documents, const float* probes, int64_t n,
                      float* maxima) {
    std::vector<QueryF32> prepared;
    prepared.reserve(n / kQuery);
    for (int64_t i = 0; i < n; i += kQuery) prepared.emplace_back(probes + i * kDim, kQuery);
    for (int64_t d = 0; d < documents; d++)
        for (int64_t i = 0; i < n / kQuery; i++)
            maxima_f16(vectors + offsets[d] * kDim, length(offsets, d), prepared[i], maxima + d * n + i * kQuery);
}

void encode_i8(const uint16_t* vectors, int64_t tokens, uint8_t* codes) {
    for (int64_t i = 0; i < tokens * kDim; i++)
        codes[i] = static_cast<uint8_t>(128 + nearest(std::clamp(_cvtsh_ss(vectors[i]) * kDocumentScale, -127.f, 127.f)));
}

void score_all_i8(const uint8_t* codes, const int64_t* offsets, int64_t documents, const float* query, int n, float* scores) {
    const QueryI8 prepared(query, n);
    for (int64_t d = 0; d < documents; d++) scores[d] = maxsim_i8(codes + offsets[d] * kDim, length(offsets, d), prepared);
}

// Token hits -> document scores. Row i of `tokens` and `similarities` holds the nearest `width` tokens of query token i, nearest
// first, -1 where there are fewer. A document's score is the sum over query tokens of what its best hit has above the last hit
// of that row (documents that were not hit count that one). `sums` and `seen` have one cell per document and come zeroed and
// filled with -1; `touched` receives the documents that were hit, their number is returned.
int64_t gather_hits(const int64_t* tokens, const float* similarities, int64_t n, int64_t width, const int32_t* owner, float* sums,
                    int32_t* seen, int32_t* touched) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t hits = width;
        while (hits > 0 && tokens[i * width + hits - 1] < 0) hits--;
        if (hits == 0) continue;
        const float floor = similarities[i * width + hits - 1];
        for (int64_t j = 0; j < hits; j++) {
            const int32_t document = owner[tokens[i * width + j]];
            if (seen[document] == i) continue;
            if (seen[document] < 0) touched[count++] = document;
            seen[document] = static_cast<int32_t>(i);
            sums[document] += similarities[i * width + j] - floor;
        }
    }
    return count;
}
}
