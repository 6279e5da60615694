/*
 * tranship: network buffers, after mbuf(9). <tranship/mbuf.h> gives FreeBSD's own names, and says what differs; here is what the library has.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_mbuf(3) is the manual.
 *
 * A pointer to an mbuf is the chain that begins with it. What fails returns NULL, or a number of errno(3). NULL for an mbuf fails.
 */

#ifndef TRANSHIP_MBUFS_H
#define TRANSHIP_MBUFS_H

#include "../tranship.h"

#include <sys/uio.h>

typedef struct iovec tranship_iovec;
typedef struct tranship_mbufs tranship_mbufs;
typedef struct tranship_mbuf_options tranship_mbuf_options;


/** One mbuf, and the chain that begins with it. Any thread may have it, one at a time. */
struct mbuf;

/** An allocator of mbufs. Any thread may use it, all at the same time. NULL is the process's own, in private memory. */
struct tranship_mbufs;

/** One tag: its module, its number, and its bytes. */
struct m_tag;

/** Options of a new allocator of mbufs. Set `size` to `sizeof(tranship_mbuf_options)`; all else may be 0. */
struct tranship_mbuf_options {
    /** sizeof(tranship_mbuf_options) */
    size_t size;
    /** Clusters are buffers of this pool, so that packets can be sent to other processes without a copy. NULL: of private memory. */
    const tranship_pool *pool;
    /** Addresses that are reserved: no more memory than that can ever be used. 0: 16 GiB. */
    uint64_t window_bytes;
    /** The most mbufs. 0, here and in the next fields: by the size of the machine's memory. */
    uint64_t mbufs;
    /** The most clusters of 2 KiB. */
    uint64_t clusters;
    /** The most clusters of a page. */
    uint64_t jumbo_page;
    /** The most clusters of 9 KiB. */
    uint64_t jumbo9;
    /** The most clusters of 16 KiB. */
    uint64_t jumbo16;
};

/** Function that tranship_m_apply calls. */
typedef int32_t (*tranship_m_each)(void *arg, void *data, uint32_t len);

/** The fields of a packet's header, beside its length and its tags. Later versions may add fields at the end. */
struct pkthdr {
    /** The time of receipt, ns; valid with M_TSTMP. */
    uint64_t rcv_tstmp;
    /** Number of the receiving interface. */
    uint32_t rcvif;
    /** Hash of the flow. */
    uint32_t flowid;
    /** The device's checks, or its tasks. */
    uint32_t csum_flags;
    /** Value of a partial checksum, or offset at which one belongs. */
    uint16_t csum_data;
    /** 802.1Q tag; valid with M_VLANTAG. */
    uint16_t ether_vtag;
    /** Payload bytes of each segment that the device cuts. */
    uint16_t tso_segsz;
    /** Routing table. */
    uint16_t fibnum;
    /** The way in which `flowid` was made. */
    uint8_t rsstype;
    /** Bytes of the link header. */
    uint8_t l2hlen;
    /** Bytes of the network header. */
    uint8_t l3hlen;
    /** Bytes of the transport header. */
    uint8_t l4hlen;
};

/**
 * A queue of packets (mbufq), linked through the packets themselves. All zeros, with a limit in `mq_maxlen`, is an
 * empty one. One thread at a time uses it.
 */
struct mbufq {
    /** The first packet. */
    struct mbuf *mq_first;
    /** The last packet. */
    struct mbuf *mq_last;
    /** The number of packets. */
    size_t mq_len;
    /** The most packets. */
    size_t mq_maxlen;
};

/** Called when the last mbuf that refers to attached memory is gone, on whatever thread that is. */
typedef void (*tranship_ext_free)(void *arg1, void *arg2);

/**
 * Bytes of the program's in several pieces (uio(9)). A call that copies some moves it on: `uio_resid` becomes less,
 * and `uio_iov` and its first piece begin behind the bytes that were copied.
 */
struct uio {
    /** The pieces. */
    tranship_iovec *uio_iov;
    /** The number of pieces. */
    int32_t uio_iovcnt;
    /** 0. */
    int32_t reserved;
    /** The number of bytes to copy: at most those of all pieces. */
    int64_t uio_resid;
};

/** Function that copies bytes out of a device: `len` bytes from `from` to `to`. */
typedef void (*tranship_m_copy)(const void *from, void *to, uint32_t len);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes an allocator of mbufs. `options` may be NULL.
 *
 * Close it with tranship_mbufs_close.
 */
