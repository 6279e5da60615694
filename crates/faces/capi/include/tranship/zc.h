/*
 * The names of ZCopy (2012): memory for data that is sent many times. Link with -ltranship_zcopy, or preload that library: write(2), writev(2),
 * send(2), sendto(2) and sendmsg(2) of such memory to stream sockets then go by reference, and a later change of it does not reach what
 * was sent. docs/zcopy.md says what that costs, and when it pays.
 */
#ifndef TRANSHIP_ZC_H
#define TRANSHIP_ZC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Memory of any size for data that will be sent. Any thread. NULL, and errno ENOMEM: none is to be had. */
void *zc_malloc(size_t size);

/** Frees it; NULL is nothing. Any thread. What was sent of it arrives all the same. */
void zc_free(void *memory);

/**
 * Says that memory never changes again, and is not freed, as long as the process lives: it is sent by reference too, wherever it lies. The
 * program's own constants are known without. At most 1024 times. Any thread. 0; -1 and errno ENOMEM: there were more.
 */
int zc_readonly(const void *memory, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* TRANSHIP_ZC_H */
