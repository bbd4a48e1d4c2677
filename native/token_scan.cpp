#include "token_scan.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

#include "byte_layout.hpp"
#include "byte_query.hpp"
#include "document_rows.hpp"

namespace weft {
namespace {

// Similarities with the unrounded query, from codes.
class Products {
public:
    Products(const ByteKernels& kernels, const CodedSegment& data, const float* query)
        : kernels_(kernels), data_(data), query_(query), rows_(kernels, data) {}

    float of(int64_t query_token, int64_t row) {
        float product;
        kernels_.products(rows_.of_token(row), query_ + query_token * data_.dim, data_.dim, 1, &product);
        return product / data_.scale;
    }
    void prefetch(int64_t row) const {
        const int64_t width = data_.bits == 8 ? data_.dim : packed_width(data_.dim, data_.bits);
        for (int64_t at = row * width; at < (row + 1) * width; at += 64) __builtin_prefetch(data_.codes + at);
    }

private:
    const ByteKernels& kernels_;
    const CodedSegment& data_;
    const float* query_;
    DocumentRows rows_;
};

struct Near {
    int32_t dot, document, position;
};

// A scan of all tokens for one page of query tokens, by dot products with the rounded ones.
class Scan {
public:
    Scan(const ByteKernels& kernels, const CodedSegment& data, const uint8_t* allowed)
        : kernels_(kernels), data_(data), allowed_(allowed), rows_(kernels, data), dots_(kSome * kPage) {
        for (int64_t d = 0; d < data.documents; ++d) tokens_ += length(d);
    }

    // The tokens of each lane that come within `slack` of the k′-th product, and more; none below what is `given`.
    void run(const QueryPage& page, int64_t k_prime, const double* given, const double* slack) {
        int16_t sampled[kPage];
        sample(page, k_prime, sampled);
        double floors[kPage];
        for (int i = 0; i < page.lanes; ++i) floors[i] = std::max(sampled[i] - slack[i], given[i]);
        pass(page, floors);
        for (int i = 0; i < page.lanes; ++i) {
            const auto reach = [&](const Near& near) { return near.dot >= sampled[i]; };
            const auto found = std::count_if(near_[i].begin(), near_[i].end(), reach);
            if (found < std::min(k_prime, tokens_) && sampled[i] - slack[i] > given[i]) {  // the sample was not like the rest
                std::copy_n(given, page.lanes, floors);
                pass(page, floors);
                return;
            }
        }
    }
    std::vector<Near>& of(int lane) { return near_[lane]; }

private:
    static constexpr int64_t kSome = 256;      // tokens scored at once
    // Tokens that a floor is taken from: a share of all, within limits.
    static constexpr int64_t kSampledShare = 32, kLeastSampled = 512, kMostSampled = 8192;

    int64_t length(int64_t d) const {
        return allowed_ == nullptr || allowed_[d] != 0 ? data_.offsets[d + 1] - data_.offsets[d] : 0;
    }

    template <class Take>
    void score(const QueryPage& page, int64_t d, const Take& take) {
        const uint8_t* document = rows_.of(static_cast<int32_t>(d));
        for (int64_t first = 0, all = length(d); first < all; first += kSome) {
            const int64_t count = std::min(kSome, all - first);
            kernels_.dots(document + first * data_.dim, count, page, dots_.data());
            take(first, count);
        }
    }

