/* A failed check ends all PEs. */
#ifndef CHECK_H
#define CHECK_H

#include <shmem.h>
#include <stdio.h>

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      shmem_global_exit(1);                                                   \
    }                                                                         \
  } while (0)

#endif
