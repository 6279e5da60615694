/* Zones do what uma(9) says, and what uma.h says instead. C, and C++. */
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <tranship/uma.h>
#include <unistd.h>

static int inits, finis, ctors, dtors, refuse, last_flags;
static void *last_arg;

static int count_init(void *item, int size, int flags)
{
    (void)flags;
    EXPECT(size, 100);
    memset(item, 0x11, 100);
    inits++;
    return 0;
}

static void count_fini(void *item, int size)
{
    (void)item;
    EXPECT(size, 100);
    finis++;
}

static int count_ctor(void *item, int size, void *arg, int flags)
{
    EXPECT(size, 100);
    if (refuse)
        return ENOMEM;
    EXPECT(*(char *)item == 0x11 || *(char *)item == 0x22, 1); /* as init, or the last user, left it */
    last_arg = arg;
    last_flags = flags;
    ctors++;
    return 0;
}

static void count_dtor(void *item, int size, void *arg)
{
    EXPECT(size, 100);
    memset(item, 0x22, 100);
    last_arg = arg;
    dtors++;
}

static void lives(void)
{
    uma_zone_t zone = uma_zcreate("lives", 100, count_ctor, count_dtor, count_init, count_fini, UMA_ALIGN_CACHE, 0);
    char *item, *other;
    int arg;

    THERE(zone);
    item = (char *)uma_zalloc_arg(zone, &arg, M_NOWAIT);
    EXPECT((uintptr_t)item % 64, 0);
    EXPECT(ctors, 1);
    EXPECT(inits >= 1, 1);
    EXPECT(last_arg == &arg, 1);
    EXPECT(last_flags, M_NOWAIT);
    EXPECT(uma_zone_get_cur(zone), 1);
    uma_zfree_arg(zone, item, &refuse);
    EXPECT(dtors, 1);
    EXPECT(last_arg == &refuse, 1);
    EXPECT(uma_zone_get_cur(zone), 0);
    EXPECT(finis, 0); /* it is cached */
    other = (char *)uma_zalloc(zone, M_WAITOK | M_ZERO);
    EXPECT(other == item, 1);
    EXPECT(other[0] | other[99], 0);
    refuse = 1;
    NONE(uma_zalloc(zone, M_NOWAIT));
    refuse = 0;
    EXPECT(dtors, 1); /* none of what was not constructed */
    uma_zfree(zone, other);
    uma_zfree(zone, NULL);
    EXPECT(dtors, 2);
    uma_zone_reclaim(zone, UMA_RECLAIM_DRAIN_CPU);
    EXPECT(finis, inits);
    EXPECT(uma_zdestroy(zone), 0);
    EXPECT(finis, inits);
    EXPECT(ctors, dtors);
}

static int actions;
static uma_zone_t limited;

static void act(uma_zone_t zone, int flags)
{
    EXPECT(zone == limited, 1);
    EXPECT(flags, M_NOWAIT);
    actions++;
}

static void *frees_one(void *item)
{
    uma_zfree(limited, item);
    return NULL;
}

static void limits(void)
{
    int pipes[2], err = dup(2);
    char said[200];
    void *items[4];
    pthread_t thread;
    ssize_t got;

    limited = uma_zcreate("limited", 64, NULL, NULL, NULL, NULL, UMA_ALIGN_PTR, 0);
    EXPECT(uma_zone_get_max(limited), 0);
    EXPECT(uma_zone_set_max(limited, 3), 3);
    EXPECT(uma_zone_get_max(limited), 3);
    uma_zone_set_warning(limited, "buy memory");
    uma_zone_set_maxaction(limited, act);
    for (int i = 0; i < 3; i++)
        THERE(items[i] = uma_zalloc(limited, M_NOWAIT));
    EXPECT(actions, 0);
    EXPECT(pipe(pipes), 0);
    dup2(pipes[1], 2);
    NONE(uma_zalloc(limited, M_NOWAIT));
    NONE(uma_zalloc(limited, M_NOWAIT));
    dup2(err, 2);
    close(err);
    close(pipes[1]);
    got = read(pipes[0], said, sizeof said - 1);
    said[got > 0 ? got : 0] = 0;
    EXPECT(strcmp(said, "[zone: limited] buy memory\n"), 0); /* once */
    close(pipes[0]);
    EXPECT(actions, 2);
    uma_zone_set_maxaction(limited, NULL);
    EXPECT(uma_zone_get_cur(limited), 3);
    EXPECT(uma_zone_exhausted(limited), 0);
    pthread_create(&thread, NULL, frees_one, items[0]);
    items[0] = uma_zalloc(limited, M_WAITOK);
    THERE(items[0]);
    pthread_join(thread, NULL);
    EXPECT(uma_zone_set_max(limited, 4), 4);
    THERE(items[3] = uma_zalloc(limited, M_NOWAIT));
    for (int i = 0; i < 3; i++)
        uma_zfree(limited, items[i]);
    EXPECT(uma_zdestroy(limited), 1); /* items[3] */
}

