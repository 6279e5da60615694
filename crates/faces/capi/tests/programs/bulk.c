/* The report's channels by bulk.h: both modes, at several addresses; properties that both ends agree to; pools that come, are vetoed and go. */
#include <arpa/inet.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <tranship/bulk.h>
#include <unistd.h>

#include "check.h"

#define OK(call) EXPECT(call, TRANSHIP_OK)
#define IS(condition) EXPECT((condition) ? 1 : 0, 1)
#define SIZE 4096

static char manager[108];
static tranship_domain *home;

static tranship_domain *join(const char *name)
{
    tranship_domain_options options = {.size = sizeof options, .name = name, .socket = manager};
    tranship_domain *domain;

    OK(tranship_connect(&options, &domain, NULL));
    return domain;
}

static struct bulk_event next(struct bulk_channel *channel, enum bulk_event_kind kind)
{
    struct bulk_event event;

    OK(bulk_channel_wait(channel, TRANSHIP_FOREVER, &event));
    EXPECT(event.kind, kind);
    return event;
}

static unsigned char *bytes(struct bulk_buffer *buffer)
{
    return (unsigned char *)tranship_data(&buffer->buf);
}

static int calls;

static void called(void *arg, tranship_status status, struct bulk_channel *channel)
{
    (void)channel;
    EXPECT(status, TRANSHIP_OK);
    EXPECT(*(int *)arg, calls); /* in order */
    calls++;
}

/* --- transmit-master: the report's echo; a buffer goes there and comes back, then a copy --- */

static void *echo(void *unused)
{
    struct bulk_domain domain = {join("echo"), NULL};
    struct bulk_channel_setup setup = {.direction = BULK_DIRECTION_RX, .role = BULK_ROLE_SLAVE, .meta_size = 16};
    struct bulk_endpoint_descriptor ep;
    struct bulk_channel rx = {0};
    struct bulk_event event;

    OK(bulk_sm_ep_create_remote(&ep, &domain, "bulk"));
    OK(bulk_channel_bind(&rx, &ep, &setup, TRANSHIP_FOREVER));
    EXPECT(rx.state, BULK_STATE_CONNECTED);
    EXPECT(rx.setup.trust, BULK_TRUST_FULL);
    event = next(&rx, BULK_EVENT_POOL_ASSIGNED);
    EXPECT(event.pool.num_buffers, 8);
    EXPECT(event.pool.buffer_size, SIZE);
    struct bulk_pool known = event.pool;
    OK(bulk_pool_domain_list_insert(&domain, &known));
    EXPECT(bulk_pool_domain_list_insert(&domain, &known), TRANSHIP_ERR_BAD_ARGUMENT);
    IS(bulk_pool_domain_list_get(&domain, known.id) == &known);

    event = next(&rx, BULK_EVENT_MOVE_RECEIVED);
    EXPECT(memcmp(event.meta, "sixteen bytes..", 16), 0);
    EXPECT(event.buffer.pool, known.id);
    EXPECT(event.buffer.state, BULK_BUFFER_READ_WRITE);
    EXPECT(bytes(&event.buffer)[SIZE - 1], 123);
    EXPECT(bulk_channel_release(&rx, &event.buffer, NULL, NULL), TRANSHIP_ERR_BUFFER_NOT_A_COPY);
    EXPECT(bulk_channel_move(&rx, &event.buffer, NULL, NULL), TRANSHIP_ERR_CHANNEL_DIRECTION);
    memset(bytes(&event.buffer), 124, SIZE);
    OK(bulk_channel_pass(&rx, &event.buffer, "and back again.", NULL));
    EXPECT(event.buffer.state, BULK_BUFFER_INVALID);
    EXPECT(bulk_channel_pass(&rx, &event.buffer, NULL, NULL), TRANSHIP_ERR_BUFFER_INVALID);

    event = next(&rx, BULK_EVENT_COPY_RECEIVED);
    EXPECT(memcmp(event.meta, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16), 0);
    EXPECT(bytes(&event.buffer)[0], 101);
    EXPECT(bulk_channel_pass(&rx, &event.buffer, NULL, NULL), TRANSHIP_ERR_BUFFER_NOT_OWNED);
    OK(bulk_channel_release(&rx, &event.buffer, "released.......", NULL));
    event = next(&rx, BULK_EVENT_COPY_RECEIVED); /* pieces of several buffers, which only tranship.h sends */
    EXPECT(event.buffer.buf.kind, TRANSHIP_BUF_AGGREGATE);
    OK(bulk_channel_release(&rx, &event.buffer, NULL, NULL));
    EXPECT(bulk_channel_release(&rx, &event.buffer, NULL, NULL), TRANSHIP_ERR_BUFFER_NOT_A_COPY);
    event = next(&rx, BULK_EVENT_POOL_REMOVED);
    EXPECT(event.pool.id, known.id);
    EXPECT(bulk_channel_wait(&rx, TRANSHIP_FOREVER, &event), TRANSHIP_ERR_PEER_GONE);
    EXPECT(rx.state, BULK_STATE_CLOSED);
    EXPECT(bulk_channel_wait(&rx, TRANSHIP_FOREVER, &event), TRANSHIP_ERR_CHANNEL_STATE);
    bulk_channel_destroy(&rx);
    bulk_pool_domain_list_remove(&domain, known.id);
    IS(bulk_pool_domain_list_get(&domain, known.id) == NULL);
    tranship_domain_close(domain.domain);
    return unused;
}

