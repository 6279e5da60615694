/* The papers' own programs: a cbuf that is allocated, sent, mapped and freed; a bulk buffer that is moved, passed back, copied, released. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tranship/bulk.h>
#include <tranship/cbuf.h>

#include "check.h"

#define OK(call) EXPECT(call, TRANSHIP_OK)

static char manager[108];

static tranship_domain *join(const char *name)
{
    tranship_domain_options options = {.size = sizeof options, .name = name, .socket = manager};
    tranship_domain *domain;

    OK(tranship_connect(&options, &domain, NULL));
    return domain;
}

static void *cbuf_server(void *id)
{
    tranship_domain *domain = join("server");
    tranship_receiver *from;
    cbuf_t cb, same;

    OK(tranship_open_receiver(domain, "cbufs", NULL, TRANSHIP_FOREVER, &from, NULL));
    OK(cbuf_recv(from, &cb));
    EXPECT(cbuf2buf(&cb, 0) == NULL, 1);
    EXPECT(cbuf2buf(&cb, 4097) == NULL, 1);
    EXPECT(memcmp(cbuf2buf(&cb, 1), "_", 1), 0);
    *(uint64_t *)id = cbuf_id(&cb);
    OK(cbuf_ref(&cb, &same));
    cbuf_free(&cb);
    EXPECT(memcmp(cbuf2buf(&same, 4096), "_", 1), 0);
    cbuf_free(&same);
    EXPECT(cbuf_recv(from, &cb), TRANSHIP_OK); /* by cbuf_send_free */
    cbuf_free(&cb);
    EXPECT(cbuf_recv(from, &cb), TRANSHIP_ERR_PEER_GONE);
    tranship_receiver_close(from);
    tranship_domain_close(domain);
    return NULL;
}

static void cbufs(tranship_domain *domain)
{
    tranship_listener *listener;
    tranship_sender *to;
    tranship_pool *pool;
    pthread_t server;
    uint64_t id = 0;
    cbuf_t cb;

    OK(tranship_pool_create(domain, 1 << 20, NULL, &pool, NULL));
    OK(tranship_listen(domain, "cbufs", TRANSHIP_SENDER, NULL, &listener, NULL));
    pthread_create(&server, NULL, cbuf_server, &id);
    OK(tranship_accept_sender(listener, TRANSHIP_FOREVER, &to, NULL));
    char *bytes = cbuf_alloc(pool, 4096, &cb);
    EXPECT(bytes != NULL, 1);
    *bytes = '_';
    OK(cbuf_send(to, &cb));
    EXPECT(((const char *)cbuf2buf(&cb, 1))[0], '_'); /* still ours */
    uint64_t here = cbuf_id(&cb);
    cbuf_free(&cb);
    EXPECT(cbuf_alloc(pool, (size_t)1 << 40, &cb) == NULL, 1);
    EXPECT(cbuf_alloc(pool, 100, &cb) != NULL, 1);
    OK(cbuf_send_free(to, &cb));
    EXPECT(cb.kind, TRANSHIP_BUF_NONE);
    tranship_sender_close(to);
    pthread_join(server, NULL);
    EXPECT(id == here && id != 0, 1); /* the same name in both */
    tranship_listener_close(listener);
    tranship_pool_close(pool);
}

