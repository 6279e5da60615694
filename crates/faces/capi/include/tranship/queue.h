/*
 * tranship: queues: many producers, many consumers, each item taken by exactly one.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_queue(3) is the manual.
 */

#ifndef TRANSHIP_QUEUE_H
#define TRANSHIP_QUEUE_H

#include "../tranship.h"

typedef struct tranship_producer tranship_producer;
typedef struct tranship_consumer tranship_consumer;
typedef struct tranship_item tranship_item;
typedef struct tranship_queue_options tranship_queue_options;
typedef struct tranship_consumer_options tranship_consumer_options;


/**
 * In `flags` of tranship_queue_options: an item whose consumer ended without acknowledging it is reported (tranship_producer_take_lost). Without this
 * it goes back to the queue.
 */
#define TRANSHIP_QUEUE_REPORT_LOST 1

/** In `flags` of tranship_queue_options: no other producer may have the name. All producers must say the same. */
#define TRANSHIP_QUEUE_EXCLUSIVE 2

/** In `flags` of tranship_consumer_options: items are done when they are received. */
#define TRANSHIP_CONSUMER_AUTO_ACK 1

/** A reading end of a queue. One thread at a time. */
struct tranship_consumer;

/** An item that a consumer has taken. Any thread may have it. */
struct tranship_item;

/** A writing end of a queue. One thread at a time. */
struct tranship_producer;

/** A producer's part of a queue. Set `size` to `sizeof(struct tranship_queue_options)`; all else may be 0. */
struct tranship_queue_options {
    /** sizeof(struct tranship_queue_options) */
    size_t size;
    /** Items of this producer that may wait: a power of two, 2 to 65,536. 0: 64. */
    uint32_t depth;
    /** Buffers that a consumer may keep beside 12. 0: 64. */
    uint32_t keep;
    /** TRANSHIP_QUEUE_REPORT_LOST, TRANSHIP_QUEUE_EXCLUSIVE, both, or 0. */
    uint32_t flags;
    /** The most buffers of the producer's own pool. 0: 1024. */
    uint32_t slots;
    /** The most bytes of that pool: addresses, memory comes as it is needed. 0: 1 GiB. */
    uint64_t max_bytes;
    /** The type of the items, as a text that both sides must have alike: NULL for bytes (see tranship_channel_options). */
    const char *message_type;
    /** The most pieces of an aggregate, up to 32. 0: 8. */
    uint32_t pieces;
    /** 0. */
    uint32_t reserved;
};