static void transmit_master(void)
{
    struct bulk_domain domain = {home, NULL};
    struct bulk_pool_constraints full = {.trust = BULK_TRUST_FULL};
    struct bulk_channel_setup setup = {.direction = BULK_DIRECTION_TX, .role = BULK_ROLE_MASTER, .trust = BULK_TRUST_FULL};
    struct bulk_endpoint_descriptor ep;
    struct bulk_channel tx = {0};
    struct bulk_allocator alloc, other;
    struct bulk_buffer buffer;
    struct bulk_event event;
    int numbers[4] = {0, 1, 2, 3};
    struct bulk_continuation conts[4];
    pthread_t thread;

    for (int i = 0; i < 4; i++) {
        conts[i].handler = called;
        conts[i].arg = &numbers[i];
    }
    calls = 0;
    OK(bulk_alloc_init(&alloc, &domain, 8, SIZE, &full));
    OK(bulk_alloc_init(&other, &domain, 1, SIZE, NULL));
    OK(bulk_sm_ep_create(&ep, &domain, "bulk"));
    EXPECT(tx.state, BULK_STATE_UNINITIALIZED);
    OK(bulk_channel_create(&tx, &ep, &setup));
    EXPECT(tx.state, BULK_STATE_INITIALIZED);
    EXPECT(bulk_channel_assign_pool(&tx, &alloc.pool, NULL), TRANSHIP_ERR_CHANNEL_STATE);
    pthread_create(&thread, NULL, echo, NULL);
    OK(bulk_channel_accept(&tx, TRANSHIP_FOREVER));
    EXPECT(tx.setup.meta_size, 16); /* the other end's wish */
    OK(bulk_alloc_new_buffer(&alloc, &buffer));
    memset(bytes(&buffer), 123, SIZE);
    EXPECT(bulk_channel_move(&tx, &buffer, NULL, NULL), TRANSHIP_ERR_POOL_NOT_ASSIGNED);
    EXPECT(bulk_channel_remove_pool(&tx, &alloc.pool, NULL), TRANSHIP_ERR_POOL_NOT_ASSIGNED);
    EXPECT(bulk_channel_assign_pool(&tx, &other.pool, NULL), TRANSHIP_ERR_CHANNEL_TRUST);
    OK(bulk_channel_assign_pool(&tx, &alloc.pool, &conts[0]));
    EXPECT(bulk_channel_move(&tx, &buffer, NULL, NULL), TRANSHIP_ERR_POOL_PENDING);
    EXPECT(bulk_channel_assign_pool(&tx, &alloc.pool, NULL), TRANSHIP_ERR_CHANNEL_STATE);
    next(&tx, BULK_EVENT_POOL_ASSIGNED);
    EXPECT(calls, 1);
    EXPECT(bulk_channel_assign_pool(&tx, &alloc.pool, NULL), TRANSHIP_ERR_CHANNEL_STATE);

    uint64_t id = tranship_buf_id(&buffer.buf);
    OK(bulk_channel_move(&tx, &buffer, "sixteen bytes..", &conts[1]));
    event = next(&tx, BULK_EVENT_BUFFER_RECEIVED);
    EXPECT(calls, 2); /* what came back was taken */
    EXPECT(memcmp(event.meta, "and back again.", 16), 0);
    IS(event.buffer_id == id);
    EXPECT(event.buffer.state, BULK_BUFFER_RO_OWNED);
    EXPECT(bytes(&event.buffer)[SIZE - 1], 124);
    OK(bulk_alloc_return_buffer(&alloc, &event.buffer));
    EXPECT(bulk_alloc_return_buffer(&alloc, &event.buffer), TRANSHIP_ERR_BUFFER_NOT_OWNED);

    OK(bulk_alloc_new_buffer(&alloc, &buffer));
    memset(bytes(&buffer), 101, SIZE);
    EXPECT(bulk_channel_pass(&tx, &buffer, NULL, NULL), TRANSHIP_ERR_CHANNEL_DIRECTION);
    OK(bulk_channel_copy(&tx, &buffer, NULL, &conts[2]));
    EXPECT(buffer.state, BULK_BUFFER_RO_OWNED);
    EXPECT(bulk_channel_move(&tx, &buffer, NULL, NULL), TRANSHIP_ERR_BUFFER_STATE);
    event = next(&tx, BULK_EVENT_COPY_RELEASED);
    EXPECT(memcmp(event.meta, "released.......", 16), 0);
    IS(event.buffer_id == tranship_buf_id(&buffer.buf));
    EXPECT(calls, 3);
    EXPECT(bulk_buffer_change_state(&buffer, BULK_BUFFER_READ_WRITE), TRANSHIP_ERR_BUFFER_STATE);
    EXPECT(bytes(&buffer)[0], 101);
    tranship_buf pieces;
    OK(tranship_aggregate(alloc.pool.own, &pieces, NULL));
    OK(tranship_aggregate_push_back(&pieces, &buffer.buf, NULL));
    OK(tranship_send(tx.out, &pieces, TRANSHIP_FOREVER, NULL));
    tx.sent++;
    next(&tx, BULK_EVENT_COPY_RELEASED);

    OK(bulk_alloc_new_buffer(&alloc, &buffer)); /* the states of one that stays */
    OK(bulk_buffer_change_state(&buffer, BULK_BUFFER_RO_OWNED));
    EXPECT(bulk_buffer_change_state(&buffer, BULK_BUFFER_READ_ONLY), TRANSHIP_ERR_BUFFER_STATE);
    OK(bulk_buffer_change_state(&buffer, BULK_BUFFER_READ_WRITE));
    bytes(&buffer)[0] = 1;
    OK(bulk_channel_remove_pool(&tx, &alloc.pool, &conts[3]));
    EXPECT(bulk_channel_move(&tx, &buffer, NULL, NULL), TRANSHIP_ERR_POOL_NOT_ASSIGNED);
    OK(bulk_channel_flush(&tx, TRANSHIP_FOREVER));
    EXPECT(calls, 4);
    OK(bulk_buffer_change_state(&buffer, BULK_BUFFER_INVALID));
    bulk_channel_destroy(&tx);
    pthread_join(thread, NULL);
    bulk_sm_ep_destroy(&ep);
    IS(bulk_pool_domain_list_get(&domain, alloc.pool.id) == &alloc.pool);
    bulk_alloc_destroy(&alloc);
    bulk_alloc_destroy(&other);
    IS(domain.pools == NULL);
}

