/*
 * The names of Barrelfish's bulk transfer ("Bulk Transfer over Shared Memory", 2014), over tranship.h.
 *
 *   report                                         here
 *   bulk_channel_create(ch, endpoint, ...)         bulk_channel_create(&ch, domain, name, direction)
 *   bulk_channel_bind(ch, endpoint, ...)           bulk_channel_bind(&ch, domain, name, direction)
 *   bulk_channel_assign_pool(ch, pool, cont)       bulk_channel_assign_pool(&ch, pool)
 *   bulk_channel_move(ch, buffer, meta, cont)      bulk_channel_move(&ch, &buffer, word)      ownership goes along
 *   bulk_channel_pass(ch, buffer, meta, cont)      bulk_channel_pass(&ch, &buffer, word)      and comes back
 *   bulk_channel_copy(ch, buffer, meta, cont)      bulk_channel_copy(&ch, &buffer, word)      both read it
 *   bulk_channel_release(ch, buffer, meta, cont)   bulk_channel_release(&ch, &buffer)
 *   callbacks                                      bulk_channel_wait(&ch, timeout, &event)
 *
 * Levels of trust are those of pools (tranship_pool_options.trust): `full`, `half`, `producer` (which the report lacks), `none`. There are no
 * continuations: what a call says is so when it returns. A buffer that was copied is read-only, as in the report, and stays so: released by all,
 * it is the pool's again, which gives its memory out under a new name. So nobody who has the old one can see what is written next.
 */
#ifndef TRANSHIP_BULK_H
#define TRANSHIP_BULK_H

#include "../tranship.h"

