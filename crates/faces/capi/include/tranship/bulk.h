/*
 * The names of Barrelfish's bulk transfer ("Bulk Transfer over Shared Memory", 2014), over tranship.h.
 *
 * A bulk channel is two channels of tranship.h, one in each direction. So either end can be the master, which provides the buffers, at every
 * address. In receive-master mode the receiver assigns its pool and passes empty buffers. The sender fills them and moves them back.
 *
 *   report                                         here
 *   bulk_sm_ep_create, bulk_sm_ep_create_remote    the same, with a domain and a name (or an address, as of tranship_listen)
 *   bulk_channel_create, bulk_channel_bind         the same; bulk_channel_accept completes a created channel
 *   callbacks, waitset                             bulk_channel_wait(&ch, timeout, &event); the callbacks `veto`, `on_state`
 *   continuations                                  `cont`, NULL for none; bulk_channel_wait and bulk_channel_flush call it
 *
 * The levels of trust are those of tranship_pool_options.trust, one more than in the report: `producer`. Empty buffers can be filled by the
 * other end at `half` and `full`, and where bytes are copied or carried. A buffer that was sent once is read-only at its pool's domain for good:
 * released by all, its memory is given out under a new id. So no domain with the old id sees the new bytes.
 *
 * Assigning a pool allows the other end to send that pool's buffers on. On a bulk channel, inline bytes belong to this file.
 */
#ifndef TRANSHIP_BULK_H
#define TRANSHIP_BULK_H

#include <stdio.h>
#include <string.h>

#include "../tranship.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The most bytes of metadata with an operation. More than 7 bytes take a line of their own. */
#define BULK_META_MAX TRANSHIP_INLINE_BYTES
/** The most pools of a channel. */
#define BULK_POOLS_MAX 16
/** The longest name of an endpoint, with its final zero. */
#define BULK_NAME_MAX 240
/** Time between two attempts to send an answer that waits for room, ns. */
#define BULK_AGAIN_NS 1000000

enum bulk_channel_direction {
    BULK_DIRECTION_TX = TRANSHIP_SENDER,
    BULK_DIRECTION_RX = TRANSHIP_RECEIVER
};

/** GENERIC is for bulk_channel_create alone: the binding end decides. */
enum bulk_channel_role {
    BULK_ROLE_GENERIC,
    BULK_ROLE_MASTER,
    BULK_ROLE_SLAVE
};

/** UNINITIALIZED leaves the level to the other end, or to the pools. */
enum bulk_trust_level {
    BULK_TRUST_UNINITIALIZED,
    BULK_TRUST_NONE = TRANSHIP_TRUST_NONE,
    BULK_TRUST_PRODUCER = TRANSHIP_TRUST_PRODUCER,
    BULK_TRUST_HALF = TRANSHIP_TRUST_HALF,
    BULK_TRUST_FULL = TRANSHIP_TRUST_FULL
};

enum bulk_channel_state {
    BULK_STATE_UNINITIALIZED,
    /** Created, and not bound. */
    BULK_STATE_INITIALIZED,
    /** The binding end waits for an answer. */
    BULK_STATE_BINDING,
    /** The end looks at the properties that the other end asks for. */
    BULK_STATE_BIND_NEGOTIATE,
    BULK_STATE_CONNECTED,
    /** This end closes the channel, or the other end is gone: what it sent can still be received. */
    BULK_STATE_TEARDOWN,
    BULK_STATE_CLOSED
};

enum bulk_buffer_state {
    BULK_BUFFER_INVALID,
    /** A copy. */
    BULK_BUFFER_READ_ONLY,
    /** Owned, and read-only: it was copied, or its pool's level lets this domain not write. */
    BULK_BUFFER_RO_OWNED,
    BULK_BUFFER_READ_WRITE
};

/** Limits on the pools of a channel, and those of a pool. 0: none. */
struct bulk_pool_constraints {
    /** Addresses of the pool in its own domain lie below this one. */
    uint64_t mem_range_max;
    /** Alignment of each buffer, bytes. */
    uint64_t mem_align;
    /** Of a new pool: its level. */
    enum bulk_trust_level trust;
};

/** A pool of this domain, or what is known here of another domain's. */
struct bulk_pool {
    uint32_t id;
    enum bulk_trust_level trust;
    uint32_t num_buffers;
    uint64_t buffer_size;
    struct bulk_pool_constraints constraints;
    /** NULL: another domain's. */
    tranship_pool *own;
    struct bulk_pool *next;
};

/** A domain, and the pools that are present in it. Begin with `{domain, NULL}`. One thread at a time. */
struct bulk_domain {
    tranship_domain *domain;
    struct bulk_pool *pools;
};

struct bulk_channel;

/** A buffer. Begin with all zeros. Its bytes are at tranship_data(&buffer.buf). */
struct bulk_buffer {
    tranship_buf buf;
    enum bulk_buffer_state state;
    /** Pool, if it is one of the channel's; 0: a copied or carried buffer of this domain's. */
    uint32_t pool;
    /** Times that it was copied from here. */
    uint32_t local_ref_count;
    /** Channel by which it came. */
    const struct bulk_channel *via;
};

/** Is called once, when the other end has taken the message, has answered, or is gone. Stays where it is until then. */
struct bulk_continuation {
    void (*handler)(void *arg, tranship_status status, struct bulk_channel *channel);
    void *arg;
    /** This file's. */
    uint64_t at;
    struct bulk_continuation *next;
};

struct bulk_endpoint_descriptor {
    struct bulk_domain *domain;
    /** NULL: another domain's endpoint. */
    tranship_listener *listener;
    /** Channels that were created here. */
    uint64_t channels;
    char name[BULK_NAME_MAX];
};

/** What an end asks for. The other end must ask for the same, or for nothing: constraints add up, roles and directions are opposite. */
struct bulk_channel_setup {
    enum bulk_channel_direction direction;
    enum bulk_channel_role role;
    enum bulk_trust_level trust;
    /** Bytes of metadata, at most BULK_META_MAX. */
    uint32_t meta_size;
    struct bulk_pool_constraints constraints;
    /** For both of its channels; may be NULL. Level `none` needs `snapshots`. */
    const tranship_channel_options *options;
    /** Looks at a pool that the other end assigns; any status but TRANSHIP_OK is a veto. May be NULL. */
    tranship_status (*veto)(void *user_state, const struct bulk_pool *pool);
    /** Learns of each state that the channel enters. Must not use the channel. May be NULL. */
    void (*on_state)(void *user_state, enum bulk_channel_state state);
    void *user_state;
};

