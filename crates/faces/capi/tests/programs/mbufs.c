/* FreeBSD's routines do here what they do there: each rule of mbuf(9), and each difference that mbuf.h names. C, and C++. */
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <tranship/mbufs.h>
#include <tranship/uma.h>

static tranship_mbufs *mbufs;
#define TRANSHIP_MBUFS mbufs
#include <tranship/mbuf.h>

static char page[8192];
static int frees;
static struct mbuf *others;

static void freed(void *arg1, void *arg2)
{
    EXPECT(arg1 == page, 1);
    EXPECT(arg2 == &frees, 1);
    frees++;
}

/* A packet over memory of this program's: that it is freed is seen. */
static struct mbuf *watched(int len, int flags)
{
    struct mbuf *m = m_gethdr(M_NOWAIT, MT_DATA);

    EXPECT(m_extadd(m, page, sizeof page, freed, page, &frees, flags, 0), 0);
    EXPECT(m_len(m), 0);
    EXPECT(m_setlen(m, len), 0);
    frees = 0;
    return m;
}

/* The chain has `len` bytes, the first of which is `first`, and each one more than the one before. */
static void counts(const struct mbuf *m, int len, int first)
{
    unsigned char bytes[8192];

    EXPECT(m_length(m, NULL), len);
    EXPECT(m_copydata(m, 0, len, bytes), 0);
    for (int at = 0; at < len; at++)
        EXPECT(bytes[at], (unsigned char)(first + at));
}

static struct mbuf *counted(int len)
{
    struct mbuf *m = m_gethdr(M_NOWAIT, MT_DATA);
    unsigned char bytes[8192];

    for (int at = 0; at < len; at++)
        bytes[at] = (unsigned char)at;
    EXPECT(m_append(m, len, bytes), 1);
    counts(m, len, 0);
    return m;
}

static int mbufs_of(const struct mbuf *m)
{
    int count = 0;

    for (; m != NULL; m = m_next(m))
        count++;
    return count;
}

static void sizes(void)
{
    static const int clusters[] = {MCLBYTES, MJUMPAGESIZE, MJUM9BYTES, MJUM16BYTES};
    struct mbuf *m = m_get(M_NOWAIT, MT_CONTROL);

    EXPECT(M_TRAILINGSPACE(m), MLEN);
    EXPECT(M_LEADINGSPACE(m), 0);
    EXPECT(m_type(m), MT_CONTROL);
    EXPECT(m_flags(m), 0);
    EXPECT(m_clget(m, M_NOWAIT), 1);
    EXPECT(M_SIZE(m), MCLBYTES);
    EXPECT(m_clget(m, M_NOWAIT), 0); /* it has one */
    m_freem(m);
    m = m_gethdr(M_NOWAIT, MT_DATA);
    EXPECT(M_TRAILINGSPACE(m), MHLEN);
    EXPECT(m_flags(m), M_PKTHDR);
    m_setflags(m, M_BCAST | M_PROTO3 | M_RDONLY, 0);
    EXPECT(m_flags(m), M_PKTHDR | M_BCAST | M_PROTO3); /* what describes the storage stays */
    m_clrprotoflags(m);
    EXPECT(m_flags(m), M_PKTHDR | M_BCAST);
    m_setflags(m, 0, M_BCAST | M_PKTHDR);
    EXPECT(m_flags(m), M_PKTHDR);
    EXPECT(m_setlen(m, MHLEN + 1), EINVAL);
    EXPECT(m_setlen(m, -1), EINVAL);
    EXPECT(m_setlen(m, MHLEN), 0);
    EXPECT(m_pktlen(m), MHLEN);
    EXPECT(M_TRAILINGSPACE(m), 0);
    m_freem(m);
    m = m_getcl(M_NOWAIT, MT_DATA, M_PKTHDR);
    EXPECT(M_SIZE(m), MCLBYTES);
    EXPECT(m_flags(m), M_PKTHDR | M_EXT);
    EXPECT(m_reserve(m, 64), 0);
    EXPECT(M_LEADINGSPACE(m), 64);
    EXPECT(M_TRAILINGSPACE(m), MCLBYTES - 64);
    EXPECT(m_align(m, 100), 0);
    EXPECT(M_LEADINGSPACE(m), 1944); /* 2048 - 100, at a multiple of 8 */
    m_freem(m);
    for (int i = 0; i < 4; i++) {
        m = m_getjcl(M_NOWAIT, MT_DATA, 0, clusters[i]);
        EXPECT(M_SIZE(m), clusters[i]);
        EXPECT(m_flags(m), M_EXT);
        m_freem(m);
    }
    NONE(m_getjcl(M_NOWAIT, MT_DATA, 0, 1000));
    NONE(m_get2(4097, M_NOWAIT, MT_DATA, M_PKTHDR));
    m = m_get3(4097, M_NOWAIT, MT_DATA, M_PKTHDR);
    EXPECT(M_SIZE(m), MJUM9BYTES);
    m_freem(m);
    m = m_get2(MHLEN, M_NOWAIT, MT_DATA, M_PKTHDR);
    EXPECT(m_flags(m), M_PKTHDR);
    m_freem(m);
    m = m_getm2(NULL, 10000, M_NOWAIT, MT_DATA, M_PKTHDR);
    EXPECT(mbufs_of(m), 3); /* two of a page, and a cluster */
    EXPECT(m_getm2(m, 100, M_NOWAIT, MT_DATA, 0) == m, 1);
    EXPECT(mbufs_of(m), 4);
    m_freem(m);
    m_freem(NULL);
}

