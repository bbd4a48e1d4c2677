// A loop over independent pieces of work on a few threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace weft {

// Run worker() on `threads` threads, the calling one among them, and wait for all of them. A worker draws the
// index of its next piece from the Pieces it is given. The first exception stops the others and is rethrown.
class Pieces {
public:
    explicit Pieces(int64_t count) : count_(count) {}

    // The next piece nobody has taken, or -1.
    int64_t next() {
        const int64_t piece = next_.fetch_add(1, std::memory_order_relaxed);
        return piece < count_ ? piece : -1;
    }
    void stop() { next_.store(count_, std::memory_order_relaxed); }

private:
    const int64_t count_;
    std::atomic<int64_t> next_{0};
};

template <class Worker>
void run_parallel(int64_t pieces, int threads, Worker worker) {
    Pieces queue(pieces);
    std::exception_ptr failure;
    std::mutex failure_lock;
    const auto guarded = [&] {
        try {
            worker(queue);
        } catch (...) {
            queue.stop();
            const std::lock_guard<std::mutex> hold(failure_lock);
            if (!failure) failure = std::current_exception();
        }
    };

    std::vector<std::thread> helpers;
    const int64_t wanted = std::min<int64_t>(threads, pieces) - 1;
    helpers.reserve(static_cast<size_t>(std::max<int64_t>(wanted, 0)));
    for (int64_t i = 0; i < wanted; ++i) {
        try {
            helpers.emplace_back(guarded);
        } catch (const std::system_error&) {
            break;  // the machine gives no more threads: those we have do all the work
        }
    }
    guarded();
    for (std::thread& helper : helpers) helper.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace weft
