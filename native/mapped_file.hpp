// A file mapped read-only, without a file descriptor that stays open: an index may have more segments than a process may
// have descriptors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

class MappedFile {
public:
    // Throws std::system_error with the system's error number, and std::invalid_argument for an empty file.
    explicit MappedFile(const char* path);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    const uint8_t* data() const { return static_cast<const uint8_t*>(data_); }
    size_t size() const { return size_; }

    // Gives the memory of what was read between two bytes back to the system, which reads it again from the file when it is next
    // wanted. Pages that hold other bytes, too, stay.
    void release(size_t begin, size_t end) const noexcept;

    // Reads the file and enters all its pages into the process's table, so that no later reader waits for either.
    void populate() const noexcept;

private:
    void* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace weft