/* --- receive-master: the receiver's buffers go out empty, and come back full --- */

struct place {
    char name[64];
    int is_shared; /* whether the memory itself goes over */
    int is_inside; /* whether both ends are of one domain */
};

static struct place places[] = {{"empties", 1, 0}, {"local:empties", 1, 1}, {"copy:empties", 0, 1}, {"", 0, 0}};

/* Exports the endpoint; one without a name at a port that is free. */
static void export(struct bulk_endpoint_descriptor *ep, struct bulk_domain *domain, struct place *place)
{
    if (place->name[0] != 0) {
        OK(bulk_sm_ep_create(ep, domain, place->name));
        return;
    }
    for (;;) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof at;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        tranship_status status;

        EXPECT(bind(fd, (struct sockaddr *)&at, len), 0);
        EXPECT(getsockname(fd, (struct sockaddr *)&at, &len), 0);
        close(fd);
        snprintf(place->name, sizeof place->name, "tcp+plain:127.0.0.1:%d/empties", ntohs(at.sin_port));
        status = bulk_sm_ep_create(ep, domain, place->name);
        if (status != TRANSHIP_ERR_NAME_TAKEN) { /* by another program meanwhile */
            OK(status);
            return;
        }
    }
}

#define ROUNDS 100
#define LOT 4

