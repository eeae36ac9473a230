// Finds a function of any library of the process by name, without a function of the loader: /proc/self/maps says where
// libraries lie, and their own dynamic symbol tables (ELF-64 specification) where functions do.
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

inline void* function_in_image(const char* base, const char* name) {
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(base);
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64) return nullptr;
  const char* bias = header->e_type == ET_DYN ? base : nullptr;
  const auto* program = reinterpret_cast<const Elf64_Phdr*>(base + header->e_phoff);
  const Elf64_Dyn* dynamic = nullptr;
  for (int i = 0; i < header->e_phnum; ++i)
    if (program[i].p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const Elf64_Dyn*>(bias + program[i].p_vaddr);
  if (dynamic == nullptr) return nullptr;
  const char* strings = nullptr;
  const Elf64_Sym* symbols = nullptr;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const char* place = reinterpret_cast<const char*>(dynamic->d_un.d_ptr);
    if (place < base) place = bias + dynamic->d_un.d_ptr;  // the loader has not relocated it
    if (dynamic->d_tag == DT_STRTAB) strings = place;
    if (dynamic->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const Elf64_Sym*>(place);
  }
  // Linkers put the string table behind the symbols.
  const auto* end = reinterpret_cast<const Elf64_Sym*>(strings);
  for (const Elf64_Sym* symbol = symbols; symbol != nullptr && symbol + 1 <= end; ++symbol) {
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0 || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC) continue;
    if (strcmp(strings + symbol->st_name, name) == 0) return const_cast<char*>(bias) + symbol->st_value;
  }
  return nullptr;
}

// `library` is part of a file's name; nullptr where nothing is found.
inline void* function_in_process(const char* library, const char* name) {
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == nullptr) return nullptr;
  char line[1024], path[768], permissions[8];
  unsigned long begin = 0, end = 0, offset = 0;
  void* found = nullptr;
  while (found == nullptr && fgets(line, sizeof line, maps) != nullptr) {
    path[0] = 0;
    if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %767[^\n]", &begin, &end, permissions, &offset, path) < 5) continue;
    if (offset == 0 && permissions[0] == 'r' && strstr(path, library) != nullptr)
      found = function_in_image(reinterpret_cast<const char*>(begin), name);
  }
  fclose(maps);
  return found;
}