static int second_ctors;

static int second_ctor(void *item, int size, void *arg, int flags)
{
    (void)item;
    (void)arg;
    (void)flags;
    EXPECT(size, 100);
    second_ctors++;
    return 0;
}

static void seconds(void)
{
    uma_zone_t zone = uma_zcreate("first", 100, NULL, NULL, NULL, NULL, UMA_ALIGN_PTR, UMA_ZONE_ZINIT);
    uma_zone_t second = uma_zsecond_create("second", second_ctor, NULL, NULL, NULL, zone);
    char *item = (char *)uma_zalloc(zone, M_NOWAIT), *other = (char *)uma_zalloc(second, M_NOWAIT);

    EXPECT(second_ctors, 1);
    for (int at = 0; at < 100; at++)
        EXPECT(item[at], 0); /* UMA_ZONE_ZINIT */
    memset(item, 1, 100);
    memset(other, 2, 100);
    EXPECT(item[0] == 1 && item[99] == 1, 1);
    uma_zfree(zone, item);
    EXPECT(uma_zdestroy(zone), 0);
    EXPECT(other[99], 2); /* its keg stays */
    uma_zfree(second, other);
    EXPECT(uma_zdestroy(second), 0);
    EXPECT(uma_zdestroy(NULL), 0);
}

static void reserves(void)
{
    uma_zone_t zone = uma_zcreate("reserve", 1 << 20, NULL, NULL, NULL, NULL, UMA_ALIGN_PTR, 0);

    EXPECT(uma_prealloc(zone, 4), 0);
    uma_zone_reserve(zone, 4);
    void *item = uma_zalloc(zone, M_NOWAIT | M_USE_RESERVE);
    THERE(item);
    uma_zfree(zone, item);
    EXPECT(uma_zdestroy(zone), 0);
    NONE(uma_zcreate("large", (1 << 20) + 1, NULL, NULL, NULL, NULL, UMA_ALIGN_PTR, 0));
    NONE(uma_zcreate("none", 0, NULL, NULL, NULL, NULL, UMA_ALIGN_PTR, 0));
    NONE(uma_zcreate("align", 8, NULL, NULL, NULL, NULL, 4, 0));
    NONE(uma_zcreate("flags", 8, NULL, NULL, NULL, NULL, 7, 0x8000));
    NONE(uma_zalloc(NULL, M_NOWAIT));
    uma_reclaim(UMA_RECLAIM_DRAIN_CPU);
}

/* More than there are kegs in one window, and more than have a place of their own in a thread. */
static void many(void)
{
    static uma_zone_t zones[300];
    static int *items[300];

    for (int i = 0; i < 300; i++) {
        THERE(zones[i] = uma_zcreate("many", sizeof(int), NULL, NULL, NULL, NULL, UMA_ALIGN_INT, 0));
        THERE(items[i] = (int *)uma_zalloc(zones[i], M_NOWAIT));
        *items[i] = i;
    }
    for (int i = 0; i < 300; i++) {
        EXPECT(*items[i], i);
        uma_zfree(zones[i], items[i]);
        EXPECT(uma_zdestroy(zones[i]), 0);
    }
}

/* A counter for each item, in the place where it stays. */
static void counters(void)
{
    uma_zone_t zone = uma_zcreate("counted", 2048, NULL, NULL, NULL, NULL, UMA_ALIGN_CACHE, UMA_ZONE_REFCNT);
    uma_zone_t none = uma_zcreate("none", 2048, NULL, NULL, NULL, NULL, UMA_ALIGN_CACHE, 0);
    void *items[100], *other = uma_zalloc(none, M_NOWAIT);

    for (int i = 0; i < 100; i++) {
        THERE(items[i] = uma_zalloc(zone, M_NOWAIT));
        THERE(uma_find_refcnt(zone, items[i]));
        EXPECT(*uma_find_refcnt(zone, items[i]), 0);
        *uma_find_refcnt(zone, items[i]) = (uint32_t)i + 1;
        memset(items[i], 0xff, 2048);
    }
    for (int i = 0; i < 100; i++)
        EXPECT(*uma_find_refcnt(zone, items[i]), i + 1);
    NONE(uma_find_refcnt(none, other));
    NONE(uma_find_refcnt(zone, other));
    NONE(uma_find_refcnt(zone, NULL));
    NONE(uma_find_refcnt(NULL, other));
    for (int i = 0; i < 100; i++)
        uma_zfree(zone, items[i]);
    uma_zone_reclaim(zone, UMA_RECLAIM_DRAIN_CPU); /* the slabs go, and come again */
    for (int i = 0; i < 100; i++) {
        THERE(items[i] = uma_zalloc(zone, M_NOWAIT));
        *(char *)items[i] = 1;
    }
    for (int i = 0; i < 100; i++)
        EXPECT(*uma_find_refcnt(zone, items[i]), 0);
    for (int i = 0; i < 100; i++)
        uma_zfree(zone, items[i]);
    uma_zfree(none, other);
    EXPECT(uma_zdestroy(zone), 0);
    EXPECT(uma_zdestroy(none), 0);
}