static void *fill(void *at)
{
    const struct place *place = at;
    struct bulk_domain domain = {place->is_inside ? home : join("filler"), NULL};
    struct bulk_channel_setup setup = {.direction = BULK_DIRECTION_TX, .role = BULK_ROLE_SLAVE, .trust = BULK_TRUST_HALF, .meta_size = 4};
    struct bulk_endpoint_descriptor ep;
    struct bulk_channel tx = {0};
    struct bulk_event event;
    unsigned char number[4] = {0};
    int released = 0;

    OK(bulk_sm_ep_create_remote(&ep, &domain, place->name));
    setup.role = BULK_ROLE_GENERIC;
    EXPECT(bulk_channel_bind(&tx, &ep, &setup, TRANSHIP_FOREVER), TRANSHIP_ERR_BAD_ARGUMENT);
    setup.role = BULK_ROLE_SLAVE;
    OK(bulk_channel_bind(&tx, &ep, &setup, TRANSHIP_FOREVER));
    next(&tx, BULK_EVENT_POOL_ASSIGNED);
    for (int i = 0; i < ROUNDS; i++) {
        do {
            OK(bulk_channel_wait(&tx, TRANSHIP_FOREVER, &event));
            released += event.kind == BULK_EVENT_COPY_RELEASED;
        } while (event.kind == BULK_EVENT_COPY_RELEASED);
        EXPECT(event.kind, BULK_EVENT_BUFFER_RECEIVED);
        EXPECT(event.buffer.state, BULK_BUFFER_READ_WRITE);
        EXPECT((int)event.meta[0], i);
        memset(bytes(&event.buffer), i, SIZE);
        number[0] = (unsigned char)i;
        number[3] = 7;
        if (i % 3 == 0) {
            OK(bulk_channel_copy(&tx, &event.buffer, number, NULL)); /* both read it */
            EXPECT(bulk_channel_move(&tx, &event.buffer, NULL, NULL), TRANSHIP_ERR_BUFFER_STATE);
            OK(bulk_buffer_change_state(&event.buffer, BULK_BUFFER_INVALID));
        } else {
            OK(bulk_channel_move(&tx, &event.buffer, number, NULL));
        }
    }
    for (; released < (ROUNDS + 2) / 3; released++)
        next(&tx, BULK_EVENT_COPY_RELEASED);
    next(&tx, BULK_EVENT_POOL_REMOVED); /* by the other end */
    EXPECT(bulk_channel_wait(&tx, TRANSHIP_FOREVER, &event), TRANSHIP_ERR_PEER_GONE);
    bulk_channel_destroy(&tx);
    if (!place->is_inside)
        tranship_domain_close(domain.domain);
    return NULL;
}