static int stops_at_three(void *arg, void *data, unsigned int len)
{
    (void)data;
    *(int *)arg += (int)len;
    return *(int *)arg >= 3 ? 7 : 0;
}

static void bytes(void)
{
    struct mbuf *m = counted(3000), *last, *n;
    unsigned char to[4] = {0};
    int at = -1;

    EXPECT(m_pktlen(m), 3000);
    EXPECT(m_length(m, &last), 3000);
    NONE(m_next(last));
    EXPECT(last == m_last(m), 1);
    EXPECT(m_copydata(m, 2998, 2, to), 0);
    EXPECT(to[1], (unsigned char)2999);
    to[0] = 99;
    EXPECT(m_copydata(m, 2998, 3, to), EINVAL);
    EXPECT(to[0], 99); /* nothing was copied */
    n = m_getptr(m, MHLEN, &at);
    EXPECT(n == m_next(m) && at == 0, 1);
    n = m_getptr(m, 3000, &at);
    EXPECT(n == last && at == m_len(last), 1);
    NONE(m_getptr(m, 3001, &at));
    /* Behind the end: zeros, and it grows. */
    EXPECT(m_copyback(m, 3010, 1, "x"), 0);
    EXPECT(m_pktlen(m), 3011);
    EXPECT(m_copydata(m, 3009, 2, to), 0);
    EXPECT(to[0] == 0 && to[1] == 'x', 1);
    m_adj(m, -11);
    m_adj(m, 1000);
    counts(m, 2000, 1000);
    EXPECT(m_pktlen(m), 2000);
    at = 0;
    EXPECT(m_apply(m, 0, M_COPYALL, stops_at_three, &at), 7);
    EXPECT(m_apply(m, 0, 2001, stops_at_three, &at), -1);
    m_adj(m, -5000);
    EXPECT(m_pktlen(m), 0);
    m_freem(m);
    /* One by one. */
    m = counted(200);
    n = m_next(m);
    EXPECT(m_free(m) == n, 1);
    EXPECT(m_length(n, NULL), 200 - MHLEN);
    NONE(m_free(n));
}

static void front(void)
{
    struct mbuf *m = m_gethdr(M_NOWAIT, MT_DATA), *n;

    EXPECT(m_reserve(m, 16), 0);
    EXPECT(m_append(m, 4, "data"), 1);
    n = m;
    M_PREPEND(m, 14, M_NOWAIT);
    EXPECT(m == n, 1); /* in place */
    EXPECT(m_len(m), 18);
    M_PREPEND(m, 14, M_NOWAIT);
    EXPECT(m != n && m_next(m) == n, 1); /* in front */
    EXPECT(m_flags(m) & M_PKTHDR, M_PKTHDR);
    EXPECT(m_flags(n) & M_PKTHDR, 0);
    EXPECT(m_pktlen(m), 32);
    m_freem(m);
    m = watched(10, M_RDONLY);
    M_PREPEND(m, MHLEN + 1, M_NOWAIT);
    NONE(m);
    EXPECT(frees, 1); /* with all that was in the chain */

    m = counted(500);
    m = m_pullup(m, MHLEN);
    EXPECT(m_len(m) >= MHLEN, 1);
    counts(m, 500, 0);
    n = m_copyup(m, 40, 2);
    EXPECT(m_len(n), 40);
    EXPECT(M_LEADINGSPACE(n), 2);
    counts(n, 500, 0);
    m_freem(n);
    m = watched(100, 0);
    NONE(m_pullup(m, 101));
    EXPECT(frees, 1);
    m = watched(100, 0);
    NONE(m_copyup(m, 100, 100));
    EXPECT(frees, 1);
    NONE(m_pullup(NULL, 1));
}

static void anywhere(void)
{
    struct mbuf *m = counted(1000), *n, *copy;
    int at = -1;

    n = m_pulldown(m, 100, 300, &at);
    THERE(n);
    EXPECT(m_len(n) - at >= 300, 1);
    EXPECT(mtod(n, unsigned char *)[at], 100);
    mtod(n, unsigned char *)[at] = 0; /* may be written */
    mtod(n, unsigned char *)[at] = 100;
    counts(m, 1000, 0); /* m is the first still */
    EXPECT(m_pktlen(m), 1000);
    copy = m_copypacket(m, M_NOWAIT);
    n = m_pulldown(m, 500, 8, &at);
    mtod(n, unsigned char *)[at] = 77;
    counts(copy, 1000, 0); /* what others have is copied before */
    m_freem(copy);
    m_freem(m);
    m = watched(100, 0);
    NONE(m_pulldown(m, 90, 11, &at));
    EXPECT(frees, 1);
    m = watched(100, 0);
    NONE(m_pulldown(m, 0, 10, NULL));
    EXPECT(frees, 1);
}