/* The report's echo: fill 123 and word 42 go there, and come back with 43; then a copy of 101 with 44. */
static void *bulk_echo(void *unused)
{
    tranship_domain *domain = join("echo");
    struct bulk_channel rx = {0};
    struct bulk_event event;

    OK(bulk_channel_bind(&rx, domain, "bulk", BULK_DIRECTION_RX));
    OK(bulk_channel_wait(&rx, TRANSHIP_FOREVER, &event));
    EXPECT(event.kind, BULK_EVENT_MOVE_RECEIVED);
    EXPECT(event.word, 42);
    EXPECT(((unsigned char *)event.buffer.ptr)[4095], 123);
    EXPECT(bulk_channel_release(&rx, &event.buffer), TRANSHIP_ERR_BUFFER_NOT_A_COPY);
    EXPECT(bulk_channel_move(&rx, &event.buffer, 0), TRANSHIP_ERR_CHANNEL_DIRECTION);
    memset(event.buffer.ptr, 124, 4096);
    OK(bulk_channel_pass(&rx, &event.buffer, event.word + 1));
    OK(bulk_channel_wait(&rx, TRANSHIP_FOREVER, &event));
    EXPECT(event.kind, BULK_EVENT_COPY_RECEIVED);
    EXPECT(event.word, 44);
    EXPECT(((const unsigned char *)event.buffer.ptr)[0], 101);
    OK(bulk_channel_release_with(&rx, &event.buffer, event.word + 1));
    EXPECT(event.buffer.kind, TRANSHIP_BUF_NONE);
    OK(bulk_channel_wait(&rx, TRANSHIP_FOREVER, &event)); /* pieces of several buffers, which only tranship.h sends */
    EXPECT(event.kind, BULK_EVENT_COPY_RECEIVED);
    EXPECT(event.buffer.kind, TRANSHIP_BUF_AGGREGATE);
    OK(bulk_channel_release(&rx, &event.buffer));
    EXPECT(event.buffer.kind, TRANSHIP_BUF_NONE);
    EXPECT(bulk_channel_release(&rx, &event.buffer), TRANSHIP_ERR_BUFFER_NOT_A_COPY);
    EXPECT(bulk_channel_wait(&rx, TRANSHIP_FOREVER, &event), TRANSHIP_ERR_PEER_GONE);
    bulk_channel_destroy(&rx);
    tranship_domain_close(domain);
    return unused;
}

static void bulk(tranship_domain *domain)
{
    tranship_pool_options options = {.size = sizeof options, .trust = TRANSHIP_TRUST_FULL};
    struct bulk_channel tx = {0};
    struct bulk_event event;
    tranship_pool *pool;
    bulk_buffer buffer;
    pthread_t echo;

    OK(tranship_pool_create(domain, 1 << 20, &options, &pool, NULL));
    OK(bulk_channel_create(&tx, domain, "bulk", BULK_DIRECTION_TX));
    pthread_create(&echo, NULL, bulk_echo, NULL);
    OK(bulk_channel_accept(&tx, TRANSHIP_FOREVER));
    OK(bulk_channel_assign_pool(&tx, pool));
    OK(tranship_alloc(pool, 4096, TRANSHIP_FOREVER, &buffer, NULL));
    memset(buffer.ptr, 123, 4096);
    OK(bulk_channel_move(&tx, &buffer, 42));
    OK(bulk_channel_wait(&tx, TRANSHIP_FOREVER, &event));
    EXPECT(event.kind, BULK_EVENT_BUFFER_RECEIVED);
    EXPECT(event.word, 43);
    EXPECT(((const unsigned char *)event.buffer.ptr)[4095], 124);
    tranship_release(&event.buffer);
    OK(tranship_alloc(pool, 4096, TRANSHIP_FOREVER, &buffer, NULL));
    memset(buffer.ptr, 101, 4096);
    EXPECT(bulk_channel_pass(&tx, &buffer, 0), TRANSHIP_ERR_CHANNEL_DIRECTION);
    OK(bulk_channel_copy(&tx, &buffer, 44));
    OK(bulk_channel_wait(&tx, TRANSHIP_FOREVER, &event));
    EXPECT(event.kind, BULK_EVENT_COPY_RELEASED);
    EXPECT(event.word, 45);
    EXPECT(tranship_buf_id(&event.buffer) == tranship_buf_id(&buffer), 1);
    tranship_release(&event.buffer);
    OK(tranship_wait_taken(tx.tx, TRANSHIP_FOREVER, NULL));
    EXPECT(tranship_unfreeze(&buffer, NULL), TRANSHIP_ERR_BUFFER_STATE);
    EXPECT(((const unsigned char *)buffer.ptr)[0], 101);
    bulk_buffer pieces;
    OK(tranship_aggregate(pool, &pieces, NULL));
    OK(tranship_aggregate_push_back(&pieces, &buffer, NULL));
    OK(tranship_send(tx.tx, &pieces, TRANSHIP_FOREVER, NULL));
    bulk_channel_destroy(&tx);
    pthread_join(echo, NULL);
    tranship_pool_close(pool);
}

int main(void)
{
    tranship_domain *domain;

    OK(tranship_embedded(NULL, &domain, NULL));
    tranship_domain_socket(domain, manager, sizeof manager);
    cbufs(domain);
    bulk(domain);
    tranship_domain_close(domain);
    puts("as in the papers");
    return 0;
}
