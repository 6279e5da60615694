/*
 * tranship: topics: one publisher's messages to any number of subscribers.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_topic(3) is the manual.
 */

#ifndef TRANSHIP_TOPIC_H
#define TRANSHIP_TOPIC_H

#include "../tranship.h"

typedef struct tranship_publisher tranship_publisher;
typedef struct tranship_subscriber tranship_subscriber;
typedef struct tranship_topic_options tranship_topic_options;
typedef struct tranship_subscriber_options tranship_subscriber_options;


/** As `when_behind`, and the default: a publish overwrites the oldest message. No subscriber is reliable. */
#define TRANSHIP_BEHIND_OVERWRITE 0

/** As `when_behind`: a publish drops the new message where a reliable subscriber is behind (tranship_publisher_dropped). */
#define TRANSHIP_BEHIND_DROP_NEW 1

/** As `when_behind`: a publish waits for `wait_ns`. Subscribers that are still behind are then no longer reliable. */
#define TRANSHIP_BEHIND_WAIT 2

/** In `flags` of tranship_topic_options: publishers of other domains may have the name too, if all of them say this. */
#define TRANSHIP_TOPIC_SHARED 1

/** In `flags` of tranship_subscriber_options: asks the publisher not to overwrite what this subscriber has still to take. */
#define TRANSHIP_SUBSCRIBER_RELIABLE 1

/** In `flags` of tranship_subscriber_options: receives the newest message only; those before it count as missed. */
#define TRANSHIP_SUBSCRIBER_LATEST 2

/** In `flags` of tranship_subscriber_options: receives no message from before it joins. */
#define TRANSHIP_SUBSCRIBER_NO_HISTORY 4

/** The writing end of a topic. One thread at a time. */
struct tranship_publisher;

/** The reading end of a topic. One thread at a time. What it received any thread may have. */
struct tranship_subscriber;

/** A topic to be published. Set `size` to `sizeof(struct tranship_topic_options)`; all else may be 0. */
struct tranship_topic_options {
    /** sizeof(struct tranship_topic_options) */
    size_t size;
    /** Messages in the ring: a power of two, 2 to 65,536. 0: 16. */
    uint32_t depth;
    /** Messages that a late subscriber gets, as far as the ring has them. */
    uint32_t history;
    /** Buffers that a subscriber may keep beside 12. 0: 64. */
    uint32_t keep;
    /** TRANSHIP_BEHIND_OVERWRITE, TRANSHIP_BEHIND_DROP_NEW, TRANSHIP_BEHIND_WAIT: what a publish does when a reliable subscriber is behind. */
    uint32_t when_behind;
    /** With TRANSHIP_BEHIND_WAIT: how long, in nanoseconds. */
    int64_t wait_ns;
    /** The most bytes of the topic's own pool: addresses, memory comes as it is needed. 0: 1 GiB. */
    uint64_t max_bytes;
    /** The most buffers of that pool. 0: 1024. */
    uint32_t slots;
    /** TRANSHIP_TOPIC_SHARED, or 0. */
    uint32_t flags;
    /** The type of the messages, as a text that both sides must have alike: NULL for bytes (see tranship_channel_options). */
    const char *message_type;
    /** The most pieces of an aggregate, up to 32. 0: 8. */
    uint32_t pieces;
    /** 0. */
    uint32_t reserved;
};