tranship_status tranship_mbufs_create(const struct tranship_mbuf_options *options,
                                      struct tranship_mbufs **out,
                                      tranship_error **error);

/** Gives the allocator up; its memory goes when its last mbuf has. NULL is nothing. */
void tranship_mbufs_close(struct tranship_mbufs *mbufs);

/** Gives back cached memory that is not in use. Returns the number of pages. */
uint64_t tranship_mbufs_reclaim(const struct tranship_mbufs *mbufs);

/**
 * Changes the limits of an allocator at run time: those in `limits` that are not 0; `pool` and `window_bytes` are 0.
 * Mbufs and clusters above a limit stay until they are freed. Without a limit: UINT64_MAX.
 */
tranship_status tranship_mbufs_set_limits(const struct tranship_mbufs *mbufs,
                                          const struct tranship_mbuf_options *limits,
                                          tranship_error **error);

/**
 * Writes the limits of an allocator into `out`, whose `size` is set; `pool` and `window_bytes` become 0. UINT64_MAX:
 * there is no limit.
 */
tranship_status tranship_mbufs_limits(const struct tranship_mbufs *mbufs,
                                      struct tranship_mbuf_options *out,
                                      tranship_error **error);

/** An mbuf with room for 208 bytes (m_get). */
struct mbuf *tranship_m_get(const struct tranship_mbufs *from, int32_t how, int32_t type);

/** An mbuf with a packet header and room for 160 bytes (m_gethdr). */
struct mbuf *tranship_m_gethdr(const struct tranship_mbufs *from, int32_t how, int32_t type);

/** An mbuf with a cluster of 2 KiB (m_getcl). */
struct mbuf *tranship_m_getcl(const struct tranship_mbufs *from,
                              int32_t how,
                              int32_t type,
                              int32_t flag_bits);

/** An mbuf with a cluster of 2048, 4096, 9216 or 16384 bytes (m_getjcl). NULL of any other size. */
struct mbuf *tranship_m_getjcl(const struct tranship_mbufs *from,
                               int32_t how,
                               int32_t type,
                               int32_t flag_bits,
                               int32_t size);

/** One mbuf with room for `size` bytes, at most 16384 (m_get3; m_get2 gives at most 4096). */
struct mbuf *tranship_m_get3(const struct tranship_mbufs *from,
                             int32_t size,
                             int32_t how,
                             int32_t type,
                             int32_t flag_bits);

/**
 * As many mbufs as it takes for `len` bytes, all or none (m_getm2). If `m` is not NULL they are put behind its last one, and `m` is
 * returned; on failure, and where it could become longer than INT_MAX bytes, it is as before.
 */
struct mbuf *tranship_m_getm2(const struct tranship_mbufs *from,
                              struct mbuf *m,
                              int32_t len,
                              int32_t how,
                              int32_t type,
                              int32_t flag_bits);

/**
 * Attaches a cluster of 2048, 4096, 9216 or 16384 bytes to an mbuf that has no data yet: where its bytes are (m_cljget; m_clget says
 * whether there is one). NULL: there was none, and `m` is as before.
 */
void *tranship_m_cljget(struct mbuf *m,
                        int32_t how,
                        int32_t size);

/** Frees one mbuf; the next one, or NULL (m_free). */
struct mbuf *tranship_m_free(struct mbuf *m);

/** Frees a chain (m_freem). NULL is nothing. */
void tranship_m_freem(struct mbuf *m);

/**
 * A chain with the same bytes, `len` of them from `off` on (m_copym): clusters are shared, and neither chain can be written where they are
 * any more; bytes that lie inside mbufs are copied. From 0 on of a packet it is a packet, with the header and copies of the tags.
 * 1000000000 (M_COPYALL) is all that are left. NULL: there are not as many, or no memory.
 */
struct mbuf *tranship_m_copym(struct mbuf *m,
                              int32_t off,
                              int32_t len,
                              int32_t how);

/** A chain with copies of all bytes, header and tags, which may be written (m_dup). NULL: there was no memory. */
struct mbuf *tranship_m_dup(const struct mbuf *m,
                            int32_t how);

/** Copies `len` bytes from `off` on to `to` (m_copydata). 0, or an error's number: there are not as many, and nothing is copied. */
int32_t tranship_m_copydata(const struct mbuf *m,
                            int32_t off,
                            int32_t len,
                            void *to);

