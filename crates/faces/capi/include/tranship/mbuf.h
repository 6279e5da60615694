/*
 * The names of FreeBSD's network buffers, mbuf(9) ("Network Buffer Allocation in the FreeBSD Operating System", 2004), over mbufs.h.
 *
 *   FreeBSD                              here
 *   m_get(how, type) and the like        the same; out of TRANSHIP_MBUFS, if that is defined before this header is read: an allocator of the
 *                                        program's (tranship_mbufs_create), over a pool for packets that go to other processes. Else out of the
 *                                        process's own.
 *   m->m_data, m_len, m_next, m_flags    m_data(m), m_len(m), m_next(m), m_flags(m): the struct is the library's
 *   m->m_len = n                         m_setlen(m, n); the packet's length follows (of a later mbuf with the next call, or m_fixhdr)
 *   m->m_pkthdr.len                      m_pktlen(m)
 *   m->m_data += n; of an empty mbuf     m_reserve(m, n)
 *   how                                  M_WAITOK waits only in what makes mbufs out of nothing (m_get to m_getm2); all others never do, and may fail
 *   m_pullup, m_prepend, m_copyup, ...   as there: NULL, and the chain is freed. Where FreeBSD leaves the chain (m_split, m_defrag, m_collapse) so
 *                                        does this.
 *   m_copydata, m_copym beyond the end   an error instead of a panic
 *   m_copyback                           refuses with EROFS to write what others have, too; m_copyback_cow (NetBSD's) copies it first. Says by a
 *                                        number what FreeBSD does not say: that there was no memory. Then nothing was written.
 *   m_append                             all of it or nothing
 *   m_cat                                as m_catpkt: the packet's length follows
 *   m_cat, m_catpkt                      return 0, or EINVAL and leave both chains: together more than INT_MAX bytes, or one of them NULL
 *   m_extadd(..., free, ...)             free(arg1, arg2), as up to FreeBSD 11; an int that says whether it was attached
 *   m_extaddref(..., ref_cnt, ...)       so does it; an mbuf that makes *ref_cnt 0 calls free
 *   m->m_pkthdr.csum_flags, ...          m_pkthdr(m)->csum_flags, ...; rcvif is a number
 *   m_devget(buf, len, off, ifp, copy)   ifp is a number; copy(from, to, len), or NULL
 *   struct uio                           uio_iov, uio_iovcnt, uio_resid
 *   m_nextpkt of mbufq_flush's packets   m_nextpkt(m)
 *   kern.ipc.nmbclusters, ...            tranship_mbufs_set_limits
 *   m_pulldown(m, off, len, NULL)        fails
 *   (t + 1) of a struct m_tag *t         m_tag_data(t)
 *                                        m_tobuf, m_frombuf: packets as what tranship_send and tranship_recv have
 *
 * One thread at a time has a chain, but any; what chains share is counted.
 */
#ifndef TRANSHIP_MBUF_H
#define TRANSHIP_MBUF_H

#include "mbufs.h"

#ifndef TRANSHIP_MBUFS
#define TRANSHIP_MBUFS NULL
#endif

/* how */
#define M_NOWAIT 0x0001
#define M_WAITOK 0x0002

/* m_flags */
#define M_EXT 0x00000001
#define M_PKTHDR 0x00000002
#define M_EOR 0x00000004
#define M_RDONLY 0x00000008
#define M_BCAST 0x00000010
#define M_MCAST 0x00000020
#define M_PROMISC 0x00000040
#define M_VLANTAG 0x00000080
#define M_EXTPG 0x00000100
#define M_VOLATILE 0x00000200 /* tranship's: another process may change the data while it is read */
#define M_TSTMP 0x00000400
#define M_TSTMP_HPREC 0x00000800
#define M_TSTMP_LRO 0x00001000
#define M_PROTO1 0x00002000
#define M_PROTO2 0x00004000
#define M_PROTO3 0x00008000
#define M_PROTO4 0x00010000
#define M_PROTO5 0x00020000
#define M_PROTO6 0x00040000
#define M_PROTO7 0x00080000
#define M_PROTO8 0x00100000
#define M_PROTO9 0x00200000
#define M_PROTO10 0x00400000
#define M_PROTO11 0x00800000

