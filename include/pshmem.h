/* pshmem_X for each shmem_X: shmem.h declares both. */
#ifndef PSHMEM_H
#define PSHMEM_H

#include <shmem.h>

#endif