struct bulk_assigned {
    struct bulk_pool pool;
    /** Whether the other end has still to answer. */
    uint32_t asked;
    struct bulk_continuation *cont;
};

/** One end of a channel. Begin with all zeros, and leave it where it is. One thread at a time. */
struct bulk_channel {
    struct bulk_endpoint_descriptor *ep;
    tranship_sender *out;
    tranship_receiver *in;
    enum bulk_channel_state state;
    /** What was asked for, and from CONNECTED on what both ends agreed to. */
    struct bulk_channel_setup setup;
    uint32_t num_pools;
    struct bulk_assigned pools[BULK_POOLS_MAX];
    uint64_t sent;
    struct bulk_continuation *first, *last;
    unsigned char meta[BULK_META_MAX];
    /** Answers to assignments, which wait for room on the way out. */
    uint32_t num_answers;
    unsigned char answers[BULK_POOLS_MAX][16];
};

enum bulk_event_kind {
    /** RX: a buffer is this domain's from here on. */
    BULK_EVENT_MOVE_RECEIVED,
    /** RX: a copy, to be read and released. */
    BULK_EVENT_COPY_RECEIVED,
    /** TX: a buffer was passed here: an empty one, or one that came back. */
    BULK_EVENT_BUFFER_RECEIVED,
    /** TX: the other end released a copy of `buffer_id`. */
    BULK_EVENT_COPY_RELEASED,
    /** The channel has `pool`: assigned by the other end, or by this one, and agreed to. */
    BULK_EVENT_POOL_ASSIGNED,
    /** The other end vetoed `pool`, for the reason `status`. */
    BULK_EVENT_POOL_REFUSED,
    /** The other end removed `pool` from the channel. */
    BULK_EVENT_POOL_REMOVED
};

struct bulk_event {
    enum bulk_event_kind kind;
    struct bulk_buffer buffer;
    uint64_t buffer_id;
    struct bulk_pool pool;
    tranship_status status;
    /** The first `meta_size` bytes of the channel's. */
    unsigned char meta[BULK_META_MAX];
};

/* The lowest byte of a message's word. The other seven are metadata. */
enum bulk_op {
    BULK_OP_NONE,
    BULK_OP_MOVE,
    BULK_OP_COPY,
    BULK_OP_PASS,
    BULK_OP_RELEASED,
    BULK_OP_META,
    BULK_OP_HELLO,
    BULK_OP_ASSIGN,
    BULK_OP_ANSWER,
    BULK_OP_REMOVE
};

static inline void bulk_put(unsigned char *bytes, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
}