static void receive_master(struct place *place)
{
    struct bulk_domain domain = {home, NULL};
    struct bulk_pool_constraints half = {.trust = BULK_TRUST_HALF};
    struct bulk_channel_setup setup = {.direction = BULK_DIRECTION_RX, .role = BULK_ROLE_GENERIC};
    struct bulk_endpoint_descriptor ep;
    struct bulk_channel rx = {0};
    struct bulk_allocator alloc;
    struct bulk_buffer buffer;
    struct bulk_event event;
    uint64_t ids[LOT];
    pthread_t thread;

    OK(bulk_alloc_init(&alloc, &domain, LOT, SIZE, &half));
    export(&ep, &domain, place);
    OK(bulk_channel_create(&rx, &ep, &setup));
    pthread_create(&thread, NULL, fill, place);
    OK(bulk_channel_accept(&rx, TRANSHIP_FOREVER));
    EXPECT(rx.setup.role, BULK_ROLE_MASTER); /* the binding end is the slave */
    OK(bulk_channel_assign_pool(&rx, &alloc.pool, NULL));
    next(&rx, BULK_EVENT_POOL_ASSIGNED);
    for (int i = 0; i < ROUNDS + LOT; i++) {
        if (i >= LOT) {
            int come = i - LOT, is_copy = come % 3 == 0;

            event = next(&rx, is_copy ? BULK_EVENT_COPY_RECEIVED : BULK_EVENT_MOVE_RECEIVED);
            EXPECT((int)event.meta[0], come);
            EXPECT((int)event.meta[3], 7);
            EXPECT((int)bytes(&event.buffer)[SIZE - 1], come % 256);
            /* The same memory: no byte was copied on either way. */
            IS((event.buffer_id == ids[come % LOT]) == place->is_shared);
            if (is_copy)
                OK(bulk_channel_release(&rx, &event.buffer, NULL, NULL));
            else if (place->is_shared)
                OK(bulk_alloc_return_buffer(&alloc, &event.buffer));
            else
                OK(bulk_buffer_change_state(&event.buffer, BULK_BUFFER_INVALID));
        }
        if (i < ROUNDS) {
            unsigned char number[4] = {(unsigned char)i};
            tranship_status status;

            /* The filler lets go of a copied one at its own time. */
            while ((status = bulk_alloc_new_buffer(&alloc, &buffer)) == TRANSHIP_ERR_OUT_OF_MEMORY)
                OK(tranship_domain_turn(home, NULL));
            EXPECT(status, TRANSHIP_OK);
            ids[i % LOT] = tranship_buf_id(&buffer.buf);
            OK(bulk_channel_pass(&rx, &buffer, number, NULL));
        }
    }
    OK(bulk_channel_remove_pool(&rx, &alloc.pool, NULL));
    bulk_channel_destroy(&rx);
    pthread_join(thread, NULL);
    bulk_sm_ep_destroy(&ep);
    bulk_alloc_destroy(&alloc);
}

/* --- ends that do not agree, and pools that do not fit --- */

static const struct bulk_channel_setup wrong[] = {
    {.direction = BULK_DIRECTION_TX, .role = BULK_ROLE_SLAVE},
    {.direction = BULK_DIRECTION_RX, .role = BULK_ROLE_MASTER},
    {.direction = BULK_DIRECTION_RX, .role = BULK_ROLE_SLAVE, .trust = BULK_TRUST_FULL},
    {.direction = BULK_DIRECTION_RX, .role = BULK_ROLE_SLAVE, .meta_size = 8},
};

#define WRONG (sizeof wrong / sizeof *wrong)

static tranship_status large(void *most, const struct bulk_pool *pool)
{
    return pool->buffer_size > *(uint64_t *)most ? TRANSHIP_ERR_REFUSED : TRANSHIP_OK;
}

static void *vetoes(void *unused)
{
    struct bulk_domain domain = {join("vetoes"), NULL};
    uint64_t most = SIZE;
    struct bulk_channel_setup setup = {.direction = BULK_DIRECTION_RX, .role = BULK_ROLE_SLAVE, .veto = large, .user_state = &most};
    struct bulk_endpoint_descriptor ep;
    struct bulk_channel rx = {0};
    struct bulk_event event;

    setup.constraints.mem_align = 4096;
    OK(bulk_sm_ep_create_remote(&ep, &domain, "wrong"));
    for (size_t i = 0; i < WRONG; i++) {
        EXPECT(bulk_channel_bind(&rx, &ep, &wrong[i], TRANSHIP_FOREVER), TRANSHIP_ERR_CHANNEL_BIND);
        EXPECT(rx.state, BULK_STATE_CLOSED);
    }
    OK(bulk_channel_bind(&rx, &ep, &setup, TRANSHIP_FOREVER));
    next(&rx, BULK_EVENT_POOL_ASSIGNED);
    EXPECT(bulk_channel_wait(&rx, TRANSHIP_FOREVER, &event), TRANSHIP_ERR_PEER_GONE);
    bulk_channel_destroy(&rx);
    tranship_domain_close(domain.domain);
    return unused;
}

