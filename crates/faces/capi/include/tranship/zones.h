/*
 * tranship: zones of items in this process's own memory, after uma(9). <tranship/uma.h> gives FreeBSD's own names, and says what differs;
 * here is what the library has.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_uma(3) is the manual.
 */

#ifndef TRANSHIP_ZONES_H
#define TRANSHIP_ZONES_H

#include "../tranship.h"



/** Items of one size. Any thread may allocate and free, all at the same time. */
struct uma_zone;

/** Called for an item that goes to its user; anything but 0 refuses it. */
typedef int32_t (*tranship_uma_ctor)(void *item, int32_t size, void *arg, int32_t flags);

/** Called for an item that comes from its user. */
typedef void (*tranship_uma_dtor)(void *item, int32_t size, void *arg);

/** Called for an item that comes into its zone, to stay for many uses; anything but 0 refuses it. */
typedef int32_t (*tranship_uma_init)(void *item, int32_t size, int32_t flags);

/** Called for an item that leaves its zone. */
typedef void (*tranship_uma_fini)(void *item, int32_t size);

/**
 * Allocates `size` bytes of pages for a zone; NULL: there are none. `domain` is 0. What it writes to `pflag` goes to the
 * zone's `tranship_uma_free` for the same pages.
 */
typedef void *(*tranship_uma_alloc)(struct uma_zone *zone,
                                    size_t size,
                                    int32_t domain,
                                    uint8_t *pflag,
                                    int32_t wait);

/** Takes back pages that a `tranship_uma_alloc` allocated. */
typedef void (*tranship_uma_free)(void *mem, size_t size, uint8_t pflag);

/** Called when a zone has met its limit. */
typedef void (*tranship_uma_maxaction)(struct uma_zone *zone, int32_t flags);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * A zone of items of `size` bytes, up to 1 MiB, aligned to `align_mask` + 1 (uma_zcreate). `ctor` and `dtor` frame each use of an item,
 * `uminit` and `fini` its stay in the zone; any may be NULL. `flags`: 2 (UMA_ZONE_ZINIT), 0x400 (UMA_ZONE_REFCNT: each item has a counter,
 * tranship_uma_find_refcnt), both, or 0. NULL: it cannot be, or there is no memory.
 *
 * Its end is tranship_uma_zdestroy.
 */
struct uma_zone *tranship_uma_zcreate(const char *name,
                                      size_t size,
                                      tranship_uma_ctor ctor,
                                      tranship_uma_dtor dtor,
                                      tranship_uma_init uminit,
                                      tranship_uma_fini fini,
                                      int32_t align_mask,
                                      uint32_t flags);

/**
 * A second zone over the keg of another, with caches, limit, constructors of its own (uma_zsecond_create). An item is freed to the zone
 * that it came from. Either zone may be destroyed first.
 */
struct uma_zone *tranship_uma_zsecond_create(const char *name,
                                             tranship_uma_ctor ctor,
                                             tranship_uma_dtor dtor,
                                             tranship_uma_init uminit,
                                             tranship_uma_fini fini,
                                             const struct uma_zone *primary);

/**
 * Destroys a zone that is not in use any more (uma_zdestroy). Returns how many of its items had not been freed: they
 * are lost, and their memory with them. NULL is nothing.
 */
int32_t tranship_uma_zdestroy(struct uma_zone *zone);

/**
 * An item (uma_zalloc_arg; uma_zalloc has no argument). `arg` and `flags` go to the zone's `ctor`. `flags`: 2 (M_WAITOK) waits at the
 * zone's limit, first come, first served; 1 (M_NOWAIT) does not; 0x100 (M_ZERO): zeros; 0x400 (M_USE_RESERVE): out of the reserve, if need
 * be. NULL: there is none.
 */
void *tranship_uma_zalloc_arg(const struct uma_zone *zone,
                              void *arg,
                              int32_t flags);

