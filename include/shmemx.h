/* Extensions of OpenSHMEM: there are none. What is beyond SHMEM is in crosswarp/*.hpp. */
#ifndef SHMEMX_H
#define SHMEMX_H

#include <shmem.h>

#endif
