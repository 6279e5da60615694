/*
 * tranship: an operator's questions. An ordinary program asks none of them.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_admin(3) is the manual.
 */

#ifndef TRANSHIP_ADMIN_H
#define TRANSHIP_ADMIN_H

#include "../tranship.h"

typedef struct tranship_pool_stats tranship_pool_stats;


/** Figures of a pool. Set `size` to `sizeof(tranship_pool_stats)` before the call. */
struct tranship_pool_stats {
    /** sizeof(tranship_pool_stats) */
    size_t size;
    /** Buffers handed out so far. */
    uint64_t allocs;
    /** Buffers that came back so far: released without being sent, or found dead. */
    uint64_t frees;
    /** Buffers in this process's caches. */
    uint64_t cached;
    /** Bytes that the pool has now. */
    uint64_t present_bytes;
    /** Quota: bytes that the pool may have now. */
    uint64_t quota_bytes;
    /** The pool's maximum, bytes. */
    uint64_t max_bytes;
    /** Sent buffers found dead so far. */
    uint64_t collected;
    /** Collections so far. */
    uint64_t collections;
    /** Nanoseconds spent in collections. */
    uint64_t collect_ns;
    /** Nanoseconds that callers waited for memory. */
    uint64_t blocked_ns;
    /** Callers that wait now. */
    uint64_t waiting;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/** 1 if a manager is there now, 0 if not. Existing channels go on without one. */
int32_t tranship_admin_is_managed(const tranship_domain *domain);

/** Fills in the figures of a pool: as many as fit into `out->size` bytes. */
tranship_status tranship_admin_pool_stats(const tranship_pool *pool,
                                          struct tranship_pool_stats *out,
                                          tranship_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TRANSHIP_ADMIN_H */
