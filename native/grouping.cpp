#include "grouping.hpp"

#include <cstddef>
#include <limits>
#include <vector>

namespace weft {
namespace {

constexpr float kNone = std::numeric_limits<float>::infinity();

// The costs of merging pairs of groups, each group named by its first point, and the cheapest partner above each.
class Costs {
public:
    Costs(float* cost, float* weight, int64_t count) : cost_(cost), weight_(weight), count_(count), alive_(size(count), 1), best_(size(count)) {
        for (int64_t i = 0; i < count; ++i)
            for (int64_t j = 0; j < count; ++j) at(i, j) *= weight[i] * weight[j] / (weight[i] + weight[j]);
        for (int64_t i = 0; i < count; ++i) look(i);
    }

    // Merge the cheapest pair: the second, later group goes into the first. Of equals the first pair.
    void merge(int64_t& into, int64_t& gone) {
        float least = kNone;
        into = -1;
        for (int64_t i = 0; i + 1 < count_; ++i) {
            if (!alive_[size(i)] || best_[size(i)] < 0) continue;
            const float found = at(i, best_[size(i)]);
            if (into < 0 || found < least) {
                least = found;
                into = i;
            }
        }
        gone = best_[size(into)];
        alive_[size(gone)] = 0;
        update(into, gone, least);
    }

private:
    static size_t size(int64_t i) { return static_cast<size_t>(i); }
    float& at(int64_t i, int64_t j) { return cost_[i * count_ + j]; }

    void look(int64_t i) {
        int64_t found = -1;
        for (int64_t j = i + 1; j < count_; ++j)
            if (alive_[size(j)] && (found < 0 || at(i, j) < at(i, found))) found = j;
        best_[size(i)] = found;
    }

    // Lance and Williams' update for Ward's criterion, which holds for weighted points too.
    void update(int64_t a, int64_t b, float between) {
        for (int64_t i = 0; i < count_; ++i) {
            if (!alive_[size(i)] || i == a) continue;
            const float both = (weight_[i] + weight_[a]) * at(i, a) + (weight_[i] + weight_[b]) * at(i, b) - weight_[i] * between;
            at(i, a) = at(a, i) = both / (weight_[i] + weight_[a] + weight_[b]);
        }
        weight_[a] += weight_[b];
        look(a);
        for (int64_t i = 0; i < b; ++i) {
            if (!alive_[size(i)] || i == a) continue;
            if (best_[size(i)] == a || best_[size(i)] == b) {
                look(i);
            } else if (i < a && at(i, a) < at(i, best_[size(i)])) {
                best_[size(i)] = a;
            }
        }
    }

    float* cost_;
    float* weight_;
    int64_t count_;
    std::vector<char> alive_;
    std::vector<int64_t> best_;
};

}  // namespace

void group_by_ward(float* distance, float* weight, int64_t count, int64_t groups, int32_t* labels) {
    std::vector<int32_t> first(static_cast<size_t>(count));  // of each point, one that it was merged into, or itself
    for (int64_t i = 0; i < count; ++i) first[static_cast<size_t>(i)] = static_cast<int32_t>(i);
    Costs costs(distance, weight, count);
    for (int64_t left = count; left > groups; --left) {
        int64_t into = 0;
        int64_t gone = 0;
        costs.merge(into, gone);
        first[static_cast<size_t>(gone)] = static_cast<int32_t>(into);
    }
    int32_t next = 0;
    for (int64_t i = 0; i < count; ++i) {  // what a point was merged into stands before it, and has its label already
        const int32_t parent = first[static_cast<size_t>(i)];
        labels[i] = parent == i ? next++ : labels[parent];
    }
}

}  // namespace weft
