#include "scoring.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "parallel.hpp"

namespace weft {
namespace {

constexpr int kGroupLanes = 64;           // query tokens scored in one pass over a block of documents
constexpr int64_t kBlockFloats = 32768;   // document values per block: a quarter of a small L2 cache
constexpr int64_t kBlockDocuments = 512;  // keeps the rows of a block of tiny documents small

// Zeroed floats on a cache line boundary.
class Buffer {
public:
    explicit Buffer(int64_t count)
        : data_(static_cast<float*>(::operator new[](sizeof(float) * static_cast<size_t>(count), kLine))) {
        std::fill_n(data_, count, 0.0f);
    }
    ~Buffer() { ::operator delete[](data_, kLine); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    float* data() const { return data_; }

private:
    static constexpr std::align_val_t kLine{64};
    float* data_;
};

// ---- Queries as lanes ---------------------------------------------------------------------------------

// All query tokens of a batch side by side, whichever query they belong to, so that short queries waste no
// lanes. Cut into groups of at most kGroupLanes.
class Lanes {
public:
    Lanes(const Kernels& kernels, const Queries& queries, int64_t dim)
        : tokens_(queries.offsets[queries.count] - queries.offsets[0]), dim_(dim), width_(kernels.lanes),
          vectors_((tokens_ + width_ - 1) / width_),
          group_vectors_(kGroupLanes / width_ / kernels.tile_vectors * kernels.tile_vectors),  // whole panels
          packed_(vectors_ * width_ * dim) {
        const float* values = queries.values + queries.offsets[0] * dim;
        const int64_t panel_lanes = int64_t{kernels.tile_vectors} * width_;
        for (int64_t first = 0; first < tokens_; first += panel_lanes) {
            const int64_t lanes = std::min(panel_lanes, vectors_ * width_ - first);
            float* panel = packed_.data() + first * dim;
            for (int64_t i = 0; i < std::min(lanes, tokens_ - first); ++i) {
                for (int64_t x = 0; x < dim; ++x) panel[x * lanes + i] = values[(first + i) * dim + x];
            }
        }
    }

    int64_t groups() const { return (vectors_ + group_vectors_ - 1) / group_vectors_; }
    int64_t first_token(int64_t group) const { return group * group_vectors_ * width_; }
    int64_t last_token(int64_t group) const { return std::min(tokens_, first_token(group + 1)); }

    QueryGroup operator[](int64_t group) const {
        const int64_t first = group * group_vectors_;
        return {packed_.data() + first * width_ * dim_, static_cast<int>(std::min(group_vectors_, vectors_ - first))};
    }

private:
    int64_t tokens_, dim_, width_, vectors_, group_vectors_;
    Buffer packed_;
};

// ---- Blocks of documents ------------------------------------------------------------------------------

struct Block {
    int64_t first, last;  // documents
    bool fused;           // every k small enough to be selected during the multiplication
};

// Whole documents in blocks of about equal token counts: what threads share, and what stays in cache while
// the query groups pass over it.
std::vector<Block> cut_blocks(const Documents& documents) {
    const int64_t most_tokens = std::max<int64_t>(1, kBlockFloats / std::max<int64_t>(1, documents.dim));
    const auto fused = [&](int64_t d) { return documents.k == nullptr || documents.k[d] <= kMaxFusedK; };
    std::vector<Block> blocks;
    for (int64_t first = 0, last; first < documents.count; first = last) {
        last = first + 1;
        while (fused(first) && last < documents.count && fused(last) && last - first < kBlockDocuments &&
               documents.offsets[last + 1] - documents.offsets[first] <= most_tokens) {
            ++last;
        }
        blocks.push_back({first, last, fused(first)});
    }
    return blocks;
}

DocumentBlock make_block(const Documents& documents, int64_t first, int64_t last) {
    return {documents.values, documents.half, documents.dim,  documents.offsets,
            documents.salience, documents.k,  first,          last};
}

// ---- Selection from a stored similarity matrix --------------------------------------------------------

struct Candidate {
    float similarity;
    int32_t token;
};

// The k best of a column of S, in no particular order. The rule of the fused kernels: by similarity, the first
// token among equals, NaN below everything (which also keeps the order a strict one).
void select_best(const float* column, int64_t stride, int64_t count, int64_t k, std::vector<Candidate>& best) {
    best.resize(static_cast<size_t>(count));
    for (int64_t j = 0; j < count; ++j) {
        const float s = column[j * stride];
        best[static_cast<size_t>(j)] = {s == s ? s : -std::numeric_limits<float>::infinity(), static_cast<int32_t>(j)};
    }
    if (k < count) {
        std::nth_element(best.begin(), best.begin() + k, best.end(), [](const Candidate& a, const Candidate& b) {
            return a.similarity > b.similarity || (a.similarity == b.similarity && a.token < b.token);
        });
        best.resize(static_cast<size_t>(k));
    }
}

// ---- One thread's work --------------------------------------------------------------------------------

class Scorer {
public:
    Scorer(const Kernels& kernels, const Lanes& lanes, const Queries& queries, const Documents& documents,
           float* scores, float* masses)
        : kernels_(kernels), lanes_(lanes), queries_(queries), documents_(documents), scores_(scores),
          masses_(masses), tile_(kernels.tile_rows * documents.dim), state_(2 * kMaxFusedK * kGroupLanes),
          sums_(kBlockDocuments * kGroupLanes), row_masses_(documents.salience ? kBlockDocuments * kGroupLanes : 1),
          running_(static_cast<size_t>(kBlockDocuments)), running_masses_(static_cast<size_t>(kBlockDocuments)) {}

