/*
 * The names of FreeBSD's zone allocator, uma(9) ("Network Buffer Allocation in the FreeBSD Operating System", 2004), over zones.h.
 *
 *   FreeBSD                                  here
 *   uma_zcreate, uma_zalloc, uma_zfree, ...  the same, for items of up to 1 MiB in private memory
 *   uma_zcreate cannot fail                  NULL: no memory, or a size, alignment or flag that cannot be. Of flags there are UMA_ZONE_ZINIT and UMA_ZONE_REFCNT.
 *   uma_zalloc(zone, M_WAITOK)               waits at the zone's limit; if the system has no memory it is NULL all the same
 *   uma_zdestroy                             returns how many items were not freed
 *   uma_prealloc                             returns 0, or ENOMEM
 *   uma_zone_set_max                         exactly that many: not rounded up to slabs
 *   uma_zone_reserve                         the keg's: for all zones over it
 *   uma_zone_set_warning                     goes to standard error
 *   uma_zone_set_maxaction                   on the thread that met the limit, before it waits
 *   uma_zone_set_allocf                      right after uma_zcreate; returns 0, or a number of errno(3). Asks for pages at once.
 *   uma_zone_set_freef                       without it the zone keeps its pages
 *   uma_reclaim in a thread                  allocations that leave their thread's cache give back what was not needed lately; who does nothing gives
 *                                            nothing back, unless it calls uma_reclaim
 *
 * Constructors run without a lock: they may use other zones, not their own. After a fork each process has a whole copy.
 */
#ifndef TRANSHIP_UMA_H
#define TRANSHIP_UMA_H

#include "zones.h"

/* flags of an allocation */
#define M_NOWAIT 0x0001
#define M_WAITOK 0x0002
#define M_ZERO 0x0100
#define M_USE_RESERVE 0x0400

/* flags of a zone */
#define UMA_ZONE_ZINIT 0x0002
#define UMA_ZONE_REFCNT 0x0400 /* each item has a counter: uma_find_refcnt */

/* align */
#define UMA_ALIGN_PTR ((int)sizeof(void *) - 1)
#define UMA_ALIGN_LONG ((int)sizeof(long) - 1)
#define UMA_ALIGN_INT ((int)sizeof(int) - 1)
#define UMA_ALIGN_SHORT ((int)sizeof(short) - 1)
#define UMA_ALIGN_CHAR 0
#define UMA_ALIGN_CACHE (-1)

/* of uma_reclaim */
#define UMA_RECLAIM_DRAIN 1
#define UMA_RECLAIM_DRAIN_CPU 2
#define UMA_RECLAIM_TRIM 3

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uma_zone *uma_zone_t;
typedef tranship_uma_ctor uma_ctor;
typedef tranship_uma_dtor uma_dtor;
typedef tranship_uma_init uma_init;
typedef tranship_uma_fini uma_fini;
typedef tranship_uma_maxaction uma_maxaction_t;
typedef tranship_uma_alloc uma_alloc;
typedef tranship_uma_free uma_free;

static inline uma_zone_t uma_zcreate(const char *name, size_t size, uma_ctor ctor, uma_dtor dtor, uma_init uminit,
                                     uma_fini fini, int align, uint32_t flags)
{
    return tranship_uma_zcreate(name, size, ctor, dtor, uminit, fini, align, flags);
}

static inline uma_zone_t uma_zsecond_create(const char *name, uma_ctor ctor, uma_dtor dtor, uma_init uminit,
                                            uma_fini fini, uma_zone_t primary)
{
    return tranship_uma_zsecond_create(name, ctor, dtor, uminit, fini, primary);
}

static inline int uma_zdestroy(uma_zone_t zone)
{
    return tranship_uma_zdestroy(zone);
}

static inline void *uma_zalloc_arg(uma_zone_t zone, void *arg, int flags)
{
    return tranship_uma_zalloc_arg(zone, arg, flags);
}

static inline void *uma_zalloc(uma_zone_t zone, int flags)
{
    return tranship_uma_zalloc_arg(zone, NULL, flags);
}

static inline void uma_zfree_arg(uma_zone_t zone, void *item, void *arg)
{
    tranship_uma_zfree_arg(zone, item, arg);
}

static inline void uma_zfree(uma_zone_t zone, void *item)
{
    tranship_uma_zfree_arg(zone, item, NULL);
}

static inline int uma_zone_set_max(uma_zone_t zone, int items)
{
    return tranship_uma_zone_set_max(zone, items);
}

static inline int uma_zone_get_max(uma_zone_t zone)
{
    return tranship_uma_zone_get_max(zone);
}

static inline int uma_zone_get_cur(uma_zone_t zone)
{
    return tranship_uma_zone_get_cur(zone);
}

static inline int uma_zone_exhausted(uma_zone_t zone)
{
    return tranship_uma_zone_exhausted(zone);
}

static inline void uma_zone_reserve(uma_zone_t zone, int items)
{
    tranship_uma_zone_reserve(zone, items);
}

static inline int uma_prealloc(uma_zone_t zone, int items)
{
    return tranship_uma_prealloc(zone, items);
}

static inline uint32_t *uma_find_refcnt(uma_zone_t zone, void *item)
{
    return tranship_uma_find_refcnt(zone, item);
}

static inline int uma_zone_set_allocf(uma_zone_t zone, uma_alloc allocf)
{
    return tranship_uma_zone_set_allocf(zone, allocf);
}

static inline void uma_zone_set_freef(uma_zone_t zone, uma_free freef)
{
    tranship_uma_zone_set_freef(zone, freef);
}

static inline void uma_zone_set_warning(uma_zone_t zone, const char *warning)
{
    tranship_uma_zone_set_warning(zone, warning);
}

static inline void uma_zone_set_maxaction(uma_zone_t zone, uma_maxaction_t action)
{
    tranship_uma_zone_set_maxaction(zone, action);
}

static inline void uma_zone_reclaim(uma_zone_t zone, int request)
{
    tranship_uma_zone_reclaim(zone, request);
}

static inline uint64_t uma_reclaim(int request)
{
    return tranship_uma_reclaim(request);
}

#ifdef __cplusplus
}
#endif

#endif /* TRANSHIP_UMA_H */