/** Frees an item, on any thread (uma_zfree_arg; uma_zfree has no argument). `arg` goes to the zone's `dtor`. NULL is nothing. */
void tranship_uma_zfree_arg(const struct uma_zone *zone,
                            void *item,
                            void *arg);

/** The most items, cached ones included (uma_zone_set_max). Returns it. */
int32_t tranship_uma_zone_set_max(const struct uma_zone *zone, int32_t items);

/** The most items (uma_zone_get_max). 0: there is no limit. */
int32_t tranship_uma_zone_get_max(const struct uma_zone *zone);

/** How many items are out (uma_zone_get_cur). */
int32_t tranship_uma_zone_get_cur(const struct uma_zone *zone);

/** 1 if a thread waits at the zone's limit (uma_zone_exhausted). */
int32_t tranship_uma_zone_exhausted(const struct uma_zone *zone);

/**
 * Keeps `items` items free for allocations with M_USE_RESERVE (uma_zone_reserve). The reserve is the keg's, for all
 * its zones. Its items are made by tranship_uma_prealloc, or when next needed.
 */
void tranship_uma_zone_reserve(const struct uma_zone *zone,
                               int32_t items);

/** Makes `items` items before they are needed (uma_prealloc). Returns 0, or ENOMEM. */
int32_t tranship_uma_prealloc(const struct uma_zone *zone, int32_t items);

/**
 * Returns the counter of an item of a zone that was made with UMA_ZONE_REFCNT (uma_find_refcnt). It is 0 when the item
 * comes into the zone, and otherwise the program's own: neither allocating nor freeing changes it. NULL: the zone has
 * no counters, or the item is not of its keg.
 */
uint32_t *tranship_uma_find_refcnt(const struct uma_zone *zone,
                                   void *item);

/**
 * Sets the function that allocates the zone's pages, such as pages of a device (uma_zone_set_allocf). Call it before
 * the zone is used, by one thread. It asks for the first pages at once: all others lie between 4 GiB below and 60 GiB
 * above them. `alloc` runs under a lock of the zone, may not use the zone, and returns pages at a multiple of 4096.
 * 0, or EBUSY: the zone has items in use; ENOMEM: there were no pages; EINVAL: an argument is NULL.
 */
int32_t tranship_uma_zone_set_allocf(struct uma_zone *zone,
                                     tranship_uma_alloc alloc);

/**
 * Sets the function that takes back pages of tranship_uma_zone_set_allocf (uma_zone_set_freef), under a lock of the
 * zone. NULL, and before the first call: the zone keeps its pages for later items.
 */
void tranship_uma_zone_set_freef(const struct uma_zone *zone,
                                 tranship_uma_free free);

/**
 * Sets the text that goes to standard error, behind the zone's name, when an allocation meets the zone's limit, at
 * most once in five minutes (uma_zone_set_warning). NULL: none.
 */
void tranship_uma_zone_set_warning(const struct uma_zone *zone,
                                   const char *warning);

/**
 * Sets the function that is called when an allocation has met the zone's limit, to free items
 * (uma_zone_set_maxaction). It runs on that thread, without a lock of the zone, with 1 (M_NOWAIT) as `flags`. NULL:
 * none.
 */
void tranship_uma_zone_set_maxaction(const struct uma_zone *zone,
                                     tranship_uma_maxaction action);

/**
 * Gives back cached items of a zone (uma_zone_reclaim): 3 (UMA_RECLAIM_TRIM) those that it has not needed lately, 1
 * (UMA_RECLAIM_DRAIN) all but the threads' caches, 2 (UMA_RECLAIM_DRAIN_CPU) all.
 */
void tranship_uma_zone_reclaim(const struct uma_zone *zone,
                               int32_t request);

/** Gives back memory of all zones of the process, mbufs' included (uma_reclaim). Returns how many bytes went back to the system. */
uint64_t tranship_uma_reclaim(int32_t request);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TRANSHIP_ZONES_H */
