#include "spans.hpp"

#include <algorithm>
#include <cstddef>

namespace weft {
namespace {

struct Range {
    int64_t start = -1, stop = -1;
};

struct Part {
    int64_t start, stop;
    double added;
    int32_t query;
};

std::vector<Range> unpacked(const PackedSpans& packed) {
    std::vector<Range> ranges(static_cast<size_t>(packed.tokens));
    int64_t end = 0;  // of the token before
    for (int64_t t = 0; t < packed.tokens; ++t) {
        Range& range = ranges[static_cast<size_t>(t)];
        if (packed.steps[t] < kOutside) {
            range.start = end + packed.steps[t] - kBack;
            range.stop = end = range.start + packed.lengths[t];
        } else if (packed.steps[t] == kListed) {
            int64_t low = 0, high = packed.listed_count;
            while (low < high) {
                const int64_t middle = low + (high - low) / 2;
                if (packed.listed[3 * middle] < packed.first + t)
                    low = middle + 1;
                else
                    high = middle;
            }
            if (low == packed.listed_count || packed.listed[3 * low] != packed.first + t) continue;
            range = {packed.listed[3 * low + 1], packed.listed[3 * low + 2]};
            end = range.stop;
        }
    }
    return ranges;
}

// Widen a word piece to the run of letters and digits around it.
void widen(const Text& text, Range& range) {
    const int64_t end = text.length();
    const bool cut = (range.start > 0 && text.in_word(range.start - 1)) || (range.stop < end && text.in_word(range.stop));
    if (!cut || !text.in_word(range.start) || !text.in_word(range.stop - 1)) return;
    while (range.start > 0 && text.in_word(range.start - 1)) --range.start;
    while (range.stop < end && text.in_word(range.stop)) ++range.stop;
}

std::vector<int32_t> most_first(const Part* parts, size_t count) {
    std::vector<std::pair<double, int32_t>> totals;
    for (const Part* part = parts; part < parts + count; ++part) {
        const auto known = std::find_if(totals.begin(), totals.end(), [&](const auto& total) { return total.second == part->query; });
        if (known == totals.end())
            totals.emplace_back(part->added, part->query);
        else
            known->first += part->added;
    }
    std::stable_sort(totals.begin(), totals.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<int32_t> queries;
    for (const auto& total : totals) queries.push_back(total.second);
    return queries;
}

}  // namespace

std::vector<Word> matched_words(const Text& text, const PackedSpans& packed, const Pairs& pairs) {
    const std::vector<Range> ranges = unpacked(packed);
    std::vector<Part> parts;
    for (int64_t p = 0; p < pairs.count; ++p) {
        if (pairs.document_token[p] < 0) continue;
        double added = pairs.similarity[p];
        if (pairs.weight != nullptr) added *= pairs.weight[p];
        added = pairs.z != 0 ? added / pairs.z : 0;
        Range range = ranges[static_cast<size_t>(pairs.document_token[p])];
        if (!(added > 0) || range.start < 0 || range.start >= range.stop || range.stop > text.length()) continue;
        widen(text, range);
        parts.push_back({range.start, range.stop, added, pairs.query_token[p]});
    }
    std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
        return a.start != b.start ? a.start < b.start : a.stop < b.stop;
    });
    std::vector<Word> words;
    for (size_t begin = 0, end; begin < parts.size(); begin = end) {
        double total = 0;
        for (end = begin; end < parts.size() && parts[end].start == parts[begin].start && parts[end].stop == parts[begin].stop; ++end)
            total += parts[end].added;
        words.push_back({parts[begin].start, parts[begin].stop, total, most_first(&parts[begin], end - begin)});
    }
    return words;
}

}  // namespace weft