    // A floor that k′ of all tokens all but surely reach, by some of them.
    void sample(const QueryPage& page, int64_t k_prime, int16_t* floors) {
        std::fill(floors, floors + kPage, int16_t{INT16_MIN});
        const int64_t step = tokens_ / std::clamp(tokens_ / kSampledShare, kLeastSampled, kMostSampled);
        if (step < 4) return;
        std::vector<int16_t> products[kPage];
        for (int i = 0; i < page.lanes; ++i) products[i].reserve(2 * kMostSampled);
        int64_t seen = 0;
        for (int64_t d = 0; d < data_.documents; ++d) {
            if (length(d) == 0 || seen++ % step != 0) continue;
            score(page, d, [&](int64_t, int64_t count) {
                for (int i = 0; i < page.lanes; ++i)
                    for (int64_t t = 0; t < count; ++t) products[i].push_back(dots_[static_cast<size_t>(t * kPage + i)]);
            });
        }
        const auto size = static_cast<double>(products[0].size());
        const double expected = static_cast<double>(k_prime) * size / static_cast<double>(tokens_);
        const double rank = expected * 1.1 + 6 * std::sqrt(expected) + 6;  // tokens of a document are alike: more than chance
        if (rank >= size) return;
        for (int i = 0; i < page.lanes; ++i) {
            const auto at = products[i].begin() + static_cast<ptrdiff_t>(rank);
            std::nth_element(products[i].begin(), at, products[i].end(), std::greater<>());
            floors[i] = *at;
        }
    }

    void pass(const QueryPage& page, const double* least) {
        alignas(64) int16_t floors[kPage];
        std::fill(floors, floors + kPage, int16_t{INT16_MAX});
        for (int i = 0; i < page.lanes; ++i) {
            floors[i] = static_cast<int16_t>(std::clamp(std::floor(least[i]), -32768.0, 32767.0));
            near_[i].clear();
        }
        const uint32_t used = page.lanes < kPage ? (uint32_t{1} << page.lanes) - 1 : ~uint32_t{0};
        uint32_t masks[kSome];
        for (int64_t d = 0; d < data_.documents; ++d) {
            if (length(d) == 0) continue;
            score(page, d, [&](int64_t first, int64_t count) {
                kernels_.reached(dots_.data(), count, floors, masks);
                for (int64_t t = 0; t < count; ++t)
                    for (uint32_t mask = masks[t] & used; mask != 0; mask &= mask - 1) {
                        const int i = __builtin_ctz(mask);
                        near_[i].push_back({dots_[static_cast<size_t>(t * kPage + i)], static_cast<int32_t>(d), static_cast<int32_t>(first + t)});
                    }
            });
        }
    }

    const ByteKernels& kernels_;
    const CodedSegment& data_;
    const uint8_t* allowed_;
    DocumentRows rows_;
    std::vector<int16_t> dots_;
    std::vector<Near> near_[kPage];
    int64_t tokens_ = 0;
};

// What rounding the query does to a product, of what it can do at the most: errors of many coordinates cancel. This is four times
// what is usual.
double usual(int64_t dim) { return std::min(4 / std::sqrt(static_cast<double>(dim)), 1.0); }

// The best k′ products of each lane, as they come by.
class BestProducts {
public:
    explicit BestProducts(int64_t k_prime) : k_prime_(static_cast<size_t>(k_prime)) { std::fill(floors_, floors_ + kPage, int16_t{INT16_MIN}); }

    void add(const ByteKernels& kernels, const int16_t* dots, int64_t count, int lanes) {
        const uint32_t used = lanes < kPage ? (uint32_t{1} << lanes) - 1 : ~uint32_t{0};
        uint32_t masks[kTogether];
        kernels.reached(dots, count, floors_, masks);
        for (int64_t t = 0; t < count; ++t)
            for (uint32_t mask = masks[t] & used; mask != 0; mask &= mask - 1) {
                const int i = __builtin_ctz(mask);
                kept_[i].push_back(dots[t * kPage + i]);
            }
        for (int i = 0; i < lanes; ++i)
            if (kept_[i].size() >= 2 * k_prime_ + kTogether) best(i);
    }
    const std::vector<int16_t>& best(int lane) {
        std::vector<int16_t>& kept = kept_[lane];
        if (kept.size() > k_prime_) {
            const auto last = kept.begin() + static_cast<ptrdiff_t>(k_prime_ - 1);
            std::nth_element(kept.begin(), last, kept.end(), std::greater<>());
            floors_[lane] = *last;
            kept.resize(k_prime_);
        }
        return kept;
    }

