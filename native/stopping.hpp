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
    double least = -INFINITY;  // what a score must reach in any case: as many are known elsewhere
};

class Stopping {
public:
    // `first`: so many documents are scored before estimates are believed, or half as many where it is known what they must reach.
    Stopping(const Stop& stop, int64_t first)
        : stop_(stop), first_(stop.least > -INFINITY ? first / 2 : std::max(first, stop.wanted + 2)) {
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

    // The least estimate that is still worth scoring.
    double least() const {
        if (count_ < first_) return -INFINITY;
        const bool full = static_cast<int64_t>(best_.size()) == stop_.wanted;
        const double mean = sum_ / static_cast<double>(count_);
        const double deviation = std::sqrt(std::max(squares_ / static_cast<double>(count_) - mean * mean, 0.0));
        return std::max(full ? best_.front() : -INFINITY, stop_.least) - (mean + stop_.sure * deviation);
    }

private:
    Stop stop_;
    int64_t first_, count_ = 0;
    double sum_ = 0, squares_ = 0;
    std::vector<double> best_;  // a heap of the best scores, the least on top
};

}  // namespace weft