#ifdef __cplusplus
extern "C" {
#endif

enum bulk_direction {
    BULK_DIRECTION_TX = TRANSHIP_SENDER,
    BULK_DIRECTION_RX = TRANSHIP_RECEIVER
};

/** One end of a channel. Begin with all zeros. One thread at a time. */
struct bulk_channel {
    tranship_listener *listener;
    tranship_sender *tx;
    tranship_receiver *rx;
    enum bulk_direction direction;
};

typedef tranship_buf bulk_buffer;

enum bulk_event_kind {
    /** RX: a buffer is this domain's from here on. */
    BULK_EVENT_MOVE_RECEIVED,
    /** RX: a copy, to be read and released. */
    BULK_EVENT_COPY_RECEIVED,
    /** TX: a buffer came back. */
    BULK_EVENT_BUFFER_RECEIVED,
    /** TX: a copy was released by bulk_channel_release_with; tranship_buf_id says which. */
    BULK_EVENT_COPY_RELEASED
};

struct bulk_event {
    enum bulk_event_kind kind;
    bulk_buffer buffer;
    uint64_t word;
};

/** Makes an endpoint that others bind to. It is bound by bulk_channel_accept. */
static inline tranship_status bulk_channel_create(struct bulk_channel *channel, tranship_domain *domain, const char *name,
                                                  enum bulk_direction direction)
{
    channel->direction = direction;
    channel->tx = NULL;
    channel->rx = NULL;
    return tranship_listen(domain, name, (uint32_t)direction, NULL, &channel->listener, NULL);
}

/** Waits until somebody has bound to a created endpoint. */
static inline tranship_status bulk_channel_accept(struct bulk_channel *channel, int64_t timeout_ns)
{
    if (channel->direction == BULK_DIRECTION_TX)
        return tranship_accept_sender(channel->listener, timeout_ns, &channel->tx, NULL);
    return tranship_accept_receiver(channel->listener, timeout_ns, &channel->rx, NULL);
}

/** Binds to an endpoint that another domain has created with the other direction, waiting for it. */
static inline tranship_status bulk_channel_bind(struct bulk_channel *channel, tranship_domain *domain, const char *name,
                                                enum bulk_direction direction)
{
    channel->direction = direction;
    channel->listener = NULL;
    channel->tx = NULL;
    channel->rx = NULL;
    if (direction == BULK_DIRECTION_TX)
        return tranship_open_sender(domain, name, NULL, TRANSHIP_FOREVER, &channel->tx, NULL);
    return tranship_open_receiver(domain, name, NULL, TRANSHIP_FOREVER, &channel->rx, NULL);
}

/** Closes the channel, in order. */
static inline void bulk_channel_destroy(struct bulk_channel *channel)
{
    tranship_sender_close(channel->tx);
    tranship_receiver_close(channel->rx);
    tranship_listener_close(channel->listener);
    channel->tx = NULL;
    channel->rx = NULL;
    channel->listener = NULL;
}

/** TX: the other end may veto. */
static inline tranship_status bulk_channel_assign_pool(struct bulk_channel *channel, tranship_pool *pool)
{
    return channel->tx ? tranship_assign(channel->tx, pool, TRANSHIP_FOREVER, NULL) : TRANSHIP_ERR_CHANNEL_DIRECTION;
}

/** TX: gives the buffer away. It is the receiver's, to write where the pool's level of trust lets it. */
static inline tranship_status bulk_channel_move(struct bulk_channel *channel, bulk_buffer *buffer, uint64_t word)
{
    if (!channel->tx)
        return TRANSHIP_ERR_CHANNEL_DIRECTION;
    buffer->word = word;
    return tranship_send(channel->tx, buffer, TRANSHIP_FOREVER, NULL);
}

/** TX: shows the buffer. Both ends read it; no byte is copied. */
static inline tranship_status bulk_channel_copy(struct bulk_channel *channel, bulk_buffer *buffer, uint64_t word)
{
    bulk_buffer shown;
    tranship_status status = TRANSHIP_OK;

    if (!channel->tx)
        return TRANSHIP_ERR_CHANNEL_DIRECTION;
    if (buffer->kind == TRANSHIP_BUF_EXCLUSIVE)
        status = tranship_freeze(buffer, NULL);
    if (status == TRANSHIP_OK)
        status = tranship_buf_clone(buffer, &shown, NULL);
    if (status == TRANSHIP_OK) {
        shown.word = word;
        status = tranship_send(channel->tx, &shown, TRANSHIP_FOREVER, NULL);
        tranship_release(&shown); /* what was not sent */
    }
    return status;
}

/** RX: hands a moved buffer back to the end that it came from. */
static inline tranship_status bulk_channel_pass(struct bulk_channel *channel, bulk_buffer *buffer, uint64_t word)
{
    if (!channel->rx)
        return TRANSHIP_ERR_CHANNEL_DIRECTION;
    buffer->word = word;
    return tranship_send_back(channel->rx, buffer, TRANSHIP_NOW, NULL);
}

/** RX: is through with what came as a copy: a buffer, and also what tranship_send can send besides (pieces, inline bytes). */
static inline tranship_status bulk_channel_release(struct bulk_channel *channel, bulk_buffer *buffer)
{
    if (!channel->rx)
        return TRANSHIP_ERR_CHANNEL_DIRECTION;
    if (buffer->kind == TRANSHIP_BUF_EXCLUSIVE || buffer->kind == TRANSHIP_BUF_NONE)
        return TRANSHIP_ERR_BUFFER_NOT_A_COPY;
    tranship_release(buffer);
    return TRANSHIP_OK;
}

/** RX: the same, and the other end gets the word: BULK_EVENT_COPY_RELEASED. */
static inline tranship_status bulk_channel_release_with(struct bulk_channel *channel, bulk_buffer *buffer, uint64_t word)
{
    if (!channel->rx)
        return TRANSHIP_ERR_CHANNEL_DIRECTION;
    if (buffer->kind == TRANSHIP_BUF_EXCLUSIVE || buffer->kind == TRANSHIP_BUF_NONE)
        return TRANSHIP_ERR_BUFFER_NOT_A_COPY;
    buffer->word = word;
    return tranship_send_back_released(channel->rx, buffer, TRANSHIP_NOW, NULL);
}

/**
 * What the other end did, for which it waits for `timeout_ns`: RX a buffer, TX one, or word of one, that has come back. TRANSHIP_ERR_TIMED_OUT if there is
 * nothing.
 */
static inline tranship_status bulk_channel_wait(struct bulk_channel *channel, int64_t timeout_ns, struct bulk_event *event)
{
    tranship_status status = channel->rx ? tranship_recv(channel->rx, timeout_ns, &event->buffer, NULL)
                                         : tranship_recv_back(channel->tx, timeout_ns, &event->buffer, NULL);

    event->word = event->buffer.word;
    if (channel->rx)
        event->kind =
            event->buffer.kind == TRANSHIP_BUF_EXCLUSIVE ? BULK_EVENT_MOVE_RECEIVED : BULK_EVENT_COPY_RECEIVED;
    else
        event->kind =
            event->buffer.kind == TRANSHIP_BUF_RELEASED ? BULK_EVENT_COPY_RELEASED : BULK_EVENT_BUFFER_RECEIVED;
    return status;
}

#ifdef __cplusplus
}
#endif

#endif /* TRANSHIP_BULK_H */
