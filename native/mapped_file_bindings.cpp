// weft._native.MappedFile: the arrays over it hold a reference to it, and the last one to go unmaps the file.
#include "mapped_file_bindings.hpp"

#include <nanobind/ndarray.h>

#include <cerrno>
#include <system_error>

#include "mapped_file.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

void map(weft::MappedFile* self, const nb::object& path) {
    PyObject* encoded = nullptr;
    if (PyUnicode_FSConverter(path.ptr(), &encoded) == 0) throw nb::python_error();
    const nb::object bytes = nb::steal(encoded);
    const char* name = PyBytes_AsString(encoded);
    if (name == nullptr) throw nb::python_error();
    try {
        const nb::gil_scoped_release release;  // a disk may be slow, or at the other end of a network
        new (self) weft::MappedFile(name);
    } catch (const std::system_error& error) {
        errno = error.code().value();
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path.ptr());  // the subclass that fits the number
        throw nb::python_error();
    }
}

nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>> view(nb::handle_t<weft::MappedFile> self) {
    const auto& file = nb::cast<const weft::MappedFile&>(self);
    return {file.data(), {file.size()}, self};
}

}  // namespace

void bind_mapped_file(nb::module_& module) {
    nb::class_<weft::MappedFile>(module, "MappedFile")
        .def("__init__", &map, "path"_a)
        .def("view", &view)
        .def_prop_ro("nbytes", &weft::MappedFile::size)
        .def("release", &weft::MappedFile::release, "begin"_a, "end"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("populate", &weft::MappedFile::populate, nb::call_guard<nb::gil_scoped_release>());
}