/**
 * Writes `len` bytes into the chain from `off` on, which grows if they reach beyond its end (m_copyback); what is
 * between its end and `off` becomes zeros. 0, or an error's number, and then nothing is written: EROFS if other mbufs
 * share the bytes that would be written over (tranship_m_copyback_cow); EINVAL where the chain would be longer than
 * INT_MAX bytes.
 */
int32_t tranship_m_copyback(struct mbuf *m,
                            int32_t off,
                            int32_t len,
                            const void *from);

/**
 * Writes `len` bytes into the chain from `off` on; bytes that other mbufs share are copied before (NetBSD's
 * m_copyback_cow). Returns the chain. NULL: there was no memory, or it would be longer than INT_MAX bytes, and the
 * chain is freed.
 */
struct mbuf *tranship_m_copyback_cow(struct mbuf *m,
                                     int32_t off,
                                     int32_t len,
                                     const void *from,
                                     int32_t how);

/** Adds bytes at the end (m_append). 1, or 0: there was no memory, or the chain would be longer than INT_MAX bytes, and nothing is added. */
int32_t tranship_m_append(struct mbuf *m,
                          int32_t len,
                          const void *from);

/**
 * Calls `each` with the bytes of a range, piece by piece, until it returns something else than 0, which is returned (m_apply). Bytes that
 * another process may change are copied first. -1: there are not as many.
 */
int32_t tranship_m_apply(struct mbuf *m,
                         int32_t off,
                         int32_t len,
                         tranship_m_each each,
                         void *arg);

/**
 * Makes a message of a chain's bytes, in `out`. Bytes in buffers of a pool are not copied; all others are copied into
 * a buffer of `pool`. The chain stays as it is; bytes that were sent cannot be written any more.
 */
tranship_status tranship_m_tobuf(const struct mbuf *m,
                                 const tranship_pool *pool,
                                 tranship_buf *out,
                                 tranship_error **error);

/**
 * Makes a packet of a received message, or of a buffer, in `out`. Only inline bytes are copied. `buf` then holds
 * nothing; on failure it is as before. The writer may change the bytes while they are read: only tranship_m_copydata,
 * tranship_m_pullup and the like copy them.
 */
tranship_status tranship_m_frombuf(const struct tranship_mbufs *from,
                                   tranship_buf *buf,
                                   struct mbuf **out,
                                   tranship_error **error);

/** The name of the buffer in which the data of one mbuf lies, as tranship_buf_id says it: it goes to other processes without a copy. 0: in none. */
uint64_t tranship_m_bufid(const struct mbuf *m);

/**
 * Returns the fields of a packet's header, to read and to write (m_pkthdr). They stay there until the packet's first
 * mbuf changes or loses its header. NULL: it is no packet.
 */
struct pkthdr *tranship_m_pkthdr(struct mbuf *m);

/**
 * Returns the address of its data (mtod). NULL if it is a piece of a file.
 *
 * Write it only if tranship_m_writable returns 1. The writer of data from another process can change them at any time:
 * check a copy (tranship_m_copydata).
 */
void *tranship_m_data(const struct mbuf *m);

/** Bytes of its data (m_len). */
int32_t tranship_m_len(const struct mbuf *m);

/**
 * Sets the number of data bytes of one mbuf (`m_len =`). 0, or EINVAL: its storage has fewer.
 *
 * The packet's length follows if it is the packet's first mbuf; else tranship_m_fixhdr, or the next call with the
 * packet, corrects it.
 */
int32_t tranship_m_setlen(struct mbuf *m,
                          int32_t len);

/** The mbuf behind it (m_next). */
struct mbuf *tranship_m_next(const struct mbuf *m);

/** The last mbuf of the chain (m_last). */
struct mbuf *tranship_m_last(const struct mbuf *m);

/** Returns the mbuf's flags (m_flags). */
int32_t tranship_m_flags(const struct mbuf *m);

/**
 * Sets some of its flags and clears others (`m_flags |=`, `&= ~`). The flags of its storage (M_EXT, M_RDONLY, M_EXTPG)
 * and of a packet's begin stay as they are.
 */
void tranship_m_setflags(struct mbuf *m,
                         int32_t set,
                         int32_t clear);