    void score(const Block& block) {
        int64_t query = 0;
        for (int64_t group = 0; group < lanes_.groups(); ++group) {
            const QueryGroup lanes = lanes_[group];
            if (block.fused) {
                kernels_.row_scores(make_block(documents_, block.first, block.last), lanes,
                                    {tile_.data(), state_.data()}, {sums_.data(), row_masses_.data()});
            } else {
                select_rows(block.first, lanes);
            }
            query = add_rows(block, group, lanes.vectors * kernels_.lanes, query);
        }
    }

private:
    // The row of one document whose k is large: all similarities first, then the best of each column.
    void select_rows(int64_t document, const QueryGroup& lanes) {
        const int64_t begin = documents_.offsets[document], count = documents_.offsets[document + 1] - begin;
        const int64_t width = int64_t{lanes.vectors} * kernels_.lanes;
        matrix_.resize(static_cast<size_t>(count * width));
        kernels_.similarities(make_block(documents_, document, document + 1), lanes,
                              {tile_.data(), state_.data()}, matrix_.data());
        for (int64_t lane = 0; lane < width; ++lane) {
            select_best(matrix_.data() + lane, width, count, documents_.k[document], best_);
            double sum = 0, mass = 0;
            for (const Candidate& candidate : best_) {
                const double u = documents_.salience ? documents_.salience[begin + candidate.token] : 1.0;
                sum += u * candidate.similarity;
                mass += u;
            }
            sums_.data()[lane] = static_cast<float>(sum);
            if (documents_.salience) row_masses_.data()[lane] = static_cast<float>(mass);
        }
    }

    // Add a group's rows to the queries they belong to, in the order of the query tokens, and write the
    // queries that end in this group. `query` is that of the group's first token; returns the next group's.
    int64_t add_rows(const Block& block, int64_t group, int64_t width, int64_t query) {
        const int64_t origin = queries_.offsets[0], last = lanes_.last_token(group);
        for (int64_t token = lanes_.first_token(group); token < last;) {
            while (queries_.offsets[query + 1] - origin <= token) ++query;
            const bool starts = queries_.offsets[query] - origin == token;
            const int64_t end = queries_.offsets[query + 1] - origin, stop = std::min(end, last);
            for (int64_t d = block.first; d < block.last; ++d) {
                if (documents_.offsets[d] == documents_.offsets[d + 1]) continue;
                const int64_t row = d - block.first, lane = token - lanes_.first_token(group);
                double& sum = running_[static_cast<size_t>(row)];
                double& mass = running_masses_[static_cast<size_t>(row)];
                if (starts) sum = mass = 0;
                for (int64_t i = 0; i < stop - token; ++i) {
                    const double u = queries_.salience ? queries_.salience[origin + token + i] : 1.0;
                    sum += u * sums_.data()[row * width + lane + i];
                    if (masses_) mass += u * row_mass(d, row * width + lane + i);
                }
                if (stop < end) continue;
                scores_[query * documents_.count + d] = static_cast<float>(sum);
                if (masses_) masses_[query * documents_.count + d] = static_cast<float>(mass);
            }
            token = stop;
        }
        return query;
    }

