#include "variables.hpp"

#include <link.h>
#include <unistd.h>

#include <cstdint>

namespace crosswarp::shmem_c {
namespace {

struct bounds {
  std::uintptr_t begin;
  std::uintptr_t end;
};

bounds pages_of(const dl_phdr_info& object, const ElfW(Phdr) & part) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = object.dlpi_addr + part.p_vaddr;
  return {begin / page * page, (begin + part.p_memsz + page - 1) / page * page};
}

/// The first object is the executable.
int look(dl_phdr_info* object, std::size_t /*size*/, void* to) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::uintptr_t read_only_from_now = 0;  // what relocation wrote, at the start of the segment
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& part = object->dlpi_phdr[i];
    if (part.p_type != PT_GNU_RELRO) continue;
    // Protected are whole pages only: what shares its last one with variables stays writable.
    read_only_from_now = (object->dlpi_addr + part.p_vaddr + part.p_memsz) / page * page;
  }
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& part = object->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
    bounds b = pages_of(*object, part);
    if (b.begin < read_only_from_now && read_only_from_now <= b.end) b.begin = read_only_from_now;
    if (b.begin == b.end) continue;
    static_cast<std::vector<memory_range>*>(to)->push_back(
        {reinterpret_cast<std::byte*>(b.begin), b.end - b.begin});
  }
  return 1;
}

}  // namespace

std::vector<memory_range> program_variables() {
  std::vector<memory_range> found;
  dl_iterate_phdr(look, &found);
  return found;
}

}  // namespace crosswarp::shmem_c
