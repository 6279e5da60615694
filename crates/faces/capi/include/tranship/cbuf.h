/*
 * The names of "CBUFs: Efficient, System-Wide Memory Management and Sharing" (2016), over tranship.h.
 *
 *   paper                                    here
 *   ptr = cbuf_alloc(size, &cb)              ptr = cbuf_alloc(pool, size, &cb)
 *   cbuf_send(cb); invoke(cb)                cbuf_send(sender, &cb)              the message carries it
 *   ptr = cbuf2buf(cb, len)                  cbuf_recv(receiver, &cb); ptr = cbuf2buf(&cb, len)
 *   cbuf_free(cb)                            cbuf_free(&cb)
 *
 * Data and control apart: cbuf_send counts, and the id goes by the program's own IPC.
 *
 *   cbuf_send(cb); write(pipe, cb)           cbuf_send(sender, &cb); write(pipe, cbuf_id(&cb))
 *   read(pipe, cb); ptr = cbuf2buf(cb, len)  read(pipe, id); ptr = cbuf_id2buf(inbox, id, len, &cb)      (tranship_inbox_create)
 *
 * Two things differ, both because isolation is real here. What was sent is immutable, also for its sender. An id is good for a process that
 * was sent the buffer, and as often as it was sent.
 *
 * A cbuf that was sent is its sender's still, to read, until cbuf_free: its memory is reused when all have freed it. As in the paper, to
 * free one is never forgotten by a crash: a process's references go with it.
 */
#ifndef TRANSHIP_CBUF_H
#define TRANSHIP_CBUF_H

#include "../tranship.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One reference to a cbuf. */
typedef tranship_buf cbuf_t;

/** The system-wide number of a cbuf: pool, slot, generation. */
static inline uint64_t cbuf_id(const cbuf_t *cb)
{
    return tranship_buf_id(cb);
}

/** A new cbuf, and where its bytes are. Waits for memory, first come first served. NULL: it can never be had. */
static inline void *cbuf_alloc(const tranship_pool *pool, size_t size, cbuf_t *cb)
{
    return tranship_alloc(pool, size, TRANSHIP_FOREVER, cb, NULL) == TRANSHIP_OK ? cb->ptr : NULL;
}

/** The same without waiting. */
static inline void *cbuf_try_alloc(const tranship_pool *pool, size_t size, cbuf_t *cb)
{
    return tranship_alloc(pool, size, TRANSHIP_NOW, cb, NULL) == TRANSHIP_OK ? cb->ptr : NULL;
}

/** Lets a reference go. */
static inline void cbuf_free(cbuf_t *cb)
{
    tranship_release(cb);
}

/** One more reference, to be freed for itself. The cbuf is immutable from here on. */
static inline tranship_status cbuf_ref(cbuf_t *cb, cbuf_t *another)
{
    tranship_status status = TRANSHIP_OK;

    if (cb->kind == TRANSHIP_BUF_EXCLUSIVE)
        status = tranship_freeze(cb, NULL);
    return status != TRANSHIP_OK ? status : tranship_buf_clone(cb, another, NULL);
}

/** Sends a reference; `cb` keeps its own. Waits while the channel is full. */
static inline tranship_status cbuf_send(tranship_sender *to, cbuf_t *cb)
{
    cbuf_t sent;
    tranship_status status = cbuf_ref(cb, &sent);

    if (status == TRANSHIP_OK) {
        sent.word = cb->word;
        status = tranship_send(to, &sent, TRANSHIP_FOREVER, NULL);
        tranship_release(&sent); /* what was not sent */
    }
    return status;
}

/** Sends the reference itself: as cbuf_send and cbuf_free, and cheaper than both. */
static inline tranship_status cbuf_send_free(tranship_sender *to, cbuf_t *cb)
{
    tranship_status status = cb->kind == TRANSHIP_BUF_EXCLUSIVE ? tranship_freeze(cb, NULL) : TRANSHIP_OK;

    return status == TRANSHIP_OK ? tranship_send(to, cb, TRANSHIP_FOREVER, NULL) : status;
}

/** The next cbuf that was sent here, with a reference to it. */
static inline tranship_status cbuf_recv(tranship_receiver *from, cbuf_t *cb)
{
    return tranship_recv(from, TRANSHIP_FOREVER, cb, NULL);
}

/** Where the bytes of a received cbuf are, in its sender's own pages. NULL if there are not `len` of them, or `len` is 0. */
static inline const void *cbuf2buf(const cbuf_t *cb, size_t len)
{
    return len > 0 && len <= cb->len ? tranship_data(cb) : NULL;
}

/**
 * Where the bytes of a cbuf are whose id came by the program's own IPC, with a reference to it in `cb`. NULL: it was not sent to one of the
 * inbox's channels as often as it was taken, or there are not `len` of them, or `len` is 0; then `cb` holds nothing.
 */
static inline const void *cbuf_id2buf(const tranship_inbox *from, uint64_t id, size_t len, cbuf_t *cb)
{
    const void *bytes;

    if (tranship_inbox_take(from, id, cb, NULL) != TRANSHIP_OK)
        return NULL;
    bytes = cbuf2buf(cb, len);
    if (bytes == NULL)
        cbuf_free(cb);
    return bytes;
}

#ifdef __cplusplus
}
#endif

#endif /* TRANSHIP_CBUF_H */
