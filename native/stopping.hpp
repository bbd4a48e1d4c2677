// When to stop scoring documents that come in the order of an estimate: what the true scores of those so far were beside their
// estimates tells how far the next ones can be expected to be from theirs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace weft {

// A document is worth scoring if, with a score `sure` standard deviations above what its estimate lets expect, it would be among
// the best `wanted`. With an infinite `sure` all are.
struct Stop {
    double sure = INFINITY;
    int64_t wanted = 0;
};

class Stopping {
public:
    // `first`: so many documents are scored before the first is left out. `least`: what a score must reach in any case.
    // `surplus`: what a score may exceed its estimate by as long as too few are known here.
    Stopping(const Stop& stop, int64_t first, double least, double surplus)
        : stop_(stop), first_(std::max(first, stop.wanted + 2)), least_(least), surplus_(surplus) {
        if (on()) best_.reserve(static_cast<size_t>(stop.wanted));
    }

    bool on() const { return stop_.sure < INFINITY && stop_.wanted > 0; }

    void saw(double estimate, double score) {
        const double off = score - estimate;
        ++count_;
        sum_ += off;
        squares_ += off * off;
        const bool room = static_cast<int64_t>(best_.size()) < stop_.wanted;
        if (!room && score <= best_.front()) return;
        if (!room) {
            std::pop_heap(best_.begin(), best_.end(), std::greater<>());
            best_.pop_back();
        }
        best_.push_back(score);
        std::push_heap(best_.begin(), best_.end(), std::greater<>());
    }

    // What a score may exceed its estimate by; infinite while that is not known.
    double surplus() const {
        if (count_ < first_) return surplus_;
        const double mean = sum_ / static_cast<double>(count_);
        return mean + stop_.sure * std::sqrt(std::max(squares_ / static_cast<double>(count_) - mean * mean, 0.0));
    }

    // The least estimate that is still worth scoring.
    double least() const {
        const bool full = static_cast<int64_t>(best_.size()) == stop_.wanted;
        return std::max(full ? best_.front() : -INFINITY, least_) - surplus();
    }

private:
    Stop stop_;
    int64_t first_, count_ = 0;
    double least_, surplus_, sum_ = 0, squares_ = 0;
    std::vector<double> best_;  // a heap of the best scores, the least on top
};

}  // namespace weft