/* m_type */
#define MT_DATA 1
#define MT_HEADER MT_DATA
#define MT_SONAME 8
#define MT_CONTROL 14
#define MT_OOBDATA 16

/* Sizes, in bytes */
#define MSIZE 256
#define MLEN 208
#define MHLEN 160
#define MINCLSIZE (MHLEN + 1)
#define MCLBYTES 2048
#define MJUMPAGESIZE 4096
#define MJUM9BYTES (9 * 1024)
#define MJUM16BYTES (16 * 1024)

/* m_pkthdr.csum_flags */
#define CSUM_IP 0x00000001
#define CSUM_IP_UDP 0x00000002
#define CSUM_IP_TCP 0x00000004
#define CSUM_IP_SCTP 0x00000008
#define CSUM_IP_TSO 0x00000010
#define CSUM_IP6_UDP 0x00000200
#define CSUM_IP6_TCP 0x00000400
#define CSUM_IP6_TSO 0x00001000
#define CSUM_L3_CALC 0x01000000
#define CSUM_L3_VALID 0x02000000
#define CSUM_L4_CALC 0x04000000
#define CSUM_L4_VALID 0x08000000
#define CSUM_COALESCED 0x80000000

#define M_COPYALL 1000000000
#define MTAG_ABI_COMPAT 0
#define MTAG_PERSISTENT 0x800