static void gone(void *arg, tranship_status status, struct bulk_channel *channel)
{
    (void)channel;
    EXPECT(status, TRANSHIP_ERR_PEER_GONE);
    ++*(int *)arg;
}

static void disagreements(void)
{
    struct bulk_domain domain = {home, NULL};
    struct bulk_pool_constraints aligned = {.mem_align = 4096};
    struct bulk_channel_setup setup = {.direction = BULK_DIRECTION_TX, .role = BULK_ROLE_MASTER, .trust = BULK_TRUST_PRODUCER, .meta_size = 4};
    struct bulk_endpoint_descriptor ep;
    struct bulk_allocator loose, big, fine;
    struct bulk_channel tx = {0};
    struct bulk_event event;
    int ended = 0;
    struct bulk_continuation cont = {.handler = gone, .arg = &ended};
    pthread_t thread;

    OK(bulk_alloc_init(&loose, &domain, 1, SIZE, NULL));
    OK(bulk_alloc_init(&big, &domain, 1, 2 * SIZE, &aligned));
    OK(bulk_alloc_init(&fine, &domain, 1, SIZE, &aligned));
    OK(bulk_sm_ep_create(&ep, &domain, "wrong"));
    OK(bulk_channel_create(&tx, &ep, &setup));
    pthread_create(&thread, NULL, vetoes, NULL);
    for (size_t i = 0; i < WRONG; i++) {
        EXPECT(bulk_channel_accept(&tx, TRANSHIP_FOREVER), TRANSHIP_ERR_CHANNEL_BIND);
        EXPECT(tx.state, BULK_STATE_INITIALIZED);
    }
    OK(bulk_channel_accept(&tx, TRANSHIP_FOREVER));
    EXPECT(bulk_channel_assign_pool(&tx, &loose.pool, NULL), TRANSHIP_ERR_REFUSED); /* the other end's alignment */
    OK(bulk_channel_assign_pool(&tx, &big.pool, NULL));
    event = next(&tx, BULK_EVENT_POOL_REFUSED);
    EXPECT(event.status, TRANSHIP_ERR_REFUSED);
    EXPECT(event.pool.id, big.pool.id);
    OK(bulk_channel_assign_pool(&tx, &fine.pool, NULL));
    next(&tx, BULK_EVENT_POOL_ASSIGNED);
    OK(bulk_channel_assign_pool(&tx, &big.pool, &cont));
    bulk_channel_destroy(&tx);
    EXPECT(ended, 1);
    pthread_join(thread, NULL);
    bulk_sm_ep_destroy(&ep);
    bulk_alloc_destroy(&loose);
    bulk_alloc_destroy(&big);
    bulk_alloc_destroy(&fine);
}

/* --- each state that a channel enters --- */

struct states {
    enum bulk_channel_state seen[16];
    size_t count;
};

static void enters(void *log, enum bulk_channel_state state)
{
    struct states *states = log;

    IS(states->count < 16);
    states->seen[states->count++] = state;
}

static void went(const struct states *states, size_t count, const enum bulk_channel_state *expected)
{
    for (size_t i = 0; i < count && i < states->count; i++)
        EXPECT(states->seen[i], expected[i]);
    EXPECT(states->count, count);
}

static sem_t left;

