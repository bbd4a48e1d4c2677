// Hierarchical grouping of a text's tokens by Ward's criterion: what an index that keeps a part of its vectors pools together.
#pragma once

#include <cstdint>

namespace weft {

// Merge `count` points until `groups` are left, always the two whose union adds least to the weighted squared distances from
// centroids. `distance` (count, count) holds squared distances, and is overwritten; `weight` (count) is positive, and is overwritten.
// labels[i] names the group of point i: groups are numbered by their first points.
void group_by_ward(float* distance, float* weight, int64_t count, int64_t groups, int32_t* labels);

}  // namespace weft