/** A subscription. Set `size` to `sizeof(struct tranship_subscriber_options)`; all else may be 0. */
struct tranship_subscriber_options {
    /** sizeof(struct tranship_subscriber_options) */
    size_t size;
    /** TRANSHIP_SUBSCRIBER_RELIABLE and others, or 0. */
    uint32_t flags;
    /** TRANSHIP_WAIT_SPIN_THEN_SLEEP, TRANSHIP_WAIT_SPIN, TRANSHIP_WAIT_SLEEP: how tranship_subscriber_recv waits. 0: the first. */
    uint32_t wait;
    /** How often it looks before it sleeps. 0: 500. */
    uint32_t spins;
    /** The most messages from before it joins. 0: as many as the topic gives. */
    uint32_t history;
    /** The type of the messages, as a text that both sides must have alike: NULL for bytes. */
    const char *message_type;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Publishes a topic: each message goes to all its subscribers. `options` may be NULL. TRANSHIP_ERR_NAME_TAKEN if a channel or another topic
 * has the name.
 *
 * Close it with tranship_publisher_close.
 */
tranship_status tranship_publish(const tranship_domain *domain,
                                 const char *name,
                                 const struct tranship_topic_options *options,
                                 struct tranship_publisher **out,
                                 tranship_error **error);

/** Ends the topic in order: subscribers take what the ring still has, and then get TRANSHIP_ERR_PEER_GONE. NULL is nothing. */
void tranship_publisher_close(struct tranship_publisher *publisher);

/**
 * A buffer of `len` bytes of the topic's own pool, in `buf`, which all subscribers can read, and which goes over this topic only. Where nothing is free
 * the oldest messages are withdrawn; then it waits for memory that subscribers hold, for `timeout_ns` as tranship_alloc does:
 * TRANSHIP_ERR_OUT_OF_MEMORY names the holders. `buf` need not be initialised. On failure it holds nothing.
 */
tranship_status tranship_publisher_alloc(struct tranship_publisher *publisher,
                                         size_t len,
                                         int64_t timeout_ns,
                                         tranship_buf *buf,
                                         tranship_error **error);

/**
 * Publishes the contents of `buf`, with the word `buf->word`: a buffer of tranship_publisher_alloc, an aggregate of such, or inline bytes. It is shared:
 * keep a handle by tranship_buf_clone if it is still needed. `buf` then holds nothing; on failure it is as before, but shared.
 * TRANSHIP_ERR_TOO_LARGE for an aggregate of more pieces than the topic's messages may have.
 *
 * Waits only for reliable subscribers, as `when_behind` says. A message that is dropped is no failure: tranship_publisher_dropped counts.
 */
tranship_status tranship_publisher_send(struct tranship_publisher *publisher,
                                        tranship_buf *buf,
                                        tranship_error **error);

/**
 * Publishes as tranship_publisher_send does, but waits for reliable subscribers for `timeout_ns`, whatever `when_behind`
 * says, and drops no message. TRANSHIP_ERR_TIMED_OUT, or TRANSHIP_ERR_FULL with TRANSHIP_NOW, names the subscriber that
 * is behind.
 */
tranship_status tranship_publisher_send_timeout(struct tranship_publisher *publisher,
                                                tranship_buf *buf,
                                                int64_t timeout_ns,
                                                tranship_error **error);

/** Publishes up to TRANSHIP_INLINE_BYTES bytes inside the message itself, with a word. */
tranship_status tranship_publisher_send_bytes(struct tranship_publisher *publisher,
                                              const void *data,
                                              size_t len,
                                              uint64_t word,
                                              tranship_error **error);

/**
 * Takes new subscribers in, and removes those that are gone. A publish does this from time to time; an idle publisher
 * calls this function. It does not block.
 */
tranship_status tranship_publisher_tend(struct tranship_publisher *publisher,
                                        tranship_error **error);

/** Waits until at least `subscribers` of them have joined, for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT. */
tranship_status tranship_publisher_wait_for(struct tranship_publisher *publisher,
                                            size_t subscribers,
                                            int64_t timeout_ns,
                                            tranship_error **error);

/** How many subscribers have joined and not left. 0 of NULL. */
size_t tranship_publisher_subscribers(const struct tranship_publisher *publisher);

/** How many messages were dropped because a reliable subscriber was behind. 0 of NULL. */
uint64_t tranship_publisher_dropped(const struct tranship_publisher *publisher);

/**
 * Subscribes to a topic, and returns at once: it joins while it receives. `options` may be NULL.
 *
 * Close it with tranship_subscriber_close.
 */
tranship_status tranship_subscribe(const tranship_domain *domain,
                                   const char *name,
                                   const struct tranship_subscriber_options *options,
                                   struct tranship_subscriber **out,
                                   tranship_error **error);

/** Closes it. What was received stays. NULL is nothing. */
void tranship_subscriber_close(struct tranship_subscriber *subscriber);

/**
 * The next message, in `out`, as of tranship_recv. Waits for a publisher and for its next message, for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT.
 * TRANSHIP_ERR_PEER_GONE when the publisher has ended the topic, TRANSHIP_ERR_PEER_DIED when it died, each once: the next call waits for another
 * publisher. TRANSHIP_ERR_CHANNEL_BIND when the publisher's messages have another type. TRANSHIP_ERR_LIMIT when this subscriber keeps as many buffers as it may; the message stays the next one.
 */
tranship_status tranship_subscriber_recv(struct tranship_subscriber *subscriber,
                                         int64_t timeout_ns,
                                         tranship_buf *out,
                                         tranship_error **error);

/** How many messages were overwritten before they were taken, or skipped by TRANSHIP_SUBSCRIBER_LATEST. 0 of NULL. */
uint64_t tranship_subscriber_missed(const struct tranship_subscriber *subscriber);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TRANSHIP_TOPIC_H */