static void *leaves(void *unused)
{
    static const enum bulk_channel_state expected[] = {BULK_STATE_BINDING,   BULK_STATE_BIND_NEGOTIATE, BULK_STATE_CLOSED,
                                                       BULK_STATE_BINDING,   BULK_STATE_BIND_NEGOTIATE, BULK_STATE_CONNECTED,
                                                       BULK_STATE_TEARDOWN,  BULK_STATE_CLOSED};
    struct bulk_domain domain = {join("leaver"), NULL};
    struct states states = {{0}, 0};
    struct bulk_channel_setup setup = {.direction = BULK_DIRECTION_TX, .role = BULK_ROLE_SLAVE, .on_state = enters, .user_state = &states};
    struct bulk_endpoint_descriptor ep;
    struct bulk_channel rx = {0};
    struct bulk_event event;

    OK(bulk_sm_ep_create_remote(&ep, &domain, "states"));
    EXPECT(bulk_channel_bind(&rx, &ep, &setup, TRANSHIP_FOREVER), TRANSHIP_ERR_CHANNEL_BIND);
    setup.direction = BULK_DIRECTION_RX;
    OK(bulk_channel_bind(&rx, &ep, &setup, TRANSHIP_FOREVER));
    next(&rx, BULK_EVENT_POOL_ASSIGNED);
    event = next(&rx, BULK_EVENT_MOVE_RECEIVED);
    OK(bulk_channel_pass(&rx, &event.buffer, NULL, NULL));
    bulk_channel_destroy(&rx);
    bulk_channel_destroy(&rx);
    went(&states, sizeof expected / sizeof *expected, expected);
    tranship_domain_close(domain.domain);
    sem_post(&left);
    return unused;
}

static void all_states(void)
{
    static const enum bulk_channel_state expected[] = {BULK_STATE_INITIALIZED, BULK_STATE_BIND_NEGOTIATE, BULK_STATE_INITIALIZED,
                                                       BULK_STATE_BIND_NEGOTIATE, BULK_STATE_CONNECTED, BULK_STATE_TEARDOWN,
                                                       BULK_STATE_CLOSED};
    struct bulk_domain domain = {home, NULL};
    struct states states = {{0}, 0};
    struct bulk_channel_setup setup = {.direction = BULK_DIRECTION_TX, .role = BULK_ROLE_MASTER, .on_state = enters, .user_state = &states};
    struct bulk_endpoint_descriptor ep;
    struct bulk_allocator alloc;
    struct bulk_buffer buffer;
    struct bulk_channel tx = {0};
    struct bulk_event event;
    pthread_t thread;

    sem_init(&left, 0, 0);
    OK(bulk_alloc_init(&alloc, &domain, 2, SIZE, NULL));
    OK(bulk_sm_ep_create(&ep, &domain, "states"));
    OK(bulk_channel_create(&tx, &ep, &setup));
    pthread_create(&thread, NULL, leaves, NULL);
    EXPECT(bulk_channel_accept(&tx, TRANSHIP_FOREVER), TRANSHIP_ERR_CHANNEL_BIND);
    OK(bulk_channel_accept(&tx, TRANSHIP_FOREVER));
    OK(bulk_channel_assign_pool(&tx, &alloc.pool, NULL));
    next(&tx, BULK_EVENT_POOL_ASSIGNED);
    OK(bulk_alloc_new_buffer(&alloc, &buffer));
    OK(bulk_channel_move(&tx, &buffer, NULL, NULL));
    while (sem_trywait(&left) != 0)
        OK(tranship_domain_turn(home, NULL)); /* it agrees to what the other end sends on */
    pthread_join(thread, NULL);
    EXPECT(tx.state, BULK_STATE_CONNECTED);
    OK(bulk_alloc_new_buffer(&alloc, &buffer));
    for (int i = 0; i < 2; i++) {
        EXPECT(bulk_channel_move(&tx, &buffer, NULL, NULL), TRANSHIP_ERR_PEER_GONE);
        EXPECT(tx.state, BULK_STATE_TEARDOWN);
    }
    OK(bulk_buffer_change_state(&buffer, BULK_BUFFER_INVALID));
    event = next(&tx, BULK_EVENT_BUFFER_RECEIVED); /* it was on its way */
    EXPECT(tx.state, BULK_STATE_TEARDOWN);
    OK(bulk_alloc_return_buffer(&alloc, &event.buffer));
    EXPECT(bulk_channel_wait(&tx, TRANSHIP_FOREVER, &event), TRANSHIP_ERR_PEER_GONE);
    EXPECT(tx.state, BULK_STATE_CLOSED);
    bulk_channel_destroy(&tx);
    went(&states, sizeof expected / sizeof *expected, expected);
    bulk_sm_ep_destroy(&ep);
    bulk_alloc_destroy(&alloc);
}

/* --- an answer waits for room without holding its end --- */

static sem_t full, answered;

