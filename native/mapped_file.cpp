#include "mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace weft {
namespace {

[[noreturn]] void fail(int error) { throw std::system_error(error, std::generic_category()); }

// Open only as long as it takes to map the file: the mapping holds the file by itself.
class Descriptor {
public:
    explicit Descriptor(const char* path) {
        do number_ = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not hang it
        while (number_ < 0 && errno == EINTR);
        if (number_ < 0) fail(errno);
    }
    ~Descriptor() { ::close(number_); }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    int number() const { return number_; }

private:
    int number_;
};

}  // namespace

MappedFile::MappedFile(const char* path) {
    const Descriptor file(path);
    struct stat status;
    if (::fstat(file.number(), &status) != 0) fail(errno);
    if (S_ISDIR(status.st_mode)) fail(EISDIR);  // mmap would only say that there is no such device
    if (!S_ISREG(status.st_mode)) fail(EINVAL);
    if (status.st_size == 0) throw std::invalid_argument("an empty file cannot be mapped");
    if (static_cast<uint64_t>(status.st_size) > SIZE_MAX) fail(EFBIG);
    size_ = static_cast<size_t>(status.st_size);
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.number(), 0);
    if (data_ == MAP_FAILED) fail(errno);
}

MappedFile::~MappedFile() { ::munmap(data_, size_); }

void MappedFile::release(size_t begin, size_t end) const noexcept {
#if defined(MADV_DONTNEED)
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    begin = (begin + page - 1) / page * page;
    end = std::min(end, size_) / page * page;
    // A hint: if the system refuses it, nothing is lost.
    if (begin < end) ::madvise(static_cast<uint8_t*>(data_) + begin, end - begin, MADV_DONTNEED);
#else
    static_cast<void>(begin);
    static_cast<void>(end);
#endif
}

void MappedFile::populate() const noexcept {
#if defined(MADV_POPULATE_READ)  // of Linux 5.14; older systems refuse it, and pages come one by one as they are read
    ::madvise(data_, size_, MADV_POPULATE_READ);
#endif
}

}  // namespace weft