/** Clears the protocol's flags of all mbufs of the chain (m_clrprotoflags). */
void tranship_m_clrprotoflags(struct mbuf *m);

/** Returns the mbuf's kind (m_type). */
int32_t tranship_m_type(const struct mbuf *m);

/** Bytes of its storage (M_SIZE). */
int32_t tranship_m_size(const struct mbuf *m);

/** Bytes in front of its data that may be written (M_LEADINGSPACE). */
int32_t tranship_m_leadingspace(const struct mbuf *m);

/** Bytes behind its data that may be written (M_TRAILINGSPACE). */
int32_t tranship_m_trailingspace(const struct mbuf *m);

/** 1 if its data may be written in place (M_WRITABLE): no other mbuf refers to its storage. */
int32_t tranship_m_writable(const struct mbuf *m);

/** How many mbufs refer to its storage; 1 of data inside it (m_extrefcnt). */
int32_t tranship_m_extrefcnt(const struct mbuf *m);

/** Bytes of the chain; where `last` is not NULL, its last mbuf goes there (m_length). */
int32_t tranship_m_length(const struct mbuf *m, struct mbuf **last);

/** Makes the packet's length that of its mbufs, and returns it (m_fixhdr; m_pktlen, too). */
int32_t tranship_m_fixhdr(struct mbuf *m);

/** The mbuf in which a byte lies, and in `offset` where in it; for the chain's length the end of its last mbuf; NULL beyond (m_getptr). */
struct mbuf *tranship_m_getptr(struct mbuf *m,
                               int32_t at,
                               int32_t *offset);

/**
 * Reserves `len` bytes for data as far back as possible in an empty mbuf, at a multiple of 8 (m_align). 0, or an
 * error's number.
 */
int32_t tranship_m_align(struct mbuf *m,
                         int32_t len);

/**
 * Leaves `len` bytes free at the start of an empty mbuf, for headers in front of its data (`m_data +=`). 0, or an
 * error's number.
 */
int32_t tranship_m_reserve(struct mbuf *m,
                           int32_t len);

/** 1 if a chain is consistent, 0 if not, or it is NULL (m_sanity). What is wrong goes to standard error. */
int32_t tranship_m_sanity(const struct mbuf *m);

/** Writes a chain to standard error, mbuf by mbuf, with its first `maxlen` bytes; -1: all (m_print). */
void tranship_m_print(const struct mbuf *m, int32_t maxlen);

/** Takes the packet header away, tags and all (m_demote_pkthdr). */
void tranship_m_demote_pkthdr(struct mbuf *m);

/** Gives a packet's header to another packet, tags and all; `from` is none any more (m_move_pkthdr). 0, or EINVAL: one of them is no packet. */
int32_t tranship_m_move_pkthdr(struct mbuf *to,
                               struct mbuf *from);

/** Gives a copy of a packet's header to another packet, tags and all (m_dup_pkthdr). 1, or 0: there was no memory, or one of them is no packet. */
int32_t tranship_m_dup_pkthdr(struct mbuf *to,
                              const struct mbuf *from,
                              int32_t how);

/** Puts a packet at the end (mbufq_enqueue). 0, or ENOBUFS: the queue is full, and the packet stays the caller's. */
int32_t tranship_mbufq_enqueue(struct mbufq *mq,
                               struct mbuf *m);

/** Takes the first packet out (mbufq_dequeue). NULL: there is none. */
struct mbuf *tranship_mbufq_dequeue(struct mbufq *mq);

/** Puts a packet in front, even if the queue is full (mbufq_prepend). */
void tranship_mbufq_prepend(struct mbufq *mq, struct mbuf *m);

/** Moves all packets of `from` behind those of `mq`, even above its limit (mbufq_concat). */
void tranship_mbufq_concat(struct mbufq *mq, struct mbufq *from);

/** Takes all packets out, as a list by tranship_m_nextpkt; returns the first one (mbufq_flush). */
struct mbuf *tranship_mbufq_flush(struct mbufq *mq);

/** Frees all packets (mbufq_drain). */
void tranship_mbufq_drain(struct mbufq *mq);

/** The packet behind it in a queue, or in the list of tranship_mbufq_flush (m_nextpkt). NULL: there is none. */
struct mbuf *tranship_m_nextpkt(const struct mbuf *m);