static void *assigns(void *unused)
{
    struct bulk_domain domain = {home, NULL};
    struct bulk_channel_setup setup = {.direction = BULK_DIRECTION_TX, .role = BULK_ROLE_SLAVE};
    struct bulk_endpoint_descriptor ep;
    struct bulk_allocator alloc;
    struct bulk_channel tx = {0};
    struct bulk_event event;

    OK(bulk_alloc_init(&alloc, &domain, 1, SIZE, NULL));
    OK(bulk_sm_ep_create_remote(&ep, &domain, "local:answers"));
    OK(bulk_channel_bind(&tx, &ep, &setup, TRANSHIP_FOREVER));
    next(&tx, BULK_EVENT_POOL_ASSIGNED);
    sem_wait(&full);
    OK(bulk_channel_assign_pool(&tx, &alloc.pool, NULL));
    sem_wait(&answered); /* nothing is received before */
    do
        OK(bulk_channel_wait(&tx, TRANSHIP_FOREVER, &event));
    while (event.kind == BULK_EVENT_BUFFER_RECEIVED && bulk_buffer_change_state(&event.buffer, BULK_BUFFER_INVALID) == TRANSHIP_OK);
    EXPECT(event.kind, BULK_EVENT_POOL_ASSIGNED);
    EXPECT(event.pool.id, alloc.pool.id);
    bulk_channel_destroy(&tx);
    bulk_alloc_destroy(&alloc);
    return unused;
}

static void answers(void)
{
    struct bulk_domain domain = {home, NULL};
    struct bulk_channel_setup setup = {.direction = BULK_DIRECTION_RX};
    struct bulk_endpoint_descriptor ep;
    struct bulk_allocator alloc;
    struct bulk_channel rx = {0};
    struct bulk_buffer buffer;
    struct bulk_event event;
    tranship_status status;
    pthread_t thread;

    sem_init(&full, 0, 0);
    sem_init(&answered, 0, 0);
    OK(bulk_alloc_init(&alloc, &domain, 300, SIZE, NULL));
    OK(bulk_sm_ep_create(&ep, &domain, "local:answers"));
    OK(bulk_channel_create(&rx, &ep, &setup));
    pthread_create(&thread, NULL, assigns, NULL);
    OK(bulk_channel_accept(&rx, TRANSHIP_FOREVER));
    OK(bulk_channel_assign_pool(&rx, &alloc.pool, NULL));
    next(&rx, BULK_EVENT_POOL_ASSIGNED);
    do {
        /* More memory comes at the manager's own time. */
        while ((status = bulk_alloc_new_buffer(&alloc, &buffer)) == TRANSHIP_ERR_OUT_OF_MEMORY)
            OK(tranship_domain_turn(home, NULL));
        OK(status);
        status = bulk_channel_pass(&rx, &buffer, NULL, NULL);
    } while (status == TRANSHIP_OK);
    EXPECT(status, TRANSHIP_ERR_FULL);
    OK(bulk_buffer_change_state(&buffer, BULK_BUFFER_INVALID));
    while ((status = tranship_send_bytes(rx.out, "", 0, BULK_OP_META, TRANSHIP_NOW, NULL)) == TRANSHIP_OK) /* to the last line */
        rx.sent++;
    EXPECT(status, TRANSHIP_ERR_FULL);
    sem_post(&full);
    next(&rx, BULK_EVENT_POOL_ASSIGNED);
    EXPECT(bulk_channel_wait(&rx, 3000000, &event), TRANSHIP_ERR_TIMED_OUT);
    sem_post(&answered);
    EXPECT(bulk_channel_wait(&rx, TRANSHIP_FOREVER, &event), TRANSHIP_ERR_PEER_GONE);
    bulk_channel_destroy(&rx);
    pthread_join(thread, NULL);
    bulk_sm_ep_destroy(&ep);
    bulk_alloc_destroy(&alloc);
}

int main(void)
{
    OK(tranship_embedded(NULL, &home, NULL));
    tranship_domain_socket(home, manager, sizeof manager);
    transmit_master();
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        receive_master(&places[i]);
    disagreements();
    all_states();
    answers();
    tranship_domain_close(home);
    puts("as in the report");
    return 0;
}