static char *device;
static size_t given, taken;
static uma_zone_t on_device;

/* As a device's memory: runs of it, one after the other. */
static void *device_alloc(uma_zone_t zone, size_t size, int domain, uint8_t *pflag, int wait)
{
    EXPECT(zone == on_device && domain == 0 && wait == M_NOWAIT, 1);
    if (given + size > (size_t)64 * 4096)
        return NULL;
    *pflag = (uint8_t)(7 + given / size);
    given += size;
    return device + given - size;
}

static void device_free(void *mem, size_t size, uint8_t pflag)
{
    EXPECT((char *)mem >= device && (char *)mem < device + (size_t)64 * 4096, 1);
    EXPECT(pflag, 7 + (size_t)((char *)mem - device) / size);
    taken += size;
}

static void *no_pages(uma_zone_t zone, size_t size, int domain, uint8_t *pflag, int wait)
{
    (void)zone, (void)size, (void)domain, (void)pflag, (void)wait;
    return NULL;
}

static void *odd_pages(uma_zone_t zone, size_t size, int domain, uint8_t *pflag, int wait)
{
    (void)zone, (void)size, (void)domain, (void)pflag, (void)wait;
    return device + 64;
}

static void own_pages(void)
{
    void *items[1000];
    int count = 0;

    device = (char *)mmap(NULL, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(device != MAP_FAILED, 1);
    on_device = uma_zcreate("device", 1000, NULL, NULL, NULL, NULL, UMA_ALIGN_CACHE, UMA_ZONE_REFCNT);
    items[0] = uma_zalloc(on_device, M_NOWAIT);
    EXPECT(uma_zone_set_allocf(on_device, device_alloc), EBUSY);
    uma_zfree(on_device, items[0]);
    EXPECT(uma_zone_set_allocf(on_device, NULL), EINVAL);
    EXPECT(uma_zone_set_allocf(NULL, device_alloc), EINVAL);
    EXPECT(uma_zone_set_allocf(on_device, no_pages), ENOMEM);
    EXPECT(uma_zone_set_allocf(on_device, odd_pages), ENOMEM);
    EXPECT(uma_zone_set_max(on_device, 900), 900);
    EXPECT(uma_zone_set_allocf(on_device, device_alloc), 0);
    EXPECT(uma_zone_get_max(on_device), 900);
    for (; count < 1000; count++) {
        char *item = (char *)uma_zalloc(on_device, M_NOWAIT);

        if (item == NULL)
            break;
        EXPECT(item >= device && item + 1000 <= device + 64 * 4096, 1);
        EXPECT((uintptr_t)item % 64, 0);
        memset(item, count, 1000);
        *uma_find_refcnt(on_device, item) = (uint32_t)count;
        items[count] = item;
    }
    EXPECT(count >= 200, 1); /* most of 64 pages */
    for (int i = 0; i < count; i++) {
        EXPECT(*(unsigned char *)items[i], i % 256);
        EXPECT(*uma_find_refcnt(on_device, items[i]), i);
    }
    /* Without a function that takes them back the pages stay, and are used again. */
    for (int i = 0; i < count; i++)
        uma_zfree(on_device, items[i]);
    uma_zone_reclaim(on_device, UMA_RECLAIM_DRAIN_CPU);
    EXPECT(taken, 0);
    for (int i = 0; i < count; i++)
        THERE(items[i] = uma_zalloc(on_device, M_NOWAIT));
    uma_zone_set_freef(on_device, device_free);
    for (int i = 0; i < count; i++)
        uma_zfree(on_device, items[i]);
    EXPECT(uma_zdestroy(on_device), 0);
    EXPECT(taken, given);
    munmap(device, 64 * 4096);
}

int main(void)
{
    counters();
    own_pages();
    lives();
    limits();
    seconds();
    reserves();
    many();
    puts("as in uma(9)");
    return 0;
}