static void shared(void)
{
    struct mbuf *m = watched(4000, 0), *copy, *part;

    memset(page, 'a', sizeof page);
    EXPECT(M_WRITABLE(m), 1);
    copy = m_copym(m, 0, M_COPYALL, M_NOWAIT);
    part = m_copym(m, 100, 50, M_NOWAIT);
    EXPECT(m_pktlen(copy), 4000);
    EXPECT(m_flags(part) & M_PKTHDR, 0);
    EXPECT(m_length(part, NULL), 50);
    EXPECT(m_data(copy) == page && m_data(part) == page + 100, 1); /* by reference */
    EXPECT(m_extrefcnt(m), 3);
    EXPECT(M_WRITABLE(m) | M_WRITABLE(copy) | M_TRAILINGSPACE(m), 0);
    NONE(m_copym(m, 100, 3901, M_NOWAIT));
    EXPECT(m_copyback(m, 10, 1, "b"), EROFS);
    EXPECT(page[10], 'a');
    copy = m_copyback_cow(copy, 10, 1, "b", M_NOWAIT);
    EXPECT(mtod(copy, char *)[10], 'b');
    EXPECT(page[10], 'a');
    EXPECT(m_extrefcnt(m), 2);
    m_freem(copy);
    m_freem(part);
    EXPECT(M_WRITABLE(m), 1);
    EXPECT(m_copyback(m, 10, 1, "b"), 0);
    EXPECT(page[10], 'b'); /* in place */
    copy = m_copypacket(m, M_NOWAIT);
    m_freem(m);
    EXPECT(frees, 0); /* copy has it still */
    part = m_copypacket(copy, M_NOWAIT);
    part = m_unshare(part, M_NOWAIT);
    EXPECT(M_WRITABLE(part) && M_WRITABLE(copy), 1);
    m_freem(part);
    EXPECT(frees, 0);
    m = m_dup(copy, M_NOWAIT);
    m_freem(copy);
    EXPECT(frees, 1);
    EXPECT(m_pktlen(m), 4000);
    EXPECT(M_WRITABLE(m), 1);
    m_freem(m);

    m = watched(100, M_RDONLY);
    EXPECT(M_WRITABLE(m), 0);
    EXPECT(m_setlen(m, sizeof page + 1), EINVAL);
    EXPECT(m_setlen(m, sizeof page), 0);
    m_freem(m);
    EXPECT(frees, 1);
    m = m_get(M_NOWAIT, MT_DATA);
    EXPECT(m_append(m, 1, "x"), 1);
    EXPECT(m_extadd(m, page, 10, freed, page, &frees, 0, 0), EBUSY);
    m_freem(m);
    EXPECT(frees, 1); /* it was not attached */
}

/* So many hundreds of bytes, each in an mbuf that has no room behind them, as others refer to its cluster, too. */
static struct mbuf *pieces(int count)
{
    struct mbuf *m = counted(100);

    for (int i = 1; i < count; i++) {
        struct mbuf *more = m_getcl(M_NOWAIT, MT_DATA, 0), *part;
        unsigned char hundred[100];

        for (int at = 0; at < 100; at++)
            hundred[at] = (unsigned char)(100 * i + at);
        EXPECT(m_append(more, 100, hundred), 1);
        EXPECT(m_append(more, 1000, page), 1);
        part = m_copym(more, 0, 100, M_NOWAIT);
        EXPECT(M_WRITABLE(part), 0);
        m_catpkt(m, part);
        m_catpkt(others, more);
    }
    return m;
}

static void cut(void)
{
    struct mbuf *m = counted(3000), *tail, *same;

    NONE(m_split(m, 3001, M_NOWAIT));
    counts(m, 3000, 0);
    tail = m_split(m, 1234, M_NOWAIT);
    counts(m, 1234, 0);
    counts(tail, 1766, 1234);
    EXPECT(m_pktlen(m), 1234);
    EXPECT(m_pktlen(tail), 1766);
    EXPECT(m_flags(tail) & M_PKTHDR, M_PKTHDR);
    m_cat(m, tail);
    counts(m, 3000, 0);
    EXPECT(m_pktlen(m), 3000);
    for (struct mbuf *n = m_next(m); n != NULL; n = m_next(n))
        EXPECT(m_flags(n) & M_PKTHDR, 0);
    m_freem(m);

    m = pieces(12);
    EXPECT(m_pktlen(m), 1200);
    same = m;
    EXPECT(m_collapse(m, M_NOWAIT, mbufs_of(m)) == same, 1); /* as it is */
    m = m_collapse(m, M_NOWAIT, 2);
    EXPECT(mbufs_of(m) <= 2, 1);
    counts(m, 1200, 0);
    EXPECT(m_pktlen(m), 1200);
    m_freem(m);
    m = counted(6000);
    NONE(m_collapse(m, M_NOWAIT, 1)); /* 6000 bytes do not fit into 2048 */
    counts(m, 6000, 0);
    m_freem(m);
    m = pieces(12);
    m = m_defrag(m, M_NOWAIT);
    EXPECT(mbufs_of(m), 1);
    counts(m, 1200, 0);
    m_freem(m);
}