    double row_mass(int64_t document, int64_t at) const {
        if (documents_.salience) return row_masses_.data()[at];
        return documents_.k ? documents_.k[document] : 1;
    }

    const Kernels& kernels_;
    const Lanes& lanes_;
    const Queries& queries_;
    const Documents& documents_;
    float* scores_;
    float* masses_;
    Buffer tile_, state_, sums_, row_masses_;
    std::vector<double> running_, running_masses_;  // of the query whose tokens are being added, per document
    std::vector<float> matrix_;
    std::vector<Candidate> best_;
};

}  // namespace

void score(const Kernels& kernels, const Queries& queries, const Documents& documents, float* scores, float* masses,
           int threads) {
    std::fill_n(scores, queries.count * documents.count, 0.0f);
    if (masses) std::fill_n(masses, queries.count * documents.count, 0.0f);
    const Lanes lanes(kernels, queries, documents.dim);
    const std::vector<Block> blocks = cut_blocks(documents);
    run_parallel(static_cast<int64_t>(blocks.size()), threads, [&](Pieces& pieces) {
        Scorer scorer(kernels, lanes, queries, documents, scores, masses);
        for (int64_t piece; (piece = pieces.next()) >= 0;) scorer.score(blocks[static_cast<size_t>(piece)]);
    });
}

void similarities(const Kernels& kernels, const Queries& queries, const Documents& documents, float* out) {
    const Lanes lanes(kernels, queries, documents.dim);
    const Buffer tile(kernels.tile_rows * documents.dim), state(2 * kMaxFusedK * kGroupLanes);
    const int64_t tokens = documents.offsets[documents.count];
    std::vector<float> matrix;
    for (const Block& block : cut_blocks(documents)) {
        const int64_t begin = documents.offsets[block.first], count = documents.offsets[block.last] - begin;
        for (int64_t group = 0; count > 0 && group < lanes.groups(); ++group) {
            const int64_t width = int64_t{lanes[group].vectors} * kernels.lanes, first = lanes.first_token(group);
            matrix.resize(static_cast<size_t>(count * width));
            kernels.similarities(make_block(documents, block.first, block.last), lanes[group], {tile.data(), state.data()}, matrix.data());
            for (int64_t i = first; i < lanes.last_token(group); ++i) {
                const float* column = matrix.data() + i - first;
                float* row = out + i * tokens + begin;
                for (int64_t t = 0; t < count; ++t) row[t] = column[t * width];
            }
        }
    }
}

void align(const Kernels& kernels, const Queries& queries, const Documents& documents, const Pairs& pairs) {
    const Lanes lanes(kernels, queries, documents.dim);
    const Buffer tile(kernels.tile_rows * documents.dim), state(2 * kMaxFusedK * kGroupLanes);
    std::vector<float> matrix;
    std::vector<Candidate> best;
    for (int64_t d = 0; d < documents.count; ++d) {
        const int64_t count = documents.offsets[d + 1] - documents.offsets[d];
        if (count == 0) continue;
        const int64_t k = documents.k ? documents.k[d] : 1;
        for (int64_t group = 0; group < lanes.groups(); ++group) {
            const int64_t width = int64_t{lanes[group].vectors} * kernels.lanes;
            matrix.resize(static_cast<size_t>(count * width));
            kernels.similarities(make_block(documents, d, d + 1), lanes[group], {tile.data(), state.data()}, matrix.data());
            for (int64_t i = lanes.first_token(group); i < lanes.last_token(group); ++i) {
                select_best(matrix.data() + i - lanes.first_token(group), width, count, k, best);
                std::sort(best.begin(), best.end(), [](const Candidate& a, const Candidate& b) {
                    return a.similarity > b.similarity || (a.similarity == b.similarity && a.token < b.token);
                });
                int64_t at = pairs.starts[d] + i * k;
                for (const Candidate& candidate : best) {
                    pairs.query_token[at] = static_cast<int32_t>(i);
                    pairs.document_token[at] = candidate.token;
                    pairs.similarity[at] = candidate.similarity;
                    ++at;
                }
            }
        }
    }
}

}  // namespace weft