/**
 * Makes room for `len` bytes in front, zeroed: in place, or in a new mbuf (M_PREPEND). At most 160 bytes of a packet, 208 of another
 * chain, and INT_MAX of all. NULL: there was none, and the chain is freed.
 */
struct mbuf *tranship_m_prepend(struct mbuf *m,
                                int32_t len,
                                int32_t how);

/**
 * The first `len` bytes in one piece, in the first mbuf; at most 160 (m_pullup). NULL: there are not as many, or no memory, and the chain
 * is freed.
 */
struct mbuf *tranship_m_pullup(struct mbuf *m,
                               int32_t len);

/** The first `len` bytes in one piece in a new mbuf, `dstoff` bytes from its start (m_copyup). Together at most 160. NULL: as tranship_m_pullup. */
struct mbuf *tranship_m_copyup(struct mbuf *m,
                               int32_t len,
                               int32_t dstoff);

/**
 * `len` bytes from `off` on in one piece, which may be written; at most 2048 (m_pulldown). Returns the mbuf in which they are, and in
 * `offset` where in it; `m` stays the first. NULL: there are not as many, no memory, or `offset` is NULL, and the chain is freed.
 */
struct mbuf *tranship_m_pulldown(struct mbuf *m,
                                 int32_t off,
                                 int32_t len,
                                 int32_t *offset);

/** Takes `count` bytes away from the front, or, less than 0, from the end; all, if there are not as many (m_adj). */
void tranship_m_adj(struct mbuf *m,
                    int32_t count);

/**
 * Cuts the bytes from `len` on off and returns them (m_split). Storage at the cut is shared. NULL: there are not as many, or no memory,
 * and the chain is as before.
 */
struct mbuf *tranship_m_split(struct mbuf *m,
                              int32_t len,
                              int32_t how);

/**
 * Puts the chain `n` behind `m`, whose packet length follows (m_catpkt; m_cat, too). 0, and `n` is not the caller's any more; or EINVAL, and both
 * chains are as before: one of them is NULL, or together they would be longer than INT_MAX bytes.
 */
int32_t tranship_m_catpkt(struct mbuf *m,
                          struct mbuf *n);

/** All bytes in as few mbufs as possible (m_defrag). NULL: there was no memory, and the chain is as before. */
struct mbuf *tranship_m_defrag(struct mbuf *m,
                               int32_t how);

/**
 * All bytes in at most `limit` mbufs, joining neighbours up to 2048 bytes (m_collapse). NULL: that cannot be, or there was no memory, and
 * the chain is as before.
 */
struct mbuf *tranship_m_collapse(struct mbuf *m,
                                 int32_t how,
                                 int32_t limit);

/**
 * Cuts a packet into mbufs of `length` bytes each, at most 2048, to test what reads packets (m_fragment): -1 is a random
 * length up to 255, -2 one for each mbuf. The chain as it was: it is no packet, `length` is 0 or below -2, or there was
 * no memory.
 */
struct mbuf *tranship_m_fragment(struct mbuf *m,
                                 int32_t how,
                                 int32_t length);

/**
 * All bytes in mbufs that may be written: those whose storage others have, too, are replaced by copies (m_unshare). NULL: there was no
 * memory, and the chain is freed.
 */
struct mbuf *tranship_m_unshare(struct mbuf *m,
                                int32_t how);

/**
 * Attaches memory of the program's own to an mbuf that has no data yet (m_extadd): `size` bytes from `buf` on, as its storage, of which
 * nothing is data until tranship_m_setlen. When nobody refers to it any more `free`, if it is not NULL, is called with both arguments.
 * With M_RDONLY in `flag_bits` it is never written. At most INT_MAX bytes. 0, or an error's number: nothing is attached, and nothing will be freed.
 */
int32_t tranship_m_extadd(struct mbuf *m,
                          void *buf,
                          uint32_t size,
                          tranship_ext_free free,
                          void *arg1,
                          void *arg2,
                          int32_t flag_bits);

/**
 * Attaches memory whose references the program counts in `ref_cnt` (m_extaddref), as tranship_m_extadd does. Each mbuf
 * that refers to it counts one more. The call or program that makes it 0 frees the memory: an mbuf by `free`. It may be
 * written where it is while `ref_cnt` is 1. 0, or an error's number: nothing is attached, nor counted.
 */
int32_t tranship_m_extaddref(struct mbuf *m,
                             void *buf,
                             uint32_t size,
                             uint32_t *ref_cnt,
                             tranship_ext_free free,
                             void *arg1,
                             void *arg2);