/* The length of a later mbuf is set: the packet's is made right when it is needed. */
static void later(void)
{
    struct mbuf *m = m_getm2(NULL, 5000, M_NOWAIT, MT_DATA, M_PKTHDR), *copy;

    for (struct mbuf *n = m; n != NULL; n = m_next(n)) {
        EXPECT(m_setlen(n, 30), 0);
        memset(m_data(n), 'x', 30);
    }
    EXPECT(mbufs_of(m), 2);
    copy = m_dup(m, M_NOWAIT);
    EXPECT(m_length(copy, NULL), 60);
    m_freem(copy);
    EXPECT(m_fixhdr(m), 60);
    EXPECT(m_setlen(m_next(m), 10), 0);
    m = m_pullup(m, 40);
    EXPECT(m_len(m), 40);
    EXPECT(m_setlen(m, 1), 0);
    m_adj(m, -1);
    EXPECT(m_pktlen(m), 0);
    m_freem(m);
}

static void tags(void)
{
    struct mbuf *m = m_gethdr(M_NOWAIT, MT_DATA), *other = m_gethdr(M_NOWAIT, MT_DATA), *none = m_get(M_NOWAIT, MT_DATA);
    struct m_tag *a = m_tag_alloc(5, 1, 4, M_NOWAIT), *b = m_tag_alloc(5, 1 | MTAG_PERSISTENT, 0, M_NOWAIT), *c, *d;

    memcpy(m_tag_data(a), "abcd", 4);
    EXPECT(m_tag_len(a), 4);
    EXPECT(m_tag_cookie(a), 5);
    EXPECT(m_tag_id(b), 1 | MTAG_PERSISTENT);
    m_tag_prepend(m, a);
    m_tag_prepend(m, b);
    c = m_tag_get(9, 8, M_NOWAIT);
    m_tag_prepend(m, c);
    d = m_tag_alloc(5, 1, 0, M_NOWAIT);
    m_tag_prepend(m, d); /* d, c, b, a */
    EXPECT(m_tag_first(m) == d && m_tag_next(m, d) == c, 1);
    NONE(m_tag_next(m, a));
    NONE(m_tag_next(m, NULL));
    EXPECT(m_tag_locate(m, 5, 1, NULL) == d, 1);
    EXPECT(m_tag_locate(m, 5, 1, d) == a, 1);
    NONE(m_tag_locate(m, 5, 1, a));
    EXPECT(m_tag_find(m, 9, NULL) == c, 1);
    EXPECT(m_dup_pkthdr(other, m, M_NOWAIT), 1);
    EXPECT(memcmp(m_tag_data(m_tag_locate(other, 5, 1, m_tag_first(other))), "abcd", 4), 0);
    EXPECT(m_tag_first(other) != d, 1); /* copies */
    m_tag_delete_nonpersistent(other);
    EXPECT(m_tag_id(m_tag_first(other)), 1 | MTAG_PERSISTENT);
    NONE(m_tag_next(other, m_tag_first(other)));
    EXPECT(m_dup_pkthdr(none, m, M_NOWAIT), 0);
    m_tag_unlink(m, c);
    EXPECT(m_tag_next(m, d) == b, 1);
    m_tag_free(c);
    m_tag_delete_chain(m, b); /* and a */
    EXPECT(m_tag_first(m) == d, 1);
    NONE(m_tag_next(m, d));
    EXPECT(m_move_pkthdr(other, m), 0);
    EXPECT(m_tag_first(other) == d, 1);
    EXPECT(m_flags(m) & M_PKTHDR, 0);
    NONE(m_tag_first(m));
    m_tag_delete(other, d);
    NONE(m_tag_first(other));
    EXPECT(m_move_pkthdr(other, m), EINVAL); /* is none any more */
    c = m_tag_alloc(1, 2, 3, M_NOWAIT);
    d = m_tag_copy(c, M_NOWAIT);
    EXPECT(m_tag_len(d), 3);
    m_tag_free(c);
    m_tag_prepend(none, d); /* is freed */
    m_demote_pkthdr(other);
    EXPECT(m_flags(other), 0);
    m_freem(m);
    m_freem(other);
    m_freem(none);
}

static void *frees_one(void *m)
{
    m_freem((struct mbuf *)m);
    return NULL;
}

/* At the limit M_NOWAIT has none, and M_WAITOK gets what another thread frees. */
static void limits(void)
{
    tranship_mbuf_options options;
    tranship_mbufs *before = mbufs;
    struct mbuf *all[64], *m;
    pthread_t thread;
    int count = 0;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.jumbo9 = 2;
    options.window_bytes = 64 << 20;
    EXPECT(tranship_mbufs_create(&options, &mbufs, NULL), TRANSHIP_OK);
    while ((m = m_getjcl(M_NOWAIT, MT_DATA, M_PKTHDR, MJUM9BYTES)) != NULL)
        all[count++] = m;
    EXPECT(count, 2);
    pthread_create(&thread, NULL, frees_one, all[0]);
    all[0] = m_getjcl(M_WAITOK, MT_DATA, M_PKTHDR, MJUM9BYTES);
    THERE(all[0]);
    pthread_join(thread, NULL);
    tranship_mbufs_close(mbufs);
    memset(m_data(all[1]), 1, MJUM9BYTES); /* mbufs outlive their allocator's handle */
    m_freem(all[0]);
    m_freem(all[1]);
    mbufs = before;
    EXPECT(tranship_mbufs_reclaim(mbufs) > 0, 1);
}