/** A consumer's part of a queue. Set `size` to `sizeof(struct tranship_consumer_options)`; all else may be 0. */
struct tranship_consumer_options {
    /** sizeof(struct tranship_consumer_options) */
    size_t size;
    /** TRANSHIP_CONSUMER_AUTO_ACK, or 0. */
    uint32_t flags;
    /** Items of one producer that may be taken and not acknowledged, 1 to 64. 0: the library's default. */
    uint32_t unacknowledged;
    /** TRANSHIP_WAIT_SPIN_THEN_SLEEP, TRANSHIP_WAIT_SPIN, TRANSHIP_WAIT_SLEEP: how it waits. 0: the first. */
    uint32_t wait;
    /** How often it looks before it sleeps. 0: 500. */
    uint32_t spins;
    /** The type of the items, as a text that both sides must have alike: NULL for bytes. */
    const char *message_type;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Joins a queue as a producer: each of its items goes to one consumer. `options` may be NULL.
 *
 * Close it with tranship_producer_close.
 */
tranship_status tranship_produce(const tranship_domain *domain,
                                 const char *name,
                                 const struct tranship_queue_options *options,
                                 struct tranship_producer **out,
                                 tranship_error **error);

/** Closes it. Items that wait go with it: tranship_producer_wait_done waits for them. NULL is nothing. */
void tranship_producer_close(struct tranship_producer *producer);

/**
 * A buffer of `len` bytes of the producer's own pool, in `buf`, which all consumers can read, and which goes over this queue only. Waits for memory that
 * items and consumers hold, for `timeout_ns`. `buf` need not be initialised. On failure it holds nothing.
 */
tranship_status tranship_producer_alloc(struct tranship_producer *producer,
                                        size_t len,
                                        int64_t timeout_ns,
                                        tranship_buf *buf,
                                        tranship_error **error);

/**
 * Puts the contents of `buf` into the queue, with the word `buf->word`: a buffer of tranship_producer_alloc, an aggregate of such, or inline bytes. It is shared, and `buf`
 * then holds nothing. Waits for room for `timeout_ns`: TRANSHIP_ERR_FULL, TRANSHIP_ERR_TIMED_OUT. On failure `buf` is as before, but shared.
 */
tranship_status tranship_producer_send(struct tranship_producer *producer,
                                       tranship_buf *buf,
                                       int64_t timeout_ns,
                                       tranship_error **error);

/** Puts up to TRANSHIP_INLINE_BYTES bytes into the queue, with a word. Waits as tranship_producer_send does. */
tranship_status tranship_producer_send_bytes(struct tranship_producer *producer,
                                             const void *data,
                                             size_t len,
                                             uint64_t word,
                                             int64_t timeout_ns,
                                             tranship_error **error);

/**
 * Takes new consumers in, and gives back what consumers that ended had not acknowledged. A send does so now and then; a producer that is idle calls this.
 * It does not block.
 */
tranship_status tranship_producer_tend(struct tranship_producer *producer,
                                       tranship_error **error);

/** Waits until at least `consumers` of them have joined, for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT. */
tranship_status tranship_producer_wait_for(struct tranship_producer *producer,
                                           size_t consumers,
                                           int64_t timeout_ns,
                                           tranship_error **error);

/** Waits until all items are taken, and acknowledged, lost or rejected, for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT. */
tranship_status tranship_producer_wait_done(struct tranship_producer *producer,
                                            int64_t timeout_ns,
                                            tranship_error **error);

/**
 * An item that was lost with its consumer (TRANSHIP_QUEUE_REPORT_LOST) or rejected, in `out`; kind TRANSHIP_BUF_NONE if there is none. `consumer_pid`, if it is
 * not NULL, is the consumer's process, or 0.
 */
tranship_status tranship_producer_take_lost(struct tranship_producer *producer,
                                            tranship_buf *out,
                                            uint32_t *consumer_pid,
                                            tranship_error **error);

/**
 * Joins a queue as a consumer, and returns at once: it joins while it receives. `options` may be NULL.
 *
 * Close it with tranship_consumer_close.
 */
tranship_status tranship_consume(const tranship_domain *domain,
                                 const char *name,
                                 const struct tranship_consumer_options *options,
                                 struct tranship_consumer **out,
                                 tranship_error **error);

/** Closes it. Items that were not acknowledged go back to the queue; what was received stays. NULL is nothing. */
void tranship_consumer_close(struct tranship_consumer *consumer);

/**
 * The next item: what was sent, in `out` as of tranship_recv, and the item itself, in `*item`. Waits for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT.
 * End the item with tranship_item_ack, tranship_item_requeue or tranship_item_reject, and `out` with tranship_release, in any order.
 *
 * `out` need not be initialised. On failure it holds nothing, and `*item` is NULL.
 */
tranship_status tranship_consumer_recv(struct tranship_consumer *consumer,
                                       int64_t timeout_ns,
                                       tranship_buf *out,
                                       struct tranship_item **item,
                                       tranship_error **error);

/** 1 if the item was taken before, by a consumer that gave it back or died, else 0. */
int32_t tranship_item_redelivered(const struct tranship_item *item);

/**
 * Acknowledges an item: it is done, and no other consumer gets it. The item is closed. TRANSHIP_ERR_PEER_GONE: its producer had ended, or ended this
 * connection, before.
 */
tranship_status tranship_item_ack(struct tranship_item *item,
                                  tranship_error **error);

/** Gives an item back to its queue, where another consumer may take it. NULL is nothing. */
void tranship_item_requeue(struct tranship_item *item);

/** Rejects an item: its producer gets it from tranship_producer_take_lost. NULL is nothing. */
void tranship_item_reject(struct tranship_item *item);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TRANSHIP_QUEUE_H */