/** A tag with `len` zero bytes, in no list (m_tag_alloc; m_tag_get has cookie 0). NULL: there was no memory. */
struct m_tag *tranship_m_tag_alloc(uint32_t cookie,
                                   int32_t type,
                                   int32_t len,
                                   int32_t how);

/** Frees a tag that is in no list (m_tag_free). NULL is nothing. */
void tranship_m_tag_free(struct m_tag *t);

/** Returns the tag's bytes (which FreeBSD has behind the struct). */
void *tranship_m_tag_data(struct m_tag *t);

/** Returns the number of the tag's bytes (m_tag_len). */
int32_t tranship_m_tag_len(struct m_tag *t);

/** Returns the tag's number within its module (m_tag_id). */
int32_t tranship_m_tag_id(struct m_tag *t);

/** Returns the tag's module (m_tag_cookie). */
uint32_t tranship_m_tag_cookie(struct m_tag *t);

/**
 * Puts a tag in front of a packet's list, to which it belongs from here on (m_tag_prepend). A chain that is no packet
 * has no list: then the tag is freed.
 */
void tranship_m_tag_prepend(struct mbuf *m,
                            struct m_tag *t);

/** Takes a tag out of a packet's list: it is the caller's (m_tag_unlink). One that is not in it stays where it is. */
void tranship_m_tag_unlink(struct mbuf *m,
                           struct m_tag *t);

/** Takes a tag out of a packet's list and frees it (m_tag_delete). */
void tranship_m_tag_delete(struct mbuf *m, struct m_tag *t);

/** Frees all tags from `t` on; NULL: all (m_tag_delete_chain). */
void tranship_m_tag_delete_chain(struct mbuf *m, struct m_tag *t);

/** Frees all tags that do not stay with a packet from one layer to another: without 0x800 in their type (m_tag_delete_nonpersistent). */
void tranship_m_tag_delete_nonpersistent(struct mbuf *m);

/** The first tag of this kind behind `t`; NULL: in the whole list (m_tag_locate; m_tag_find has cookie 0). */
struct m_tag *tranship_m_tag_locate(struct mbuf *m,
                                    uint32_t cookie,
                                    int32_t type,
                                    struct m_tag *t);

/** The first tag (m_tag_first); with `t`, the one behind it (m_tag_next). */
struct m_tag *tranship_m_tag_next(struct mbuf *m, struct m_tag *t);

/** A copy, in no list (m_tag_copy). NULL: there was no memory. */
struct m_tag *tranship_m_tag_copy(struct m_tag *t, int32_t how);

/** Gives a packet copies of another's tags instead of its own (m_tag_copy_chain). 1, or 0: there was no memory, or one is no packet. */
int32_t tranship_m_tag_copy_chain(struct mbuf *to,
                                  struct mbuf *from,
                                  int32_t how);

/**
 * Copies the next `len` bytes of `uio` into a new chain, all of them if `len` is 0 or there are fewer (m_uiotombuf).
 * Data begins `space` bytes from the start of the first mbuf, below its 208 bytes, 160 with M_PKTHDR. NULL: there was
 * no memory, or `uio` has not as many; then `uio` is as before.
 */
struct mbuf *tranship_m_uiotombuf(const struct tranship_mbufs *from,
                                  struct uio *uio,
                                  int32_t how,
                                  int32_t len,
                                  int32_t space,
                                  int32_t flag_bits);

/**
 * Copies the first `len` bytes of a chain to the next bytes of `uio`, all of them if `len` is 0 or there are fewer
 * (m_mbuftouio). 0, or an error's number, and then `uio` is as before.
 */
int32_t tranship_m_mbuftouio(struct uio *uio,
                             const struct mbuf *m,
                             int32_t len);

/**
 * Makes a packet with copies of `len` bytes of a device, `off` bytes from the start of its first mbuf (m_devget). `rcvif`
 * is the interface in its header. `copy` copies them, piece by piece; NULL: they are ordinary memory. NULL: there was
 * no memory, or `off` is more than 160.
 */
struct mbuf *tranship_m_devget(const struct tranship_mbufs *from,
                               const void *buf,
                               int32_t len,
                               int32_t off,
                               uint32_t rcvif,
                               tranship_m_copy copy);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TRANSHIP_MBUFS_H */