/* No call makes a chain longer than an int can say: nothing is allocated, nothing changes. */
static void too_long(void)
{
    size_t half = (size_t)1 << 30;
    char *never_read = (char *)mmap(NULL, half, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct mbuf *m = counted(5), *n, *more;

    EXPECT(never_read != MAP_FAILED, 1);
    EXPECT(m_copyback(m, INT_MAX, 1, "x"), EINVAL);
    EXPECT(m_copyback(m, INT_MAX - 1, 2, "xy"), EINVAL);
    NONE(m_getm2(m, INT_MAX - 4, M_NOWAIT, MT_DATA, 0));
    counts(m, 5, 0);
    EXPECT(mbufs_of(m), 1);
    NONE(tranship_m_copyback_cow(m, INT_MAX, 1, "x", M_NOWAIT));

    m = m_gethdr(M_NOWAIT, MT_DATA);
    EXPECT(m_extadd(m, never_read, (unsigned)INT_MAX + 1, NULL, NULL, NULL, M_RDONLY, 0), EINVAL);
    EXPECT(m_extadd(m, never_read, (unsigned)half, NULL, NULL, NULL, M_RDONLY, 0), 0);
    EXPECT(m_setlen(m, (int)half), 0);
    n = m_copym(m, 0, M_COPYALL, M_NOWAIT);
    THERE(n);
    EXPECT(m_catpkt(m, n), EINVAL);
    EXPECT(m_length(m, NULL), half);
    EXPECT(m_length(n, NULL), half);
    m_adj(n, 1);
    EXPECT(m_cat(m, n), 0);
    EXPECT(m_length(m, NULL), INT_MAX);
    EXPECT(mbufs_of(m), 2);
    EXPECT(m_append(m, 1, "x"), 0);
    NONE(m_getm2(m, 1, M_NOWAIT, MT_DATA, 0));
    more = counted(1);
    EXPECT(m_catpkt(m, more), EINVAL);
    EXPECT(m_catpkt(m, NULL), EINVAL);
    EXPECT(m_catpkt(NULL, more), EINVAL);
    counts(more, 1, 0);
    m_freem(more);
    EXPECT(m_length(m, NULL), INT_MAX);
    EXPECT(mbufs_of(m), 2);
    NONE(m_prepend(m, 1, M_NOWAIT));
    munmap(never_read, half);
}

/* NULL is an error that says so, or nothing; so is a header where there is none. Nothing of the other chain changes. */
static void nothing_there(void)
{
    struct mbuf *bare = m_get(M_NOWAIT, MT_DATA), *packet = counted(5), *other = NULL;
    struct m_tag *tag = m_tag_get(7, 10, M_NOWAIT);
    int at = 0;

    m_setflags(packet, M_BCAST, 0);
    EXPECT(tranship_m_move_pkthdr(packet, bare), EINVAL);
    EXPECT(tranship_m_move_pkthdr(bare, packet), EINVAL);
    EXPECT(tranship_m_move_pkthdr(NULL, packet), EINVAL);
    EXPECT(tranship_m_move_pkthdr(packet, NULL), EINVAL);
    EXPECT(tranship_m_dup_pkthdr(packet, bare, M_NOWAIT), 0);
    EXPECT(tranship_m_dup_pkthdr(bare, packet, M_NOWAIT), 0);
    EXPECT(tranship_m_dup_pkthdr(NULL, packet, M_NOWAIT), 0);
    EXPECT(tranship_m_dup_pkthdr(packet, NULL, M_NOWAIT), 0);
    EXPECT(tranship_m_tag_copy_chain(packet, bare, M_NOWAIT), 0);
    EXPECT(tranship_m_tag_copy_chain(bare, packet, M_NOWAIT), 0);
    EXPECT(tranship_m_tag_copy_chain(NULL, NULL, M_NOWAIT), 0);
    EXPECT(m_flags(packet) & (M_PKTHDR | M_BCAST), M_PKTHDR | M_BCAST);
    EXPECT(m_flags(bare), 0);
    counts(packet, 5, 0);
    NONE(tranship_m_tag_locate(bare, 0, 7, NULL));
    NONE(tranship_m_tag_next(bare, NULL));
    tranship_m_tag_unlink(bare, tag);
    tranship_m_tag_delete_chain(bare, NULL);
    tranship_m_tag_delete_nonpersistent(bare);
    tranship_m_demote_pkthdr(bare);
    tranship_m_tag_prepend(NULL, tag); /* frees it */
    m_freem(bare);

    NONE(tranship_m_copym(NULL, 0, 1, M_NOWAIT));
    NONE(tranship_m_dup(NULL, M_NOWAIT));
    EXPECT(tranship_m_copydata(NULL, 0, 1, &at), EINVAL);
    EXPECT(tranship_m_copyback(NULL, 0, 1, "x"), EINVAL);
    NONE(tranship_m_copyback_cow(NULL, 0, 1, "x", M_NOWAIT));
    EXPECT(tranship_m_append(NULL, 1, "x"), 0);
    EXPECT(tranship_m_apply(NULL, 0, 1, NULL, NULL), -1);
    NONE(tranship_m_prepend(NULL, 1, M_NOWAIT));
    NONE(tranship_m_pullup(NULL, 1));
    NONE(tranship_m_copyup(NULL, 1, 1));
    NONE(tranship_m_pulldown(NULL, 0, 1, &at));
    NONE(tranship_m_split(NULL, 0, M_NOWAIT));
    NONE(tranship_m_defrag(NULL, M_NOWAIT));
    NONE(tranship_m_collapse(NULL, M_NOWAIT, 1));
    NONE(tranship_m_unshare(NULL, M_NOWAIT));
    NONE(tranship_m_data(NULL));
    NONE(tranship_m_next(NULL));
    NONE(tranship_m_last(NULL));
    NONE(tranship_m_getptr(NULL, 0, &at));
    NONE(tranship_m_cljget(NULL, M_NOWAIT, 2048));
    NONE(tranship_m_free(NULL));
    NONE(tranship_m_tag_copy(NULL, M_NOWAIT));
    NONE(tranship_m_tag_data(NULL));
    EXPECT(tranship_m_length(NULL, &other), 0);
    NONE(other);
    EXPECT(tranship_m_setlen(NULL, 1), EINVAL);
    EXPECT(tranship_m_align(NULL, 1), EINVAL);
    EXPECT(tranship_m_reserve(NULL, 1), EINVAL);
    EXPECT(tranship_m_extadd(NULL, page, 1, NULL, NULL, NULL, 0), EINVAL);
    EXPECT(tranship_m_extadd(packet, NULL, 1, NULL, NULL, NULL, 0), EINVAL);
    EXPECT(tranship_m_type(NULL) | tranship_m_size(NULL) | tranship_m_leadingspace(NULL), 0);
    EXPECT(tranship_m_trailingspace(NULL) | tranship_m_writable(NULL) | tranship_m_extrefcnt(NULL), 0);
    EXPECT(tranship_m_fixhdr(NULL) | tranship_m_tag_len(NULL) | tranship_m_tag_id(NULL), 0);
    EXPECT(tranship_m_bufid(NULL), 0);
    EXPECT(tranship_m_tobuf(NULL, NULL, NULL, NULL), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_m_frombuf(NULL, NULL, NULL, NULL), TRANSHIP_ERR_BAD_ARGUMENT);
    tranship_m_adj(NULL, 1);
    tranship_m_setflags(NULL, 1, 1);
    tranship_m_clrprotoflags(NULL);
    tranship_m_demote_pkthdr(NULL);
    tranship_m_tag_free(NULL);
    m_freem(packet);
}

static void header_fields(void)
{
    struct mbuf *m = counted(100), *copy, *bare = m_get(M_NOWAIT, MT_DATA);
    struct pkthdr *hdr = m_pkthdr(m);

    hdr->csum_flags = CSUM_IP | CSUM_L4_VALID;
    hdr->csum_data = 0xffff;
    hdr->rcvif = 3;
    hdr->flowid = 0x12345678;
    hdr->ether_vtag = 42;
    hdr->tso_segsz = 1460;
    hdr->fibnum = 1;
    hdr->rsstype = 2;
    hdr->l2hlen = 14;
    hdr->l3hlen = 20;
    hdr->l4hlen = 32;
    hdr->rcv_tstmp = 99;
    copy = m_dup(m, M_NOWAIT);
    EXPECT(m_pkthdr(copy) != hdr, 1);
    EXPECT(memcmp(m_pkthdr(copy), hdr, sizeof *hdr), 0);
    EXPECT(m_pktlen(copy), 100); /* nothing of it was in the way */
    counts(copy, 100, 0);
    NONE(m_tag_first(copy));
    NONE(m_pkthdr(bare));
    NONE(tranship_m_pkthdr(NULL));
    m_freem(m);
    m_freem(copy);
    m_freem(bare);
}

static int copies;

static void from_device(const void *from, void *to, uint32_t len)
{
    copies++;
    memcpy(to, from, len);
}

static void in_pieces(void)
{
    unsigned char a[3000], b[200], to[3200];
    struct iovec pieces[3], room[2];
    struct uio uio;
    struct mbuf *m, *n;

    for (int at = 0; at < 3000; at++)
        a[at] = (unsigned char)at;
    for (int at = 0; at < 200; at++)
        b[at] = (unsigned char)(3000 + at);
    memset(&uio, 0, sizeof uio);
    pieces[0].iov_base = a;
    pieces[0].iov_len = sizeof a;
    pieces[1].iov_base = NULL;
    pieces[1].iov_len = 0;
    pieces[2].iov_base = b;
    pieces[2].iov_len = sizeof b;
    uio.uio_iov = pieces;
    uio.uio_iovcnt = 3;
    uio.uio_resid = 3200;
    NONE(m_uiotombuf(&uio, M_NOWAIT, 0, MHLEN, M_PKTHDR));
    uio.uio_resid = 3201; /* more than there are */
    NONE(m_uiotombuf(&uio, M_NOWAIT, 0, 0, M_PKTHDR));
    uio.uio_resid = 3200;
    m = m_uiotombuf(&uio, M_NOWAIT, 1000, 16, M_PKTHDR);
    counts(m, 1000, 0);
    EXPECT(M_LEADINGSPACE(m) >= 16, 1);
    EXPECT(uio.uio_resid, 2200);
    EXPECT(uio.uio_iov == pieces && pieces[0].iov_base == a + 1000 && pieces[0].iov_len == 2000, 1);
    n = m_uiotombuf(&uio, M_NOWAIT, 0, 0, 0);
    EXPECT(m_flags(n) & M_PKTHDR, 0);
    EXPECT(uio.uio_resid | uio.uio_iovcnt, 0);
    EXPECT(m_length(n, NULL), 2200);
    m_cat(m, n);
    counts(m, 3200, 0);
    EXPECT(m_sanity(m, 0), 1);
    room[0].iov_base = to;
    room[0].iov_len = 10;
    room[1].iov_base = to + 10;
    room[1].iov_len = sizeof to - 10;
    uio.uio_iov = room;
    uio.uio_iovcnt = 2;
    uio.uio_resid = sizeof to;
    EXPECT(m_mbuftouio(&uio, m, 2000), 0);
    EXPECT(uio.uio_resid, 1200);
    EXPECT(uio.uio_iovcnt, 1);
    for (int at = 0; at < 2000; at++)
        EXPECT(to[at], (unsigned char)at);
    EXPECT(m_mbuftouio(NULL, m, 1), EINVAL);
    EXPECT(m_mbuftouio(&uio, NULL, 1), EINVAL);
    m_freem(m);

    m = m_devget(a, 3000, 8, 5, NULL);
    counts(m, 3000, 0);
    EXPECT(m_pkthdr(m)->rcvif, 5);
    EXPECT(M_LEADINGSPACE(m), 8);
    m_freem(m);
    m = m_devget(a, 3000, 8, 6, from_device);
    counts(m, 3000, 0);
    EXPECT(copies >= 1, 1);
    EXPECT(m_pkthdr(m)->rcvif, 6);
    NONE(m_devget(NULL, 1, 0, 0, NULL));
    NONE(m_devget(a, -1, 0, 0, NULL));

    EXPECT(m_fragment(m, M_NOWAIT, 0) == m, 1);
    EXPECT(m_fragment(m, M_NOWAIT, -3) == m, 1);
    m = m_fragment(m, M_NOWAIT, 100);
    EXPECT(mbufs_of(m), 30);
    counts(m, 3000, 0);
    EXPECT(m_pkthdr(m)->rcvif, 6);
    m = m_fragment(m, M_NOWAIT, -2);
    EXPECT(mbufs_of(m) >= 12, 1); /* of at most 255 bytes */
    counts(m, 3000, 0);
    m = m_fragment(m, M_NOWAIT, -1);
    for (n = m; m_next(m_next(n)) != NULL; n = m_next(n))
        EXPECT(m_len(n), m_len(m));
    counts(m, 3000, 0);
    m_freem(m);
}

static void queues(void)
{
    struct mbufq mq, other;
    struct mbuf *m, *n;

    mbufq_init(&mq, 2);
    mbufq_init(&other, 1);
    NONE(mbufq_dequeue(&mq));
    NONE(mbufq_flush(&mq));
    for (int at = 1; at <= 2; at++)
        EXPECT(mbufq_enqueue(&mq, counted(at)), 0);
    EXPECT(mbufq_full(&mq) && !mbufq_empty(&mq) && mbufq_len(&mq) == 2, 1);
    m = counted(3);
    EXPECT(mbufq_enqueue(&mq, m), ENOBUFS);
    counts(m, 3, 0); /* is still here */
    EXPECT(mbufq_enqueue(&other, m), 0);
    mbufq_concat(&mq, &other);
    mbufq_concat(&mq, &mq);
    EXPECT(mbufq_empty(&other), 1);
    EXPECT(m_pktlen(mbufq_first(&mq)), 1);
    EXPECT(mbufq_last(&mq) == m, 1);
    n = mbufq_dequeue(&mq);
    NONE(m_nextpkt(n));
    EXPECT(m_pktlen(n), 1);
    mbufq_prepend(&mq, n);
    EXPECT(mbufq_len(&mq), 3);
    m = mbufq_flush(&mq);
    EXPECT(mbufq_empty(&mq) && mbufq_first(&mq) == NULL, 1);
    for (int at = 1; at <= 3; at++) {
        n = m_nextpkt(m);
        counts(m, at, 0);
        EXPECT(mbufq_enqueue(&mq, m), at <= 2 ? 0 : ENOBUFS);
        if (at == 3)
            m_freem(m);
        m = n;
    }
    NONE(m);
    mbufq_drain(&mq);
    EXPECT(mbufq_len(&mq), 0);
    EXPECT(mbufq_enqueue(&mq, NULL), EINVAL);
    NONE(tranship_m_nextpkt(NULL));
}

static uint32_t references;

/* The program counts the references, too: who makes it 0 frees. */
static void own_counter(void)
{
    struct mbuf *m = m_gethdr(M_NOWAIT, MT_DATA), *copy, *again;

    frees = 0;
    references = 0;
    EXPECT(m_extaddref(m, page, sizeof page, NULL, freed, page, &frees), EINVAL);
    EXPECT(m_extaddref(m, page, sizeof page, &references, freed, page, &frees), 0);
    EXPECT(m_extaddref(m, page, sizeof page, &references, freed, page, &frees), EBUSY);
    EXPECT(references, 1);
    EXPECT(m_setlen(m, 100), 0);
    EXPECT(M_WRITABLE(m), 1);
    references++; /* the program's own */
    EXPECT(M_WRITABLE(m), 0);
    EXPECT(m_extrefcnt(m), 2);
    copy = m_copypacket(m, M_NOWAIT);
    EXPECT(references, 3);
    again = m_gethdr(M_NOWAIT, MT_DATA); /* a second mbuf that knows nothing of the first */
    EXPECT(m_extaddref(again, page, sizeof page, &references, freed, page, &frees), 0);
    EXPECT(m_extrefcnt(copy), 4);
    m_freem(m);
    m_freem(copy);
    EXPECT(references, 2);
    references--;
    EXPECT(M_WRITABLE(again), 1);
    EXPECT(frees, 0);
    m_freem(again);
    EXPECT(references, 0);
    EXPECT(frees, 1);
}

static uma_zone_t clusters;

static void cluster_free(void *item, void *unused)
{
    (void)unused;
    uma_zfree(clusters, item);
    frees++;
}

/* Clusters of the program's own: the zone counts the references, as the paper's do. */
static void own_clusters(void)
{
    struct mbuf *m = m_gethdr(M_NOWAIT, MT_DATA), *copy;
    void *cluster;

    clusters = uma_zcreate("clusters", MCLBYTES, NULL, NULL, NULL, NULL, UMA_ALIGN_CACHE, UMA_ZONE_REFCNT);
    THERE(cluster = uma_zalloc(clusters, M_NOWAIT));
    frees = 0;
    EXPECT(m_extaddref(m, cluster, MCLBYTES, uma_find_refcnt(clusters, cluster), cluster_free, cluster, NULL), 0);
    EXPECT(m_append(m, 1000, page), 1);
    EXPECT(m_data(m) == cluster, 1); /* in place */
    copy = m_copypacket(m, M_NOWAIT);
    EXPECT(*uma_find_refcnt(clusters, cluster), 2);
    m_freem(m);
    EXPECT(uma_zone_get_cur(clusters), 1);
    m_freem(copy);
    EXPECT(frees, 1);
    EXPECT(*uma_find_refcnt(clusters, cluster), 0);
    EXPECT(uma_zdestroy(clusters), 0);
}

static void limits_at_run_time(void)
{
    tranship_mbuf_options limits;
    struct mbuf *m;

    memset(&limits, 0, sizeof limits);
    limits.size = sizeof limits;
    EXPECT(tranship_mbufs_limits(mbufs, &limits, NULL), TRANSHIP_OK);
    EXPECT(limits.mbufs > 0 && limits.jumbo16 > 0, 1);
    uint64_t before = limits.jumbo16;
    memset(&limits, 0, sizeof limits);
    limits.size = sizeof limits;
    limits.jumbo16 = 1;
    EXPECT(tranship_mbufs_set_limits(mbufs, &limits, NULL), TRANSHIP_OK);
    m = m_getjcl(M_NOWAIT, MT_DATA, M_PKTHDR, MJUM16BYTES);
    THERE(m);
    NONE(m_getjcl(M_NOWAIT, MT_DATA, M_PKTHDR, MJUM16BYTES));
    limits.jumbo16 = before;
    EXPECT(tranship_mbufs_set_limits(mbufs, &limits, NULL), TRANSHIP_OK);
    EXPECT(tranship_mbufs_limits(mbufs, &limits, NULL), TRANSHIP_OK);
    EXPECT(limits.jumbo16 == before, 1);
    m_freem(m);
    m = m_getjcl(M_NOWAIT, MT_DATA, M_PKTHDR, MJUM16BYTES);
    THERE(m);
    m_freem(m);
    limits.clusters = UINT64_MAX; /* more clusters than mbufs */
    EXPECT(tranship_mbufs_set_limits(mbufs, &limits, NULL), TRANSHIP_ERR_BAD_ARGUMENT);
    limits.window_bytes = 1;
    EXPECT(tranship_mbufs_set_limits(mbufs, &limits, NULL), TRANSHIP_ERR_BAD_ARGUMENT);
    limits.size = 1;
    EXPECT(tranship_mbufs_limits(mbufs, &limits, NULL), TRANSHIP_ERR_BAD_ARGUMENT);
}

int main(void)
{
    tranship_mbuf_options options;

    /* Few addresses: valgrind keeps account of each. */
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.window_bytes = 64 << 20;
    EXPECT(tranship_mbufs_create(&options, &mbufs, NULL), TRANSHIP_OK);
    others = m_gethdr(M_NOWAIT, MT_DATA);
    sizes();
    bytes();
    front();
    anywhere();
    shared();
    cut();
    later();
    tags();
    limits();
    too_long();
    header_fields();
    in_pieces();
    queues();
    own_counter();
    own_clusters();
    limits_at_run_time();
    nothing_there();
    m_freem(others);
    tranship_mbufs_close(mbufs);
    EXPECT(m_len(NULL) | m_flags(NULL) | (int)m_length(NULL, NULL), 0);
    EXPECT(m_copydata(NULL, 0, 0, NULL), EINVAL);
    puts("as in mbuf(9)");
    return 0;
}