#ifdef __cplusplus
extern "C" {
#endif

typedef tranship_ext_free m_ext_free_t;

/* Out of nothing, and the end */

static inline struct mbuf *m_get(int how, short type)
{
    return tranship_m_get(TRANSHIP_MBUFS, how, type);
}

static inline struct mbuf *m_gethdr(int how, short type)
{
    return tranship_m_gethdr(TRANSHIP_MBUFS, how, type);
}

static inline struct mbuf *m_getcl(int how, short type, int flags)
{
    return tranship_m_getcl(TRANSHIP_MBUFS, how, type, flags);
}

static inline struct mbuf *m_getjcl(int how, short type, int flags, int size)
{
    return tranship_m_getjcl(TRANSHIP_MBUFS, how, type, flags, size);
}

static inline struct mbuf *m_get2(int size, int how, short type, int flags)
{
    return size > MJUMPAGESIZE ? NULL : tranship_m_get3(TRANSHIP_MBUFS, size, how, type, flags);
}

static inline struct mbuf *m_get3(int size, int how, short type, int flags)
{
    return tranship_m_get3(TRANSHIP_MBUFS, size, how, type, flags);
}

static inline struct mbuf *m_getm2(struct mbuf *m, int len, int how, short type, int flags)
{
    return tranship_m_getm2(TRANSHIP_MBUFS, m, len, how, type, flags);
}

static inline struct mbuf *m_getm(struct mbuf *m, int len, int how, short type)
{
    return tranship_m_getm2(TRANSHIP_MBUFS, m, len, how, type, M_PKTHDR);
}

static inline void *m_cljget(struct mbuf *m, int how, int size)
{
    return tranship_m_cljget(m, how, size);
}

static inline int m_clget(struct mbuf *m, int how)
{
    return tranship_m_cljget(m, how, MCLBYTES) != NULL;
}

static inline int m_extadd(struct mbuf *m, void *buf, unsigned int size, m_ext_free_t freef, void *arg1, void *arg2,
                           int flags, int type)
{
    (void)type;
    return tranship_m_extadd(m, buf, size, freef, arg1, arg2, flags);
}

static inline int m_extaddref(struct mbuf *m, void *buf, unsigned int size, uint32_t *ref_cnt, m_ext_free_t freef, void *arg1,
                              void *arg2)
{
    return tranship_m_extaddref(m, buf, size, ref_cnt, freef, arg1, arg2);
}

static inline struct mbuf *m_devget(const void *buf, int len, int off, uint32_t rcvif, tranship_m_copy copy)
{
    return tranship_m_devget(TRANSHIP_MBUFS, buf, len, off, rcvif, copy);
}

static inline struct mbuf *m_uiotombuf(struct uio *uio, int how, int len, int align, int flags)
{
    return tranship_m_uiotombuf(TRANSHIP_MBUFS, uio, how, len, align, flags);
}

static inline int m_mbuftouio(struct uio *uio, const struct mbuf *m, int len)
{
    return tranship_m_mbuftouio(uio, m, len);
}

static inline struct mbuf *m_free(struct mbuf *m)
{
    return tranship_m_free(m);
}

static inline void m_freem(struct mbuf *m)
{
    tranship_m_freem(m);
}

#define MGET(m, how, type) ((m) = m_get((how), (type)))
#define MGETHDR(m, how, type) ((m) = m_gethdr((how), (type)))
#define MCLGET(m, how) m_clget((m), (how))

/* One mbuf */

static inline void *m_data(const struct mbuf *m)
{
    return tranship_m_data(m);
}

#define mtod(m, t) ((t)m_data(m))
#define mtodo(m, o) ((void *)((char *)m_data(m) + (o)))

static inline int m_len(const struct mbuf *m)
{
    return tranship_m_len(m);
}

static inline int m_setlen(struct mbuf *m, int len)
{
    return tranship_m_setlen(m, len);
}

static inline struct mbuf *m_next(const struct mbuf *m)
{
    return tranship_m_next(m);
}

static inline struct mbuf *m_last(const struct mbuf *m)
{
    return tranship_m_last(m);
}

static inline int m_flags(const struct mbuf *m)
{
    return tranship_m_flags(m);
}

static inline void m_setflags(struct mbuf *m, int set, int clear)
{
    tranship_m_setflags(m, set, clear);
}

static inline void m_clrprotoflags(struct mbuf *m)
{
    tranship_m_clrprotoflags(m);
}

static inline int m_type(const struct mbuf *m)
{
    return tranship_m_type(m);
}

static inline int m_extrefcnt(const struct mbuf *m)
{
    return tranship_m_extrefcnt(m);
}

static inline int m_align(struct mbuf *m, int len)
{
    return tranship_m_align(m, len);
}

static inline int m_reserve(struct mbuf *m, int len)
{
    return tranship_m_reserve(m, len);
}

#define M_ALIGN(m, len) m_align((m), (len))
#define MH_ALIGN(m, len) m_align((m), (len))
#define M_SIZE(m) tranship_m_size(m)
#define M_WRITABLE(m) tranship_m_writable(m)
#define M_LEADINGSPACE(m) tranship_m_leadingspace(m)
#define M_TRAILINGSPACE(m) tranship_m_trailingspace(m)

/* The chain from an mbuf on */

static inline unsigned int m_length(const struct mbuf *m, struct mbuf **last)
{
    return (unsigned int)tranship_m_length(m, last);
}

static inline unsigned int m_fixhdr(struct mbuf *m)
{
    return (unsigned int)tranship_m_fixhdr(m);
}

static inline int m_pktlen(struct mbuf *m)
{
    return tranship_m_fixhdr(m);
}

static inline struct mbuf *m_getptr(struct mbuf *m, int at, int *offset)
{
    return tranship_m_getptr(m, at, offset);
}

static inline int m_copydata(const struct mbuf *m, int off, int len, void *to)
{
    return tranship_m_copydata(m, off, len, to);
}

static inline int m_copyback(struct mbuf *m, int off, int len, const void *from)
{
    return tranship_m_copyback(m, off, len, from);
}

static inline struct mbuf *m_copyback_cow(struct mbuf *m, int off, int len, const void *from, int how)
{
    return tranship_m_copyback_cow(m, off, len, from, how);
}

static inline int m_append(struct mbuf *m, int len, const void *from)
{
    return tranship_m_append(m, len, from);
}

static inline int m_apply(struct mbuf *m, int off, int len, tranship_m_each each, void *arg)
{
    return tranship_m_apply(m, off, len, each, arg);
}

static inline struct mbuf *m_copym(struct mbuf *m, int off, int len, int how)
{
    return tranship_m_copym(m, off, len, how);
}

static inline struct mbuf *m_copypacket(struct mbuf *m, int how)
{
    return tranship_m_copym(m, 0, M_COPYALL, how);
}

static inline struct mbuf *m_dup(const struct mbuf *m, int how)
{
    return tranship_m_dup(m, how);
}

static inline struct mbuf *m_prepend(struct mbuf *m, int len, int how)
{
    return tranship_m_prepend(m, len, how);
}

#define M_PREPEND(m, plen, how) ((m) = m_prepend((m), (plen), (how)))

static inline struct mbuf *m_pullup(struct mbuf *m, int len)
{
    return tranship_m_pullup(m, len);
}

static inline struct mbuf *m_copyup(struct mbuf *m, int len, int dstoff)
{
    return tranship_m_copyup(m, len, dstoff);
}

static inline struct mbuf *m_pulldown(struct mbuf *m, int off, int len, int *offset)
{
    return tranship_m_pulldown(m, off, len, offset);
}

static inline void m_adj(struct mbuf *m, int count)
{
    tranship_m_adj(m, count);
}

static inline struct mbuf *m_split(struct mbuf *m, int len, int how)
{
    return tranship_m_split(m, len, how);
}

static inline int m_cat(struct mbuf *m, struct mbuf *n)
{
    return tranship_m_catpkt(m, n);
}

static inline int m_catpkt(struct mbuf *m, struct mbuf *n)
{
    return tranship_m_catpkt(m, n);
}

static inline struct mbuf *m_defrag(struct mbuf *m, int how)
{
    return tranship_m_defrag(m, how);
}

static inline struct mbuf *m_collapse(struct mbuf *m, int how, int limit)
{
    return tranship_m_collapse(m, how, limit);
}

static inline struct mbuf *m_unshare(struct mbuf *m, int how)
{
    return tranship_m_unshare(m, how);
}

static inline struct mbuf *m_fragment(struct mbuf *m, int how, int length)
{
    return tranship_m_fragment(m, how, length);
}

static inline int m_sanity(const struct mbuf *m, int sanitize)
{
    (void)sanitize; /* nothing is changed */
    return tranship_m_sanity(m);
}

static inline void m_print(const struct mbuf *m, int maxlen)
{
    tranship_m_print(m, maxlen);
}

/* The packet's header, and its tags */

static inline struct pkthdr *m_pkthdr(struct mbuf *m)
{
    return tranship_m_pkthdr(m);
}

static inline void m_demote_pkthdr(struct mbuf *m)
{
    tranship_m_demote_pkthdr(m);
}

static inline int m_move_pkthdr(struct mbuf *to, struct mbuf *from)
{
    return tranship_m_move_pkthdr(to, from);
}

static inline int m_dup_pkthdr(struct mbuf *to, const struct mbuf *from, int how)
{
    return tranship_m_dup_pkthdr(to, from, how);
}

static inline struct m_tag *m_tag_alloc(uint32_t cookie, int type, int len, int wait)
{
    return tranship_m_tag_alloc(cookie, type, len, wait);
}

static inline struct m_tag *m_tag_get(int type, int len, int wait)
{
    return tranship_m_tag_alloc(MTAG_ABI_COMPAT, type, len, wait);
}

static inline void m_tag_free(struct m_tag *t)
{
    tranship_m_tag_free(t);
}

static inline void *m_tag_data(struct m_tag *t)
{
    return tranship_m_tag_data(t);
}

static inline int m_tag_len(struct m_tag *t)
{
    return tranship_m_tag_len(t);
}

static inline int m_tag_id(struct m_tag *t)
{
    return tranship_m_tag_id(t);
}

static inline uint32_t m_tag_cookie(struct m_tag *t)
{
    return tranship_m_tag_cookie(t);
}

static inline void m_tag_prepend(struct mbuf *m, struct m_tag *t)
{
    tranship_m_tag_prepend(m, t);
}

static inline void m_tag_unlink(struct mbuf *m, struct m_tag *t)
{
    tranship_m_tag_unlink(m, t);
}

static inline void m_tag_delete(struct mbuf *m, struct m_tag *t)
{
    tranship_m_tag_delete(m, t);
}

static inline void m_tag_delete_chain(struct mbuf *m, struct m_tag *t)
{
    tranship_m_tag_delete_chain(m, t);
}

static inline void m_tag_delete_nonpersistent(struct mbuf *m)
{
    tranship_m_tag_delete_nonpersistent(m);
}

static inline struct m_tag *m_tag_locate(struct mbuf *m, uint32_t cookie, int type, struct m_tag *t)
{
    return tranship_m_tag_locate(m, cookie, type, t);
}

static inline struct m_tag *m_tag_find(struct mbuf *m, int type, struct m_tag *start)
{
    return tranship_m_tag_locate(m, MTAG_ABI_COMPAT, type, start);
}

static inline struct m_tag *m_tag_first(struct mbuf *m)
{
    return tranship_m_tag_next(m, NULL);
}

static inline struct m_tag *m_tag_next(struct mbuf *m, struct m_tag *t)
{
    return t ? tranship_m_tag_next(m, t) : NULL;
}

static inline struct m_tag *m_tag_copy(struct m_tag *t, int how)
{
    return tranship_m_tag_copy(t, how);
}

static inline int m_tag_copy_chain(struct mbuf *to, struct mbuf *from, int how)
{
    return tranship_m_tag_copy_chain(to, from, how);
}

/* Queues of packets */

static inline void mbufq_init(struct mbufq *mq, size_t maxlen)
{
    mq->mq_first = mq->mq_last = NULL;
    mq->mq_len = 0;
    mq->mq_maxlen = maxlen;
}

static inline struct mbuf *mbufq_first(const struct mbufq *mq)
{
    return mq->mq_first;
}

static inline struct mbuf *mbufq_last(const struct mbufq *mq)
{
    return mq->mq_last;
}

static inline size_t mbufq_len(const struct mbufq *mq)
{
    return mq->mq_len;
}

static inline int mbufq_empty(const struct mbufq *mq)
{
    return mq->mq_len == 0;
}

static inline int mbufq_full(const struct mbufq *mq)
{
    return mq->mq_len >= mq->mq_maxlen;
}

static inline int mbufq_enqueue(struct mbufq *mq, struct mbuf *m)
{
    return tranship_mbufq_enqueue(mq, m);
}

static inline struct mbuf *mbufq_dequeue(struct mbufq *mq)
{
    return tranship_mbufq_dequeue(mq);
}

static inline void mbufq_prepend(struct mbufq *mq, struct mbuf *m)
{
    tranship_mbufq_prepend(mq, m);
}

static inline void mbufq_concat(struct mbufq *mq, struct mbufq *from)
{
    tranship_mbufq_concat(mq, from);
}

static inline struct mbuf *mbufq_flush(struct mbufq *mq)
{
    return tranship_mbufq_flush(mq);
}

static inline void mbufq_drain(struct mbufq *mq)
{
    tranship_mbufq_drain(mq);
}

static inline struct mbuf *m_nextpkt(const struct mbuf *m)
{
    return tranship_m_nextpkt(m);
}

/* To other processes, and from them */

static inline tranship_status m_tobuf(const struct mbuf *m, const tranship_pool *pool, tranship_buf *out)
{
    return tranship_m_tobuf(m, pool, out, NULL);
}

static inline tranship_status m_frombuf(tranship_buf *buf, struct mbuf **out)
{
    return tranship_m_frombuf(TRANSHIP_MBUFS, buf, out, NULL);
}

#ifdef __cplusplus
}
#endif

#endif /* TRANSHIP_MBUF_H */