static inline uint64_t bulk_get(const unsigned char *bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static inline uint32_t bulk_pool_of(uint64_t buffer_id)
{
    return (uint32_t)(buffer_id >> 44);
}

/* --- the pools of a domain --- */

/** Enters a pool into its domain's list, which has each pool once. The struct stays where it is. */
static inline tranship_status bulk_pool_domain_list_insert(struct bulk_domain *domain, struct bulk_pool *pool)
{
    struct bulk_pool **at = &domain->pools;

    while (*at != NULL && (*at)->id < pool->id)
        at = &(*at)->next;
    if (*at != NULL && (*at)->id == pool->id)
        return TRANSHIP_ERR_BAD_ARGUMENT;
    pool->next = *at;
    *at = pool;
    return TRANSHIP_OK;
}

/** Returns the pool with this id; NULL if it is not present in the domain. */
static inline struct bulk_pool *bulk_pool_domain_list_get(const struct bulk_domain *domain, uint32_t id)
{
    struct bulk_pool *pool = domain->pools;

    while (pool != NULL && pool->id != id)
        pool = pool->next;
    return pool;
}

static inline void bulk_pool_domain_list_remove(struct bulk_domain *domain, uint32_t id)
{
    for (struct bulk_pool **at = &domain->pools; *at != NULL; at = &(*at)->next) {
        if ((*at)->id == id) {
            *at = (*at)->next;
            return;
        }
    }
}

struct bulk_allocator {
    struct bulk_domain *domain;
    struct bulk_pool pool;
};

/** Makes a pool of `count` buffers of `size` bytes, in its domain's list. `constraints` may be NULL. */
static inline tranship_status bulk_alloc_init(struct bulk_allocator *alloc, struct bulk_domain *domain, uint32_t count, uint64_t size,
                                              const struct bulk_pool_constraints *constraints)
{
    tranship_pool_options options;
    tranship_status status;
    uint64_t unit = 4096;

    memset(alloc, 0, sizeof *alloc);
    memset(&options, 0, sizeof options);
    alloc->domain = domain;
    if (constraints != NULL)
        alloc->pool.constraints = *constraints;
    if (alloc->pool.constraints.trust == BULK_TRUST_UNINITIALIZED)
        alloc->pool.constraints.trust = BULK_TRUST_PRODUCER;
    if (alloc->pool.constraints.mem_align > unit)
        unit = alloc->pool.constraints.mem_align;
    if (count == 0 || size == 0 || size > UINT64_MAX / 4 - unit || (size + unit) * 2 > UINT64_MAX / 2 / count)
        return TRANSHIP_ERR_BAD_ARGUMENT;
    options.size = sizeof options;
    options.slots = count;
    options.trust = (uint32_t)alloc->pool.constraints.trust;
    options.align_bytes = alloc->pool.constraints.mem_align;
    options.below = alloc->pool.constraints.mem_range_max;
    /* Addresses, of which memory takes what is used. */
    status = tranship_pool_create(domain->domain, (size + unit) * 2 * count + (1 << 20), &options, &alloc->pool.own, NULL);
    if (status != TRANSHIP_OK)
        return status;
    alloc->pool.id = tranship_pool_id(alloc->pool.own);
    alloc->pool.trust = alloc->pool.constraints.trust;
    alloc->pool.num_buffers = count;
    alloc->pool.buffer_size = size;
    return bulk_pool_domain_list_insert(domain, &alloc->pool);
}

/** Gives the pool up. It stays until no domain holds a buffer of it. */
static inline void bulk_alloc_destroy(struct bulk_allocator *alloc)
{
    if (alloc->pool.own == NULL)
        return;
    bulk_pool_domain_list_remove(alloc->domain, alloc->pool.id);
    tranship_pool_close(alloc->pool.own);
    alloc->pool.own = NULL;
}

/** Takes a free buffer; TRANSHIP_ERR_OUT_OF_MEMORY if all are in use. */
static inline tranship_status bulk_alloc_new_buffer(struct bulk_allocator *alloc, struct bulk_buffer *buffer)
{
    tranship_status status;

    memset(buffer, 0, sizeof *buffer);
    status = tranship_alloc(alloc->pool.own, (size_t)alloc->pool.buffer_size, TRANSHIP_NOW, &buffer->buf, NULL);
    if (status == TRANSHIP_OK) {
        buffer->state = BULK_BUFFER_READ_WRITE;
        buffer->pool = alloc->pool.id;
    }
    return status;
}

/** Returns whether the buffer is this domain's. */
static inline int bulk_buffer_is_owned(const struct bulk_buffer *buffer)
{
    return buffer->state == BULK_BUFFER_READ_WRITE || buffer->state == BULK_BUFFER_RO_OWNED;
}

/** Returns whether the buffer came here as a copy. */
static inline int bulk_buffer_is_copy(const struct bulk_buffer *buffer)
{
    return buffer->state == BULK_BUFFER_READ_ONLY;
}

/** Returns an owned buffer to its pool. */
static inline tranship_status bulk_alloc_return_buffer(struct bulk_allocator *alloc, struct bulk_buffer *buffer)
{
    if (!bulk_buffer_is_owned(buffer) || bulk_pool_of(tranship_buf_id(&buffer->buf)) != alloc->pool.id)
        return TRANSHIP_ERR_BUFFER_NOT_OWNED;
    tranship_release(&buffer->buf);
    memset(buffer, 0, sizeof *buffer);
    return TRANSHIP_OK;
}

/**
 * Changes the state of a buffer in this domain: READ_WRITE to RO_OWNED; back, if no domain was sent it; any to INVALID, which lets go of it. Any
 * other change is TRANSHIP_ERR_BUFFER_STATE.
 */
static inline tranship_status bulk_buffer_change_state(struct bulk_buffer *buffer, enum bulk_buffer_state state)
{
    tranship_status status = TRANSHIP_ERR_BUFFER_STATE;

    if (state == buffer->state)
        return TRANSHIP_OK;
    if (state == BULK_BUFFER_INVALID) {
        tranship_release(&buffer->buf);
        memset(buffer, 0, sizeof *buffer);
        return TRANSHIP_OK;
    }
    if (state == BULK_BUFFER_RO_OWNED && buffer->state == BULK_BUFFER_READ_WRITE)
        status = tranship_freeze(&buffer->buf, NULL);
    if (state == BULK_BUFFER_READ_WRITE && buffer->state == BULK_BUFFER_RO_OWNED)
        status = tranship_unfreeze(&buffer->buf, NULL);
    if (status == TRANSHIP_OK)
        buffer->state = state;
    return status;
}

/* --- endpoints, create and bind --- */

static inline tranship_status bulk_name(struct bulk_endpoint_descriptor *ep, struct bulk_domain *domain, const char *name)
{
    memset(ep, 0, sizeof *ep);
    ep->domain = domain;
    if (strlen(name) >= BULK_NAME_MAX)
        return TRANSHIP_ERR_TOO_LONG;
    strcpy(ep->name, name);
    return TRANSHIP_OK;
}

/** Exports an endpoint under a name, for bulk_channel_create. Many channels can be created at it. `domain` stays where it is. */
static inline tranship_status bulk_sm_ep_create(struct bulk_endpoint_descriptor *ep, struct bulk_domain *domain, const char *name)
{
    tranship_status status = bulk_name(ep, domain, name);

    return status != TRANSHIP_OK ? status : tranship_listen(domain->domain, name, TRANSHIP_RECEIVER, NULL, &ep->listener, NULL);
}

/** Names an endpoint of another domain, for bulk_channel_bind. */
static inline tranship_status bulk_sm_ep_create_remote(struct bulk_endpoint_descriptor *ep, struct bulk_domain *domain, const char *name)
{
    return bulk_name(ep, domain, name);
}

/** Withdraws the endpoint's name. Channels go on. */
static inline void bulk_sm_ep_destroy(struct bulk_endpoint_descriptor *ep)
{
    tranship_listener_close(ep->listener);
    ep->listener = NULL;
}

static inline void bulk_enter(struct bulk_channel *channel, enum bulk_channel_state state)
{
    if (channel->state == state)
        return;
    channel->state = state;
    if (channel->setup.on_state != NULL)
        channel->setup.on_state(channel->setup.user_state, state);
}

static inline tranship_status bulk_begin(struct bulk_channel *channel, struct bulk_endpoint_descriptor *ep, const struct bulk_channel_setup *setup)
{
    if (channel->state != BULK_STATE_UNINITIALIZED && channel->state != BULK_STATE_CLOSED)
        return TRANSHIP_ERR_CHANNEL_STATE;
    if (setup->meta_size > BULK_META_MAX || (setup->direction != BULK_DIRECTION_TX && setup->direction != BULK_DIRECTION_RX))
        return TRANSHIP_ERR_BAD_ARGUMENT;
    memset(channel, 0, sizeof *channel);
    channel->ep = ep;
    channel->setup = *setup;
    return TRANSHIP_OK;
}

/** Closes the channel, in order. Continuations that wait are called with TRANSHIP_ERR_PEER_GONE. */
static inline void bulk_channel_destroy(struct bulk_channel *channel);

/* The properties of an end, 40 bytes of which a hello and its answer consist. */
static inline void bulk_say(const struct bulk_channel *channel, tranship_status status, unsigned char *bytes)
{
    const struct bulk_channel_setup *setup = &channel->setup;

    bulk_put(bytes, (uint64_t)setup->direction | (uint64_t)setup->role << 8 | (uint64_t)setup->trust << 16 | (uint64_t)setup->meta_size << 24);
    bulk_put(bytes + 8, setup->constraints.mem_align);
    bulk_put(bytes + 16, setup->constraints.mem_range_max);
    bulk_put(bytes + 24, (uint64_t)status);
    bulk_put(bytes + 32, channel->ep->channels);
}

static inline tranship_status bulk_hear(const tranship_buf *said, struct bulk_channel_setup *theirs)
{
    const unsigned char *bytes = (const unsigned char *)said->words;
    uint64_t first;

    if (said->kind != TRANSHIP_BUF_INLINE || said->len != 40 || said->word != BULK_OP_HELLO)
        return TRANSHIP_ERR_PEER_VIOLATION;
    memset(theirs, 0, sizeof *theirs);
    first = bulk_get(bytes);
    theirs->direction = (enum bulk_channel_direction)(first & 0xff);
    theirs->role = (enum bulk_channel_role)(first >> 8 & 0xff);
    theirs->trust = (enum bulk_trust_level)(first >> 16 & 0xff);
    theirs->meta_size = (uint32_t)(first >> 24 & 0xff);
    theirs->constraints.mem_align = bulk_get(bytes + 8);
    theirs->constraints.mem_range_max = bulk_get(bytes + 16);
    return theirs->meta_size > BULK_META_MAX ? TRANSHIP_ERR_PEER_VIOLATION : TRANSHIP_OK;
}

/* Makes what this end asks for what both agree to. */
static inline tranship_status bulk_negotiate(struct bulk_channel_setup *ours, const struct bulk_channel_setup *theirs)
{
    int is_master = theirs->role == BULK_ROLE_MASTER;

    if ((!is_master && theirs->role != BULK_ROLE_SLAVE) || ours->role == theirs->role || (int)ours->direction + (int)theirs->direction != 3)
        return TRANSHIP_ERR_CHANNEL_BIND;
    if (ours->trust != theirs->trust && ours->trust != BULK_TRUST_UNINITIALIZED && theirs->trust != BULK_TRUST_UNINITIALIZED)
        return TRANSHIP_ERR_CHANNEL_BIND;
    if (ours->meta_size != theirs->meta_size && ours->meta_size != 0 && theirs->meta_size != 0)
        return TRANSHIP_ERR_CHANNEL_BIND;
    ours->role = is_master ? BULK_ROLE_SLAVE : BULK_ROLE_MASTER;
    if (ours->trust == BULK_TRUST_UNINITIALIZED)
        ours->trust = theirs->trust;
    if (ours->meta_size == 0)
        ours->meta_size = theirs->meta_size;
    if (ours->constraints.mem_align < theirs->constraints.mem_align)
        ours->constraints.mem_align = theirs->constraints.mem_align;
    if (ours->constraints.mem_range_max == 0 ||
        (theirs->constraints.mem_range_max != 0 && theirs->constraints.mem_range_max < ours->constraints.mem_range_max))
        ours->constraints.mem_range_max = theirs->constraints.mem_range_max;
    return TRANSHIP_OK;
}

/** Creates a channel at an exported endpoint, which stays where it is. bulk_channel_accept makes it CONNECTED. */
static inline tranship_status bulk_channel_create(struct bulk_channel *channel, struct bulk_endpoint_descriptor *ep,
                                                  const struct bulk_channel_setup *setup)
{
    tranship_status status = ep->listener == NULL ? TRANSHIP_ERR_INVALID_ENDPOINT : bulk_begin(channel, ep, setup);

    if (status == TRANSHIP_OK)
        bulk_enter(channel, BULK_STATE_INITIALIZED);
    return status;
}

/**
 * Waits until a domain binds to a created channel, `timeout_ns` for each of its steps. TRANSHIP_ERR_CHANNEL_BIND: a domain that asks for other
 * properties was refused, and the channel waits for the next one.
 */
static inline tranship_status bulk_channel_accept(struct bulk_channel *channel, int64_t timeout_ns)
{
    struct bulk_channel_setup asked = channel->setup, theirs;
    tranship_listener *back = NULL;
    unsigned char bytes[40];
    char name[BULK_NAME_MAX + 24];
    tranship_status status, agreed;
    tranship_buf said;

    if (channel->state != BULK_STATE_INITIALIZED)
        return TRANSHIP_ERR_CHANNEL_STATE;
    status = tranship_accept_receiver(channel->ep->listener, timeout_ns, &channel->in, NULL);
    if (status != TRANSHIP_OK)
        return status;
    bulk_enter(channel, BULK_STATE_BIND_NEGOTIATE);
    status = tranship_recv(channel->in, timeout_ns, &said, NULL);
    if (status == TRANSHIP_OK) {
        status = bulk_hear(&said, &theirs);
        tranship_release(&said);
    }
    if (status == TRANSHIP_OK) {
        agreed = bulk_negotiate(&channel->setup, &theirs);
        channel->ep->channels++;
        if (agreed == TRANSHIP_OK) {
            snprintf(name, sizeof name, "%s.%llu", channel->ep->name, (unsigned long long)channel->ep->channels);
            agreed = tranship_listen(channel->ep->domain->domain, name, TRANSHIP_SENDER, channel->setup.options, &back, NULL);
        }
        bulk_say(channel, agreed, bytes);
        status = tranship_send_back_bytes(channel->in, bytes, sizeof bytes, BULK_OP_HELLO, timeout_ns, NULL);
        if (agreed != TRANSHIP_OK)
            status = agreed;
    }
    if (status == TRANSHIP_OK)
        status = tranship_accept_sender(back, timeout_ns, &channel->out, NULL);
    tranship_listener_close(back);
    if (status == TRANSHIP_OK && tranship_sender_peer(channel->out) != tranship_receiver_peer(channel->in))
        status = TRANSHIP_ERR_PEER_VIOLATION; /* another domain has taken the binding end's place */
    if (status != TRANSHIP_OK) {
        tranship_receiver_close(channel->in);
        tranship_sender_close(channel->out);
        channel->in = NULL;
        channel->out = NULL;
        channel->setup = asked;
        bulk_enter(channel, BULK_STATE_INITIALIZED);
        return status;
    }
    bulk_enter(channel, BULK_STATE_CONNECTED);
    return TRANSHIP_OK;
}

/**
 * Binds to an endpoint of another domain, and waits for its bulk_channel_accept, `timeout_ns` for each step. The role is MASTER or SLAVE.
 * TRANSHIP_ERR_CHANNEL_BIND: the two ends do not agree.
 */
static inline tranship_status bulk_channel_bind(struct bulk_channel *channel, struct bulk_endpoint_descriptor *ep,
                                                const struct bulk_channel_setup *setup, int64_t timeout_ns)
{
    struct bulk_channel_setup theirs;
    unsigned char bytes[40];
    char name[BULK_NAME_MAX + 24];
    tranship_status status = setup->role == BULK_ROLE_GENERIC ? TRANSHIP_ERR_BAD_ARGUMENT : bulk_begin(channel, ep, setup);
    tranship_buf said;

    if (status != TRANSHIP_OK)
        return status;
    bulk_enter(channel, BULK_STATE_BINDING);
    status = tranship_open_sender(ep->domain->domain, ep->name, setup->options, timeout_ns, &channel->out, NULL);
    if (status == TRANSHIP_OK) {
        bulk_say(channel, TRANSHIP_OK, bytes);
        status = tranship_send_bytes(channel->out, bytes, sizeof bytes, BULK_OP_HELLO, timeout_ns, NULL);
    }
    if (status == TRANSHIP_OK)
        status = tranship_recv_back(channel->out, timeout_ns, &said, NULL);
    if (status == TRANSHIP_OK) {
        status = bulk_hear(&said, &theirs);
        memcpy(bytes, said.words, sizeof bytes);
        tranship_release(&said);
    }
    if (status == TRANSHIP_OK) {
        bulk_enter(channel, BULK_STATE_BIND_NEGOTIATE);
        status = (tranship_status)bulk_get(bytes + 24);
    }
    if (status == TRANSHIP_OK)
        status = bulk_negotiate(&channel->setup, &theirs);
    if (status == TRANSHIP_OK) {
        snprintf(name, sizeof name, "%s.%llu", ep->name, (unsigned long long)bulk_get(bytes + 32));
        status = tranship_open_receiver(ep->domain->domain, name, setup->options, timeout_ns, &channel->in, NULL);
    }
    if (status == TRANSHIP_OK && tranship_sender_peer(channel->out) != tranship_receiver_peer(channel->in))
        status = TRANSHIP_ERR_PEER_VIOLATION;
    if (status != TRANSHIP_OK) {
        bulk_channel_destroy(channel);
        return status;
    }
    channel->sent = 1;
    bulk_enter(channel, BULK_STATE_CONNECTED);
    return TRANSHIP_OK;
}

/* --- completions --- */

static inline void bulk_complete(struct bulk_channel *channel, uint64_t upto, tranship_status status)
{
    while (channel->first != NULL && channel->first->at <= upto) {
        struct bulk_continuation *done = channel->first;

        channel->first = done->next;
        done->handler(done->arg, status, channel);
    }
}

static inline void bulk_continue(struct bulk_channel *channel)
{
    if (channel->out != NULL)
        bulk_complete(channel, channel->sent - tranship_sender_queued(channel->out), TRANSHIP_OK);
}

static inline void bulk_await(struct bulk_channel *channel, struct bulk_continuation *cont)
{
    if (cont == NULL)
        return;
    cont->at = channel->sent;
    cont->next = NULL;
    if (channel->first == NULL)
        channel->first = cont;
    else
        channel->last->next = cont;
    channel->last = cont;
}

/* Ends what can end no other way: the other end is gone. */
static inline void bulk_give_up(struct bulk_channel *channel, tranship_status status)
{
    bulk_complete(channel, UINT64_MAX, status);
    for (uint32_t i = 0; i < channel->num_pools; i++) {
        struct bulk_continuation *cont = channel->pools[i].cont;

        channel->pools[i].cont = NULL;
        if (cont != NULL)
            cont->handler(cont->arg, status, channel);
    }
}

static inline void bulk_channel_destroy(struct bulk_channel *channel)
{
    struct bulk_channel was;

    if (channel->state == BULK_STATE_CONNECTED)
        bulk_enter(channel, BULK_STATE_TEARDOWN);
    bulk_give_up(channel, TRANSHIP_ERR_PEER_GONE);
    was = *channel;
    memset(channel, 0, sizeof *channel);
    channel->state = BULK_STATE_CLOSED;
    tranship_sender_close(was.out);
    tranship_receiver_close(was.in);
    bulk_enter(&was, BULK_STATE_CLOSED);
}

/** Waits until the other end has taken all operations, and calls their continuations. */
static inline tranship_status bulk_channel_flush(struct bulk_channel *channel, int64_t timeout_ns)
{
    tranship_status status = channel->out == NULL ? TRANSHIP_ERR_CHANNEL_STATE : tranship_wait_taken(channel->out, timeout_ns, NULL);

    bulk_continue(channel);
    return status;
}

/* --- operations --- */

static inline tranship_status bulk_sent(struct bulk_channel *channel, tranship_status status)
{
    if (status == TRANSHIP_OK)
        channel->sent++;
    else if (status == TRANSHIP_ERR_PEER_GONE)
        bulk_enter(channel, BULK_STATE_TEARDOWN);
    return status;
}

static inline tranship_status bulk_line_out(struct bulk_channel *channel, enum bulk_op op, const void *bytes, size_t len, int64_t timeout_ns)
{
    return bulk_sent(channel, tranship_send_bytes(channel->out, bytes, len, (uint64_t)op, timeout_ns, NULL));
}

/* Sends the answers that wait. They go ahead of later operations. */
static inline tranship_status bulk_answer(struct bulk_channel *channel, int64_t timeout_ns)
{
    tranship_status status = TRANSHIP_OK;

    while (channel->num_answers != 0 && status == TRANSHIP_OK) {
        status = bulk_line_out(channel, BULK_OP_ANSWER, channel->answers[0], sizeof channel->answers[0], timeout_ns);
        if (status == TRANSHIP_OK) {
            channel->num_answers--;
            memmove(channel->answers[0], channel->answers[1], channel->num_answers * sizeof channel->answers[0]);
        }
    }
    if (channel->state == BULK_STATE_TEARDOWN)
        channel->num_answers = 0;
    return status;
}

static inline tranship_status bulk_control(struct bulk_channel *channel, enum bulk_op op, const void *bytes, size_t len, int64_t timeout_ns)
{
    tranship_status status = bulk_answer(channel, timeout_ns);

    return status != TRANSHIP_OK ? status : bulk_line_out(channel, op, bytes, len, timeout_ns);
}

static inline struct bulk_assigned *bulk_assigned_of(struct bulk_channel *channel, uint32_t id)
{
    for (uint32_t i = 0; i < channel->num_pools; i++)
        if (channel->pools[i].pool.id == id)
            return &channel->pools[i];
    return NULL;
}

static inline void bulk_forget(struct bulk_channel *channel, struct bulk_assigned *of)
{
    memmove(of, of + 1, (size_t)(&channel->pools[channel->num_pools] - (of + 1)) * sizeof *of);
    channel->num_pools--;
}

static inline tranship_status bulk_fits(const struct bulk_channel *channel, const struct bulk_pool *pool)
{
    const struct bulk_pool_constraints *wanted = &channel->setup.constraints, *has = &pool->constraints;

    if (channel->setup.trust != BULK_TRUST_UNINITIALIZED && channel->setup.trust != pool->trust)
        return TRANSHIP_ERR_CHANNEL_TRUST;
    if (wanted->mem_align > 64 && (has->mem_align == 0 || has->mem_align % wanted->mem_align != 0))
        return TRANSHIP_ERR_REFUSED;
    if (wanted->mem_range_max != 0 && (has->mem_range_max == 0 || has->mem_range_max > wanted->mem_range_max))
        return TRANSHIP_ERR_REFUSED;
    return TRANSHIP_OK;
}

/**
 * Assigns a pool of this domain, or one that this domain may send on. Either end may do so. The answer of the other end arrives as
 * BULK_EVENT_POOL_ASSIGNED or BULK_EVENT_POOL_REFUSED, and at `cont`. TRANSHIP_ERR_CHANNEL_STATE: the channel has the pool, or is not CONNECTED.
 */
static inline tranship_status bulk_channel_assign_pool(struct bulk_channel *channel, const struct bulk_pool *pool, struct bulk_continuation *cont)
{
    unsigned char bytes[40];
    tranship_status status;

    if (channel->state != BULK_STATE_CONNECTED || bulk_assigned_of(channel, pool->id) != NULL)
        return TRANSHIP_ERR_CHANNEL_STATE;
    if (channel->num_pools == BULK_POOLS_MAX)
        return TRANSHIP_ERR_LIMIT;
    status = bulk_fits(channel, pool);
    if (status == TRANSHIP_OK && pool->own != NULL) {
        uint32_t peer = tranship_sender_peer(channel->out);

        status = tranship_assign(channel->out, pool->own, TRANSHIP_FOREVER, NULL);
        if (status == TRANSHIP_OK && peer != tranship_domain_id(channel->ep->domain->domain))
            status = tranship_pool_allow_forward(pool->own, peer, NULL);
    }
    if (status != TRANSHIP_OK)
        return status;
    bulk_put(bytes, (uint64_t)pool->id | (uint64_t)pool->num_buffers << 32);
    bulk_put(bytes + 8, (uint64_t)pool->trust);
    bulk_put(bytes + 16, pool->buffer_size);
    bulk_put(bytes + 24, pool->constraints.mem_align);
    bulk_put(bytes + 32, pool->constraints.mem_range_max);
    status = bulk_control(channel, BULK_OP_ASSIGN, bytes, sizeof bytes, TRANSHIP_FOREVER);
    if (status == TRANSHIP_OK) {
        struct bulk_assigned *of = &channel->pools[channel->num_pools++];

        of->pool = *pool;
        of->pool.next = NULL;
        of->asked = 1;
        of->cont = cont;
    }
    return status;
}

/**
 * Removes a pool from the channel, at either end: from then on its buffers are TRANSHIP_ERR_POOL_NOT_ASSIGNED there. Buffers that are on their way
 * arrive, and held buffers stay valid. The other end's mapping ends with its last buffer and channel.
 */
static inline tranship_status bulk_channel_remove_pool(struct bulk_channel *channel, const struct bulk_pool *pool, struct bulk_continuation *cont)
{
    struct bulk_assigned *of = bulk_assigned_of(channel, pool->id);
    unsigned char bytes[8];
    tranship_status status;

    if (channel->state != BULK_STATE_CONNECTED)
        return TRANSHIP_ERR_CHANNEL_STATE;
    if (of == NULL)
        return TRANSHIP_ERR_POOL_NOT_ASSIGNED;
    if (of->asked)
        return TRANSHIP_ERR_POOL_PENDING;
    bulk_put(bytes, pool->id);
    status = bulk_control(channel, BULK_OP_REMOVE, bytes, sizeof bytes, TRANSHIP_FOREVER);
    if (status == TRANSHIP_OK) {
        bulk_forget(channel, of);
        bulk_await(channel, cont);
    }
    return status;
}

/* The checks that come first, in this order: the channel's state, its direction, the buffer's owner, its pool. */
static inline tranship_status bulk_may(struct bulk_channel *channel, enum bulk_channel_direction direction, const struct bulk_buffer *buffer)
{
    struct bulk_assigned *of;

    if (channel->state != BULK_STATE_CONNECTED)
        return channel->state == BULK_STATE_TEARDOWN ? TRANSHIP_ERR_PEER_GONE : TRANSHIP_ERR_CHANNEL_STATE;
    if (channel->setup.direction != direction)
        return TRANSHIP_ERR_CHANNEL_DIRECTION;
    if (buffer->state == BULK_BUFFER_INVALID)
        return TRANSHIP_ERR_BUFFER_INVALID;
    if (buffer->pool == 0)
        return TRANSHIP_OK;
    of = bulk_assigned_of(channel, buffer->pool);
    if (of == NULL)
        return TRANSHIP_ERR_POOL_NOT_ASSIGNED;
    return of->asked ? TRANSHIP_ERR_POOL_PENDING : TRANSHIP_OK;
}

static inline tranship_status bulk_may_give(const struct bulk_buffer *buffer)
{
    if (!bulk_buffer_is_owned(buffer))
        return TRANSHIP_ERR_BUFFER_NOT_OWNED;
    return buffer->local_ref_count != 0 ? TRANSHIP_ERR_BUFFER_STATE : TRANSHIP_OK;
}

/* Returns the word of an operation. Longer metadata goes ahead, in a line of its own. */
static inline tranship_status bulk_word(struct bulk_channel *channel, enum bulk_op op, const void *meta, int64_t timeout_ns, uint64_t *word)
{
    uint32_t size = meta == NULL ? 0 : channel->setup.meta_size;

    /* One end that waits for the other one must be enough. */
    uint32_t lines = channel->setup.options != NULL && channel->setup.options->lines != 0 ? channel->setup.options->lines : 256;
    tranship_status status = bulk_answer(channel, timeout_ns);

    if (status != TRANSHIP_OK)
        return status;
    if (timeout_ns == TRANSHIP_NOW && tranship_sender_queued(channel->out) + 2 > lines)
        return TRANSHIP_ERR_FULL;
    *word = (uint64_t)op;
    if (size > 7)
        return bulk_control(channel, BULK_OP_META, meta, size, TRANSHIP_FOREVER);
    for (uint32_t i = 0; i < size; i++)
        *word |= (uint64_t)((const unsigned char *)meta)[i] << (8 * (i + 1));
    return TRANSHIP_OK;
}

static inline tranship_status bulk_give(struct bulk_channel *channel, struct bulk_buffer *buffer, enum bulk_op op, const void *meta,
                                        int64_t timeout_ns, struct bulk_continuation *cont)
{
    uint64_t word;
    tranship_status status = bulk_may_give(buffer);

    if (status == TRANSHIP_OK)
        status = bulk_word(channel, op, meta, timeout_ns, &word);
    if (status != TRANSHIP_OK)
        return status;
    buffer->buf.word = word;
    status = bulk_sent(channel, tranship_send(channel->out, &buffer->buf, TRANSHIP_FOREVER, NULL));
    if (status == TRANSHIP_OK) {
        memset(buffer, 0, sizeof *buffer);
        bulk_await(channel, cont);
    }
    return status;
}

/** TX: gives the buffer away, with `meta_size` bytes of metadata (NULL: zeros). It waits while the channel is full. */
static inline tranship_status bulk_channel_move(struct bulk_channel *channel, struct bulk_buffer *buffer, const void *meta,
                                                struct bulk_continuation *cont)
{
    tranship_status status = bulk_may(channel, BULK_DIRECTION_TX, buffer);

    return status != TRANSHIP_OK ? status : bulk_give(channel, buffer, BULK_OP_MOVE, meta, TRANSHIP_FOREVER, cont);
}

/** RX: gives an owned buffer to the sender: an empty one, or one that came. It does not wait for room: TRANSHIP_ERR_FULL. */
static inline tranship_status bulk_channel_pass(struct bulk_channel *channel, struct bulk_buffer *buffer, const void *meta,
                                                struct bulk_continuation *cont)
{
    tranship_status status = bulk_may(channel, BULK_DIRECTION_RX, buffer);

    return status != TRANSHIP_OK ? status : bulk_give(channel, buffer, BULK_OP_PASS, meta, TRANSHIP_NOW, cont);
}

/** TX: shows the buffer, which may itself be a copy. Both ends read it; no byte is copied. */
static inline tranship_status bulk_channel_copy(struct bulk_channel *channel, struct bulk_buffer *buffer, const void *meta,
                                                struct bulk_continuation *cont)
{
    tranship_status status = bulk_may(channel, BULK_DIRECTION_TX, buffer);
    tranship_buf shown;
    uint64_t word;

    if (status == TRANSHIP_OK && buffer->state == BULK_BUFFER_READ_WRITE)
        status = bulk_buffer_change_state(buffer, BULK_BUFFER_RO_OWNED);
    if (status == TRANSHIP_OK)
        status = bulk_word(channel, BULK_OP_COPY, meta, TRANSHIP_FOREVER, &word);
    if (status == TRANSHIP_OK)
        status = tranship_buf_clone(&buffer->buf, &shown, NULL);
    if (status != TRANSHIP_OK)
        return status;
    shown.word = word;
    status = bulk_sent(channel, tranship_send(channel->out, &shown, TRANSHIP_FOREVER, NULL));
    tranship_release(&shown); /* what was not sent */
    if (status == TRANSHIP_OK) {
        buffer->local_ref_count++;
        bulk_await(channel, cont);
    }
    return status;
}

/** RX: is through with a copy that came by this channel. The other end gets BULK_EVENT_COPY_RELEASED. It does not wait for room. */
static inline tranship_status bulk_channel_release(struct bulk_channel *channel, struct bulk_buffer *buffer, const void *meta,
                                                   struct bulk_continuation *cont)
{
    unsigned char bytes[8];
    tranship_status status;
    uint64_t word;

    if (channel->setup.direction != BULK_DIRECTION_RX)
        return TRANSHIP_ERR_CHANNEL_DIRECTION;
    if (!bulk_buffer_is_copy(buffer) || buffer->via != channel)
        return TRANSHIP_ERR_BUFFER_NOT_A_COPY;
    bulk_put(bytes, tranship_buf_id(&buffer->buf));
    status = channel->state != BULK_STATE_CONNECTED ? TRANSHIP_ERR_PEER_GONE : bulk_word(channel, BULK_OP_RELEASED, meta, TRANSHIP_NOW, &word);
    if (status != TRANSHIP_OK && status != TRANSHIP_ERR_PEER_GONE)
        return status;
    /* Released first: when the other end hears of it, it is so. */
    tranship_release(&buffer->buf);
    memset(buffer, 0, sizeof *buffer);
    if (status == TRANSHIP_OK)
        status = bulk_sent(channel, tranship_send_bytes(channel->out, bytes, sizeof bytes, word, TRANSHIP_FOREVER, NULL));
    if (status == TRANSHIP_OK)
        bulk_await(channel, cont);
    return TRANSHIP_OK;
}

/* --- events --- */

static inline tranship_status bulk_asked(struct bulk_channel *channel, const unsigned char *bytes, struct bulk_event *event)
{
    uint64_t first = bulk_get(bytes);
    unsigned char *answer;
    tranship_status status;

    event->pool.id = (uint32_t)first;
    event->pool.num_buffers = (uint32_t)(first >> 32);
    event->pool.trust = (enum bulk_trust_level)bulk_get(bytes + 8);
    event->pool.buffer_size = bulk_get(bytes + 16);
    event->pool.constraints.mem_align = bulk_get(bytes + 24);
    event->pool.constraints.mem_range_max = bulk_get(bytes + 32);
    event->pool.constraints.trust = event->pool.trust;
    status = bulk_fits(channel, &event->pool);
    if (status == TRANSHIP_OK && bulk_assigned_of(channel, event->pool.id) != NULL)
        status = TRANSHIP_ERR_CHANNEL_STATE;
    if (status == TRANSHIP_OK && channel->num_pools == BULK_POOLS_MAX)
        status = TRANSHIP_ERR_LIMIT;
    if (status == TRANSHIP_OK && channel->setup.veto != NULL && channel->setup.veto(channel->setup.user_state, &event->pool) != TRANSHIP_OK)
        status = TRANSHIP_ERR_REFUSED;
    answer = channel->answers[channel->num_answers++];
    bulk_put(answer, event->pool.id);
    bulk_put(answer + 8, (uint64_t)status);
    if (status == TRANSHIP_OK) {
        struct bulk_assigned *of = &channel->pools[channel->num_pools++];

        memset(of, 0, sizeof *of);
        of->pool = event->pool;
    }
    event->kind = BULK_EVENT_POOL_ASSIGNED;
    (void)bulk_answer(channel, TRANSHIP_NOW); /* if there is no room, the next call tries again */
    return status;
}

/* Takes a line of this file's. TRANSHIP_ERR_TIMED_OUT: it is no event. */
static inline tranship_status bulk_line(struct bulk_channel *channel, const tranship_buf *line, struct bulk_event *event)
{
    const unsigned char *bytes = (const unsigned char *)line->words;
    int is_tx = channel->setup.direction == BULK_DIRECTION_TX;
    enum bulk_op op = (enum bulk_op)(line->word & 0xff);
    struct bulk_continuation *cont;
    struct bulk_assigned *of;

    if (op == BULK_OP_META && line->len <= BULK_META_MAX) {
        memcpy(channel->meta, bytes, line->len);
        return TRANSHIP_ERR_TIMED_OUT;
    }
    if (op == BULK_OP_ASSIGN && line->len == 40 && channel->num_answers < BULK_POOLS_MAX) /* each end asks for that many at most */
        return bulk_asked(channel, bytes, event) == TRANSHIP_OK ? TRANSHIP_OK : TRANSHIP_ERR_TIMED_OUT;
    if (op == BULK_OP_RELEASED && is_tx && line->len == 8) {
        event->kind = BULK_EVENT_COPY_RELEASED;
        event->buffer_id = bulk_get(bytes);
        return TRANSHIP_OK;
    }
    of = line->len >= 8 ? bulk_assigned_of(channel, (uint32_t)bulk_get(bytes)) : NULL;
    if (op == BULK_OP_ANSWER && line->len == 16 && of != NULL && of->asked) {
        event->pool = of->pool;
        event->status = (tranship_status)bulk_get(bytes + 8);
        event->kind = event->status == TRANSHIP_OK ? BULK_EVENT_POOL_ASSIGNED : BULK_EVENT_POOL_REFUSED;
        cont = of->cont;
        of->cont = NULL;
        of->asked = 0;
        if (event->status != TRANSHIP_OK)
            bulk_forget(channel, of);
        if (cont != NULL)
            cont->handler(cont->arg, event->status, channel);
        return TRANSHIP_OK;
    }
    if (op == BULK_OP_REMOVE && line->len == 8) {
        if (of == NULL)
            return TRANSHIP_ERR_TIMED_OUT; /* both ends have removed it */
        event->kind = BULK_EVENT_POOL_REMOVED;
        event->pool = of->pool;
        bulk_forget(channel, of);
        return TRANSHIP_OK;
    }
    return TRANSHIP_ERR_PEER_VIOLATION;
}

/* Takes a buffer. A message of tranship_send's own, such as pieces of several buffers, is a copy. */
static inline tranship_status bulk_came(struct bulk_channel *channel, const tranship_buf *came, struct bulk_event *event)
{
    int is_tx = channel->setup.direction == BULK_DIRECTION_TX, is_writable = came->kind == TRANSHIP_BUF_EXCLUSIVE;
    uint64_t op = came->word & 0xff;

    if (is_tx ? op != BULK_OP_PASS : op != BULK_OP_MOVE && op != BULK_OP_COPY && op != BULK_OP_NONE)
        return TRANSHIP_ERR_PEER_VIOLATION;
    event->kind = is_tx ? BULK_EVENT_BUFFER_RECEIVED : op == BULK_OP_MOVE ? BULK_EVENT_MOVE_RECEIVED : BULK_EVENT_COPY_RECEIVED;
    event->buffer_id = came->kind == TRANSHIP_BUF_AGGREGATE ? 0 : tranship_buf_id(came);
    event->buffer.buf = *came;
    event->buffer.via = channel;
    event->buffer.pool = bulk_assigned_of(channel, bulk_pool_of(event->buffer_id)) != NULL ? bulk_pool_of(event->buffer_id) : 0;
    if (event->kind == BULK_EVENT_COPY_RECEIVED)
        event->buffer.state = BULK_BUFFER_READ_ONLY;
    else
        event->buffer.state = is_writable ? BULK_BUFFER_READ_WRITE : BULK_BUFFER_RO_OWNED;
    return TRANSHIP_OK;
}

/* Receives, and sends the answers that wait as room for them comes. */
static inline tranship_status bulk_receive(struct bulk_channel *channel, int64_t timeout_ns, tranship_buf *came)
{
    for (;;) {
        int64_t step = timeout_ns;
        tranship_status status;

        (void)bulk_answer(channel, TRANSHIP_NOW);
        if (channel->num_answers != 0 && (timeout_ns == TRANSHIP_FOREVER || timeout_ns > BULK_AGAIN_NS))
            step = BULK_AGAIN_NS;
        status = tranship_recv(channel->in, step, came, NULL);
        if (status != TRANSHIP_ERR_TIMED_OUT || step == timeout_ns)
            return status;
        if (timeout_ns != TRANSHIP_FOREVER)
            timeout_ns -= step;
    }
}

/* Returns whether nothing more comes. After any other error the channel goes on. */
static inline int bulk_is_over(tranship_status status)
{
    return status == TRANSHIP_ERR_PEER_GONE || status == TRANSHIP_ERR_PEER_DIED || status == TRANSHIP_ERR_PEER_VIOLATION ||
           status == TRANSHIP_ERR_LOST || status == TRANSHIP_ERR_NOT_CONNECTED;
}

/**
 * Waits for the next thing that the other end does, `timeout_ns` for each message, and calls continuations. TRANSHIP_ERR_TIMED_OUT if there is
 * nothing. TRANSHIP_ERR_PEER_GONE: all was received, and the channel is CLOSED but for bulk_channel_destroy. So it is after
 * TRANSHIP_ERR_PEER_DIED, TRANSHIP_ERR_PEER_VIOLATION, TRANSHIP_ERR_LOST and TRANSHIP_ERR_NOT_CONNECTED. After any other error, for example
 * TRANSHIP_ERR_CHUNK_PENDING, the channel is as before.
 */
static inline tranship_status bulk_channel_wait(struct bulk_channel *channel, int64_t timeout_ns, struct bulk_event *event)
{
    tranship_status status;
    tranship_buf came;

    if (channel->state != BULK_STATE_CONNECTED && channel->state != BULK_STATE_TEARDOWN)
        return TRANSHIP_ERR_CHANNEL_STATE;
    do {
        uint64_t word;

        memset(event, 0, sizeof *event);
        status = bulk_receive(channel, timeout_ns, &came);
        if (status != TRANSHIP_ERR_FORKED) /* the continuations are the parent's */
            bulk_continue(channel);
        if (status != TRANSHIP_OK)
            break;
        word = came.word;
        status = came.kind == TRANSHIP_BUF_INLINE ? bulk_line(channel, &came, event) : bulk_came(channel, &came, event);
        if (came.kind == TRANSHIP_BUF_INLINE || status != TRANSHIP_OK)
            tranship_release(&came);
        if (status != TRANSHIP_OK)
            continue;
        memcpy(event->meta, channel->meta, sizeof event->meta);
        memset(channel->meta, 0, sizeof channel->meta);
        if (channel->setup.meta_size <= 7)
            for (int i = 0; i < 7; i++)
                event->meta[i] = (unsigned char)(word >> (8 * (i + 1)));
        return TRANSHIP_OK;
    } while (status == TRANSHIP_ERR_TIMED_OUT);
    if (bulk_is_over(status)) {
        bulk_enter(channel, BULK_STATE_CLOSED);
        bulk_give_up(channel, status);
        tranship_sender_close(channel->out);
        tranship_receiver_close(channel->in);
        channel->out = NULL;
        channel->in = NULL;
    }
    return status;
}

#ifdef __cplusplus
}
#endif

#endif /* TRANSHIP_BULK_H */