    static constexpr int64_t kTogether = 64;  // tokens added at once, at the most

private:
    size_t k_prime_;
    alignas(64) int16_t floors_[kPage];
    std::vector<int16_t> kept_[kPage];
};

}  // namespace

void sample_tokens(const ByteKernels& kernels, const CodedSegment& data, const float* query, const int64_t* tokens, int64_t count,
                   TokenRetrieval& into) {
    constexpr int64_t kSome = BestProducts::kTogether, kAhead = 24;
    const ByteQuery bytes(query, into.tokens(), data.dim, data.norm, false);
    DocumentRows rows(kernels, data);
    const int64_t width = data.bits == 8 ? data.dim : packed_width(data.dim, data.bits);
    std::vector<uint8_t> some(static_cast<size_t>(kSome * data.dim));
    std::vector<int16_t> dots(static_cast<size_t>(kSome * kPage));
    std::vector<BestProducts> best(static_cast<size_t>(bytes.pages()), BestProducts(into.k_prime()));
    for (int64_t first = 0; first < count; first += kSome) {
        const int64_t together = std::min(kSome, count - first);
        for (int64_t t = 0; t < together; ++t) {
            if (first + t + kAhead < count)
                for (int64_t at = 0; at < width; at += 64) __builtin_prefetch(data.codes + tokens[first + t + kAhead] * width + at);
            std::copy_n(rows.of_token(tokens[first + t]), data.dim, some.data() + t * data.dim);
        }
        for (int64_t p = 0; p < bytes.pages(); ++p) {
            kernels.dots(some.data(), together, bytes.page(p), dots.data());
            best[static_cast<size_t>(p)].add(kernels, dots.data(), together, bytes.page(p).lanes);
        }
    }
    for (int64_t token = 0; token < into.tokens(); ++token)
        for (const int16_t product : best[static_cast<size_t>(token / kPage)].best(static_cast<int>(token % kPage)))
            into.add(token, {static_cast<float>(product * bytes.inverse_scale(token) / data.scale), 0, 0});
}

void scan_tokens(const ByteKernels& kernels, const CodedSegment& data, const float* query, const uint8_t* allowed, int64_t base,
                 bool certain, TokenRetrieval& into) {
    const ByteQuery bytes(query, into.tokens(), data.dim, data.norm, false);
    Products products(kernels, data, query);
    Scan scan(kernels, data, allowed);
    const auto before = [](const Near& a, const Near& b) { return a.dot > b.dot; };
    for (int64_t p = 0; p < bytes.pages(); ++p) {
        const QueryPage& page = bytes.page(p);
        double slack[kPage], given[kPage];  // of products
        for (int i = 0; i < page.lanes; ++i) {
            const int64_t token = p * kPage + i;
            const double reach = std::min(bytes.rounding(token) * data.norm * 1.001, 65535.0) * (certain ? 1 : usual(data.dim)) + 2;
            slack[i] = certain ? 2 * reach : reach;  // the k′-th itself is off, too, but of many it is off by less
            const double inverse = bytes.inverse_scale(token), floor = double{into.floor(token)} * double{data.scale};
            given[i] = inverse > 0 ? std::floor(floor / inverse - reach) : -32768;
        }
        scan.run(page, into.k_prime(), given, slack);
        for (int i = 0; i < page.lanes; ++i) {
            const int64_t token = p * kPage + i;
            std::vector<Near>& near = scan.of(i);
            double kth = -32768;
            if (static_cast<int64_t>(near.size()) > into.k_prime()) {
                const auto at = near.begin() + static_cast<ptrdiff_t>(into.k_prime() - 1);
                std::nth_element(near.begin(), at, near.end(), before);
                kth = at->dot;
            }
            const double least = kth - slack[i];
            near.erase(std::remove_if(near.begin(), near.end(), [&](const Near& n) { return n.dot < least; }), near.end());
            for (size_t n = 0; n < near.size(); ++n) {
                constexpr size_t kAhead = 12;
                if (n + kAhead < near.size()) products.prefetch(data.offsets[near[n + kAhead].document] + near[n + kAhead].position);
                const float similarity = products.of(token, data.offsets[near[n].document] + near[n].position);
                into.add(token, {similarity, static_cast<int32_t>(base + near[n].document), near[n].position});
            }
        }
    }
}

}  // namespace weft
